"""A run in a container, as the engine of this machine sees it: its mounts, names and environment."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from batchtrain.emulator.interface import Container, Mount, NodeUp, Run
from batchtrain.emulator.machine import hold, run_options
from batchtrain.emulator.machine.pool_key import HOME, LOGIN
from batchtrain.emulator.machine.rooted_path import RootedPath, is_below
from batchtrain.emulator.mapped_images import main_dir

MARKER = "BATCHTRAIN_EMULATED_NODE"
LONGEST_LINE = 50_000
ENVIRONMENT = {MARKER: "container", "I_MPI_THREAD_YIELD": "3", "I_MPI_PIN": "0", "OMPI_MCA_mpi_yield_when_idle": "1"}
"""Variables of a task's container besides its own environment: more ranks than cores is normal here (see `process`)."""

SOURCES = {
    "Shared": "AZ_BATCH_NODE_SHARED_DIR",
    "Startup": "AZ_BATCH_NODE_STARTUP_DIR",
    "VfsMounts": "AZ_BATCH_NODE_MOUNTS_DIR",
    "Task": "AZ_BATCH_TASK_DIR",
    "JobPrep": "AZ_BATCH_JOB_PREP_DIR",
    "Applications": "",
}
"""Values of containerHostBatchBindMounts, and the variable with the path of each."""


class Contained:
    """A run in a container, with the paths of the machine of its node."""

    def __init__(self, run: Run, up: NodeUp, tmp: Path, data_dir: Path, mounts: Iterable[Mount] = ()) -> None:
        assert run.container is not None
        self.run, self.up = run, up
        self.container: Container = run.container
        self.image = run.container.image
        self.hold = hold.program_path(data_dir)
        self.files = RootedPath(up.root, {up.root_inside: up.root})
        self.paths = NodePaths(up, tmp, data_dir, tuple(mounts))
        self.environment = {**ENVIRONMENT, **run.environment}

    def pairs(self) -> list[str]:
        """For a command in a container that exists: the second of a scope may have another environment."""
        return [f"{name}={value}" for name, value in self.environment.items()]

    def arguments(self) -> Iterable[str]:
        """The arguments of `docker create` that the node and the run determine. Raises NotTheNodes."""
        yield from (f"--mount=type=bind,source={source},target={target}{more}" for source, target, more in self.binds())
        if not self.container.image_directory:
            yield f"--workdir={self.up.root_inside}/{self.run.directory}/wd"
        yield "--user=0:0" if self.run.elevated else f"--user={os.getuid()}:{os.getgid()}"

    def binds(self) -> Iterable[tuple[Path, str, str]]:
        """(on the machine, in the container, options): the whole directory of the node, or the requested mounts."""
        mounts = self.container.mounts
        if mounts is None or any(mount.source == "VfsMounts" for mount in mounts):
            yield from ((path, str(path), "") for path in self.paths.mounted)  # where links of fsmounts lead
        if mounts is None:
            yield self.up.root, self.up.root_inside, ""
            return
        for mount in mounts:
            inside = self.run.environment.get(SOURCES.get(mount.source, ""), "")
            if mount.source == "Applications":
                inside = f"{self.up.root_inside}/applications"
            if inside:
                yield Path(self.paths.on_machine(inside)), inside, ",readonly" if mount.read_only else ""

    def node(self, network: str, prefix: str) -> run_options.Node:
        return run_options.Node(network, self.paths.on_machine, has_device, prefix, self.paths.hidden_in)


class NotTheNodes(ValueError):
    """A path that leads to files of the emulator itself or of other nodes; the message says which."""


class NodePaths(NamedTuple):
    """The paths of this machine that the containers of a node may use."""

    up: NodeUp
    tmp: Path
    data_dir: Path
    mounts: tuple[Mount, ...] = ()

    @property
    def mounted(self) -> tuple[Path, ...]:
        """The directories that stand for the mounted file systems of the pool."""
        return tuple(self.data_dir / mount.directory for mount in self.mounts)

    def on_machine(self, path: str) -> str:
        """The path on this machine, without links: an engine would follow them as root. Raises NotTheNodes."""
        machine_path = self._without_links(self._translated(os.path.normpath(path) if path.startswith("/") else path))
        real = os.path.realpath(machine_path)
        directories = (self.up.root, self.tmp, *self.mounted)
        is_the_nodes = any(is_below(real, os.path.realpath(directory)) for directory in directories)
        if is_below(real, os.path.realpath(main_dir(self.data_dir))) and not is_the_nodes:
            raise NotTheNodes(f"{path} belongs to the emulator, not to the node")
        return machine_path

    def _translated(self, path: str) -> str:
        for inside, directory in self._places().items():
            if is_below(path, inside):
                return f"{directory}{path[len(inside) :]}"
        return path

    def _without_links(self, path: str) -> str:
        link_names = {**{str(directory): directory for directory in self.mounted}, **self._places()}
        for home in (str(self.up.root), str(self.tmp)):
            if is_below(path, home):
                try:
                    return _real(RootedPath(home, link_names), path[len(home) + 1 :])
                except OSError as error:
                    raise NotTheNodes(f"{path} cannot be shown to the container: {error}") from None
        return path

    def _places(self) -> dict[str, Path]:
        root = self.up.root
        return {self.up.root_inside: root, f"/{LOGIN}": root / HOME, "/tmp": self.tmp}

    def hidden_in(self, path: str) -> str:
        """The path of the emulator's data directory below a directory of this machine; empty if it is elsewhere."""
        above, data_dir = Path(os.path.realpath(path)), Path(os.path.realpath(main_dir(self.data_dir)))
        return str(data_dir.relative_to(above)) if above in data_dir.parents else ""


def _real(files: RootedPath, path: str) -> str:
    """Create the parent directories; the engine creates the missing directory itself."""
    try:
        return files.real(path)
    except FileNotFoundError:
        files.make(path.rpartition("/")[0])
        return files.real(path)


def fits_a_line(value: str) -> bool:
    """Whether a value fits a line of docker's --env-file."""
    return len(value) < LONGEST_LINE and not {"\n", "\r"} & set(value)


def has_device(path: str) -> bool:
    """Also a directory of devices, such as /dev/infiniband."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - beside stat's tests
    except OSError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
