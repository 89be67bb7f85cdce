"""Train a small network on scikit-learn's handwritten digits with CNTK, data-parallel over MPI ranks.

    -q 32                  gradients summed as they are: data-parallel SGD (the default)
    -q 1 [-a SAMPLES]      1-bit SGD: gradients quantized to one bit, once SAMPLES were seen (0: at once)
    -b SAMPLES             block momentum: ranks train alone for a block of SAMPLES, then their models are averaged

The letters are those of CNTK's own distributed examples.

With `checkpoint` on the task, CNTK's own checkpoint is written after each epoch, and the training continues from it.

What it prints (the words are stable, so that a program may read them):

    continues after epoch 4                                                 rank 0, from a checkpoint
    epoch 1 accuracy 0.9000                                                 rank 0, every epoch
    test accuracy 0.9617                                                    rank 0, at the end
    rank 3 of 4 host n2 learner 1-bit accuracy 0.9617 weights 3f2a9c01d4…   every rank, at the end, with --verify

`weights` is the SHA-256 of the trained parameters: the same on all ranks, except in the middle of a block, which rank 0
warns of before it begins.
"""

import argparse
import hashlib
import json
import os
import socket
import sys
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # ranks share the cores, threads would fight
warnings.filterwarnings("ignore", message="Unsupported Linux distribution")

import cntk as C
import numpy as np
from cntk.train.distributed import (
    Communicator,
    block_momentum_distributed_learner,
    data_parallel_distributed_learner,
)

try:
    import batchtrain_checkpoint as checkpoint  # comes with a task that has `checkpoint`
except ImportError:
    checkpoint = None

BATCH = 64  # images a step, over all ranks
TEST_IMAGES = 261


def main():
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits with CNTK.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("-q", "--quantized_bits", type=int, default=32, help="bits a gradient (default: %(default)s)")
    parser.add_argument("-a", "--distributed_after", type=int, default=0, help="samples before it is distributed")
    parser.add_argument("-b", "--block_samples", type=int, help="samples a block, for block momentum")
    parser.add_argument("--verify", action="store_true", help="every rank prints a hash of its weights at the end")
    options = parser.parse_args()
    if options.block_samples and (options.quantized_bits != 32 or options.distributed_after):
        parser.error("-b exchanges models, not gradients: leave -q and -a out")
    try:
        train(options)
    finally:
        Communicator.finalize()  # without it MPI calls the end of the process a failure


def train(options):
    rank, size = Communicator.rank(), Communicator.num_workers()
    (images, labels), (test_images, test_labels) = load()
    C.cntk_py.set_fixed_random_seed(1)
    pixels, digits = C.input_variable(64), C.input_variable(10)
    network = C.layers.Sequential([C.layers.Dense(64, C.relu), C.layers.Dense(10)])(pixels)
    loss, error = C.cross_entropy_with_softmax(network, digits), C.classification_error(network, digits)
    how, learner = distributed(C.momentum_sgd(network.parameters, 0.3, 0.9, minibatch_size=BATCH), options)
    trainer = C.Trainer(network, (loss, error), [learner])
    done = restore(trainer)
    if done and rank == 0:
        say("continues after epoch {}".format(done))
    if rank == 0:
        warn_of_a_broken_block(options, len(labels) // BATCH * BATCH * options.epochs)

    for epoch in range(done + 1, options.epochs + 1):
        order = np.random.RandomState(epoch).permutation(len(labels))  # the same on every rank
        for start in range(0, len(labels), BATCH):
            own = order[start : start + BATCH]
            if trainer.total_number_of_samples_seen >= options.distributed_after:
                own = own[rank::size]  # until then every rank does the whole step, and all stay alike
            trainer.train_minibatch({pixels: images[own], digits: labels[own]})
        if rank == 0:
            reached = accuracy(network, test_images, test_labels)
            say("epoch {} accuracy {:.4f}".format(epoch, reached))
            record(epoch=epoch, accuracy=reached)
        save(trainer, epoch, rank)
    final = accuracy(network, test_images, test_labels)
    if options.verify:
        place = "rank {} of {} host {} learner {}".format(rank, size, socket.gethostname(), how)
        say("{} accuracy {:.4f} weights {}".format(place, final, digest(network)))
    if rank == 0:
        say("test accuracy {:.4f}".format(final))
        record(test_accuracy=final)
        keep(network, test_accuracy=final)


def restore(trainer):
    """The epoch of the newest complete checkpoint, which is loaded; 0 without one."""
    path = checkpoint.newest() if checkpoint else None
    if path is None:
        return 0
    trainer.restore_from_checkpoint(os.path.join(path, "model"))
    return checkpoint.step_of(path)


def save(trainer, epoch, rank):
    """Every rank calls `save_checkpoint`, and rank 0 writes."""
    if checkpoint is None:
        return
    path = checkpoint.begin(epoch) if rank == 0 else checkpoint.directory()
    trainer.save_checkpoint(os.path.join(path, "model"))
    if rank == 0:
        checkpoint.complete(path)


def warn_of_a_broken_block(options, samples):
    """CNTK averages at the end of a block alone: what the ranks learn after the last one stays with each of them."""
    rest = samples % options.block_samples if options.block_samples else 0
    if rest:
        text = "warning: the last {} of {} samples are no whole block of {}: the ranks end with different weights"
        say(text.format(rest, samples, options.block_samples))


def distributed(learner, options):
    """The learner's name and a learner that talks to the other ranks."""
    if options.block_samples:
        return "block-momentum", block_momentum_distributed_learner(learner, block_size=options.block_samples)
    shared = data_parallel_distributed_learner(
        learner, num_quantization_bits=options.quantized_bits, distributed_after=options.distributed_after
    )
    return "{}-bit".format(options.quantized_bits), shared


def load():
    """(images, one-hot labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype("float32"), np.eye(10, dtype="float32")[digits.target[order]]
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def accuracy(network, images, labels):
    return float((network.eval(images).argmax(1) == labels.argmax(1)).mean())


def digest(network):
    parts = sorted((parameter.uid, parameter.value.tobytes()) for parameter in network.parameters)
    return hashlib.sha256(b"".join(part for _, part in parts)).hexdigest()


def keep(network, **metrics):
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    network.save("output/model.dnn")
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
