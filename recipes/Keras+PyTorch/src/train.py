"""Train a small Keras 3 model on scikit-learn's handwritten digits, data-parallel over the processes of a PyTorch gang.

With PyTorch behind Keras a model is a `torch.nn.Module`, so PyTorch's DistributedDataParallel averages its gradients as
it does those of any other module. Who is who comes from RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.

What it prints (the words are stable, so that a program may read them):

    epoch 1 loss 1.2345                                                        rank 0, every epoch
    test accuracy 0.9617                                                       rank 0, at the end
    rank 3 of 4 host n2 backend torch accuracy 0.9617 weights 3f2a9c01d4…      every rank, at the end, with --verify
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import socket
import sys

os.environ["KERAS_BACKEND"] = "torch"  # read when keras is imported

import torch

if torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
else:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

import keras
import numpy as np
import torch.distributed as dist

BATCH = 64
"""Images a step, over all ranks."""
TEST_IMAGES = 261


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training on handwritten digits, Keras over PyTorch.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="every rank prints a hash of its weights at the end")
    options = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        train(options.epochs, options.verify)
    finally:
        dist.destroy_process_group()
        gc.collect()  # the model goes while Python can still let it go: gloo's threads abort Python's end otherwise


def train(epochs: int, verify: bool) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    (images, labels), (test_images, test_labels) = load(device)
    keras.utils.set_random_seed(0)
    layers = [keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    together = torch.nn.parallel.DistributedDataParallel(model)
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(1, epochs + 1):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))  # the same on every rank
        for start in range(0, len(labels), BATCH):
            own = order[start : start + BATCH][rank::size]
            optimizer.zero_grad()
            loss = entropy(labels[own], together(images[own]))
            loss.backward()
            optimizer.step()
        if rank == 0:
            say(f"epoch {epoch} loss {loss.item():.4f}")
            record(epoch=epoch, loss=loss.item())

    accuracy = float((model.predict(test_images.cpu().numpy(), verbose=0).argmax(1) == test_labels).mean())
    weights = hashlib.sha256(b"".join(part.tobytes() for part in model.get_weights())).hexdigest()
    if verify:
        place = f"rank {rank} of {size} host {socket.gethostname()} backend {keras.backend.backend()}"
        say(f"{place} accuracy {accuracy:.4f} weights {weights}")
    if rank == 0:
        say(f"test accuracy {accuracy:.4f}")
        record(test_accuracy=accuracy)
        keep(model, test_accuracy=accuracy)


def load(device: torch.device) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, np.ndarray]]:
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.tensor(digits.data[order] / 16, dtype=torch.float32, device=device)
    labels = digits.target[order]
    train_labels = torch.tensor(labels[TEST_IMAGES:], device=device)
    return (images[TEST_IMAGES:], train_labels), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def keep(model: keras.Model, **metrics: float) -> None:
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    model.save("output/model.keras")
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
