"""Train a residual network on CIFAR-10 with CNTK, data-parallel over MPI ranks.

The arguments are those of CNTK's own example of this name; the program is not. It reads CIFAR-10 from CNTK's text format
(Train_cntk_text.txt, Test_cntk_text.txt), because the wheel's image reader lacks libraries on today's systems.

What every rank prints (the first two lines are CNTK's own):

    Finished Epoch[1 of 160]: [Training] loss = 2.346140 * 3200, metric = 90.09% * 3200 0.103s (31068.0 samples/s);
    Finished Evaluation [1]: Minibatch[1-50]: metric = 89.00% * 3200;
    rank 3 of 4 host n2 learner 1-bit weights 3f2a9c01d4…
"""

import argparse
import hashlib
import json
import os
import socket
import sys

import cntk as C
from cntk.io import INFINITELY_REPEAT, CTFDeserializer, MinibatchSource, StreamDef, StreamDefs
from cntk.train.distributed import (
    Communicator,
    block_momentum_distributed_learner,
    data_parallel_distributed_learner,
)

SHAPE, CLASSES, TEST_IMAGES, BATCH = (3, 32, 32), 10, 10000, 128
BLOCKS = {"resnet20": 3, "resnet110": 18}


def main():
    options = arguments()
    if options.device is not None:
        C.try_set_default_device(C.device.cpu() if options.device < 0 else C.device.gpu(options.device))
    if options.profile:
        C.debugging.start_profiler(os.path.join(options.outputdir, "profile"), True)
    try:
        train(options)
    finally:
        if options.profile:
            C.debugging.stop_profiler()
        Communicator.finalize()  # without it MPI calls the end of the process a failure


def arguments():
    parser = argparse.ArgumentParser(description="A residual network on CIFAR-10, over MPI ranks.")
    here = os.path.dirname(os.path.abspath(__file__))
    data = os.path.join(here, "..", "..", "..", "DataSets", "CIFAR-10")
    parser.add_argument("-n", "--network", choices=sorted(BLOCKS), default="resnet20")
    parser.add_argument("-s", "--scale_up", type=truth, default=True, help="minibatch 128 times the ranks (default)")
    parser.add_argument("-datadir", "--datadir", default=data, help="directory of CIFAR-10 (default: %(default)s)")
    parser.add_argument("-outputdir", "--outputdir", default=".", help="models go to DIR/models")
    parser.add_argument("-logdir", "--logdir", help="log file; the rank is appended")
    parser.add_argument("-e", "--epochs", type=int, default=160)
    parser.add_argument("-es", "--epoch_size", type=int, default=50000, help="images an epoch")
    parser.add_argument("-q", "--quantized_bits", type=int, default=32, help="bits of a gradient")
    parser.add_argument("-b", "--block_samples", type=int, help="samples of a block, for block momentum")
    parser.add_argument("-a", "--distributed_after", type=int, default=0, help="samples before it is distributed")
    parser.add_argument("-r", "--restart", action="store_true", help="begin anew, not from the last checkpoint")
    parser.add_argument("-device", "--device", type=int, help="GPU; -1: the CPU")
    parser.add_argument("-profile", "--profile", action="store_true", help="write CNTK's profile")
    options = parser.parse_args()
    if options.block_samples and options.quantized_bits < 32:
        parser.error("-b exchanges models, not gradients: leave -q out")
    return options


def truth(word):
    return word.lower() in ("true", "1", "yes")


