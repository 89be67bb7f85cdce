"""Where the benchmark's batches come from: one random batch again and again, or RecordIO files."""

import logging

import arguments
import mxnet as mx
import numpy as np


def batches(options, store, steps):
    """(training data, validation data or None). `steps` is the length of an epoch, if the user chose one."""
    shape = tuple(map(int, options.image_shape.split(",")))
    if not options.data_train:
        epoch = steps or max(1, options.num_examples // options.batch_size)
        return Synthetic(options, shape, per_machine(options, store) or epoch), None
    train = recorded(options, store, shape, options.data_train, options.data_train_idx, arguments.augmentation(options))
    epoch = steps or per_machine(options, store)
    if options.data_val:
        return resized(train, epoch), recorded(options, store, shape, options.data_val, options.data_val_idx, {})
    return resized(train, epoch), None


def per_machine(options, store):
    """Steps of a worker when a step ends with the last worker: all must take equally many."""
    if options.num_batches or not store or "dist" not in store.type or "async" in store.type:
        return None
    steps = -(-(options.num_examples // store.num_workers) // options.batch_size)
    logging.info("Resizing training data to %d batches per machine", steps)
    return steps


def resized(train, steps):
    return mx.io.ResizeIter(train, steps) if steps else train


def recorded(options, store, shape, records, index, extra):
    """Every worker reads its own part of the file."""
    channels = dict(zip(("mean_r", "mean_g", "mean_b"), map(float, options.rgb_mean.split(","))))
    channels.update(zip(("std_r", "std_g", "std_b"), map(float, options.rgb_std.split(","))))
    return mx.io.ImageRecordIter(
        path_imgrec=records,
        path_imgidx=index,
        data_shape=shape,
        batch_size=options.batch_size,
        preprocess_threads=options.data_nthreads,
        pad=options.pad_size if extra else 0,
        fill_value=options.fill_value,
        shuffle=bool(extra),
        num_parts=store.num_workers if store else 1,
        part_index=store.rank if store else 0,
        **channels,
        **extra
    )


class Synthetic(mx.io.DataIter):
    """The same random batch, always in single precision: the network casts it."""

    def __init__(self, options, shape, steps):
        super().__init__(options.batch_size)
        self.steps, self.step = steps, 0
        random = np.random.RandomState(0)
        images = mx.nd.array(random.uniform(-1, 1, (options.batch_size, *shape)))
        labels = mx.nd.array(random.randint(options.num_classes, size=options.batch_size))
        self.batch = mx.io.DataBatch([images], [labels], pad=0, index=None)
        self.provide_data = [mx.io.DataDesc("data", images.shape)]
        self.provide_label = [mx.io.DataDesc("softmax_label", labels.shape)]

    def next(self):
        self.step += 1
        if self.step > self.steps:
            raise StopIteration
        return self.batch

    def reset(self):
        self.step = 0
