"""Which framework a script is launched with, by what it imports. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from batchtrain.errors import UsageError
from batchtrain.frameworks import FRAMEWORKS
from batchtrain.frameworks.base import Nodes, Scripts
from batchtrain.frameworks.mpi import MPIS, MpiBlock
from batchtrain.frameworks.pytorch import PyTorchBlock
from batchtrain.scripts.imports import Place, Script

MPI, NONE = "mpi", "none"
LAUNCHES: Mapping[str, Scripts] = {MPI: MpiBlock.scripts} | {name: kind.scripts for name, kind in FRAMEWORKS.items()}
"""What each framework launches. The first names of the documentation are those of `--framework`."""
NAMES = (*LAUNCHES, NONE)
PLAIN_IMAGE = "base"


class Choice(NamedTuple):
    """The framework of a script."""

    name: str
    reason: str
    """Why, in words that follow "is launched with NAME:"."""
    image: str
    """The image of docker/, which also has a local environment."""
    packages: tuple[str, ...] = ()
    """Packages that bring the framework."""


class Undecided(UsageError):
    """Several frameworks fit a script."""

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names


def framework_of(script: Script, name: str = "") -> Choice:
    """The framework of a script; `name` is the choice of the user. Raises Undecided if several fit."""
    imported = [mention for mention in script.imports if mention.certain]
    evidence = _evidence(imported) or _evidence(script.imports)
    if name:
        return _chosen(name, script, "your choice")
    level = max((LAUNCHES[framework].level for framework in evidence), default=0)
    candidates = [framework for framework in evidence if LAUNCHES[framework].level == level]
    if len(candidates) > 1:
        places = " and ".join(f"{_at(evidence[framework])} for {framework}" for framework in candidates)
        text = f"{script.path} fits several frameworks: {places}; choose one of them (`--framework NAME`, `framework`)"
        raise Undecided(text, tuple(candidates))
    if not candidates:
        reason = "it imports no framework, so it runs once on each node, with RANK and WORLD_SIZE if there are several"
        return _chosen(NONE, script, reason)
    return _chosen(candidates[0], script, _at(evidence[candidates[0]]))


def block_of(choice: Choice, script: Script, nodes: int, processes_per_node: int | None) -> MpiBlock | Nodes | None:
    """The block that launches a script; None for one process that nothing has to launch."""
    if choice.name == MPI:
        return MpiBlock(runtime=choice.image, executable_path="mpiexec", processes_per_node=processes_per_node)
    if choice.name == NONE:
        variables = {name for variable in PyTorchBlock.variables for name in variable.names}  # only a launch sets them
        is_plain = nodes == (processes_per_node or 1) == 1 and script.words.isdisjoint(variables)
        return None if is_plain else PyTorchBlock(processes_per_node=processes_per_node or 1)
    return FRAMEWORKS[choice.name](processes_per_node=processes_per_node)


def _evidence(imported: Sequence[Place]) -> dict[str, Place]:
    """The first import that means each framework; weak ones count if there is no other."""
    tops = {mention.top: mention for mention in reversed(imported)}
    strong = _first(tops, {framework: scripts.imports for framework, scripts in LAUNCHES.items()})
    return strong or _first(tops, {framework: scripts.weak_imports for framework, scripts in LAUNCHES.items()})


def _first(tops: Mapping[str, Place], modules: Mapping[str, tuple[str, ...]]) -> dict[str, Place]:
    """The first import that means each framework."""
    return {
        framework: min((tops[name] for name in names if name in tops), key=lambda mention: mention.line)
        for framework, names in modules.items()
        if any(name in tops for name in names)
    }


def _chosen(name: str, script: Script, reason: str) -> Choice:
    scripts = Scripts() if name == NONE else LAUNCHES[name]
    image = "-".join(filter(None, (scripts.image or PLAIN_IMAGE, _below(scripts, script))))
    return Choice(name, reason, image, scripts.packages)


def _below(scripts: Scripts, script: Script) -> str:
    """The framework below one that works with several: `horovod.torch` names it, otherwise the first import does."""
    mentions = sorted(script.imports, key=lambda mention: mention.top not in scripts.imports)
    modules = {
        module: framework
        for framework in reversed(scripts.image_for)
        for module in (*LAUNCHES[framework].imports, *LAUNCHES[framework].weak_imports)
    }
    parts = (part for mention in mentions for part in mention.name.split(".")[:2])
    return next((modules[part] for part in parts if part in modules), next(iter(scripts.image_for), ""))


def launcher_in(script: Script) -> Place | None:
    """The first place where a script starts the processes of the training itself, a certain one before others."""
    spawns = {name for scripts in LAUNCHES.values() for name in scripts.spawns}
    patterns = (
        *(pattern for kind in FRAMEWORKS.values() for pattern in kind.commands),
        *(re.escape(name) for mpi in MPIS.values() for name in mpi.launchers),
    )
    modules = "|".join(pattern for kind in FRAMEWORKS.values() for pattern in kind.modules)
    launcher = re.compile(rf"(?:(?:^|[;&|]\s*)(?:\S*/)?(?:{'|'.join(patterns)})|\s-m\s+(?:{modules}))(?!\S)")
    calls = (mention for mention in script.calls if mention.name in spawns)
    programs = (mention for mention in script.programs if launcher.search(mention.name))
    return min((*calls, *programs), key=lambda mention: not mention.certain, default=None)


def _at(mention: Place) -> str:
    return f"{mention.file.name}:{mention.line} imports {mention.top}"
