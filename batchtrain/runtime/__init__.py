"""What runs on a node: files that are read here once, so that pure packages can carry them as values.

Nothing here imports the rest of batchtrain; the files themselves need a POSIX shell (rank.sh, sweep.sh, ssh.sh) or
bash 4.2 (gang.sh, node.sh, preflight.sh, docker.sh, engine.sh) and the usual small commands, and no Python but for
launch/, verdict.py, ends.py, batchtrain_checkpoint.py and torchrun.py (3.6 or later; only torchrun.py imports more
than the standard library: PyTorch).
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources


def _read(name: str) -> bytes:
    return resources.files(__name__).joinpath(name).read_bytes()


def _package(folder: str) -> Iterator[tuple[str, bytes]]:
    """Paths and texts of a package's modules, its own sub-packages included."""
    for item in sorted(resources.files(__name__).joinpath(folder).iterdir(), key=lambda item: item.name):
        name = f"{folder}/{item.name}"
        if item.is_dir():
            yield from _package(name)
        elif name.endswith(".py"):
            yield name, item.read_bytes()


GANG = _read("gang.sh")
"""Functions of the shell that launches a gang on the primary; sourced by the launch text."""
NODE = _read("node.sh")
"""What both launch engines ask of a node: its GPUs, its InfiniBand ports, the order of the hosts."""
RANK = _read("rank.sh")
"""Wraps every rank: gives it its own node's AZ_BATCH_* values and reports how it failed."""
SWEEP = _read("sweep.sh")
"""Ends what is left of a gang on one node and prints the failures noted there."""
SSH = _read("ssh.sh")
"""Stands before ssh on the primary's PATH, so that no unknown host key or port stops a launch."""
PREFLIGHT = _read("preflight.sh")
"""Looks at a node before any rank does, and says all that is not as expected."""
VERDICT = _read("verdict.py")
"""Says after a run which network NCCL used, of NCCL's own lines."""
LAUNCH_DOOR = b"import sys\n\nfrom launch.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"
"""`__main__.py` of the directory in which the package `launch` travels: it cannot use relative imports itself."""
LAUNCH = dict(_package("launch"))
"""The node launcher: the processes of a framework without MPI, on all nodes, from gang.json; files of its package."""
ENDS = _read("ends.py")
"""Runs a Python program whose interpreter would wait for the others before it ended by an exception."""
TORCHRUN = _read("torchrun.py")
"""Runs torchrun, and keeps its store until every node is done."""
CHECKPOINT = _read("batchtrain_checkpoint.py")
"""The module by which a program finds, writes and completes its checkpoints."""
DOCKER = _read("docker.sh")
"""Functions of the host's shell that run a task's container in the node's own Docker Engine."""
ENGINE = _read("engine.sh")
"""Functions of the start task's shell that bring a node a Docker Engine of its own."""
