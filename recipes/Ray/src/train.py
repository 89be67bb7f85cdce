"""Train a small network on scikit-learn's handwritten digits with actors on all nodes of a Ray cluster.

The driver runs once. It starts an actor for each CPU of the cluster, hands each its part of the images, and averages
their gradients after every step; all actors then take the same step. `ray.init()` finds the cluster by RAY_ADDRESS.

What it prints (the words are stable, so that a program may read them):

    nodes 2 cpus 4                                                             at the start
    epoch 1 loss 1.2345                                                        every epoch
    test accuracy 0.9617                                                       at the end
    rank 3 of 4 host n2 device cpu accuracy 0.9617 weights 3f2a9c01d4…         of every actor, at the end, with --verify

`weights` is the SHA-256 of the trained parameters: the same in all actors, because all took the same steps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys

import numpy as np
import ray

BATCH = 64
"""Images a step, over all actors."""
TEST_IMAGES = 261
RATE, MOMENTUM = 0.1, 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits with Ray.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="print a hash of every actor's weights at the end")
    options = parser.parse_args()

    ray.init(logging_level="ERROR")
    size = int(ray.cluster_resources()["CPU"])
    say(f"nodes {len(ray.nodes())} cpus {size}")
    actors = [Actor.remote(rank, size) for rank in range(size)]
    train(actors, options.epochs)
    results = ray.get([actor.result.remote() for actor in actors])
    accuracy = results[0][1]
    if options.verify:
        for rank, (host, reached, weights) in enumerate(results):
            say(f"rank {rank} of {size} host {host} device cpu accuracy {reached:.4f} weights {weights}")
    say(f"test accuracy {accuracy:.4f}")
    record(test_accuracy=accuracy)
    keep(ray.get(actors[0].parameters.remote()), test_accuracy=accuracy)


def train(actors: list[ray.actor.ActorHandle], epochs: int) -> None:
    steps = ray.get(actors[0].steps.remote())
    for epoch in range(1, epochs + 1):
        for step in range(steps):
            found = ray.get([actor.gradients.remote(epoch, step) for actor in actors])
            losses, gradients = zip(*found)
            mean = ray.put([np.mean(parts, axis=0) for parts in zip(*gradients)])
            ray.get([actor.apply.remote(mean) for actor in actors])
        say(f"epoch {epoch} loss {np.mean(losses):.4f}")
        record(epoch=epoch, loss=np.mean(losses))


@ray.remote(num_cpus=1)
class Actor:
    """One copy of the model, and a part of every batch."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        (self.images, self.labels), self.test = load()
        random = np.random.default_rng(0)
        self.weights = [random.normal(0, 0.1, (64, 64)), np.zeros(64), random.normal(0, 0.1, (64, 10)), np.zeros(10)]
        self.speeds = [np.zeros_like(weight) for weight in self.weights]

    def steps(self) -> int:
        return len(self.labels) // BATCH

    def gradients(self, epoch: int, step: int) -> tuple[float, list[np.ndarray]]:
        order = np.random.default_rng(epoch).permutation(len(self.labels))  # the same in every actor
        own = order[step * BATCH : (step + 1) * BATCH][self.rank :: self.size]
        images, labels = self.images[own], self.labels[own]
        w1, b1, w2, b2 = self.weights
        hidden = np.maximum(images @ w1 + b1, 0)
        scores = softmax(hidden @ w2 + b2)
        loss = float(-np.log(scores[np.arange(len(labels)), labels]).mean())
        scores[np.arange(len(labels)), labels] -= 1
        slope = scores / len(labels)
        back = (slope @ w2.T) * (hidden > 0)
        return loss, [images.T @ back, back.sum(0), hidden.T @ slope, slope.sum(0)]

    def apply(self, gradients: list[np.ndarray]) -> None:
        self.speeds = [MOMENTUM * speed + gradient for speed, gradient in zip(self.speeds, gradients)]
        self.weights = [weight - RATE * speed for weight, speed in zip(self.weights, self.speeds)]

    def result(self) -> tuple[str, float, str]:
        """Host, accuracy, and the hash of the weights."""
        images, labels = self.test
        w1, b1, w2, b2 = self.weights
        right = (np.maximum(images @ w1 + b1, 0) @ w2 + b2).argmax(1) == labels
        digest = hashlib.sha256(b"".join(weight.tobytes() for weight in self.weights)).hexdigest()
        return socket.gethostname(), float(right.mean()), digest

    def parameters(self) -> dict[str, np.ndarray]:
        return dict(zip(("w1", "b1", "w2", "b2"), self.weights))


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.data[order] / 16, digits.target[order]
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


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
    """One line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
