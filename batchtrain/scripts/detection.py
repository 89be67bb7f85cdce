"""Which framework a script is launched with, by what it imports. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from batchtrain.errors import UsageError
from batchtrain.frameworks import FRAMEWORKS
from batchtrain.frameworks.base import Nodes, Scripts
from batchtrain.frameworks.mpi import MPIS, MpiBlock
from batchtrain.frameworks.pytorch import PyTorchBlock
from batchtrain.scripts import distributions
from batchtrain.scripts.imports import Place, Script

MPI, NONE = "mpi", "none"
LAUNCHES: Mapping[str, Scripts] = {MPI: MpiBlock.scripts} | {name: kind.scripts for name, kind in FRAMEWORKS.items()}
"""What each framework launches. The first names of the documentation are those of `--framework`."""
NAMES = (*LAUNCHES, NONE)
PLAIN_IMAGE = "base"
OF_A_LAUNCH = tuple(name for variable in PyTorchBlock.variables for name in variable.names)
"""The variables that only a launch sets, for a script without a framework, too."""
KERAS, KERAS_BACKEND = LAUNCHES["tensorflow"].weak_imports, "KERAS_BACKEND"
"""The modules of Keras, and the variable of the environment that chooses the framework below Keras 3."""
BELOW_KERAS = {scripts.keras_backend: name for name, scripts in LAUNCHES.items() if scripts.keras_backend}


class Choice(NamedTuple):
    """The framework of a script."""

    name: str
    reason: str
    """Why, in words that follow "is launched with NAME:"."""
    image: str
    """The image of docker/, which also has a local environment."""
    packages: tuple[str, ...] = ()
    """Packages that bring the framework."""
    keras_backend: str = ""
    """What KERAS_BACKEND must be on the nodes, because only the packages of the script say it."""


class BelowKeras(NamedTuple):
    """Which framework Keras uses."""

    chosen: Mapping[str, str] | None = None
    """The framework that the script or the environment of the nodes chooses, with the reason; empty for a backend that
    is none of ours. None if nothing chooses one: Keras takes TensorFlow."""
    listed: tuple[str, ...] = ()
    """The frameworks that the packages of the script bring, if nothing chooses one and they do not bring TensorFlow."""
    unread: str = ""
    """Where the script chooses one in a way that was not read."""


class Undecided(UsageError):
    """Several frameworks fit a script."""

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names


def framework_of(script: Script, name: str = "", *, packages: Collection[str] = (), keras_backend: str = "") -> Choice:
    """The framework of a script; `name` is the choice of the user. packages: those that the script lists.
    keras_backend: KERAS_BACKEND of the nodes. Raises Undecided if several fit."""
    below_keras = _below_keras(script, packages, keras_backend)
    choice = _choice(script, name, below_keras)
    backend = LAUNCHES[choice.name].keras_backend if choice.name in below_keras.listed else ""
    return choice._replace(keras_backend=backend)


def _choice(script: Script, name: str, below_keras: BelowKeras) -> Choice:
    imported = [mention for mention in script.imports if mention.certain]
    evidence = _evidence(imported, below_keras) or _evidence(script.imports, below_keras)
    if name:
        return _chosen(name, script, "your choice")
    level = max((LAUNCHES[framework].level for framework in evidence), default=0)
    candidates = [framework for framework in evidence if LAUNCHES[framework].level == level]
    if len(candidates) > 1:
        places = " and ".join(f"{evidence[framework]} for {framework}" for framework in candidates)
        text = f"{script.path} fits several frameworks: {places}; choose one of them (`--framework NAME`, `framework`)"
        raise Undecided(text, tuple(candidates))
    if not candidates:
        return _chosen(NONE, script, "it imports no framework")
    return _chosen(candidates[0], script, evidence[candidates[0]] + below_keras.unread)


def block_of(choice: Choice, script: Script, nodes: int, processes_per_node: int | None) -> MpiBlock | Nodes | None:
    """The block that launches a script; None for one process that nothing has to launch."""
    if choice.name == MPI:
        return MpiBlock(runtime=choice.image, executable_path="mpiexec", processes_per_node=processes_per_node)
    if choice.name == NONE:
        is_plain = nodes == (processes_per_node or 1) == 1 and script.words.isdisjoint(OF_A_LAUNCH)
        return None if is_plain else PyTorchBlock(processes_per_node=processes_per_node or 1)
    return FRAMEWORKS[choice.name](processes_per_node=processes_per_node)


def _below_keras(script: Script, packages: Collection[str], of_nodes: str) -> BelowKeras:
    """packages, of_nodes: as for `framework_of`."""
    if all(mention.top not in KERAS for mention in script.imports):
        return BelowKeras()
    variables = [variable for variable in script.variables if variable.name == KERAS_BACKEND]
    values = [(item, f"{item.file.name}:{item.line} sets") for item in variables]
    places = {item.value: text for item, text in values if item.value and not item.is_default}
    if not places and of_nodes:
        places = {of_nodes: "a setting sets"}
    if places := places or {item.value: text for item, text in values if item.value}:
        reasons = {backend: f"{setting} {KERAS_BACKEND} to {backend}" for backend, setting in places.items()}
        return BelowKeras({BELOW_KERAS[name]: reason for name, reason in reasons.items() if name in BELOW_KERAS})
    listed = [name for name in BELOW_KERAS.values() if distributions.brings(packages, LAUNCHES[name].imports[0])]
    way = f"computes {KERAS_BACKEND}; if it is another framework, add `--framework NAME`"
    unread = "".join(f" ({item.file.name}:{item.line} {way})" for item in variables[:1])
    return BelowKeras(listed=() if BELOW_KERAS["tensorflow"] in listed else tuple(listed), unread=unread)


def _evidence(imported: Sequence[Place], below_keras: BelowKeras) -> dict[str, str]:
    """The first place that means each framework; weak imports count if there is no other."""
    tops = {mention.top: mention for mention in reversed(imported)}
    keras = _first(tops, {"": KERAS}).get("", "")
    backend = below_keras.chosen if keras else None
    strong = {**(backend or {}), **_first(tops, {name: scripts.imports for name, scripts in LAUNCHES.items()})}
    if strong or backend is not None:
        return strong
    if keras and below_keras.listed:
        of_packages = f"{keras}, and its packages bring no tensorflow"
        return dict.fromkeys(below_keras.listed, of_packages)
    return _first(tops, {name: scripts.weak_imports for name, scripts in LAUNCHES.items()})


def _first(tops: Mapping[str, Place], modules: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The first import that means each framework."""
    mentions = {framework: [tops[name] for name in names if name in tops] for framework, names in modules.items()}
    first = {name: min(places, key=lambda mention: mention.line) for name, places in mentions.items() if places}
    return {name: f"{mention.file.name}:{mention.line} imports {mention.top}" for name, mention in first.items()}


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
