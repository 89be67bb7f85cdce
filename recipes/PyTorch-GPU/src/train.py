"""Train a small network on scikit-learn's handwritten digits, data-parallel over the processes of a PyTorch gang.

    --parallel ddp    every process has the whole model; gradients are averaged after each step (the default)
    --parallel fsdp   every process keeps a part of each parameter and gathers the rest when it is needed
    --parallel dp     one process drives all GPUs of its node by threads: DataParallel; no gang, and no second node

Who is who comes from the environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, whether batchtrain
or torchrun set them. GPUs talk by NCCL; without GPUs the processes talk by gloo.

What it prints (the words are stable, so that a program may read them):

    epoch 1 loss 1.2345                                                        rank 0, every epoch
    test accuracy 0.9617                                                       rank 0, at the end
    rank 3 of 4 host n2 device cpu accuracy 0.9617 weights 3f2a9c01d4…         every rank, at the end, with --verify

`weights` is the SHA-256 of the trained parameters: the same on all ranks, because all ranks took the same steps.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import socket
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

BATCH = 64
"""Images a step, over all ranks."""
TEST_IMAGES = 261


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits with PyTorch.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--parallel", choices=("ddp", "fsdp", "dp"), default="ddp", help="default: %(default)s")
    parser.add_argument("--verify", action="store_true", help="every rank prints a hash of its weights at the end")
    options = parser.parse_args()

    device = choose_device()
    if options.parallel != "dp":
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        train(options, device)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()  # the model goes while Python can still let it go: gloo's threads abort Python's end otherwise


def choose_device() -> torch.device:
    """The GPU of this local rank. A launcher that shows each process only its own GPU leaves one to choose from."""
    if not torch.cuda.is_available():
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def train(options: argparse.Namespace, device: torch.device) -> None:
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    (images, labels), (test_images, test_labels) = load(device)
    torch.manual_seed(0)
    model = parallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device), options.parallel)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))  # the same on every rank
        for start in range(0, len(labels), BATCH):
            own = order[start : start + BATCH][rank::size]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[own]), labels[own])
            loss.backward()
            optimizer.step()
        if rank == 0:
            say(f"epoch {epoch} loss {loss.item():.4f}")
            record(epoch=epoch, loss=loss.item())

    with torch.no_grad():
        right = model(test_images).argmax(1) == test_labels  # with FSDP every rank has to take part in this
    accuracy = right.float().mean().item()
    weights = whole(model)
    if options.verify:
        place = f"rank {rank} of {size} host {socket.gethostname()} device {device.type}"
        say(f"{place} accuracy {accuracy:.4f} weights {digest(weights)}")
    if rank == 0:
        say(f"test accuracy {accuracy:.4f}")
        record(test_accuracy=accuracy)
        keep(weights, test_accuracy=accuracy)


def load(device: torch.device) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.tensor(digits.data[order] / 16, dtype=torch.float32, device=device)
    labels = torch.tensor(digits.target[order], device=device)
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def parallel(model: nn.Module, how: str) -> nn.Module:
    if how == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if how == "dp":
        return nn.DataParallel(model) if torch.cuda.is_available() else model
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return fully_shard(model)


def whole(model: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters by name, as the model alone has them. Sharded parameters are gathered, so every rank calls this."""
    state = getattr(model, "module", model).state_dict()  # DDP and DataParallel have the model inside
    return {name: (p.full_tensor() if hasattr(p, "full_tensor") else p).cpu() for name, p in state.items()}


def digest(weights: dict[str, torch.Tensor]) -> str:
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in weights.values())).hexdigest()


def keep(weights: dict[str, torch.Tensor], **metrics: float) -> None:
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    torch.save(weights, "output/model.pt")
    with open("output/metrics.json", "w") as file:
        json.dump(metrics, file)


def record(**values: float) -> None:
    """A line of JSON for the metrics of the run, if batchtrain gives a file for them."""
    if "BATCHTRAIN_METRICS" in os.environ:
        with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
            file.write(json.dumps(values, default=float) + "\n")


def say(line: str) -> None:
    """One line, one write, at once: the lines of several ranks come to one place and must not mix."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
