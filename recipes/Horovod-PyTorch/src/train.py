"""Train a small network on scikit-learn's handwritten digits with PyTorch, gradients averaged by Horovod.

The same script runs over gloo and over MPI: Horovod finds out by itself what it was started with.

What it prints (the words are stable, so that a program may read them):

    epoch 1 loss 1.2345                                                        rank 0, every epoch
    test accuracy 0.9617                                                       rank 0, at the end

With --verify, every rank also prints at the end:

    rank 3 of 4 local 1 of 2 cross 1 of 2 host n2 over gloo accuracy 0.9617 weights 3f2a9c01d4…

`weights` is the SHA-256 of the trained parameters: the same on all ranks. Each rank starts from weights of its own; the
broadcast from rank 0 makes them equal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn

BATCH = 64
"""Images a step, over all ranks."""
TEST_IMAGES = 261


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits with Horovod.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="every rank prints a hash of its weights at the end")
    options = parser.parse_args()

    digits = load()  # before the ranks wait for each other, which takes a core under MPI
    hvd.init()
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    else:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sets = ([part.to(device) for part in parts] for parts in digits)
    train(options.epochs, *sets, device, options.verify)
    hvd.shutdown()


def train(
    epochs: int, train_set: list[torch.Tensor], test_set: list[torch.Tensor], device: torch.device, verify: bool
) -> None:
    rank, size = hvd.rank(), hvd.size()
    (images, labels), (test_images, test_labels) = train_set, test_set
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    for epoch in range(1, epochs + 1):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))  # the same on every rank
        for start in range(0, len(labels), BATCH):
            own = order[start : start + BATCH][rank::size]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[own]), labels[own])
            loss.backward()
            optimizer.step()
        if rank == 0:
            say(f"epoch {epoch} loss {loss.item():.4f}")
            record(epoch=epoch, loss=loss.item())

    accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    place = f"local {hvd.local_rank()} of {hvd.local_size()} cross {hvd.cross_rank()} of {hvd.cross_size()}"
    over = "mpi" if hvd.mpi_enabled() else "gloo"
    if verify:
        say(
            f"rank {rank} of {size} {place} host {socket.gethostname()} over {over}"
            f" accuracy {accuracy:.4f} weights {digest(model)}"
        )
    if rank == 0:
        say(f"test accuracy {accuracy:.4f}")
        record(test_accuracy=accuracy)
        keep(model, test_accuracy=accuracy)


def load() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.tensor(digits.data[order] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target[order])
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def digest(model: nn.Module) -> str:
    return hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()


def keep(model: nn.Module, **metrics: float) -> None:
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    torch.save(model.state_dict(), "output/model.pt")
    with open("output/metrics.json", "w") as file:
        json.dump(metrics, file)


def record(**values: float) -> None:
    """A line of JSON for the metrics of the run, if batchtrain gives a file for them."""
    if "BATCHTRAIN_METRICS" in os.environ:
        with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
            file.write(json.dumps(values, default=float) + "\n")


def say(line: str) -> None:
    """One line, one write, at once: the lines of several ranks come to one place and must not mix."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
