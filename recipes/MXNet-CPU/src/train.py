"""Train a small network on scikit-learn's handwritten digits with MXNet, over its parameter server or on one node.

    --kv-store dist_sync          a step ends when all workers' gradients are in (also dist_device_sync: summed on GPUs)
    --kv-store dist_async         every worker goes on at its own pace
    --kv-store local, device      one process, its own CPUs or GPUs (also nccl, where MXNet was built with it)

The same command runs as scheduler, server and worker: DMLC_ROLE says which. For the first two, importing MXNet is all
there is to do; they come back when the workers are done.

With `checkpoint` on the task, worker 0 writes the parameters after each epoch, and the training continues from them.
The momentum is in the servers, which do not save it: it begins again.

What it prints (the words are stable, so that a program may read them):

    continues after epoch 4                                                    worker 0, from a checkpoint
    epoch 1 loss 1.2345                                                        worker 0, every epoch
    test accuracy 0.9617                                                       worker 0, at the end
    rank 1 of 2 host n2 kv-store dist_sync accuracy 0.9617 weights 3f2a9c…     every worker, at the end, with --verify

`weights` is the SHA-256 of the trained parameters; after dist_sync the same on all workers.
"""

import argparse
import hashlib
import json
import os
import socket
import sys

import mxnet as mx  # a scheduler or a server stays in here until the workers are done
import numpy as np
from mxnet import autograd, gluon

try:
    import batchtrain_checkpoint as checkpoint  # comes with a task that has `checkpoint`
except ImportError:
    checkpoint = None

BATCH = 64  # images a step, over all workers
TEST_IMAGES = 261


def main():
    parser = argparse.ArgumentParser(description="Training on handwritten digits over MXNet's parameter server.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--kv-store", default="dist_sync", help="MXNet's kind of key-value store (default: %(default)s)")
    parser.add_argument("--gpus", default="", help="GPUs of this worker, such as 0,1,4,5; none: all that it sees")
    parser.add_argument("--verify", action="store_true", help="every worker prints a hash of its weights at the end")
    options = parser.parse_args()

    store = mx.kv.create(options.kv_store)
    train(options, store, devices(options.gpus))


def devices(wanted):
    """MXNet's numbers count the GPUs that CUDA_VISIBLE_DEVICES shows, in its order."""
    seen = mx.context.num_gpus()
    numbers = [int(number) for number in wanted.split(",") if number] or list(range(seen))
    return [mx.gpu(number) for number in numbers] or [mx.cpu()]


def train(options, store, contexts):
    rank, size = store.rank, store.num_workers
    (images, labels), (test_images, test_labels) = load()
    mx.random.seed(0)
    np.random.seed(0)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier(), ctx=contexts)
    done = restore(net, contexts)
    if done and rank == 0:
        say("continues after epoch {}".format(done))
    # An asynchronous worker meets weights that others moved meanwhile: momentum would push twice.
    momentum = 0.0 if "async" in options.kv_store else 0.9
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": momentum}, kvstore=store)
    entropy = gluon.loss.SoftmaxCrossEntropyLoss()

    for epoch in range(done + 1, options.epochs + 1):
        order = np.random.RandomState(epoch).permutation(len(labels))  # the same on every worker
        for start in range(0, len(labels), BATCH):
            own = order[start : start + BATCH][rank::size]
            parts = zip(*(gluon.utils.split_and_load(data[own], contexts, even_split=False) for data in (images, labels)))
            with autograd.record():
                losses = [entropy(net(x), y) for x, y in parts]
            autograd.backward(losses)
            trainer.step(BATCH if "async" not in options.kv_store else len(own))
        if rank == 0:
            say("epoch {} loss {:.4f}".format(epoch, losses[0].mean().asscalar()))
            record(epoch=epoch, loss=losses[0].mean().asscalar())
            save(net, epoch)

    guesses = net(mx.nd.array(test_images, ctx=contexts[0])).argmax(1).asnumpy()
    accuracy = (guesses == test_labels).mean()
    if options.verify:
        place = "rank {} of {} host {} kv-store {}".format(rank, size, socket.gethostname(), store.type)
        say("{} accuracy {:.4f} weights {}".format(place, accuracy, digest(net, contexts[0])))
    if rank == 0:
        say("test accuracy {:.4f}".format(accuracy))
        record(test_accuracy=accuracy)
        keep(net, contexts[0], test_accuracy=float(accuracy))


def restore(net, contexts):
    """The epoch of the newest complete checkpoint, whose parameters are loaded; 0 without one."""
    path = checkpoint.newest() if checkpoint else None
    if path is None:
        return 0
    net.load_parameters(os.path.join(path, "net.params"), ctx=contexts)
    return checkpoint.step_of(path)


def save(net, epoch):
    if checkpoint:
        path = checkpoint.begin(epoch)
        net.save_parameters(os.path.join(path, "net.params"))
        checkpoint.complete(path)


def load():
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype("float32"), digits.target[order].astype("float32")
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def digest(net, context):
    parameters = net.collect_params()
    return hashlib.sha256(b"".join(p.data(context).asnumpy().tobytes() for p in parameters.values())).hexdigest()


def keep(net, context, **metrics):
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    net.hybridize()  # `export` needs the graph of a call
    net(mx.nd.zeros((1, 64), ctx=context))
    net.export("output/model")  # model-symbol.json, model-0000.params
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
