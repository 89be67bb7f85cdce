"""Train a small neural network on scikit-learn's handwritten digits, data-parallel over MPI ranks.

Every rank holds the whole network and its own share of the training images. At each step every rank computes the
gradient of its own mini-batch, the gradients are summed over all ranks (MPI_Allreduce) and divided by their number, and
every rank takes the same step; so all ranks have the same weights at all times, and --verify prints hashes that show it.

    mpirun -n 4 python -u train.py --epochs 20 --output output

What it prints, one line a write, each at once (the words are stable, so that a program may read them):

    ranks 4 hosts 2 samples 1437 shards disjoint                           rank 0, at the start
    epoch 1 loss 1.2345 accuracy 0.8750                                    rank 0, every epoch
    epoch 1 rank 3 node tvm-2 host n2 shard 359 weights 3f2a9c01d4…        every rank, every epoch, with --verify
    epoch 2 rank 1 fails with code 7                                       the rank told to, before it ends
    checkpoint wd/output/weights.npz                                       rank 0, at the end, with --output
    test accuracy 0.9722                                                   rank 0, at the end

`accuracy` is that on the 360 images that are not used for training. `weights` is the SHA-256 of a rank's weights. `node`
is AZ_BATCH_NODE_ID (- outside Azure Batch). In an Azure Batch task, `checkpoint` is the path that `batchtrain jobs logs
--file` takes.

To see what a failure does, --fail-rank 1 --fail-epoch 2 --fail-code 7 ends rank 1 in epoch 2: with --fail-by die (the
default) at once, as when the kernel kills it; with exit by sys.exit and with raise by an uncaught exception, after
which MPI waits in MPI_Finalize for the others, unless the script runs as `python -m mpi4py train.py`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import socket
import sys
import time
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when numpy loads: ranks share the cores, threads would fight

import numpy as np

PIXELS, HIDDEN, DIGITS = 64, 64, 10
SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, DIGITS), (DIGITS,))
TEST_IMAGES = 360
LEARNING_RATE, MOMENTUM = 0.1, 0.9
CHECKPOINT = "weights.npz"


def main() -> None:
    options = parse(sys.argv[1:])
    # Imported here and not above: importing it starts MPI, which --help and the tests of the functions do without.
    from mpi4py import MPI

    train(options, MPI.COMM_WORLD)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits over MPI.")
    parser.add_argument("--epochs", type=int, default=20, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="images a step, of all ranks (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="first weights and order of the images")
    parser.add_argument("--output", type=Path, help="directory for rank 0's checkpoints; none without it")
    parser.add_argument("--verify", action="store_true", help="every rank prints a hash of its weights in every epoch")
    parser.add_argument("--no-allreduce", action="store_true", help="do not sum gradients: the ranks drift apart")
    parser.add_argument("--fail-rank", type=int, help="this rank fails ...")
    parser.add_argument("--fail-epoch", type=int, default=2, help="... in this epoch (default: %(default)s) ...")
    parser.add_argument("--fail-code", type=int, default=7, help="... with this exit code (default: %(default)s) ...")
    parser.add_argument("--fail-by", choices=("die", "exit", "raise"), default="die", help="... in this way")
    return parser.parse_args(arguments)


def train(options: argparse.Namespace, comm) -> None:
    rank, size = comm.Get_rank(), comm.Get_size()
    train_set, test_set = comm.bcast(load() if rank == 0 else None)  # one rank reads for all
    own = shard(len(train_set[1]), rank, size)
    check_shards(comm.gather((own, socket.gethostname())), len(train_set[1]))
    images, labels = train_set[0][own], train_set[1][own]

    weights = first_weights(options.seed)
    velocity = np.zeros_like(weights)
    rng = np.random.default_rng((options.seed, rank))
    batch = max(1, options.batch // size)
    steps = max(1, len(train_set[1]) // size // batch)  # the same on every rank: a collective needs all of them

    for epoch in range(1, options.epochs + 1):
        if (rank, epoch) == (options.fail_rank, options.fail_epoch):
            fail(epoch, rank, options)
        losses, began = 0.0, time.perf_counter()
        for chosen in batches(rng.permutation(len(labels)), batch, steps):
            loss, gradient = loss_and_gradient(weights, images[chosen], labels[chosen])
            if not options.no_allreduce:
                gradient = mean_over_ranks(comm, gradient)
            velocity = MOMENTUM * velocity - LEARNING_RATE * gradient
            weights += velocity
            losses += loss
        if options.verify:
            say(f"epoch {epoch} rank {rank} {place()} shard {len(labels)} weights {digest(weights)}")
        mean_loss = comm.allreduce(losses) / steps / size
        if rank == 0:
            rate = steps * batch * size / (time.perf_counter() - began)
            reached = accuracy(weights, *test_set)
            say(f"epoch {epoch} loss {mean_loss:.4f} accuracy {reached:.4f}")
            record(epoch=epoch, loss=mean_loss, accuracy=reached, total_samples_per_second=rate)
            if options.output:
                save(options.output, weights, epoch)
    comm.Barrier()
    if rank == 0:
        if options.output:
            say(f"checkpoint {in_task(options.output / CHECKPOINT)}")
        reached = accuracy(weights, *test_set)
        say(f"test accuracy {reached:.4f}")
        record(test_accuracy=reached)
        if options.output:
            (options.output / "metrics.json").write_text(json.dumps({"test_accuracy": reached}))


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(images, labels) to train on and to test on: 8x8 pixels from 0 to 1, in an order that never changes."""
    (package,) = find_spec("sklearn").submodule_search_locations
    with gzip.open(Path(package, "datasets/data/digits.csv.gz")) as file:  # as load_digits(), without a second's import
        rows = np.loadtxt(file, dtype=np.float32, delimiter=",")
    images, labels = rows[:, :-1] / 16, rows[:, -1].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    test, rest = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return (images[rest], labels[rest]), (images[test], labels[test])


