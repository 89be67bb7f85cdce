"""Train a small network on scikit-learn's handwritten digits with TensorFlow, gradients averaged by Horovod.

The same script runs over gloo and over MPI: Horovod finds out by itself what it was started with.

What it prints (the words are stable, so that a program may read them):

    epoch 1 loss 1.2345                                                        rank 0, every epoch
    test accuracy 0.9617                                                       rank 0, at the end

With --verify, every rank also prints at the end:

    rank 3 of 4 local 1 of 2 cross 1 of 2 host n2 over gloo accuracy 0.9617 weights 3f2a9c01d4…

`weights` is the SHA-256 of the trained variables: the same on all ranks. Each rank starts from weights of its own; the
broadcast from rank 0 makes them equal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

BATCH = 64
"""Images a step, over all ranks."""
TEST_IMAGES = 261
RATE = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits with Horovod.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="every rank prints a hash of its weights at the end")
    options = parser.parse_args()

    digits = load()  # before the ranks wait for each other, which takes a core under MPI
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    else:
        tf.config.threading.set_intra_op_parallelism_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    train(options.epochs, *digits, options.verify)
    hvd.shutdown()


def train(epochs: int, train_set, test_set, verify: bool) -> None:
    rank, size = hvd.rank(), hvd.size()
    (images, labels), (test_images, test_labels) = train_set, test_set
    w1, w2 = (tf.random.stateless_normal((64, width), (rank, width)) * (2 / 64) ** 0.5 for width in (64, 10))
    variables = [tf.Variable(part) for part in (w1, tf.zeros(64), w2, tf.zeros(10))]
    hvd.broadcast_variables(variables, root_rank=0)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores(variables, images))
            loss = tf.reduce_mean(entropy)
        tape = hvd.DistributedGradientTape(tape)
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(RATE * gradient)
        return loss

    for epoch in range(1, epochs + 1):
        order = np.random.default_rng(epoch).permutation(len(labels))  # the same on every rank
        for start in range(0, len(labels), BATCH):
            own = order[start : start + BATCH][rank::size]
            loss = step(images[own], labels[own])
        if rank == 0:
            say(f"epoch {epoch} loss {float(loss):.4f}")
            record(epoch=epoch, loss=loss)

    accuracy = float((scores(variables, test_images).numpy().argmax(1) == test_labels).mean())
    weights = hashlib.sha256(b"".join(variable.numpy().tobytes() for variable in variables)).hexdigest()
    place = f"local {hvd.local_rank()} of {hvd.local_size()} cross {hvd.cross_rank()} of {hvd.cross_size()}"
    over = "mpi" if hvd.mpi_enabled() else "gloo"
    if verify:
        say(
            f"rank {rank} of {size} {place} host {socket.gethostname()} over {over}"
            f" accuracy {accuracy:.4f} weights {weights}"
        )
    if rank == 0:
        say(f"test accuracy {accuracy:.4f}")
        record(test_accuracy=accuracy)
        keep([variable.numpy() for variable in variables], test_accuracy=accuracy)


def scores(variables, images):
    w1, b1, w2, b2 = variables
    return tf.nn.relu(images @ w1 + b1) @ w2 + b2


def load():
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int32)
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def keep(weights: list[np.ndarray], **metrics: float) -> None:
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    model = tf.Module()
    model.weights = [tf.Variable(part) for part in weights]
    signature = [tf.TensorSpec((None, 64), tf.float32)]
    model.scores = tf.function(lambda images: scores(model.weights, images), input_signature=signature)
    tf.saved_model.save(model, "output/model")
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
