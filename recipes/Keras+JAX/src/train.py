"""Train a small Keras 3 model on scikit-learn's handwritten digits with JAX behind it, over the processes of a gang.

Keras' own `DataParallel` distribution spreads each batch over all devices of all processes and keeps a copy of the model
on each; `compile`, `fit` and `predict` are as ever. Every process feeds `fit` its own part of the images.

What it prints (the words are stable, so that a program may read them):

    epoch 1 loss 1.2345                                                        process 0, every epoch
    test accuracy 0.9617                                                       process 0, at the end

With --verify, every process also prints at the end:

    rank 3 of 4 host n2 backend jax devices 4 accuracy 0.9617 weights 3f2a9c01d4…
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys

os.environ["KERAS_BACKEND"] = "jax"  # read when keras is imported

import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")  # for processes without a GPU; others ignore it

import keras
import numpy as np

BATCH = 64
"""Images a step, over all processes."""
TEST_IMAGES = 261


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits, Keras over JAX.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="every process prints a hash of its weights at the end")
    options = parser.parse_args()
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
    keras.utils.set_random_seed(0)
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    layers = [keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), entropy)
    own = images[rank::size], labels[rank::size]
    shown = [each_epoch()] if rank == 0 else []
    model.fit(*own, batch_size=BATCH // size, epochs=epochs, shuffle=False, verbose=0, callbacks=shown)

    weights = [np.asarray(part.value.addressable_data(0)) for part in model.weights]
    accuracy = float((scores(weights, test_images).argmax(1) == test_labels).mean())
    if verify:
        place = f"rank {rank} of {size} host {socket.gethostname()} backend {keras.backend.backend()}"
        digest = hashlib.sha256(b"".join(part.tobytes() for part in weights)).hexdigest()
        say(f"{place} devices {jax.device_count()} accuracy {accuracy:.4f} weights {digest}")
    if rank == 0:
        say(f"test accuracy {accuracy:.4f}")
        record(test_accuracy=accuracy)
        keep(model, weights, test_accuracy=accuracy)


def each_epoch() -> keras.callbacks.Callback:
    """Prints the loss after each epoch."""

    def ended(epoch: int, logs: dict[str, float]) -> None:
        say(f"epoch {epoch + 1} loss {logs['loss']:.4f}")
        record(epoch=epoch + 1, loss=logs["loss"])

    return keras.callbacks.LambdaCallback(on_epoch_end=ended)


def scores(weights: list[np.ndarray], images: np.ndarray) -> np.ndarray:
    """What the model says of images that one process has to itself: `predict` would need all processes."""
    w1, b1, w2, b2 = weights
    return np.maximum(images @ w1 + b1, 0) @ w2 + b2


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int32)
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def keep(model: keras.Model, weights: list[np.ndarray], **metrics: float) -> None:
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    keras.distribution.set_distribution(None)  # a model of one process
    alone = keras.models.clone_model(model)
    alone.set_weights(weights)
    alone.save("output/model.keras")
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
