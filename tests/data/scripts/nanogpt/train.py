"""A character model, as nanoGPT trains it: DDP by the variables of torchrun, else one process."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from model import Bigram
from torch.nn.parallel import DistributedDataParallel

options = argparse.ArgumentParser()
options.add_argument("--epochs", type=int, default=20)
options.add_argument("--out", default="out")
options = options.parse_args()

ddp = int(os.environ.get("RANK", -1)) != -1
rank, world = (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])) if ddp else (0, 1)
if ddp:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
torch.manual_seed(1337 + rank)
text = open("data/input.txt", encoding="utf-8").read()
letters = sorted(set(text))
tokens = torch.tensor([letters.index(letter) for letter in text])
model = Bigram(len(letters))
if ddp:
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
for step in range(options.epochs):
    start = time.time()
    at = torch.randint(len(tokens) - 33, (64,))
    x, y = torch.stack([tokens[i : i + 32] for i in at]), torch.stack([tokens[i + 1 : i + 33] for i in at])
    loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"iter {step}: loss {loss.item():.4f}, time {(time.time() - start) * 1000:.2f}ms", flush=True)
if rank == 0:
    os.makedirs(options.out, exist_ok=True)
    torch.save((model.module if ddp else model).state_dict(), os.path.join(options.out, "ckpt.pt"))
    print(f"saved by rank 0 of {world}")
if ddp:
    dist.destroy_process_group()