def train(options):
    C.cntk_py.set_fixed_random_seed(1)  # every rank begins alike
    ranks = Communicator.num_workers()
    images, labels = C.input_variable(SHAPE), C.input_variable(CLASSES)
    scores = network((images - 128) / 64, BLOCKS[options.network])
    loss, error = C.cross_entropy_with_softmax(scores, labels), C.classification_error(scores, labels)
    batch = BATCH * ranks if options.scale_up else BATCH
    how, learner = distributed(scores, options)
    log = "{}{}".format(options.logdir, Communicator.rank()) if options.logdir else None
    printer = Printer(tag="Training", log_to_file=log, num_epochs=options.epochs)
    trainer = C.Trainer(scores, (loss, error), [learner], [printer])
    models = os.path.join(options.outputdir, "models")
    os.makedirs(models, exist_ok=True)
    data = source(options.datadir, "Train", options.epochs * options.epoch_size)
    C.training_session(
        trainer,
        data,
        batch,
        {images: data.streams.features, labels: data.streams.labels},
        progress_frequency=options.epoch_size,
        checkpoint_config=C.CheckpointConfig(
            os.path.join(models, options.network), options.epoch_size, restore=not options.restart
        ),
        test_config=C.TestConfig(source(options.datadir, "Test", TEST_IMAGES), BATCH),
    ).train()
    place = "rank {} of {} host {}".format(Communicator.rank(), ranks, socket.gethostname())
    say("{} learner {} weights {}".format(place, how, digest(scores)))


class Printer(C.logging.ProgressPrinter):
    """Prints CNTK's own lines, and writes the numbers for batchtrain; sums of loss and error are of all samples."""

    def on_write_training_summary(self, samples, updates, summaries, loss, error, milliseconds):
        super().on_write_training_summary(samples, updates, summaries, loss, error, milliseconds)
        count = max(samples, 1)
        rate = samples * 1000 / max(milliseconds, 1)
        record(epoch=summaries, loss=loss / count, accuracy=1 - error / count, total_samples_per_second=rate)

    def on_write_test_summary(self, samples, updates, summaries, error, milliseconds):
        super().on_write_test_summary(samples, updates, summaries, error, milliseconds)
        record(test_accuracy=1 - error / max(samples, 1))


def source(directory, name, samples):
    """The images of one file: again and again while training, once for the test."""
    path = os.path.join(directory, name + "_cntk_text.txt")
    if not os.path.exists(path):
        sys.exit("{} is missing: make_cifar10.py makes a synthetic one".format(path))
    pixels = SHAPE[0] * SHAPE[1] * SHAPE[2]
    streams = StreamDefs(features=StreamDef("features", shape=pixels), labels=StreamDef("labels", shape=CLASSES))
    once = {"max_sweeps": 1} if name == "Test" else {"max_sweeps": INFINITELY_REPEAT, "max_samples": samples}
    return MinibatchSource(CTFDeserializer(path, streams), randomize=name == "Train", **once)


def network(images, blocks):
    """Three stages of residual blocks with 16, 32 and 64 filters."""
    layer = C.relu(convolution(images, 16))
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(blocks):
            layer = residual(layer, filters, 2 if stage and not block else 1)
    pooled = C.layers.GlobalAveragePooling()(layer)
    return C.layers.Dense(CLASSES, init=C.he_normal())(pooled)


def residual(layer, filters, stride):
    inner = convolution(C.relu(convolution(layer, filters, stride)), filters)
    straight = layer if stride == 1 else convolution(layer, filters, stride, 1)
    return C.relu(inner + straight)


def convolution(layer, filters, stride=1, width=3):
    kernel = C.layers.Convolution2D(width, filters, strides=stride, pad=True, bias=False, init=C.he_normal())
    return C.layers.BatchNormalization(map_rank=1, normalization_time_constant=4096)(kernel(layer))


def distributed(scores, options):
    """(name of the way, learner)."""
    steps = [1.0] * 80 + [0.1] * 40 + [0.01]
    rate = C.learning_parameter_schedule(steps, minibatch_size=BATCH, epoch_size=options.epoch_size)
    momentum = C.momentum_schedule(0.9, minibatch_size=BATCH)
    learner = C.momentum_sgd(scores.parameters, rate, momentum, l2_regularization_weight=0.0001)
    if options.block_samples:
        return "block-momentum", block_momentum_distributed_learner(learner, block_size=options.block_samples)
    shared = data_parallel_distributed_learner(
        learner, num_quantization_bits=options.quantized_bits, distributed_after=options.distributed_after
    )
    return "{}-bit".format(options.quantized_bits), shared


def digest(scores):
    """Of what is learnt by gradients; each rank keeps statistics of its own images for batch normalization."""
    parts = sorted((parameter.uid, parameter.value.tobytes()) for parameter in scores.parameters)
    return hashlib.sha256(b"".join(part for _, part in parts)).hexdigest()


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
