"""Train a small network on scikit-learn's handwritten digits with JAX over the processes of a gang.

Every process gives its part of each batch; the parameters are one array that all devices of all processes hold. JAX
puts the all-reduce of the gradients into the compiled step by itself. Who is who comes from JAX_COORDINATOR_ADDRESS,
JAX_NUM_PROCESSES and JAX_PROCESS_ID, which batchtrain sets.

With `checkpoint` on the task, process 0 writes the state after each epoch, and the training continues from it.

What it prints (the words are stable, so that a program may read them):

    continues after epoch 4                                                    process 0, from a checkpoint
    epoch 1 loss 1.2345                                                        process 0, every epoch
    test accuracy 0.9617                                                       process 0, at the end
    rank 3 of 4 host n2 devices 4 accuracy 0.9617 weights 3f2a9c01d4…          every process, at the end, with --verify
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

try:
    import batchtrain_checkpoint as checkpoint  # comes with a task that has `checkpoint`
except ImportError:
    checkpoint = None

BATCH = 64
"""Images a step, over all processes."""
TEST_IMAGES = 261
RATE, MOMENTUM = 0.1, 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits with JAX.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="every process prints a hash of its weights at the end")
    options = parser.parse_args()

    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # for processes without a GPU; others ignore it
    # JAX finds the coordinator in JAX_COORDINATOR_ADDRESS by itself; who is who is handed on.
    jax.distributed.initialize(num_processes=number("JAX_NUM_PROCESSES"), process_id=number("JAX_PROCESS_ID"))
    train(options.epochs, options.verify)
    jax.distributed.shutdown()


def number(name: str) -> int | None:
    """None leaves it to JAX, which knows some clusters by itself."""
    return int(os.environ[name]) if name in os.environ else None


def train(epochs: int, verify: bool) -> None:
    rank, size = jax.process_index(), jax.process_count()
    (images, labels), (test_images, test_labels) = load()
    mesh = Mesh(np.array(jax.devices()), ("devices",))
    split, whole = NamedSharding(mesh, PartitionSpec("devices")), NamedSharding(mesh, PartitionSpec())

    start = first_weights()
    state, done = restored((start, jax.tree.map(np.zeros_like, start)))
    weights, velocity = jax.tree.map(lambda part: jax.make_array_from_process_local_data(whole, part), state)
    if done and rank == 0:
        say(f"continues after epoch {done}")
    for epoch in range(done + 1, epochs + 1):
        order = np.random.default_rng(epoch).permutation(len(labels))  # the same on every process
        for start in range(0, len(labels), BATCH):
            own = order[start : start + BATCH][rank::size]
            batch = (jax.make_array_from_process_local_data(split, part[own]) for part in (images, labels))
            weights, velocity, loss = step(weights, velocity, *batch)
        if rank == 0:
            say(f"epoch {epoch} loss {float(loss):.4f}")
            record(epoch=epoch, loss=loss)
            save((weights, velocity), epoch)

    here = jax.tree.map(lambda part: np.asarray(part.addressable_data(0)), weights)
    accuracy = float((np.asarray(scores(here, test_images)).argmax(1) == test_labels).mean())
    if verify:
        place = f"rank {rank} of {size} host {socket.gethostname()} devices {jax.device_count()}"
        say(f"{place} accuracy {accuracy:.4f} weights {digest(here)}")
    if rank == 0:
        say(f"test accuracy {accuracy:.4f}")
        record(test_accuracy=accuracy)
        keep(here, test_accuracy=accuracy)


def restored(state):
    """The state of the newest complete checkpoint and its epoch; the state as it is, and 0, without one."""
    path = checkpoint.newest() if checkpoint else None
    if path is None:
        return state, 0
    with np.load(os.path.join(path, "state.npz")) as arrays:
        parts = [arrays[name] for name in arrays]
    return jax.tree.unflatten(jax.tree.structure(state), parts), checkpoint.step_of(path)


def save(state, epoch: int) -> None:
    """Process 0 has a copy of every array."""
    if checkpoint:
        path = checkpoint.begin(epoch)
        np.savez(os.path.join(path, "state.npz"), *(part.addressable_data(0) for part in jax.tree.leaves(state)))
        checkpoint.complete(path)


@jax.jit
def step(weights, velocity, images, labels):
    loss, gradient = jax.value_and_grad(loss_of)(weights, images, labels)
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v - RATE * g, velocity, gradient)
    return jax.tree.map(jnp.add, weights, velocity), velocity, loss


def loss_of(weights, images, labels):
    chances = jax.nn.log_softmax(scores(weights, images))
    return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], 1))


def scores(weights, images):
    return jax.nn.relu(images @ weights["w1"] + weights["b1"]) @ weights["w2"] + weights["b2"]


def first_weights() -> dict[str, np.ndarray]:
    """The same on every process."""
    rng = np.random.default_rng(1)
    w1, w2 = (rng.normal(0, (2 / 64) ** 0.5, (64, width)).astype(np.float32) for width in (64, 10))
    return {"w1": w1, "b1": np.zeros(64, np.float32), "w2": w2, "b2": np.zeros(10, np.float32)}


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype(np.float32), digits.target[order]
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def digest(weights: dict[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()


def keep(weights: dict[str, np.ndarray], **metrics: float) -> None:
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    np.savez("output/model.npz", **weights)
    with open("output/metrics.json", "w") as file:
        json.dump(metrics, file)


def record(**values: float) -> None:
    """A line of JSON for the metrics of the run, if batchtrain gives a file for them."""
    if "BATCHTRAIN_METRICS" in os.environ:
        with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
            file.write(json.dumps(values, default=float) + "\n")


def say(line: str) -> None:
    """One line, one write, at once: the lines of several processes come to one place and must not mix."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
