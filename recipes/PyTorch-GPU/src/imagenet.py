"""Train a residual network on a folder of images, with the arguments and the printed lines of PyTorch's ImageNet example.

    imagenet.py DIR --dummy -a resnet18             one process; all GPUs of its node by DataParallel
    imagenet.py DIR --dist-url env://               DDP: one of the processes that batchtrain or torchrun started
    imagenet.py DIR --dist-url env:// --multiprocessing-distributed     DDP: one process a node starts one for each GPU

DIR has the folders train/CLASS and val/CLASS. Files ending in .ppm are read here; other formats need Pillow.
digits_folder.py makes a small DIR. Without a GPU the processes talk by gloo in place of --dist-backend nccl.

What every process prints: value, and in parentheses its mean so far:

    Epoch: [0][  11/5005]	Time  0.605 ( 0.806)	Data  0.000 ( 0.165)	Loss 6.97e+00 (7.01e+00)	Acc@1   0.00 (  0.18)	…
    Test: [  1/196]	Time …
     *   Acc@1 28.080 Acc@5 52.670
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, TensorDataset

ARCHITECTURES = {
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
    "resnet152": (True, (3, 8, 36, 3)),
}
"""Whether a block has a bottleneck, and the blocks of each stage."""
MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def main() -> None:
    options = arguments()
    if options.seed is not None:
        random.seed(options.seed)
        torch.manual_seed(options.seed)
    if options.world_size == -1 and options.dist_url == "env://":
        options.world_size = int(os.environ["WORLD_SIZE"])
    gpus = torch.cuda.device_count()
    if not options.multiprocessing_distributed:
        work(options.gpu, gpus, options)
        return
    # --world-size and --rank count nodes; from here on they count processes.
    options.world_size = max(1, options.world_size) * max(1, gpus)
    torch.multiprocessing.spawn(work, nprocs=max(1, gpus), args=(gpus, options))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="PyTorch ImageNet Training")
    parser.add_argument("data", nargs="?", default="imagenet", help="path of the data set (default: %(default)s)")
    parser.add_argument("-a", "--arch", choices=tuple(ARCHITECTURES), default="resnet18")
    parser.add_argument("-j", "--workers", type=int, default=4, help="processes that load data")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--start-epoch", type=int, default=0)
    parser.add_argument("-b", "--batch-size", type=int, default=256, help="images a step of a node, or of a process")
    parser.add_argument("--lr", "--learning-rate", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--wd", "--weight-decay", type=float, default=1e-4)
    parser.add_argument("-p", "--print-freq", type=int, default=10)
    parser.add_argument("--resume", default="", help="continue this checkpoint")
    parser.add_argument("-e", "--evaluate", action="store_true", help="evaluate on val and end")
    parser.add_argument("--pretrained", action="store_true", help="take torchvision's trained weights")
    parser.add_argument("--world-size", type=int, default=-1, help="nodes")
    parser.add_argument("--rank", type=int, default=-1, help="of this node")
    parser.add_argument("--dist-url", default="tcp://224.66.41.62:23456")
    parser.add_argument("--dist-backend", default="nccl")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--gpu", type=int, help="the only GPU to use")
    parser.add_argument("--no-accel", action="store_true", help="do not use a GPU")
    parser.add_argument("--multiprocessing-distributed", action="store_true", help="start a process for each GPU")
    parser.add_argument("--dummy", action="store_true", help="random images in place of a data set")
    parser.add_argument("--image-size", type=int, default=224, help="width of an image (not in PyTorch's example)")
    return parser.parse_args()


def work(gpu: int | None, gpus: int, options: argparse.Namespace) -> None:
    """One process: `gpu` is its own GPU, or its number on the node."""
    accelerated = gpus > 0 and not options.no_accel
    distributed = options.world_size > 1 or options.multiprocessing_distributed
    if distributed:
        join(gpu, gpus, options, accelerated)
    alone = gpu is not None and accelerated
    device = torch.device(f"cuda:{gpu}" if alone else "cuda" if accelerated else "cpu")
    if not accelerated:
        print("using CPU, this will be slow", flush=True)
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # processes share the cores
    elif alone:
        torch.cuda.set_device(device)
    if options.multiprocessing_distributed:
        options.batch_size = max(1, options.batch_size // max(1, gpus))
        options.workers = -(-options.workers // max(1, gpus))
    train, validation = data(options)
    model = network(options, len(train.classes)).to(device)
    if distributed:
        model = nn.parallel.DistributedDataParallel(model, [gpu] if alone else None)
    elif not alone:
        print("=> using DataParallel", flush=True)
        model = nn.DataParallel(model)
    learn(model, device, train, validation, distributed, options)
    if distributed:
        dist.destroy_process_group()


def join(gpu: int | None, gpus: int, options: argparse.Namespace, accelerated: bool) -> None:
    if options.rank == -1 and options.dist_url == "env://":
        options.rank = int(os.environ["RANK"])
    if options.multiprocessing_distributed:
        options.rank = options.rank * max(1, gpus) + (gpu or 0)
    if not accelerated and options.dist_backend == "nccl":
        options.dist_backend = "gloo"
    dist.init_process_group(
        options.dist_backend, init_method=options.dist_url, world_size=options.world_size, rank=options.rank
    )


# --- data -----------------------------------------------------------------------------------------------------------


class Folder(Dataset):
    """Images of the folders of classes, in the order of their names."""

    def __init__(self, directory: Path, size: int) -> None:
        self.size = size
        self.classes = sorted(path.name for path in directory.iterdir() if path.is_dir())
        self.files = [(file, n) for n, name in enumerate(self.classes) for file in sorted((directory / name).iterdir())]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file, label = self.files[index]
        pixels = torch.from_numpy(pixmap(file) if file.suffix == ".ppm" else decoded(file))
        image = (pixels.float() / 255 - MEAN) / DEVIATION
        return nn.functional.interpolate(image.permute(2, 0, 1)[None], size=(self.size, self.size))[0], label


def pixmap(file: Path) -> np.ndarray:
    """A binary PPM: `P6`, width, height and 255 in words, then three bytes for each pixel."""
    content = file.read_bytes()
    width, height = map(int, content.split(maxsplit=3)[1:3])
    return np.frombuffer(content[-3 * width * height :], np.uint8).reshape(height, width, 3).copy()


def decoded(file: Path) -> np.ndarray:
    from PIL import Image  # only for other formats: the image of the recipe has no Pillow

    return np.asarray(Image.open(file).convert("RGB")).copy()


def data(options: argparse.Namespace) -> tuple[Dataset, Dataset]:
    if options.dummy:
        print("=> Dummy data is used!", flush=True)
        return dummy(1281167, options), dummy(50000, options)
    root = Path(options.data)
    return Folder(root / "train", options.image_size), Folder(root / "val", options.image_size)


def dummy(count: int, options: argparse.Namespace) -> Dataset:
    """As many images as ImageNet has, all of them the same few."""
    images = torch.rand(options.batch_size, 3, options.image_size, options.image_size)
    few = TensorDataset(images, torch.randint(1000, (options.batch_size,)))
    repeated = Subset(few, [number % len(few) for number in range(count)])
    repeated.classes = list(range(1000))
    return repeated


# --- network --------------------------------------------------------------------------------------------------------


def network(options: argparse.Namespace, classes: int) -> nn.Module:
    if options.pretrained:
        import torchvision  # only here: the image of the recipe has no torchvision

        print(f"=> using pre-trained model '{options.arch}'", flush=True)
        return torchvision.models.get_model(options.arch, weights="DEFAULT")
    print(f"=> creating model '{options.arch}'", flush=True)
    bottleneck, stages = ARCHITECTURES[options.arch]
    layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, blocks in enumerate(stages):
        for block in range(blocks):
            layers.append(Residual(channels, 64 * 2**stage, 2 if stage and not block else 1, bottleneck))
            channels = layers[-1].channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Residual(nn.Module):
    def __init__(self, channels: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        self.channels = width * 4 if bottleneck else width
        if bottleneck:
            inner = (*convolution(channels, width, 1), nn.ReLU(), *convolution(width, width, 3, stride), nn.ReLU())
            self.inner = nn.Sequential(*inner, *convolution(width, self.channels, 1))
        else:
            inner = (*convolution(channels, width, 3, stride), nn.ReLU())
            self.inner = nn.Sequential(*inner, *convolution(width, width, 3))
        same = stride == 1 and channels == self.channels
        self.straight = nn.Identity() if same else nn.Sequential(*convolution(channels, self.channels, 1, stride))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(images) + self.straight(images))


def convolution(channels: int, filters: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    kernel = nn.Conv2d(channels, filters, size, stride, size // 2, bias=False)
    nn.init.kaiming_normal_(kernel.weight, mode="fan_out", nonlinearity="relu")
    return kernel, nn.BatchNorm2d(filters)


# --- training -------------------------------------------------------------------------------------------------------


def learn(
    model: nn.Module, device: torch.device, train: Dataset, validation: Dataset, distributed: bool,
    options: argparse.Namespace,
) -> None:  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), options.lr, options.momentum, weight_decay=options.wd)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    first, best = resume(model, optimizer, scheduler, device, options)
    samplers = [DistributedSampler(train), DistributedSampler(validation, shuffle=False)] if distributed else [None] * 2
    loaders = [
        DataLoader(images, options.batch_size, shuffle=sampler is None and images is train, num_workers=options.workers,
                   sampler=sampler, pin_memory=device.type == "cuda")
        for images, sampler in zip((train, validation), samplers)
    ]  # fmt: skip
    if options.evaluate:
        validate(loaders[1], model, device, options)
        return
    for epoch in range(first, options.epochs):
        if samplers[0]:
            samplers[0].set_epoch(epoch)
        rounds(f"Epoch: [{epoch}]", loaders[0], model, device, options, optimizer, epoch)
        accuracy = validate(loaders[1], model, device, options)
        scheduler.step()
        if not distributed or options.rank % max(1, torch.cuda.device_count()) == 0:
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
            save({"epoch": epoch + 1, "arch": options.arch, "best": max(best, accuracy), **states}, accuracy > best)
        best = max(best, accuracy)


def resume(model, optimizer, scheduler, device, options) -> tuple[int, float]:  # noqa: ANN001
    """(epoch to begin with, best accuracy so far)."""
    if not options.resume:
        return options.start_epoch, 0.0
    print(f"=> loading checkpoint '{options.resume}'", flush=True)
    checkpoint = torch.load(options.resume, map_location=device)
    for part, name in ((model, "model"), (optimizer, "optimizer"), (scheduler, "scheduler")):
        part.load_state_dict(checkpoint[name])
    print(f"=> loaded checkpoint '{options.resume}' (epoch {checkpoint['epoch']})", flush=True)
    return checkpoint["epoch"], checkpoint["best"]


def save(state: dict, best: bool) -> None:
    os.makedirs("output", exist_ok=True)  # comes home with the results
    torch.save(state, "output/checkpoint.pth.tar")
    if best:
        shutil.copyfile("output/checkpoint.pth.tar", "output/model_best.pth.tar")


def validate(loader: DataLoader, model: nn.Module, device: torch.device, options: argparse.Namespace) -> float:
    """Top-1 accuracy in percent, over all processes."""
    totals = rounds("Test: ", loader, model, device, options)
    if dist.is_initialized():
        dist.all_reduce(totals)
    first, fifth, count = totals.tolist()
    print(f" *   Acc@1 {100 * first / count:.3f} Acc@5 {100 * fifth / count:.3f}", flush=True)
    record(test_acc1=100 * first / count, test_acc5=100 * fifth / count)
    return 100 * first / count


def rounds(title, loader, model, device, options, optimizer=None, epoch=0) -> torch.Tensor:  # noqa: ANN001
    """One pass over the images, which trains where an optimizer is given: (right at first, right among five, images)."""
    meters = [Meter("Time", "6.3f"), Meter("Data", "6.3f"), Meter("Loss", ".4e"), Meter("Acc@1", "6.2f"), Meter("Acc@5", "6.2f")]
    if optimizer is None:
        del meters[1]
    times = meters[: len(meters) - 3]
    loss, first, fifth = meters[-3:]
    totals = torch.zeros(3, device=device)
    model.train(optimizer is not None)
    began = time.time()
    for step, (images, labels) in enumerate(loader, 1):
        if optimizer:
            times[1].add(time.time() - began)
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.set_grad_enabled(optimizer is not None):
            scores = model(images)
            error = nn.functional.cross_entropy(scores, labels)
        right = scores.topk(min(5, scores.shape[1]), 1).indices == labels[:, None]
        totals += torch.stack([right[:, 0].sum(), right.sum(), torch.tensor(len(labels), device=device)])
        loss.add(error.item(), len(labels))
        first.add(100 * right[:, 0].float().mean().item(), len(labels))
        fifth.add(100 * right.sum().item() / len(labels), len(labels))
        if optimizer:
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
        times[0].add(time.time() - began)
        began = time.time()
        if (step - 1) % options.print_freq == 0:
            width = len(str(len(loader)))
            place = f"[{step:{width}d}/{len(loader)}]"
            print("\t".join([title + place, *map(str, meters)]), flush=True)
            if optimizer:
                record(epoch=epoch, step=step, loss=loss.last, acc1=first.last, acc5=fifth.last)
    return totals


def record(**values: float) -> None:
    """A line of JSON for the metrics of the run, if batchtrain gives a file for them."""
    if "BATCHTRAIN_METRICS" in os.environ:
        with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
            file.write(json.dumps(values, default=float) + "\n")


class Meter:
    """The last value and the mean so far."""

    def __init__(self, name: str, form: str) -> None:
        self.name, self.form, self.last, self.total, self.count = name, form, 0.0, 0.0, 0

    def add(self, value: float, count: int = 1) -> None:
        self.last, self.total, self.count = value, self.total + value * count, self.count + count

    def __str__(self) -> str:
        return f"{self.name} {self.last:{self.form}} ({self.total / max(1, self.count):{self.form}})"


if __name__ == "__main__":
    main()
