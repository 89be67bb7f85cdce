"""The text that makes each MPI use the network of a node; the node itself decides by it.

The choices of each MPI are in `frameworks.transports`. Their order: what the user sets wins, then an explicit
`infiniband`, then the image, then the VM size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from batchtrain.frameworks.base import Fabric, Shape, Variable
from batchtrain.frameworks.mpi import Mpi, MpiBlock, Settings
from batchtrain.frameworks.transports import HCOLL_OFF, INTERFACE, MCA, NCCL_NAMES, OPENMPI_INFINIBAND
from batchtrain.launchers import shell, variables
from batchtrain.launchers.launch import Implicit, MpiLaunch, Step
from batchtrain.launchers.variables import LAUNCH_FILES

_MCA_VARIABLE = "OMPI_MCA_"
"""The variables of Open MPI's parameters, which its options override."""
_NAMES = {Fabric.SR_IOV: "InfiniBand (SR-IOV)", Fabric.NETWORK_DIRECT: "InfiniBand (Network Direct)"}
_KEEPS = "variables that are set already keep their value:"


def prologue(options: MpiLaunch, shape: Shape) -> Step:
    """The choice of fabric, before pre_execution_command, which may override its variables."""
    settings = options.block.mpi.on(shape.fabric)
    choices = _environment(options, shape)
    text = ""
    if settings.device:
        text = _rdma(shape.fabric, settings, _explicit(options, shape), choices)
    elif choices:
        text = shell.block(
            f"Fabric: tcp over {INTERFACE} ({why(shape, options.block.mpi)}); {_KEEPS}",
            "if ! bt_emulated; then",
            *(f"  {line}" for line in (*_explicit(options, shape), *_defaults(choices))),
            "fi",
        )
    if not choices and not _options(options, shape):
        return Step(text)
    value = _NAMES[shape.fabric] if settings.device else f"tcp over {INTERFACE}"
    value = "as the image says" if shape.fabric is Fabric.IMAGE else value
    chosen = Implicit(f"{options.block.runtime} fabric", value, why(shape, options.block.mpi), "mpi-fabric")
    return Step(text, implicit=(chosen, *variables.implicit(choices)))


def check(block: MpiBlock, fabric: Fabric) -> Step:
    """The check, after pre_execution_command, when the MPI is on PATH, that this version supports the fabric."""
    settings = block.mpi.on(fabric)
    if not settings.removed:
        return Step()
    text = shell.block(
        f"Intel MPI has {settings.removed} up to 2018; a newer one would talk over tcp in silence:",
        f"bt_need_old_intelmpi {settings.removed} {block.executable_path}",
    )
    return Step(text)


def parameters(options: MpiLaunch, shape: Shape) -> Step:
    """The options of the fabric, after pre_execution_command: a variable that it sets wins."""
    choices, on_one_machine = _options(options, shape), _not_users(options, options.block.mpi.one_machine)
    if not choices:
        return Step()
    device = options.block.mpi.on(shape.fabric).device
    text = shell.block(
        "The launcher's options for it, unless one of the variables that mean the same is set:",
        "bt_fabric=()",
        *(("if bt_on_loopback; then", f"  bt_fabric=({_words(on_one_machine)})") if on_one_machine else ()),
        f"{'elif' if on_one_machine else 'if'} {'[ -e /dev/infiniband ]' if device else '! bt_emulated'}; then",
        *(f"  {_unless(group)}bt_fabric+=({_words(group)})" for group in _groups(choices)),
        "fi",
    )
    return Step(text, implicit=variables.implicit(choices))


def of_node(options: MpiLaunch, shape: Shape) -> tuple[Variable, ...]:
    """The variables of NCCL for the GPUs of a node, whatever the network."""
    return _not_users(options, variables.of_node(shape, options.block.processes_per_node or 1))


def on_line(options: MpiLaunch, shape: Shape) -> str:
    """The options of the fabric on the launcher's line."""
    return '"${bt_fabric[@]}"' if _options(options, shape) else ""


def why(shape: Shape, mpi: Mpi | None = None) -> str:
    """Why a gang uses this fabric; mpi: the one that uses it."""
    size = shape.size or "the VM size"
    if mpi and shape.fabric is Fabric.NETWORK_DIRECT and not mpi.on(shape.fabric).device:
        return f"the InfiniBand of {size} (Network Direct) works only with Intel MPI up to 2018"
    if shape.explicit_fabric:
        return f"`infiniband: {str(shape.fabric is not Fabric.ETHERNET).lower()}` is set, whatever the image says"
    if shape.fabric is Fabric.IMAGE:
        return "the VM size is unknown, so the image and the MPI choose"
    has = f"has {_NAMES[shape.fabric]}" if shape.fabric in _NAMES else "has no InfiniBand"
    return f"{size} {has}, and a variable of the image would win"


