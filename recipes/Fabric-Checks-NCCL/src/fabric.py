"""Whether the network of all nodes is as fast as it should be: measured over all of them, then between each two.

    mpirun -n 4 python -u fabric.py --output DIR [--gpus]

With --gpus there is a rank for each GPU, and NCCL's all-reduce is measured, too: in each node, over all nodes, and over
each two. `DIR/fabric.json` has the nodes, the values and the pairs; `batchtrain check fabric` judges them.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from bench import allreduce, pingpong, say
from mpi4py import MPI

Pair = tuple[int, int]


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the network between all nodes, and between each two.")
    parser.add_argument("--output", type=Path, required=True, help="directory of fabric.json")
    parser.add_argument("--gpus", action="store_true", help="measure the GPUs with NCCL, one for each rank")
    parser.add_argument("--bytes", type=int, default=64 << 20, help="of a message between hosts (default: %(default)s)")
    parser.add_argument(
        "--gpu-bytes", type=int, default=16 << 30, help="of an all-reduce of GPUs (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="the best is taken (default: %(default)s)")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    name = os.environ.get("AZ_BATCH_NODE_ID") or socket.gethostname()
    nodes = list(dict.fromkeys(comm.allgather(name)))
    node = nodes.index(name)
    of_node = comm.Split(node, comm.rank)
    hosts = comm.Split(0 if of_node.rank == 0 else MPI.UNDEFINED, comm.rank)
    say(comm, f"{comm.size} ranks on {len(nodes)} nodes")
    values: dict[str, float] = {}
    pairs: dict[Pair, dict[str, float]] = {pair: {} for round_ in rounds(len(nodes)) for pair in round_}
    if of_node.rank == 0:
        measure_hosts(hosts, node, options.bytes, options.repeats, values, pairs)
    if options.gpus:
        measure_gpus(comm, of_node, node, len(nodes), options.gpu_bytes, options.repeats, values, pairs)
    if comm.rank == 0:
        write(options.output, nodes, values, pairs)


def rounds(number: int) -> Iterator[list[Pair]]:
    """Each two of so many nodes once; the pairs of a round have no node in common and are measured at the same time."""
    seats = [*range(number), *([-1] if number % 2 else [])]
    for _ in range(len(seats) - 1):
        pairs = [sorted((seats[at], seats[-1 - at])) for at in range(len(seats) // 2)]
        yield [(first, second) for first, second in pairs if first >= 0]
        seats = [seats[0], seats[-1], *seats[1:-1]]


def pair_of(node: int, pairs: list[Pair]) -> Pair | None:
    return next((pair for pair in pairs if node in pair), None)


def busbw(size: int, ranks: int, seconds: float) -> float:
    """GB/s of the busiest link in an all-reduce, as nccl-tests computes it."""
    return 2 * (ranks - 1) / ranks * size / seconds / 1e9


# --- hosts ----------------------------------------------------------------------------------------------------------


def measure_hosts(
    hosts: MPI.Intracomm,
    node: int,
    size: int,
    repeats: int,
    values: dict[str, float],
    pairs: dict[Pair, dict[str, float]],
) -> None:
    """The messages of MPI between the nodes, from one process on each."""
    if hosts.size < 2:
        return
    seconds = min(allreduce(hosts, size, 4) for _ in range(repeats))
    values["allreduce_gb_per_second"] = busbw(size, hosts.size, seconds)
    say(hosts, f"all-reduce over all hosts: {values['allreduce_gb_per_second']:.2f} GB/s")
    measured: dict[Pair, dict[str, float]] = {}
    for round_ in rounds(hosts.size):
        pair = pair_of(node, round_)
        comm = hosts.Split(pair[0] if pair else MPI.UNDEFINED, node)
        if pair:
            latency = min(pingpong(comm, 1, 8, 200) for _ in range(repeats))
            seconds = min(pingpong(comm, 1, size, 4) for _ in range(repeats))
            measured[pair] = {"latency_us": latency * 1e6, "gb_per_second": size / seconds / 1e9}
            comm.Free()
    collect(hosts, measured, pairs)
    values["pair_gb_per_second"] = min(pair["gb_per_second"] for pair in pairs.values())
    values["pair_latency_us"] = max(pair["latency_us"] for pair in pairs.values())


def collect(comm: MPI.Intracomm, measured: dict[Pair, dict[str, float]], pairs: dict[Pair, dict[str, float]]) -> None:
    """What each process measured; both sides of a pair measure it, and the slower value counts."""
    for of_rank in comm.allgather(measured):
        for pair, values in of_rank.items():
            for name, value in values.items():
                worse = max if name.endswith("_us") else min
                pairs[pair][name] = worse(value, pairs[pair].get(name, value))


# --- GPUs -----------------------------------------------------------------------------------------------------------


def measure_gpus(
    comm: MPI.Intracomm,
    of_node: MPI.Intracomm,
    node: int,
    nodes: int,
    size: int,
    repeats: int,
    values: dict[str, float],
    pairs: dict[Pair, dict[str, float]],
) -> None:
    """The copies from the host to each GPU, and the all-reduces of NCCL."""
    from device import Device

    device = Device(of_node.rank)
    size = comm.allreduce(min(size, device.free_bytes() // 2), MPI.MIN)
    copy = 0.0
    for rank in range(of_node.size):  # one after the other: GPUs share the way to the host
        of_node.Barrier()
        if rank == of_node.rank:
            copy = max(device.copy_rate(min(size, 1 << 30)) for _ in range(repeats))
    values["gpu_copy_gb_per_second"] = comm.allreduce(copy, MPI.MIN)
    if of_node.size > 1:
        within = nccl_rate(device, of_node, size, repeats)
        values["gpu_node_gb_per_second"] = comm.allreduce(within, MPI.MIN)
    if nodes > 1:
        values["gpu_allreduce_gb_per_second"] = nccl_rate(device, comm, size, repeats)
    measured: dict[Pair, dict[str, float]] = {}
    for round_ in rounds(nodes):
        pair = pair_of(node, round_)
        of_pair = comm.Split(pair[0] if pair else MPI.UNDEFINED, comm.rank)
        if pair:
            measured[pair] = {"gpu_gb_per_second": nccl_rate(device, of_pair, size, repeats)}
            of_pair.Free()
    collect(comm, measured, pairs)
    if pairs:
        values["gpu_pair_gb_per_second"] = min(pair["gpu_gb_per_second"] for pair in pairs.values())
    for name, value in values.items():
        say(comm, f"{name} {value:.2f}")


def nccl_rate(device: "Device", comm: MPI.Intracomm, size: int, repeats: int) -> float:  # noqa: F821, UP037
    """GB/s of the busiest link in the all-reduce of the GPUs of a communicator."""
    group = device.join(comm.bcast(device.new_id() if comm.rank == 0 else None), comm.size, comm.rank)
    total = device.sum_of(group, comm.rank + 1.0)
    if total != comm.size * (comm.size + 1) / 2:
        raise SystemExit(f"rank {comm.rank}: the sum over all GPUs is wrong ({total})")
    seconds = []
    for _ in range(repeats + 1):  # the first one opens the connections
        comm.Barrier()
        began = MPI.Wtime()
        device.allreduce(group, size)
        seconds.append(MPI.Wtime() - began)
    device.leave(group)
    return busbw(size, comm.size, comm.allreduce(min(seconds[1:]), MPI.MAX))


# --- the result -----------------------------------------------------------------------------------------------------


def write(output: Path, nodes: list[str], values: dict[str, float], pairs: dict[Pair, dict[str, float]]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    rows = [{"first": first, "second": second, **pair} for (first, second), pair in sorted(pairs.items())]
    document = {"nodes": nodes, "values": values, "pairs": rows}
    (output / "fabric.json").write_text(json.dumps(document, indent=1) + "\n")
    if values and "BATCHTRAIN_METRICS" in os.environ:
        with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
            file.write(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()
