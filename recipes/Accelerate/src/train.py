"""Train a small network on scikit-learn's handwritten digits with Hugging Face Accelerate.

Accelerate takes everything from the environment: which process this is, how many there are, where they meet, the
precision, and how many batches make a step. The script names none of it.

What it prints (the words are stable, so that a program may read them):

    processes 4 precision bf16                                                 rank 0, at the start
    epoch 1 loss 1.2345                                                        rank 0, every epoch
    test accuracy 0.9617                                                       rank 0, at the end
    rank 3 of 4 host n2 device cpu accuracy 0.9617 weights 3f2a9c01d4…         every rank, at the end, with --verify

`weights` is the SHA-256 of the trained parameters: the same on all ranks, because all ranks took the same steps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 64
"""Images a step, over all ranks."""
TEST_IMAGES = 261


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits with Accelerate.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="every rank prints a hash of its weights at the end")
    options = parser.parse_args()

    accelerator = Accelerator()
    if accelerator.is_main_process:
        say(f"processes {accelerator.num_processes} precision {accelerator.mixed_precision}")
    train(options, accelerator)
    accelerator.end_training()


def train(options: argparse.Namespace, accelerator: Accelerator) -> None:
    learned, (test_images, test_labels) = load()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    each = BATCH // accelerator.num_processes
    loader = DataLoader(learned, batch_size=each, shuffle=True, generator=torch.Generator().manual_seed(0))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(1, options.epochs + 1):
        for images, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        if accelerator.is_main_process:
            say(f"epoch {epoch} loss {loss.item():.4f}")
            record(epoch=epoch, loss=loss.item())

    with torch.no_grad():
        right = model(test_images.to(accelerator.device)).argmax(1).cpu() == test_labels
    accuracy = right.float().mean().item()
    if options.verify:
        rank, size = accelerator.process_index, accelerator.num_processes
        place = f"rank {rank} of {size} host {socket.gethostname()} device {accelerator.device.type}"
        say(f"{place} accuracy {accuracy:.4f} weights {digest(model)}")
    if accelerator.is_main_process:
        say(f"test accuracy {accuracy:.4f}")
        record(test_accuracy=accuracy)
        keep(accelerator, model, test_accuracy=accuracy)


def load() -> tuple[TensorDataset, tuple[torch.Tensor, torch.Tensor]]:
    """What is learned, and (images, labels) to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.tensor(digits.data[order] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target[order])
    learned = TensorDataset(images[TEST_IMAGES:], labels[TEST_IMAGES:])
    return learned, (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def digest(model: nn.Module) -> str:
    """SHA-256 of all parameters."""
    return hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()


def keep(accelerator: Accelerator, model: nn.Module, **metrics: float) -> None:
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    accelerator.save_model(model, "output")  # model.safetensors
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
