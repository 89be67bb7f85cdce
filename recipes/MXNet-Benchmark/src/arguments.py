"""The arguments of MXNet's train_imagenet.py, with its defaults, and a few of this recipe."""

import argparse

TRAINING = (
    ("--network", str, "resnet", "resnet, resnet-v1, vgg ... or a name of MXNet's model zoo"),
    ("--num-layers", int, 50, "layers of the network, where it has several sizes"),
    ("--gpus", str, None, "GPUs of this worker, such as 0,2,5"),
    ("--kv-store", str, "device", "local, device, nccl, nccl_allreduce, dist_sync, dist_device_sync, dist_async, horovod"),
    ("--num-epochs", int, 80, "epochs"),
    ("--lr", float, 0.1, "learning rate"),
    ("--lr-factor", float, 0.1, "factor of the learning rate at each step"),
    ("--lr-step-epochs", str, "30,60", "epochs of the steps, or powN"),
    ("--initializer", str, "default", "default, xavier, msra, orthogonal, normal, uniform, one, zero"),
    ("--optimizer", str, "sgd", "any of MXNet"),
    ("--mom", float, 0.9, "momentum of sgd"),
    ("--wd", float, 1e-4, "weight decay"),
    ("--batch-size", int, 128, "images a step of this worker, split over its devices"),
    ("--disp-batches", int, 20, "steps between two lines of Speedometer"),
    ("--model-prefix", str, None, "where checkpoints go"),
    ("--save-period", int, 1, "epochs between two checkpoints"),
    ("--load-epoch", int, None, "continue the checkpoint of this epoch"),
    ("--monitor", int, 0, "print statistics of the tensors every N steps"),
    ("--top-k", int, 0, "print the top-k accuracy too"),
    ("--loss", str, "", "print ce (cross entropy) or nll too"),
    ("--test-io", int, 0, "1: only read the data"),
    ("--dtype", str, "float32", "float32 or float16"),
    ("--gc-type", str, "none", "none or 2bit: compress gradients"),
    ("--gc-threshold", float, 0.5, "threshold of 2bit"),
    ("--macrobatch-size", int, 0, "of the optimizer lbsgd"),
    ("--warmup-epochs", int, 5, "of the optimizer lbsgd"),
    ("--warmup-strategy", str, "linear", "of the optimizer lbsgd"),
    ("--profile-worker-suffix", str, "", "profile the workers into files with this suffix"),
    ("--profile-server-suffix", str, "", "profile the servers into files with this suffix"),
    ("--use-imagenet-data-augmentation", int, 0, "no effect; MXNet's own program accepts and ignores it too"),
)
DATA = (
    ("--data-train", str, None, "RecordIO file to train on"),
    ("--data-train-idx", str, "", "its index"),
    ("--data-val", str, None, "RecordIO file to validate on"),
    ("--data-val-idx", str, "", "its index"),
    ("--rgb-mean", str, "123.68,116.779,103.939", "subtracted"),
    ("--rgb-std", str, "1,1,1", "divided by"),
    ("--pad-size", int, 0, "padding"),
    ("--fill-value", int, 127, "value of the padding"),
    ("--image-shape", str, "3,224,224", "channels,height,width"),
    ("--num-classes", int, 1000, "classes"),
    ("--num-examples", int, 1281167, "images an epoch"),
    ("--data-nthreads", int, 4, "threads that decode"),
    ("--benchmark", int, 0, "1: one random batch in place of data"),
)
AUGMENTATION = (
    ("--random-crop", int, 0, "rand_crop"),
    ("--random-mirror", int, 0, "rand_mirror"),
    ("--random-resized-crop", int, 0, "random_resized_crop"),
    ("--max-random-h", int, 0, "random_h"),
    ("--max-random-s", int, 0, "random_s"),
    ("--max-random-l", int, 0, "random_l"),
    ("--max-random-rotate-angle", int, 0, "max_rotate_angle"),
    ("--max-random-shear-ratio", float, 0, "max_shear_ratio"),
    ("--max-random-aspect-ratio", float, 0, "max_aspect_ratio"),
    ("--min-random-aspect-ratio", float, None, "min_aspect_ratio"),
    ("--brightness", float, 0, "brightness"),
    ("--contrast", float, 0, "contrast"),
    ("--saturation", float, 0, "saturation"),
    ("--pca-noise", float, 0, "pca_noise"),
    ("--max-random-scale", float, 1, "max_random_scale"),
    ("--min-random-scale", float, 1, "min_random_scale"),
    ("--max-random-area", float, 1, "max_random_area"),
    ("--min-random-area", float, 1, "min_random_area"),
    ("--max-crop-size", int, -1, "max_crop_size"),
    ("--min-crop-size", int, -1, "min_crop_size"),
)
"""The last word of each is the parameter of mx.io.ImageRecordIter."""
OWN = (
    ("--num-batches", int, None, "measure so many steps, then end (default: until the last epoch)"),
    ("--num-warmup-batches", int, 1, "steps before those that are measured"),
    ("--replica-batch", int, None, "images a step of each device, in place of --batch-size"),
    ("--phase", str, "training", "training or inference"),
    ("--data", str, None, "real or synthetic; --data-train and --benchmark decide"),
)
CHOICES = {
    "--dtype": ("float32", "float16"),
    "--gc-type": ("none", "2bit"),
    "--phase": ("training", "inference"),
    "--data": ("real", "synthetic"),
}
DLBS = {
    "exp.model": "--network",
    "exp.gpus": "--gpus",
    "exp.phase": "--phase",
    "exp.data": "--data",
    "exp.dtype": "--dtype",
    "exp.replica_batch": "--replica-batch",
    "exp.num_batches": "--num-batches",
    "exp.num_warmup_batches": "--num-warmup-batches",
    "mxnet.kv_store": "--kv-store",
}
"""Parameters of DLBS that are an argument here."""


def parse(words):
    parser = argparse.ArgumentParser(description="Images a second on MXNet, as train_imagenet.py measures them.")
    for table in (TRAINING, DATA, AUGMENTATION, OWN):
        for name, kind, default, text in table:
            parser.add_argument(name, type=kind, default=default, choices=CHOICES.get(name), help=text)
    options = parser.parse_args(words)
    if options.data == "real" and not options.data_train:
        parser.error("--data real (exp.data) needs --data-train FILE.rec")
    if options.data == "synthetic" and options.data_train:
        parser.error("--data synthetic (exp.data) and --data-train FILE.rec contradict each other")
    if not (options.data_train or options.benchmark or options.data):
        parser.error("no data: take --benchmark 1 (random images) or --data-train FILE.rec")
    return options


def augmentation(options):
    """What mx.io.ImageRecordIter is told."""
    values = {parameter: getattr(options, name[2:].replace("-", "_")) for name, _, _, parameter in AUGMENTATION}
    return {parameter: value for parameter, value in values.items() if value is not None}
