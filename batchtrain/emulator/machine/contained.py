"""A run, in the words of the machine that its node's containers are on: what they see, know and are told."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from batchtrain.emulator.machine import hold, run_options
from batchtrain.emulator.machine.types import Container, NodeUp, Run

MARKER = "BATCHTRAIN_EMULATED_NODE"
LONGEST_LINE = 50_000
ENVIRONMENT = {
    MARKER: "container",
    "I_MPI_THREAD_YIELD": "3",
    "I_MPI_PIN": "0",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
"""What a task's container knows beside its own environment: more ranks than cores is normal here (see `process`)."""

SOURCES = {
    "Shared": "AZ_BATCH_NODE_SHARED_DIR",
    "Startup": "AZ_BATCH_NODE_STARTUP_DIR",
    "VfsMounts": "AZ_BATCH_NODE_MOUNTS_DIR",
    "Task": "AZ_BATCH_TASK_DIR",
    "JobPrep": "AZ_BATCH_JOB_PREP_DIR",
    "Applications": "",
}
"""What containerHostBatchBindMounts may name, and the variable that says where it is."""


class Here:
    """A run, in the words of its node's machine."""

    def __init__(self, run: Run, up: NodeUp, tmp: Path, data_dir: Path) -> None:
        assert run.container is not None
        self.run, self.up, self.tmp = run, up, tmp
        self.container: Container = run.container
        self.image = run.container.image
        self.hold = data_dir / "machine" / hold.NAME
        self.stdout, self.stderr = (up.root / run.directory / name for name in ("stdout.txt", "stderr.txt"))
        self.mounted = data_dir / "mounts"
        self.environment = {**ENVIRONMENT, **run.environment}

    def pairs(self) -> list[str]:
        """For a command in a container that is there: the second of a scope may have another environment."""
        return [f"{name}={value}" for name, value in self.environment.items()]

    def arguments(self) -> Iterable[str]:
        yield from (f"--mount=type=bind,source={source},target={target}{more}" for source, target, more in self.binds())
        if not self.container.image_directory:
            yield f"--workdir={self.up.root_inside}/{self.run.directory}/wd"
        yield "--user=0:0" if self.run.elevated else f"--user={os.getuid()}:{os.getgid()}"

    def binds(self) -> Iterable[tuple[Path, str, str]]:
        """(on the machine, in the container, options): all of the node's directory, or what was asked for."""
        wanted = self.container.mounts
        if self.mounted.is_dir() and (wanted is None or any(one.source == "VfsMounts" for one in wanted)):
            yield self.mounted, str(self.mounted), ""  # what links of the node's fsmounts lead to
        if wanted is None:
            yield self.up.root, self.up.root_inside, ""
            return
        for mount in wanted:
            inside = self.run.environment.get(SOURCES.get(mount.source, ""), "")
            if mount.source == "Applications":
                inside = f"{self.up.root_inside}/applications"
            if inside:
                yield Path(self.on_machine(inside)), inside, ",readonly" if mount.read_only else ""

    def node(self, network: str, prefix: str) -> run_options.Node:
        return run_options.Node(network, self.on_machine, has_device, prefix)

    def on_machine(self, path: str) -> str:
        """What the node's processes call by this path."""
        return on_machine(path, self.up, self.tmp)


def on_machine(path: str, up: NodeUp, tmp: Path) -> str:
    """What a node's processes call by this path, as one of this machine's."""
    places = ((up.root_inside, up.root), ("/home/_azbatch", up.root / "home/_azbatch"), ("/tmp", tmp))
    for inside, place in places:
        if f"{path}/".startswith(f"{inside}/"):
            return f"{place}{path[len(inside) :]}"
    return path


def fits_a_line(value: str) -> bool:
    """Of docker's --env-file."""
    return len(value) < LONGEST_LINE and not {"\n", "\r"} & set(value)


def has_device(path: str) -> bool:
    """Also a directory of devices, such as /dev/infiniband."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - beside stat's tests
    except OSError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
