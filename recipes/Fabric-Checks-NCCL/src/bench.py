"""How fast messages travel between ranks, measured with mpi4py: ping-pong between two nodes, and the all-reduce of all.

    mpirun -n 4 python -u bench.py --iterations 200

What it prints, by rank 0 (the words are stable, so that a program may read them):

    ranks 4 on 2 hosts
    pingpong 1048576 bytes 412.3 usec 2543.2 MB/s
    allreduce 1048576 bytes 1520.1 usec
"""

from __future__ import annotations

import argparse
import socket
import sys
import time

import numpy as np
from mpi4py import MPI

SIZES = tuple(4**power for power in range(1, 11))
"""Bytes of a message: 4 to 1 Mi."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Ping-pong and all-reduce with mpi4py.")
    parser.add_argument("--iterations", type=int, default=200, help="of each size (default: %(default)s)")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    hosts = comm.allgather(socket.gethostname())
    say(comm, f"ranks {comm.size} on {len(set(hosts))} hosts")
    other = next((rank for rank, host in enumerate(hosts) if host != hosts[0]), comm.size - 1)
    for size in SIZES:
        seconds = pingpong(comm, other, size, options.iterations)
        say(comm, f"pingpong {size} bytes {seconds * 1e6:.1f} usec {size / seconds / 1e6:.1f} MB/s")
    for size in SIZES:
        say(comm, f"allreduce {size} bytes {allreduce(comm, size, options.iterations) * 1e6:.1f} usec")


def pingpong(comm: MPI.Intracomm, other: int, size: int, iterations: int) -> float:
    """Seconds one way, between rank 0 and a rank on another node if there is one."""
    message = np.zeros(size, np.uint8)
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(iterations):
        if comm.rank == 0 and other != 0:
            comm.Send(message, other)
            comm.Recv(message, other)
        elif comm.rank == other:
            comm.Recv(message, 0)
            comm.Send(message, 0)
    return (time.perf_counter() - began) / iterations / 2


def allreduce(comm: MPI.Intracomm, size: int, iterations: int) -> float:
    """Seconds a sum over all ranks, which is checked."""
    own, total = np.full(size // 4, comm.rank + 1, np.float32), np.empty(size // 4, np.float32)
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(iterations):
        comm.Allreduce(own, total)
    seconds = (time.perf_counter() - began) / iterations
    if not (total == comm.size * (comm.size + 1) / 2).all():
        raise SystemExit(f"rank {comm.rank}: the sum over all ranks is wrong")
    return seconds


def say(comm: MPI.Intracomm, line: str) -> None:
    if comm.rank == 0:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