def _environment(options: MpiLaunch, shape: Shape) -> tuple[Variable, ...]:
    nccl = variables.on_ethernet(shape)
    choices = (*options.block.mpi.on(shape.fabric).environment, *nccl)
    return tuple(variables.with_gpu_memory(variable, shape) for variable in _not_users(options, choices))


def _options(options: MpiLaunch, shape: Shape) -> tuple[Variable, ...]:
    choices = options.block.mpi.on(shape.fabric).options
    without_hcoll = choices == OPENMPI_INFINIBAND and shape.family in LAUNCH_FILES
    return _not_users(options, (*choices, HCOLL_OFF) if without_hcoll else choices)


def _explicit(options: MpiLaunch, shape: Shape) -> tuple[str, ...]:
    """With an explicit `infiniband`, the variables of the image are unset."""
    if not shape.explicit_fabric:
        return ()
    names = options.block.mpi.names | (frozenset(NCCL_NAMES) if shape.gpus else frozenset())
    unset = sorted(_variable(name) for name in names if not _is_users(options, name))
    return (f"bt_disregard_image {' '.join(unset)}",)


def _rdma(fabric: Fabric, settings: Settings, explicit: tuple[str, ...], choices: tuple[Variable, ...]) -> str:
    """A node without the device stops here with the reason; an emulated node uses tcp."""
    name = _NAMES[fabric]
    return shell.block(
        f"Fabric: {name}; {_KEEPS}",
        "if [ -e /dev/infiniband ]; then",
        *(f"  {line}" for line in explicit),
        "  bt_find_ports" if settings.port else "",
        *(f"  {line}" for line in _defaults(choices)),
        "elif bt_emulated; then",
        f"  bt_say 'this node is emulated and has no {name}: the ranks talk over tcp'",
        "else",
        f"  bt_stop 1 '{name} is requested, but this node has no /dev/infiniband (an image without the drivers? set"
        " infiniband: false to use tcp)'",
        "fi",
    )


# --- choices as text ------------------------------------------------------------------------------------------------


def _defaults(choices: Iterable[Variable]) -> Iterator[str]:
    for group in _groups(choices):
        yield f"{_unless(group)}bt_default {' '.join(map(_pair, group))}"


def _groups(choices: Iterable[Variable]) -> Iterator[tuple[Variable, ...]]:
    """Choices that stand or fall together; those of the interface first, since one of them depends on another's."""

    def key(variable: Variable) -> tuple[bool, tuple[str, ...]]:
        return variable.value != INTERFACE, variable.rivals

    for _, group in groupby(sorted(choices, key=lambda variable: key(variable)[0]), key):
        yield tuple(group)


def _unless(group: tuple[Variable, ...]) -> str:
    """The conditions on the node under which a group is left out."""
    on_node = f"[ ! -e /sys/class/net/{INTERFACE} ] || " if group[0].value == INTERFACE else ""
    parameters = (variable.name for variable in group if variable.name.startswith(MCA))  # options win over variables
    names = dict.fromkeys(map(_variable, (*parameters, *group[0].rivals)))
    return on_node + (f"bt_is_set {' '.join(names)} || " if names else "")


def _pair(variable: Variable) -> str:
    """NAME=VALUE as a word of the shell; no word if the node does not know the value."""
    if not variable.value.startswith("$"):
        return f"{variable.name}={variable.value}"
    return f'${{{variable.value[1:]}:+"{variable.name}={variable.value}"}}'


def _words(group: Iterable[Variable]) -> str:
    return " ".join(f"{variable.name} {variable.value}" for variable in group)


def _variable(name: str) -> str:
    return _MCA_VARIABLE + name[len(MCA) :] if name.startswith(MCA) else name


def _not_users(options: MpiLaunch, choices: Iterable[Variable]) -> tuple[Variable, ...]:
    """The choices that the user does not make by an option of the launcher or a variable of the task."""
    return tuple(
        variable
        for variable in choices
        if not any(_is_users(options, name) for name in (variable.name, *variable.rivals))
    )


def _is_users(options: MpiLaunch, name: str) -> bool:
    text = " ".join(options.block.options)
    parameter = name[len(MCA) :] if name.startswith(MCA) else ""
    if parameter and re.search(rf"mca\s+{parameter}(?=[\s=]|$)", text):
        return True
    return _variable(name) in options.setup.own or _variable(name) in re.findall(r"\w+", text)
