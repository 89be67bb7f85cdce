"""Train a small network on scikit-learn's handwritten digits on all GPUs of one node: MirroredStrategy.

One process, one copy of the model a GPU, gradients all-reduced between the GPUs of the node after each step. A plain
task starts it; there is no gang. Where there is no GPU, --replicas 2 cuts the CPU into so many devices.

What it prints (the words are stable, so that a program may read them):

    epoch 1 loss 1.2345
    replicas 2 accuracy 0.9617 weights 3f2a9c01d4…                             with --verify
    test accuracy 0.9617
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

BATCH = 64
"""Images a step, over all replicas."""
TEST_IMAGES = 261
RATE = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description="Training on handwritten digits on all GPUs of one node.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--replicas", type=int, default=1, help="without a GPU: devices to cut the CPU into")
    parser.add_argument("--verify", action="store_true", help="print a hash of the weights at the end")
    options = parser.parse_args()
    strategy = tf.distribute.MirroredStrategy(devices(options.replicas))
    train(options.epochs, options.verify, strategy)


def devices(replicas: int) -> list[str] | None:
    """None takes every GPU that CUDA_VISIBLE_DEVICES shows, in its order."""
    if tf.config.list_physical_devices("GPU"):
        return None
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(replicas)])
    return [f"CPU:{number}" for number in range(replicas)]


def train(epochs: int, verify: bool, strategy: tf.distribute.MirroredStrategy) -> None:
    (images, labels), (test_images, test_labels) = load()
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(labels), seed=1)
    data = strategy.experimental_distribute_dataset(data.batch(BATCH, drop_remainder=True))
    with strategy.scope():
        w1, w2 = (tf.random.stateless_normal((64, width), (1, width)) * (2 / 64) ** 0.5 for width in (64, 10))
        variables = [tf.Variable(part) for part in (w1, tf.zeros(64), w2, tf.zeros(10))]

    @tf.function
    def step(images, labels):
        def own(images, labels):
            with tf.GradientTape() as tape:
                entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores(variables, images))
                loss = tf.reduce_sum(entropy) / BATCH
            gradients = tape.gradient(loss, variables)
            gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
            for variable, gradient in zip(variables, gradients):
                variable.assign_sub(RATE * gradient)
            return loss

        return strategy.reduce("sum", strategy.run(own, args=(images, labels)), axis=None)

    for epoch in range(1, epochs + 1):
        for batch in data:
            loss = step(*batch)
        say(f"epoch {epoch} loss {float(loss):.4f}")
        record(epoch=epoch, loss=loss)

    values = [variable.numpy() for variable in variables]
    accuracy = float((scores(values, test_images).numpy().argmax(1) == test_labels).mean())
    weights = hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()
    if verify:
        say(f"replicas {strategy.num_replicas_in_sync} accuracy {accuracy:.4f} weights {weights}")
    say(f"test accuracy {accuracy:.4f}")
    record(test_accuracy=accuracy)
    keep(values, test_accuracy=accuracy)


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
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
