"""Train a small Keras 2 model on scikit-learn's handwritten digits with MXNet's parameter server behind it.

Keras' MXNet backend ignores a distributed key-value store that is named in `compile`; given to the model afterwards it
works, with an optimizer that can travel to the servers. Everything else is plain Keras: `compile`, `fit`, `evaluate`.
The same command runs as scheduler, server and worker: for the first two, importing MXNet is all there is to do.

    --network dense       64 pixels in a row (the default)
    --network conv        8 x 8 images, convolutions

What it prints (the words are stable, so that a program may read them):

    epoch 1 loss 1.2345                                                        worker 0, every epoch
    test accuracy 0.9617                                                       worker 0, at the end

With --verify, every worker also prints at the end:

    rank 1 of 2 host n2 backend mxnet kv-store dist_sync accuracy 0.9617 weights 3f2a9c01d4…
"""

import argparse
import hashlib
import json
import os
import socket
import sys
import warnings

os.environ["KERAS_BACKEND"] = "mxnet"
warnings.filterwarnings("ignore")

import mxnet as mx  # a scheduler or a server stays in here until the workers are done
import numpy as np

import keras
from keras.layers import Conv2D, Dense, Flatten, Reshape
from keras.models import Sequential

BATCH = 64  # images a step, over all workers
TEST_IMAGES = 261
RATE, MOMENTUM = 0.1, 0.9


def main():
    parser = argparse.ArgumentParser(description="Training on handwritten digits, Keras over MXNet.")
    parser.add_argument("--epochs", type=int, default=20, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--kv-store", default="dist_sync", help="MXNet's kind of key-value store (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="every worker prints a hash of its weights at the end")
    parser.add_argument("--network", choices=("dense", "conv"), default="dense", help="default: %(default)s")
    options = parser.parse_args()
    train(options.epochs, mx.kv.create(options.kv_store), options.verify, NETWORKS[options.network]())


def dense():
    return [Dense(64, activation="relu", input_shape=(64,))]


def conv():
    return [Reshape((8, 8, 1), input_shape=(64,)), Conv2D(16, 3, activation="relu"), Flatten()]


NETWORKS = {"dense": dense, "conv": conv}


def train(epochs, store, verify, layers):
    rank, size = store.rank, store.num_workers
    (images, labels), (test_images, test_labels) = load()
    mx.random.seed(0)
    np.random.seed(0)
    model = Sequential([*layers, Dense(10, activation="softmax")])
    optimizer = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
    model.compile(optimizer, "categorical_crossentropy", metrics=["accuracy"])
    if size > 1:
        distribute(model, store, size)
    own = images[rank::size], labels[rank::size]
    shown = [each_epoch()] if rank == 0 else []
    model.fit(*own, batch_size=BATCH // size, epochs=epochs, verbose=0, shuffle=False, callbacks=shown)

    accuracy = float((model.predict(test_images).argmax(1) == test_labels.argmax(1)).mean())
    weights = hashlib.sha256(b"".join(part.tobytes() for part in model.get_weights())).hexdigest()
    if verify:
        place = "rank {} of {} host {}".format(rank, size, socket.gethostname())
        how = "backend {} kv-store {}".format(keras.backend.backend(), store.type)
        say("{} {} accuracy {:.4f} weights {}".format(place, how, accuracy, weights))
    if rank == 0:
        say("test accuracy {:.4f}".format(accuracy))
        record(test_accuracy=accuracy)
        keep(model, test_accuracy=accuracy)


def each_epoch():
    """Prints the loss after each epoch."""

    def ended(epoch, logs):
        say("epoch {} loss {:.4f}".format(epoch + 1, logs["loss"]))
        record(epoch=epoch + 1, loss=logs["loss"])

    return keras.callbacks.LambdaCallback(on_epoch_end=ended)


def distribute(model, store, size):
    """Let a compiled model train over a key-value store. The servers get MXNet's own SGD: Keras' cannot be pickled."""
    model._kvstore = store
    to_servers = store.set_optimizer
    sgd = mx.optimizer.SGD(learning_rate=RATE, momentum=MOMENTUM, rescale_grad=1.0 / size)
    store.set_optimizer = lambda _: to_servers(sgd)


def load():
    """(images, one-hot labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype("float32"), np.eye(10, dtype="float32")[digits.target[order]]
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def keep(model, **metrics):
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    model.save("output/model.h5", include_optimizer=False)
    with open("output/metrics.json", "w") as file:
        json.dump(metrics, file)


def record(**values):
    """A line of JSON for the metrics of the run, if batchtrain gives a file for them."""
    if "BATCHTRAIN_METRICS" in os.environ:
        with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
            file.write(json.dumps(values, default=float) + "\n")


def say(line):
    """One line, one write, at once: the lines of several workers come to one place and must not mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
