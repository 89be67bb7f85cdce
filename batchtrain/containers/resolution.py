"""What an environment gets, before any of it is downloaded: builds for CPUs where an index has them, and the size."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import tomli

from batchtrain.config.source_packages import REQUIREMENTS
from batchtrain.containers import uv
from batchtrain.containers.environments import TORCH, TORCH_INDEX
from batchtrain.containers.make_environment import Intended

OLDEST = (3, 8)
"""The oldest Python for which uv finds packages."""
OF_TORCH = ("torch", "torchvision", "torchaudio")
"""Packages whose builds of PyPI for Linux have CUDA, and which fit together only as builds of one kind."""
UNPACKED, UNPACKED_CUDA, LARGE = 4.0, 1.6, 200
"""A package takes this many times its download. Libraries for GPUs take less: those of CUDA, XGBoost, and PyTorch with
them, which is a download of more than LARGE megabytes. Measured: torch 2.14 2.1, cuBLAS 1.4, NCCL 1.4, xgboost 3.2 1.8,
torch 2.13+cpu 3.6, triton 3.8, small packages 3 to 5."""
VENV = 25
"""Megabytes of an environment without packages."""


class _Found(NamedTuple):
    """A package in an environment."""

    version: str
    megabytes: float
    """Of its download; 0 if it is unknown."""


def resolved(plan: Intended) -> Intended:
    """The environment with its size, and with builds of PyTorch for CPUs. Raises NotMade for a list of packages that
    cannot be installed, before anything is."""
    listed = any(source.packages for source in plan.own_packages)
    if plan.ready or not listed or tuple(map(int, plan.version.split("."))) < OLDEST:
        return plan
    base, packages = plan.spec.packages, _found(plan, plan.spec.packages)
    if packages is None:  # the list has other versions, which are installed after those of the environment
        base, packages = (), _find(plan, ())
    builds: tuple[str, ...] = ()
    if plan.spec.extra_index == TORCH_INDEX and _others(packages):
        packages, builds = _for_cpus(plan, base, packages)
    download = round(sum(package.megabytes for package in packages.values()))
    size = VENV + sum(_unpacked(name, package.megabytes) for name, package in packages.items())
    spec = plan.spec if plan.spec.packages or "torch" in packages else plan.spec._replace(extra_index="")
    return plan._replace(spec=spec, builds=builds, megabytes=max(round(size), plan.spec.megabytes), download=download)


def _for_cpus(
    plan: Intended, base: tuple[str, ...], packages: Mapping[str, _Found]
) -> tuple[Mapping[str, _Found], tuple[str, ...]]:
    """The packages with builds for CPUs of the same version of PyTorch, or of the one that the recipes use; unchanged
    if no index has either."""
    version = packages["torch"].version.partition("+")[0] if "torch" in packages else ""
    for candidate in filter(None, (version, TORCH[0].partition("==")[2])):
        builds = {"torch": candidate}
        while (fitting := _found(plan, (*base, *_pins(builds)))) is not None:
            if not (others := _others(fitting)):
                return fitting, _pins(builds)
            builds |= others
    return packages, ()


def _others(packages: Mapping[str, _Found]) -> dict[str, str]:
    """The versions of the packages of PyTorch that are no builds of one kind, as PyPI has them."""
    versions = {name: packages[name].version for name in OF_TORCH if name in packages}
    return {name: version for name, version in versions.items() if "+" not in version}


def _pins(builds: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}=={version}+cpu" for name, version in builds.items())


def _found(plan: Intended, more: tuple[str, ...]) -> Mapping[str, _Found] | None:
    with contextlib.suppress(uv.NotMade):
        return _find(plan, more)
    return None


def _find(plan: Intended, more: tuple[str, ...]) -> Mapping[str, _Found]:
    """The packages that uv would install: what the sources list, and more. Raises NotMade."""
    lines, files = list(more), []
    for source in plan.own_packages:
        if source.file == REQUIREMENTS:
            files.append(source.path)
        else:
            lines += source.lines
    version = ("--python-version", plan.version)
    command = (uv.needed(), "pip", "compile", "--quiet", "--no-header", "--format", "pylock.toml", *version)
    cwd, index = plan.own_packages[0].directory, uv.index(plan.spec)
    lists = " and ".join(str(source.path) for source in plan.own_packages)
    text = uv.run(
        f"find what {lists} lists", (*command, *index, *files, "-"), uv.settings_of_pip(), cwd, "\n".join(lines)
    )
    return {package["name"]: _read(package) for package in tomli.loads(text).get("packages", ())}


def _read(package: Mapping[str, Any]) -> _Found:
    files = (*package.get("wheels", ()), *(package[kind] for kind in ("archive", "sdist") if kind in package))
    file: Mapping[str, Any] = next(iter(files), {})
    path = Path(unquote(urlsplit(file.get("url", "")).path) or file.get("path", ""))
    is_here = "size" not in file and file.get("url", "file:").startswith("file:") and path.is_file()
    return _Found(package.get("version", ""), (path.stat().st_size if is_here else int(file.get("size", 0))) / 1e6)


def _unpacked(name: str, megabytes: float) -> float:
    has_cuda = name.startswith("nvidia-") or name == "xgboost" or (name == "torch" and megabytes > LARGE)
    return megabytes * (UNPACKED_CUDA if has_cuda else UNPACKED)
