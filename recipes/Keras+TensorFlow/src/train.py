"""Train a small Keras model on scikit-learn's handwritten digits over the workers of a TensorFlow gang.

Keras 2 (TensorFlow up to 2.15, or `tf_keras` with TF_USE_LEGACY_KERAS=1) trains in the scope of
MultiWorkerMirroredStrategy by plain `compile` and `fit`; Keras 3 does not know that strategy. TF_CONFIG, which
batchtrain sets, says who is who.

With `checkpoint` on the task, worker 0 writes weights and optimizer after each epoch, and `fit` continues from them.

What it prints (the words are stable, so that a program may read them):

    continues after epoch 4                                                    worker 0, from a checkpoint
    epoch 1 loss 1.2345                                                        worker 0, every epoch
    test accuracy 0.9617                                                       worker 0, at the end
    worker 1 of 2 host n2 accuracy 0.9617 weights 3f2a9c01d4…                  every worker, at the end, with --verify
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

try:
    import batchtrain_checkpoint as checkpoint  # comes with a task that has `checkpoint`
except ImportError:
    checkpoint = None

BATCH = 64
"""Images a step, over all workers."""
TEST_IMAGES = 261


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits, Keras in TensorFlow.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="every worker prints a hash of its weights at the end")
    options = parser.parse_args()
    train(options.epochs, options.verify, tf.distribute.MultiWorkerMirroredStrategy())


def train(epochs: int, verify: bool, strategy: tf.distribute.MultiWorkerMirroredStrategy) -> None:
    resolver = strategy.cluster_resolver
    index, workers = resolver.task_id or 0, max(1, len(resolver.cluster_spec().as_dict().get("worker", ())))
    (images, labels), (test_images, test_labels) = load()
    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((64,)), tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(10)]
        )
        entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), entropy)
        done = restore(model)
    if done and index == 0:
        say(f"continues after epoch {done}")
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH).repeat().with_options(sharding)
    calls = [each_epoch(model)] if index == 0 else []
    steps = len(labels) // BATCH
    model.fit(data, initial_epoch=done, epochs=epochs, steps_per_epoch=steps, verbose=0, callbacks=calls)

    weights = model.get_weights()
    accuracy = float((scores(weights, test_images).argmax(1) == test_labels).mean())
    digest = hashlib.sha256(b"".join(part.tobytes() for part in weights)).hexdigest()
    if verify:
        say(f"worker {index} of {workers} host {socket.gethostname()} accuracy {accuracy:.4f} weights {digest}")
    if index == 0:
        say(f"test accuracy {accuracy:.4f}")
        record(test_accuracy=accuracy)
        keep(model, weights, test_accuracy=accuracy)
    meet(strategy)


def each_epoch(model: tf.keras.Model) -> tf.keras.callbacks.Callback:
    """Prints the loss after each epoch, and writes a checkpoint."""

    def ended(epoch: int, logs: dict[str, float]) -> None:
        say(f"epoch {epoch + 1} loss {logs['loss']:.4f}")
        record(epoch=epoch + 1, loss=logs["loss"])
        save(model, epoch + 1)

    return tf.keras.callbacks.LambdaCallback(on_epoch_end=ended)


def state_of(model: tf.keras.Model) -> list[tf.Variable]:
    model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


def save(model: tf.keras.Model, epoch: int) -> None:
    if checkpoint:
        path = checkpoint.begin(epoch)
        np.savez(os.path.join(path, "state.npz"), *(variable.numpy() for variable in state_of(model)))
        checkpoint.complete(path)


def restore(model: tf.keras.Model) -> int:
    """The epoch of the newest complete checkpoint, which the model gets; 0 without one."""
    path = checkpoint.newest() if checkpoint else None
    if path is None:
        return 0
    with np.load(os.path.join(path, "state.npz")) as arrays:
        for variable, name in zip(state_of(model), arrays):
            variable.assign(arrays[name])
    return checkpoint.step_of(path)


def meet(strategy: tf.distribute.Strategy) -> None:
    """Wait for all workers: those that are still busy need worker 0, which counts them."""

    @tf.function
    def count():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))

    count()


def scores(weights: list[np.ndarray], images: np.ndarray) -> np.ndarray:
    """What the model says of images that one worker has to itself: `predict` would need all workers."""
    w1, b1, w2, b2 = weights
    return np.maximum(images @ w1 + b1, 0) @ w2 + b2


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int32)
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def keep(model: tf.keras.Model, weights: list[np.ndarray], **metrics: float) -> None:
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    alone = tf.keras.models.clone_model(model)  # outside of the strategy: one worker has it
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
    """One line, one write, at once: the lines of several workers come to one place and must not mix."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
