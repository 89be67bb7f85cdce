"""Images a second of an image classifier on MXNet, with the arguments and the printed lines of its train_imagenet.py.

    --benchmark 1                   one random batch in place of data
    --data-train FILE.rec           images from a RecordIO file (digits_rec.py makes a small one)
    --kv-store dist_device_sync     any of MXNet's; `nccl` where MXNet was built with it
    --gpus 0,1,4,5                  GPUs of this worker, counted in CUDA_VISIBLE_DEVICES; the CPU without
    --batch-size 1024               images a step of this worker, split over its devices

Where MXNet sees no GPU, it says what it does in place of --gpus, --dtype float16 and --kv-store nccl. The same command
runs as scheduler, server and worker: DMLC_ROLE says which. dlbs.py says how DLBS's parameters are given.

What it prints: the lines of MXNet's Speedometer for each worker, on stderr; at the end DLBS's result lines, worker 0:

    INFO:root:Epoch[0] Batch [20-40]	Speed: 3723.46 samples/sec	accuracy=1.000000
    __results.throughput__=1234             images a second, over all workers
    __results.time__=103.7                  milliseconds a step, mean
    __results.time_data__=[103.2, 104.1]    milliseconds of each step, with --num-batches
"""

import json
import logging
import os
import sys
import time

import mxnet as mx  # a scheduler or a server stays in here until the workers are done

import arguments
import data
import dlbs
import networks

CPU = "this worker has no GPU: "


def main():
    logging.basicConfig(level=logging.INFO)
    parameters, words = dlbs.take(sys.argv[1:], arguments.DLBS)
    options = arguments.parse(words)
    devices = of_worker(options)
    if options.replica_batch:
        options.batch_size = options.replica_batch * len(devices)
    store = kv_store(options, devices)
    logging.info("start with arguments %s", options)
    workers = store.num_workers if store else 1
    asked = parameters.get("exp.num_nodes", workers)
    if asked != workers:
        sys.exit("exp.num_nodes is {}, but {} workers run: num_instances of the task decides".format(asked, workers))

    if options.use_imagenet_data_augmentation:
        logging.info("--use-imagenet-data-augmentation has no effect, as in MXNet's own program")
    profile(options, store)
    watch = Watch(options.num_warmup_batches)
    run(options, devices, store, watch)
    if not options.test_io and (store is None or store.rank == 0):
        dlbs.report(parameters, results(options, devices, store, watch))


def of_worker(options):
    """The devices of this worker. Changes --dtype if a CPU has to do the work."""
    wanted = [int(number) for number in (options.gpus or "").split(",") if number]
    if wanted and mx.context.num_gpus():
        return [mx.gpu(number) for number in wanted]
    if wanted:
        logging.info("%s%d CPU contexts take the place of --gpus %s", CPU, len(wanted), options.gpus)
    if options.dtype == "float16":
        logging.info("%sit computes in float32 in place of --dtype float16", CPU)
        options.dtype = "float32"
    return [mx.cpu(number) for number in range(max(1, len(wanted)))]


def kv_store(options, devices):
    """MXNet's key-value store; None for Horovod, which needs none."""
    if options.kv_store == "horovod":
        import horovod.mxnet as hvd

        hvd.init()
        return None
    name = options.kv_store
    if "nccl" in name and devices[0].device_type == "cpu":
        logging.info("%s--kv-store device takes the place of %s", CPU, name)
        name = "device"
    store = mx.kv.create(name)
    if options.gc_type != "none":
        compress(store, {"type": options.gc_type, "threshold": options.gc_threshold})
    return store


def compress(store, how):
    """Compress gradients. MXNet 1.9's parameter servers refuse that for `pushpull`, which Module calls."""

    def pushpull(key, value, out=None, priority=0):
        store.push(key, value, priority)
        store.pull(key, out, priority)

    store.set_gradient_compression(how)
    store.pushpull = pushpull


def profile(options, store):
    rank = store.rank if store else 0
    if options.profile_worker_suffix:
        mx.profiler.set_config(filename="rank{}_{}".format(rank, options.profile_worker_suffix), profile_all=True)
        mx.profiler.set_state("run")
    if options.profile_server_suffix and rank == 0:
        mx.profiler.set_config(filename=options.profile_server_suffix, profile_all=True, profile_process="server")
        mx.profiler.set_state("run", profile_process="server")


