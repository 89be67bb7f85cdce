"""Images a second of an image classifier on MXNet, with the arguments of its own train_imagenet.py --benchmark 1.

    --kv-store dist_device_sync     any of MXNet's, `nccl` and `horovod` too where MXNet was built with them
    --dtype float16                 weights and images in half precision, the optimizer's copy in single
    --gpus 0,1,4,5                  GPUs of this worker, counted in CUDA_VISIBLE_DEVICES; all that it sees without
    --batch-size 1024               images a step of this worker, spread over its GPUs
    --data-train FILE.rec           images from a RecordIO file; made up images without

The same command runs as scheduler, server and worker: DMLC_ROLE says which. Results are lines as DLBS writes them, so
that its parsers read them (worker 0):

    __results.throughput__=1234.5             images a second, over all workers
    __results.time__=103.7                    milliseconds a step, mean
    __results.time_data__=[103.2, 104.1, ...]  milliseconds of each step that was measured
"""

import argparse
import json
import socket
import sys
import time

import mxnet as mx  # a scheduler or a server stays in here until the workers are done
import numpy as np
from mxnet import autograd, gluon


def main():
    parser = argparse.ArgumentParser(description="Images a second on MXNet.")
    parser.add_argument("--network", default="resnet50_v1", help="of MXNet's model zoo (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32")
    parser.add_argument("--kv-store", default="device", help="default: %(default)s")
    parser.add_argument("--gpus", default="", help="such as 0,1,4,5; none: all that it sees")
    parser.add_argument("--batch-size", type=int, default=128, help="images a step of this worker")
    parser.add_argument("--image-shape", default="3,224,224", help="channels,height,width (default: %(default)s)")
    parser.add_argument("--num-classes", type=int, default=1000)
    parser.add_argument("--num-batches", type=int, default=100, help="steps that are measured (default: %(default)s)")
    parser.add_argument("--num-warmup-batches", type=int, default=5, help="steps before (default: %(default)s)")
    parser.add_argument("--data-train", help="a RecordIO file; made up images without")
    parser.add_argument("--data-nthreads", type=int, default=4, help="threads that decode images")
    options = parser.parse_args()

    store = kv_store(options.kv_store)
    contexts = devices(options.gpus)
    times = train(options, store, contexts)
    report(options, store, contexts, times)


def kv_store(name):
    """Horovod's takes part through its own module, all others through MXNet's."""
    if name == "horovod":
        import horovod.mxnet as hvd

        hvd.init()
    return mx.kv.create(name)


def devices(wanted):
    """MXNet's numbers count the GPUs that CUDA_VISIBLE_DEVICES shows, in its order."""
    seen = mx.context.num_gpus()
    numbers = [int(number) for number in wanted.split(",") if number] or list(range(seen))
    return [mx.gpu(number) for number in numbers] or [mx.cpu()]


def train(options, store, contexts):
    """Seconds of each measured step."""
    net = gluon.model_zoo.vision.get_model(options.network, classes=options.num_classes)
    net.initialize(mx.init.Xavier(), ctx=contexts)
    net.cast(options.dtype)
    net.hybridize(static_alloc=True)
    sgd = {"learning_rate": 0.01, "momentum": 0.9, "multi_precision": options.dtype == "float16"}
    trainer = gluon.Trainer(net.collect_params(), "sgd", sgd, kvstore=store)
    entropy = gluon.loss.SoftmaxCrossEntropyLoss()
    batches = data(options, store, contexts)

    times = []
    for number in range(options.num_warmup_batches + options.num_batches):
        began = time.time()
        parts = next(batches)
        with autograd.record():
            losses = [entropy(net(images), labels) for images, labels in parts]
        autograd.backward(losses)
        trainer.step(options.batch_size * store.num_workers)
        mx.nd.waitall()
        if number >= options.num_warmup_batches:
            times.append(time.time() - began)
    return times


def data(options, store, contexts):
    """Batches for ever, each as one (images, labels) a device."""
    if options.data_train:
        yield from recorded(options, store, contexts)
    shape = (options.batch_size, *map(int, options.image_shape.split(",")))
    rng = np.random.RandomState(store.rank)
    images = mx.nd.array(rng.uniform(-1, 1, shape)).astype(options.dtype)
    labels = mx.nd.array(rng.randint(options.num_classes, size=options.batch_size))
    parts = split(images, labels, contexts)
    while True:
        yield parts


def recorded(options, store, contexts):
    """Every worker reads its own part of the file."""
    records = mx.io.ImageRecordIter(
        path_imgrec=options.data_train,
        data_shape=tuple(map(int, options.image_shape.split(","))),
        batch_size=options.batch_size,
        preprocess_threads=options.data_nthreads,
        shuffle=True,
        num_parts=store.num_workers,
        part_index=store.rank,
    )
    while True:
        for batch in records:
            yield split(batch.data[0].astype(options.dtype), batch.label[0], contexts)
        records.reset()


def split(images, labels, contexts):
    pieces = (gluon.utils.split_and_load(whole, contexts, even_split=False) for whole in (images, labels))
    return list(zip(*pieces))


def report(options, store, contexts, times):
    say("worker {} of {} host {} steps {}".format(store.rank, store.num_workers, socket.gethostname(), len(times)))
    if store.rank != 0:
        return
    mean = sum(times) / len(times)
    results = {
        "exp.framework_ver": mx.__version__,
        "exp.model_title": options.network,
        "exp.dtype": options.dtype,
        "exp.num_gpus": sum(context.device_type == "gpu" for context in contexts) * store.num_workers,
        "exp.replica_batch": options.batch_size // len(contexts),
        "exp.effective_batch": options.batch_size * store.num_workers,
        "mxnet.kv_store": store.type,
        "results.time": round(mean * 1000, 3),
        "results.throughput": round(options.batch_size * store.num_workers / mean, 2),
        "results.time_data": [round(seconds * 1000, 3) for seconds in times],
    }
    for name, value in results.items():
        say("__{}__={}".format(name, json.dumps(value)))


def say(line):
    """One line, one write, at once: the lines of several workers come to one place and must not mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
