"""The files that run on a node. Each says at its beginning what it does, and which shell it needs.

Nothing here imports the rest of batchtrain. The Python files need Python 3.6 or later; torchrun.py also needs PyTorch,
and accelerated.py Accelerate.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def read(name: str) -> bytes:
    """One of the files, for packages that carry it as a value and touch no file themselves."""
    return (_HERE / name).read_bytes()


LAUNCH_MAIN = b"import sys\n\nfrom launch.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"
"""`__main__.py` of the directory in which the package `launch` travels: it cannot use relative imports itself."""
LAUNCH = {path.relative_to(_HERE).as_posix(): path.read_bytes() for path in sorted((_HERE / "launch").rglob("*.py"))}
"""The files of the node launcher, which starts the processes of a framework without MPI on all nodes."""
