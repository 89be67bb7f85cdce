"""The files that run on a node, read here once, so that pure packages can carry them as values.

Nothing here imports the rest of batchtrain. The files need a POSIX shell (rank.sh, sweep.sh, ssh.sh) or bash 4.2
(attempt.sh, gang.sh, lines.sh, node.sh, preflight.sh, inside.sh) and common commands. Only launch/, verdict.py,
ends.py, torchrun.py, batchtrain_checkpoint.py, batchtrain_lineage.py, package_versions.py, batchtrain_sweep.py,
preemption.py and observe.py need Python (3.6 or later); torchrun.py also needs PyTorch.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def _read(name: str) -> bytes:
    return (_HERE / name).read_bytes()


GANG = _read("gang.sh")
"""Functions of the shell that launches a gang on the primary; sourced by the launch text."""
ATTEMPT = _read("attempt.sh")
"""Counts the attempts of a task, and records their beginnings and ends."""
NODE = _read("node.sh")
"""What both launch engines read on a node: its GPUs, its InfiniBand ports, the order of the hosts."""
RANK = _read("rank.sh")
"""Wraps every rank: sets the AZ_BATCH_* values of its own node and reports how it failed."""
LINES = _read("lines.sh")
"""Prints what the ranks of a node print and measure, as records that a client can follow."""
LINES_AWK = _read("lines.awk")
"""Makes records of the lines of a rank."""
SWEEP = _read("sweep.sh")
"""Ends what is left of a gang on one node and prints the failures noted there."""
SSH = _read("ssh.sh")
"""Precedes ssh on the PATH of the primary, so that no unknown host key or port stops a launch."""
PREFLIGHT = _read("preflight.sh")
"""Checks a node before the first rank starts, and reports all faults."""
VERDICT = _read("verdict.py")
"""Reports after a run which network NCCL used, from NCCL's own lines."""
LAUNCH_MAIN = b"import sys\n\nfrom launch.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"
"""`__main__.py` of the directory in which the package `launch` travels: it cannot use relative imports itself."""
LAUNCH = {path.relative_to(_HERE).as_posix(): path.read_bytes() for path in sorted((_HERE / "launch").rglob("*.py"))}
"""The files of the node launcher, which starts the processes of a framework without MPI on all nodes."""
ENDS = _read("ends.py")
"""Runs a Python program whose interpreter would wait for other processes before it ends by an exception."""
TORCHRUN = _read("torchrun.py")
"""Runs torchrun, and keeps its store until every node is done."""
TORCHRUN_SHELL = _read("torchrun.sh")
"""Finds the Python of torchrun for the same, if the command does not start with one."""
CHECKPOINT = _read("batchtrain_checkpoint.py")
"""The module by which a program finds, writes and completes its checkpoints."""
LINEAGE = _read("batchtrain_lineage.py")
"""Finds the checkpoints that a run continues, and says from which run they are."""
PACKAGES = _read("package_versions.py")
"""Lists the package versions of a Python."""
SWEEP_MODULE = _read("batchtrain_sweep.py")
"""The module that names the best task of a sweep."""
UPLOADS = _read("uploads.py")
"""The upload of a task's output while it runs."""
BEFORE_UPLOAD = _read("before_upload.sh")
"""Prepares the files of a detached task for the upload by the service."""
PREEMPTION = _read("preemption.py")
"""Waits until Azure announces the preemption of a node, and passes it on."""
INSIDE = _read("inside.sh")
"""Runs a command in the directory, environment and container of a running task."""
OBSERVE = _read("observe.py")
"""Notes what a node shows of Azure Batch, for `batchtrain verify`."""
