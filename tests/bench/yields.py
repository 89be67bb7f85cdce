"""Print how often a waiting rank of Open MPI yields: `python tests/bench/yields.py`. Not a test: nothing fails.

Rank 0 waits 1.5 s in a barrier for the other ranks of its node. Open MPI's ranks poll while they wait, and call
sched_yield() in every round if the launcher counts their node as oversubscribed. A library that is loaded before libc
(LD_PRELOAD, built with `cc`) counts the calls of each process, so no tool needs root. `before` is a host without a
number, which has one slot, and `after` is the launch of today: only ranks without a processor of their own yield.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.conftest import mpi_prefix  # noqa: E402
from tests.contract.test_mpi_binding import launch, run  # noqa: E402

COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long calls;

int sched_yield(void) {
  static int (*next)(void);
  __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
  if (!next) next = (int (*)(void))dlsym(RTLD_NEXT, "sched_yield");
  return next();
}

__attribute__((destructor)) static void report(void) {
  const char *path = getenv("YIELDS"), *rank = getenv("OMPI_COMM_WORLD_RANK");
  FILE *file = path && rank ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%s %lu\n", rank, calls);
  fclose(file);
}
"""
WAITS = """
import time
from mpi4py import MPI

world = MPI.COMM_WORLD
world.Barrier()
if world.rank:
    time.sleep(1.5)
world.Barrier()
"""
BEFORE = f"--oversubscribe -host {socket.gethostname()} -np {{0}} --map-by ppr:{{0}}:node --bind-to none"


def main() -> int:
    prefix, cores = mpi_prefix("openmpi"), len(os.sched_getaffinity(0))
    print(f"calls of sched_yield() by rank 0 of Open MPI while it waits 1.5 s, on {cores} processors")
    for ranks in (2, 2 * cores):
        before, after = yields(prefix, ranks, BEFORE.format(ranks)), yields(prefix, ranks)
        print(f"  {ranks} ranks a node   before {before:9,}   after {after:9,}")
    return 0


def yields(prefix: Path, ranks: int, line: str = "") -> int:
    """The calls of rank 0 in our launch, or with the options of a line of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "counter.c").write_text(COUNTER)
        library, program, counts = folder / "counter.so", folder / "waits.py", folder / "yields"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, folder / "counter.c", "-ldl"], check=True)
        program.write_text(WAITS)
        command = f"python {program}"
        made = launch("openmpi", None, line, command=command) if line else launch("openmpi", ranks, command=command)
        run(folder, prefix, "openmpi", made, LD_PRELOAD=str(library), YIELDS=str(counts))
        return sum(int(words[1]) for words in map(str.split, counts.read_text().splitlines()) if words[0] == "0")


if __name__ == "__main__":
    sys.exit(main())