def run(options, devices, store, watch):
    steps = options.num_warmup_batches + options.num_batches if options.num_batches else None
    train, validation = data.batches(options, store, steps)
    speed = mx.callback.Speedometer(options.batch_size, options.disp_batches)
    if options.test_io:
        read(options, train)
        return
    symbol, weights, states = model(options, store)
    module = mx.mod.Module(symbol, context=devices)
    if options.phase == "inference":
        infer(module, train, [watch, speed])
    else:
        fit(options, store, module, (train, validation), (weights, states), [watch, Recorder(options, watch), speed])


def read(options, train):
    """Time the data alone."""
    began = time.time()
    for number, batch in enumerate(train, 1):
        for array in batch.data:
            array.wait_to_read()
        if number % options.disp_batches == 0:
            rate = options.disp_batches * options.batch_size / (time.time() - began)
            logging.info("Batch [%d]\tSpeed: %.2f samples/sec", number, rate)
            began = time.time()


def model(options, store):
    """(symbol, weights, states); the last two are None unless a checkpoint is continued."""
    if options.load_epoch is not None:
        return mx.model.load_checkpoint(prefix(options, store), options.load_epoch)
    return networks.symbol(options.network, options.num_layers, options.num_classes, options.dtype), None, None


def prefix(options, store):
    """Every worker has its own checkpoints."""
    return "{}-{}".format(options.model_prefix, store.rank) if store and store.rank else options.model_prefix


def infer(module, batches, callbacks):
    module.bind(batches.provide_data, batches.provide_label, for_training=False)
    module.init_params(mx.init.Xavier(magnitude=2))
    module.score(batches, mx.metric.create([]), batch_end_callback=callbacks)


def fit(options, store, module, batches, start, callbacks):
    train, validation = batches
    weights, states = start
    first = options.load_epoch or 0
    kind, settings = optimizer(options, store, first)
    checkpoints = options.model_prefix and mx.callback.do_checkpoint(prefix(options, store), options.save_period)
    if store is None:
        kind, settings = of_horovod(kind, settings, module, train, options), {}
    module.fit(
        train,
        eval_data=validation,
        eval_metric=metrics(options),
        eval_end_callback=validated,
        kvstore=store,
        optimizer=kind,
        optimizer_params=settings,
        initializer=initializer(options),
        arg_params=weights,
        aux_params=states,
        allow_missing=True,
        begin_epoch=first,
        num_epoch=first + 1 if options.num_batches else options.num_epochs,
        batch_end_callback=callbacks,
        epoch_end_callback=checkpoints or None,
        monitor=mx.mon.Monitor(options.monitor, pattern=".*") if options.monitor else None,
    )


def of_horovod(kind, settings, module, train, options):
    """Horovod's own optimizer, with the weights of rank 0 everywhere."""
    import horovod.mxnet as hvd

    module.bind(train.provide_data, train.provide_label)
    module.init_params(initializer(options))
    weights, states = module.get_params()
    hvd.broadcast_parameters(weights, root_rank=0)
    hvd.broadcast_parameters(states, root_rank=0)
    module.set_params(weights, states)
    settings["rescale_grad"] = 1.0 / options.batch_size
    return hvd.DistributedOptimizer(mx.optimizer.create(kind, **settings))