def shard(samples: int, rank: int, size: int) -> range:
    """The samples that are this rank's: every sample is exactly one rank's, and no rank has two more than another."""
    return range(rank, samples, size)


def check_shards(gathered: list[tuple[range, str]] | None, samples: int) -> None:
    """On rank 0, which has every rank's shard and host: together the shards are all samples, each once."""
    if gathered is None:
        return
    if sorted(sample for own, _ in gathered for sample in own) != list(range(samples)):
        raise SystemExit("the shards overlap or leave samples out")
    say(f"ranks {len(gathered)} hosts {len({host for _, host in gathered})} samples {samples} shards disjoint")


def first_weights(seed: int) -> np.ndarray:
    """The network as one flat vector, the same on every rank: what is all-reduced and hashed is one piece."""
    rng = np.random.default_rng(seed)
    parts = (rng.normal(0, (2 / shape[0]) ** 0.5, shape) if len(shape) == 2 else np.zeros(shape) for shape in SHAPES)
    return np.concatenate([part.ravel() for part in parts]).astype(np.float32)


def layers(flat: np.ndarray) -> list[np.ndarray]:
    """The flat vector's parts as matrices; they are views, so writing to them writes to the vector."""
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), SHAPES, strict=True)]


def batches(order: np.ndarray, batch: int, steps: int) -> list[np.ndarray]:
    return [order[step * batch : (step + 1) * batch] for step in range(steps)]


def loss_and_gradient(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Cross-entropy of one hidden layer with ReLU, and its gradient as a flat vector."""
    w1, b1, w2, b2 = layers(weights)
    hidden = np.maximum(images @ w1 + b1, 0)
    chances = softmax(hidden @ w2 + b2)
    rows = np.arange(len(labels))
    loss = -np.log(chances[rows, labels] + 1e-9).mean()

    gradient = np.empty_like(weights)
    g1, gb1, g2, gb2 = layers(gradient)
    chances[rows, labels] -= 1
    chances /= len(labels)
    g2[:], gb2[:] = hidden.T @ chances, chances.sum(axis=0)
    back = (chances @ w2.T) * (hidden > 0)
    g1[:], gb1[:] = images.T @ back, back.sum(axis=0)
    return float(loss), gradient


def mean_over_ranks(comm, own: np.ndarray) -> np.ndarray:
    """The same answer on every rank: their gradients' mean. This one call is what makes them one training."""
    total = np.empty_like(own)
    comm.Allreduce(own, total)
    return total / comm.Get_size()


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def accuracy(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> float:
    w1, b1, w2, b2 = layers(weights)
    guesses = (np.maximum(images @ w1 + b1, 0) @ w2 + b2).argmax(axis=1)
    return float((guesses == labels).mean())


def save(directory: Path, weights: np.ndarray, epoch: int) -> None:
    """Write the checkpoint beside the last one, then put it in its place: a death in between loses nothing."""
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / "weights.partial.npz"
    np.savez(partial, **dict(zip(("w1", "b1", "w2", "b2"), layers(weights), strict=True)), epoch=epoch)
    partial.replace(directory / CHECKPOINT)


def in_task(path: Path) -> Path:
    """The path from the task's directory on, which `batchtrain jobs logs --file` takes; outside a task, the path."""
    home = os.environ.get("AZ_BATCH_TASK_DIR")
    return path.relative_to(home) if home and path.is_relative_to(home) else path


def fail(epoch: int, rank: int, options: argparse.Namespace) -> None:
    say(f"epoch {epoch} rank {rank} fails with code {options.fail_code}")
    match options.fail_by:
        case "die":
            os._exit(options.fail_code)
        case "exit":
            raise SystemExit(options.fail_code)
        case _:
            raise RuntimeError(f"rank {rank} was told to fail")


def place() -> str:
    return f"node {os.environ.get('AZ_BATCH_NODE_ID', '-')} host {socket.gethostname()}"


def digest(weights: np.ndarray) -> str:
    return hashlib.sha256(weights.tobytes()).hexdigest()


def record(**values: float) -> None:
    """A line of JSON for the metrics of the run, if batchtrain gives a file for them."""
    if "BATCHTRAIN_METRICS" in os.environ:
        with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
            file.write(json.dumps(values) + "\n")


def say(line: str) -> None:
    """One line, one write, at once: the lines of several ranks come to one place and must not mix."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
