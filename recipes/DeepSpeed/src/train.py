"""Train a small network on scikit-learn's handwritten digits with DeepSpeed's ZeRO.

What ZeRO keeps in parts (stage 0: nothing, 1: the optimizer's state, 2: gradients too, 3: parameters too), the batch and
the optimizer are in ds.json beside this file. Who is who comes from the environment: RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR and MASTER_PORT. So neither `deepspeed` nor a host file starts it: batchtrain does.

What it prints (the words are stable, so that a program may read them):

    epoch 1 loss 1.2345                                                        rank 0, every epoch
    test accuracy 0.9617                                                       rank 0, at the end
    rank 3 of 4 host n2 stage 2 accuracy 0.9617 weights 3f2a9c01d4…            every rank, at the end, with --verify
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

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read when deepspeed is imported
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

import deepspeed
from torch import nn

TEST_IMAGES = 261


def main() -> None:
    parser = argparse.ArgumentParser(description="Training on handwritten digits with DeepSpeed.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="every rank prints a hash of its weights at the end")
    deepspeed.add_config_arguments(parser)  # --deepspeed, --deepspeed_config FILE
    options = parser.parse_args()

    deepspeed.init_distributed()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    engine, _, _, _ = deepspeed.initialize(args=options, model=model, model_parameters=model.parameters())
    train(engine, options.epochs, options.verify)
    torch.distributed.destroy_process_group()


def train(engine: deepspeed.DeepSpeedEngine, epochs: int, verify: bool) -> None:
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    (images, labels), (test_images, test_labels) = load(engine.device)
    batch = engine.train_batch_size()
    for epoch in range(1, epochs + 1):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))  # the same on every rank
        for start in range(0, len(labels) - batch + 1, batch):
            own = order[start : start + batch][rank::size]
            loss = nn.functional.cross_entropy(engine(images[own]), labels[own])
            engine.backward(loss)
            engine.step()
        if rank == 0:
            say(f"epoch {epoch} loss {loss.item():.4f}")
            record(epoch=epoch, loss=loss.item())

    with torch.no_grad():
        right = engine(test_images).argmax(1) == test_labels
    accuracy = right.float().mean().item()
    weights = whole(engine)
    if verify:
        place = f"rank {rank} of {size} host {socket.gethostname()} stage {engine.zero_optimization_stage()}"
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


def whole(engine: deepspeed.DeepSpeedEngine) -> dict[str, torch.Tensor]:
    """All parameters by name; with stage 3 they are gathered from the ranks first, so every rank calls this."""
    gathered = engine.zero_optimization_stage() == 3
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters()), enabled=gathered):
        return {name: part.detach().cpu().clone() for name, part in engine.module.named_parameters()}


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
