"""Train a small GPT with PyTorch FSDP on text that the script makes, and go on from the newest checkpoint.

Every process holds a part of each parameter (FSDP). Every few steps all processes write their parts to a checkpoint
while the training goes on (torch.distributed.checkpoint, asynchronous). After a restart the same command continues from
the newest complete checkpoint, and ends with the same weights as a run that nothing interrupted.

Who is who comes from RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; where checkpoints are, from
BATCHTRAIN_CHECKPOINT_DIR. batchtrain sets all of them, and brings the module `batchtrain_checkpoint`.

What it prints (the words are stable, so that a program may read them):

    begins at step 0                                                  rank 0, at the start
    step 10 loss 2.3456                                               rank 0, every ten steps
    checkpoint step 20                                                rank 0, when it is complete
    a node is preempted in 29 s                                       rank 0, when Azure announces it
    rank 1 of 2 host n2 loss 0.5678 weights 3f2a9c01d4…               every rank, at the end
    sample: the red cat sees                                          rank 0, at the end
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import math
import os
import random
import socket
import sys
import time
from concurrent.futures import Future
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

try:
    import batchtrain_checkpoint as checkpoint  # comes with a task that has `checkpoint`
except ImportError:  # outside of a task, only the model is imported
    checkpoint = None

BATCH, CONTEXT, WIDTH, HEADS, LAYERS = 16, 48, 64, 4, 2
"""Sequences a step, over all ranks; characters of a sequence; the size of the model."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A small language model with PyTorch FSDP and checkpoints.")
    parser.add_argument("--steps", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--save-every", type=int, default=20, help="steps between checkpoints (default: %(default)s)")
    options = parser.parse_args()

    device = choose_device()
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        train(options, device)
    finally:
        dist.destroy_process_group()
        gc.collect()  # the model goes while Python can still let it go: gloo's threads abort Python's end otherwise


def choose_device() -> torch.device:
    if not torch.cuda.is_available():
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def train(options: argparse.Namespace, device: torch.device) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    text = Text.made()
    torch.manual_seed(0)
    model = sharded(Model(len(text.letters)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    saver = Saver(model, optimizer, device)
    first = saver.resume()
    if rank == 0:
        say(f"begins at step {first}")

    began, steps = time.monotonic(), 0
    for step in range(first + 1, options.steps + 1):
        loss = loss_of(model, text.batch(step, device)[rank::size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if rank == 0 and step % 10 == 0:
            say(f"step {step} loss {loss.item():.4f}")
            rate = steps * BATCH / (time.monotonic() - began)
            record(step=step, loss=loss.item(), perplexity=math.exp(loss.item()), total_samples_per_second=rate)
            began, steps = time.monotonic(), 0
        if step % options.save_every == 0 or saver.is_urgent():
            saver.save(step)
    saver.finish()

    weights, loss = whole(model), loss_now(model, text, device)
    say(f"rank {rank} of {size} host {socket.gethostname()} loss {loss:.4f} weights {digest(weights)}")
    sample = continued(model, text, "the ", device)  # every rank takes part in it
    if rank == 0:
        say(f"sample: {sample}")
        keep(weights, loss=loss, perplexity=math.exp(loss))


# --- checkpoints ----------------------------------------------------------------------------------------------------


class Saver:
    """Writes checkpoints while the training goes on, and reads the newest one."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self.model, self.optimizer, self.device = model, optimizer, device
        self.group = dist.new_group(backend="gloo")  # the parts are written while the training uses the other group
        self.pending: Future | None = None
        self.told = False

    def resume(self) -> int:
        """The step of the newest complete checkpoint, which is loaded; 0 if there is none."""
        path = self.agreed(checkpoint.newest)
        if path is not None:
            state = self.state()
            dcp.load(state, checkpoint_id=path, process_group=self.group)
            set_state_dict(
                self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
            )
        return checkpoint.step_of(path)

    def save(self, step: int) -> None:
        """Copy the state, and write the copy in the background."""
        self.finish()
        path = self.agreed(lambda: checkpoint.begin(step))
        self.pending = dcp.async_save(self.state(), checkpoint_id=path, process_group=self.group)
        if dist.get_rank() == 0:  # its part is done when the parts of all ranks are
            self.pending.add_done_callback(lambda done: done.exception() or completed(path))

    def finish(self) -> None:
        """Wait for the checkpoint that is being written."""
        if self.pending is not None:
            self.pending.result()
            self.pending = None

    def is_urgent(self) -> bool:
        """Whether the preemption of a node was just announced to any rank."""
        left = None if self.told else checkpoint.preempted()
        told = torch.tensor(0 if left is None else 1, device=self.device)
        dist.all_reduce(told)
        if not told or self.told:
            return False
        self.told = True
        if dist.get_rank() == 0:
            say("a node is preempted" if left is None else f"a node is preempted in {left:.0f} s")
        return True

    def state(self) -> dict[str, object]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def agreed(self, ask) -> str | None:
        """The answer of rank 0, for all ranks."""
        answer = [ask() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(answer, src=0, group=self.group)
        return answer[0]


def completed(path: str) -> None:
    checkpoint.complete(path)
    say(f"checkpoint step {checkpoint.step_of(path)}")


# --- the model ------------------------------------------------------------------------------------------------------


class Model(nn.Module):
    """A GPT: embeddings, blocks of attention and a small network, and a score for each next character."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, letters, bias=False)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        x = self.letters(numbers) + self.places(torch.arange(numbers.shape[1], device=numbers.device))
        for block in self.blocks:
            x = block(x)
        return self.scores(self.last(x))

    @classmethod
    def load(cls, path: str) -> Model:
        """The trained model of a run, on the CPU."""
        weights = torch.load(path)
        model = cls(len(weights["letters.weight"]))
        model.load_state_dict(weights)
        return model


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.attend(self.first(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.join(scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.think(self.second(x))


def sharded(model: Model) -> nn.Module:
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def loss_of(model: nn.Module, sequences: torch.Tensor) -> torch.Tensor:
    return cross_entropy(model(sequences[:, :-1]).flatten(0, 1), sequences[:, 1:].flatten())


@torch.no_grad()
def loss_now(model: nn.Module, text: Text, device: torch.device) -> float:
    return loss_of(model, text.batch(0, device)).item()


@torch.no_grad()
def continued(model: nn.Module, text: Text, words: str, device: torch.device) -> str:
    """The words, and what the model finds most probable after them."""
    while len(words) < CONTEXT:
        numbers = torch.tensor([[text.letters.index(letter) for letter in words]], device=device)
        words += text.letters[int(model(numbers)[0, -1].argmax())]
    return words.strip()


def whole(model: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters by name, gathered from the ranks: every rank calls this."""
    return {name: part.full_tensor().detach().cpu() for name, part in model.named_parameters()}


def digest(weights: dict[str, torch.Tensor]) -> str:
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in weights.values())).hexdigest()


# --- the text -------------------------------------------------------------------------------------------------------


class Text(NamedTuple):
    """Sentences of a few words, always the same ones."""

    letters: str
    numbers: torch.Tensor

    @classmethod
    def made(cls) -> Text:
        pick = random.Random(0)
        things, does = ("cat", "dog", "bird", "fish", "child"), ("sees", "likes", "finds", "follows")
        adjectives = ("red", "small", "quick", "old")
        text = "".join(
            f"the {pick.choice(adjectives)} {pick.choice(things)} {pick.choice(does)} the {pick.choice(things)}. "
            for _ in range(2000)
        )
        letters = "".join(sorted(set(text)))
        return cls(letters, torch.tensor([letters.index(letter) for letter in text]))

    def batch(self, step: int, device: torch.device) -> torch.Tensor:
        """The sequences of a step: the same after a restart, and the same on every rank."""
        chance = torch.Generator().manual_seed(step)
        starts = torch.randint(len(self.numbers) - CONTEXT - 1, (BATCH,), generator=chance)
        return torch.stack([self.numbers[start : start + CONTEXT + 1] for start in starts]).to(device)


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