def optimizer(options, store, first):
    """(name, its settings)."""
    epoch = max(1, options.num_examples // options.batch_size // (store.num_workers if store else 1))
    settings = {"learning_rate": options.lr, "wd": options.wd, "lr_scheduler": schedule(options, epoch, first)}
    if options.optimizer in ("sgd", "nag", "dcasgd", "signum", "lbsgd"):
        settings["momentum"] = options.mom
    if options.optimizer in ("sgd", "nag", "lbsgd"):
        settings["multi_precision"] = True
    if options.optimizer == "lbsgd":
        settings.update(
            updates_per_epoch=epoch,
            begin_epoch=first,
            num_epochs=options.num_epochs,
            batch_scale=max(1, options.macrobatch_size // options.batch_size),
            warmup_strategy=options.warmup_strategy,
            warmup_epochs=options.warmup_epochs,
        )
    return options.optimizer, settings


def schedule(options, epoch, first):
    """Of the learning rate: a factor at each step, or a power of what is left."""
    words = options.lr_step_epochs
    if words.startswith("pow"):
        return mx.lr_scheduler.PolyScheduler(options.num_epochs * epoch, options.lr, float(words[3:] or 1))
    steps = [(int(step) - first) * epoch for step in words.split(",") if step and int(step) > first]
    if not steps or options.lr_factor >= 1:
        return None
    return mx.lr_scheduler.MultiFactorScheduler(steps, options.lr_factor, base_lr=options.lr)


def initializer(options):
    kinds = {
        "default": lambda: mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2),
        "xavier": mx.init.Xavier,
        "msra": mx.init.MSRAPrelu,
        "orthogonal": mx.init.Orthogonal,
        "normal": mx.init.Normal,
        "uniform": mx.init.Uniform,
        "one": mx.init.One,
        "zero": mx.init.Zero,
    }
    if options.initializer not in kinds:
        sys.exit("--initializer {} is none of {}".format(options.initializer, ", ".join(kinds)))
    return kinds[options.initializer]()


def metrics(options):
    losses = {"ce": mx.metric.CrossEntropy, "nll": mx.metric.NegativeLogLikelihood}
    chosen = [mx.metric.Accuracy()]
    if options.top_k:
        chosen.append(mx.metric.TopKAccuracy(options.top_k))
    return chosen + [losses[name]() for name in options.loss.split(",") if name in losses]


class Watch:
    """Seconds of each step after the warm-up; an epoch's first step has the epoch's end in it and is left out."""

    def __init__(self, warmup):
        self.warmup, self.times, self.began = warmup, [], time.time()

    def __call__(self, step):
        mx.nd.waitall()
        now = time.time()
        if step.nbatch >= (self.warmup if step.epoch == 0 else 1):
            self.times.append(now - self.began)
        self.began = now


class Recorder:
    """What the Speedometer prints, for batchtrain; it comes before the Speedometer, which resets the metrics."""

    def __init__(self, options, watch):
        self.options, self.watch = options, watch

    def __call__(self, step):
        if step.nbatch and step.nbatch % self.options.disp_batches == 0 and self.watch.times:
            latest = self.watch.times[-self.options.disp_batches :]
            rate = self.options.batch_size * len(latest) / sum(latest)
            values = dict(step.eval_metric.get_name_value())
            record(epoch=step.epoch, step=step.nbatch, samples_per_second=rate, **values)


def validated(end):
    record(epoch=end.epoch, **{"validation_" + name: value for name, value in end.eval_metric.get_name_value()})


def record(**values):
    """A line of JSON for the metrics of the run, if batchtrain gives a file for them."""
    if "BATCHTRAIN_METRICS" in os.environ:
        with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
            file.write(json.dumps(values, default=float) + "\n")


def results(options, devices, store, watch):
    """What DLBS's reports read. CPU contexts count as devices: reports leave out rows with 0 of them."""
    if not watch.times:
        sys.exit("no step was measured: each epoch is only {} step(s) long".format(options.num_warmup_batches))
    workers = store.num_workers if store else int(os.environ.get("HOROVOD_SIZE", "1"))
    mean = sum(watch.times) / len(watch.times)
    found = {
        "exp.framework": "mxnet",
        "exp.framework_title": "MXNet",
        "exp.framework_ver": mx.__version__,
        "mxnet.version": mx.__version__,
        "mxnet.kv_store": store.type if store else "horovod",
        "exp.model": options.network,
        "exp.model_title": options.network,
        "exp.phase": options.phase,
        "exp.dtype": options.dtype,
        "exp.data": "real" if options.data_train else "synthetic",
        "exp.device_type": devices[0].device_type,
        "exp.gpus": ",".join(str(device.device_id) for device in devices if device.device_type == "gpu"),
        "exp.num_nodes": workers,
        "exp.num_local_gpus": len(devices),
        "exp.num_gpus": len(devices) * workers,
        "exp.num_replicas": len(devices) * workers,
        "exp.replica_batch": options.batch_size // len(devices),
        "exp.effective_batch": options.batch_size * workers,
        "exp.num_warmup_batches": options.num_warmup_batches,
        "exp.num_batches": len(watch.times),
        "results.time": round(mean * 1000, 3),
        "results.throughput": int(options.batch_size * workers / mean),
    }
    if options.num_batches:
        found["results.time_data"] = [round(seconds * 1000, 3) for seconds in watch.times]
    return found


if __name__ == "__main__":
    main()
