"""Train a small Keras 2 model on scikit-learn's handwritten digits with CNTK behind it, data-parallel over MPI ranks.

Keras has no switch for CNTK's distributed training. Its CNTK backend makes one learner from the gradients it was given;
this script lets that learner be a distributed one. Everything else is plain Keras: `compile`, `fit`, `evaluate`.

    --network dense       64 pixels in a row (the default)
    --network conv        8 x 8 images, convolutions

What it prints (the words are stable, so that a program may read them):

    epoch 1 loss 1.2345                                                        rank 0, every epoch
    test accuracy 0.9617                                                       rank 0, at the end
    rank 3 of 4 host n2 backend cntk accuracy 0.9617 weights 3f2a9c01d4…       every rank, at the end, with --verify
"""

import argparse
import hashlib
import json
import os
import socket
import sys
import warnings

os.environ["KERAS_BACKEND"] = "cntk"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # ranks share the cores, threads would fight
warnings.filterwarnings("ignore")

import cntk
import keras
import numpy as np
from cntk.train.distributed import Communicator, data_parallel_distributed_learner
from keras.backend import cntk_backend
from keras.layers import Conv2D, Dense, Flatten, Reshape
from keras.models import Sequential

BATCH = 64  # images a step, over all ranks
TEST_IMAGES = 261


def main():
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits, Keras over CNTK.")
    parser.add_argument("--epochs", type=int, default=20, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="every rank prints a hash of its weights at the end")
    parser.add_argument("--network", choices=("dense", "conv"), default="dense", help="default: %(default)s")
    options = parser.parse_args()
    try:
        train(options.epochs, options.verify, NETWORKS[options.network])
    finally:
        Communicator.finalize()  # without it MPI calls the end of the process a failure


def dense(first):
    return [Dense(64, activation="relu", input_shape=(64,), kernel_initializer=first)]


def conv(first):
    images = Reshape((8, 8, 1), input_shape=(64,))
    return [images, Conv2D(16, 3, activation="relu", kernel_initializer=first), Flatten()]


NETWORKS = {"dense": dense, "conv": conv}


def train(epochs, verify, layers):
    rank, size = Communicator.rank(), Communicator.num_workers()
    (images, labels), (test_images, test_labels) = load()
    distribute_learners()
    # The same first weights on every rank; CNTK sums gradients over ranks, hence the rate divided by their number.
    first = [keras.initializers.glorot_uniform(seed=seed) for seed in (1, 2)]
    model = Sequential([*layers(first[0]), Dense(10, activation="softmax", kernel_initializer=first[1])])
    rate = keras.optimizers.SGD(0.1 / size, momentum=0.9)
    model.compile(rate, "categorical_crossentropy", metrics=["accuracy"])
    own = images[rank::size], labels[rank::size]
    shown = [each_epoch()] if rank == 0 else []
    model.fit(*own, batch_size=BATCH // size, epochs=epochs, verbose=0, shuffle=False, callbacks=shown)

    accuracy = float((model.predict(test_images).argmax(1) == test_labels.argmax(1)).mean())
    weights = hashlib.sha256(b"".join(part.tobytes() for part in model.get_weights())).hexdigest()
    if verify:
        place = "rank {} of {} host {} backend {}".format(rank, size, socket.gethostname(), keras.backend.backend())
        say("{} accuracy {:.4f} weights {}".format(place, accuracy, weights))
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


def distribute_learners():
    """Each learner that Keras makes from now on sums its gradients over all ranks, 32 bits each."""
    alone = cntk.cntk_py.universal_learner

    def together(parameters, updates, function):
        own = alone(parameters, updates, function)
        return data_parallel_distributed_learner(own, num_quantization_bits=32, distributed_after=0)

    cntk_backend.C.cntk_py.universal_learner = together


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
    """One line, one write, at once: the lines of several ranks come to one place and must not mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
