"""The launch by batchtrain's own node launcher: gang.json, its words for roles, and the text that starts it.

What a framework needs of it (its roles, options and variables) stands in that framework's module.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from batchtrain.errors import PlanError
from batchtrain.launchers import environment, preflight, python, shell, steps
from batchtrain.launchers.environment import Variable
from batchtrain.launchers.types import File, Implicit, Launch, Nodes, Shape

VERSION = 1
SPEC = ".batchtrain/gang.json"
EACH = "processes_per_node"
"""A role's `per_node`: as many as `processes_per_node` says."""
AUTO = "auto"
BATCHS_PORT = 6000


class Role(NamedTuple):
    """Processes of one kind: how many, where, and what their end means."""

    name: str
    command: str
    per_node: int | str | None = EACH
    total: int | None = None
    """Of all nodes together, in place of `per_node`."""
    place: str = "all"
    """all, primary, or spread: one after another over the nodes."""
    gpus: bool = True
    ranked: bool = True
    """Counted in the world size."""
    decides: bool = True
    """The gang is done when all of these have ended; the others are then ended."""
    instead_of: str = ""
    """A role of which each of these takes the place of one, on the same node."""
    linger: float | None = None
    """Seconds that these have to end by themselves when the gang is done; None is the framework's usual."""


class Framework(NamedTuple):
    """What a framework's module says of a launch."""

    name: str
    roles: tuple[Role, ...]
    options: dict[str, Any]
    each: int | str
    """`processes_per_node` where nothing says it."""
    told: tuple[Variable, ...] = ()
    """What the node launcher gives every process for this framework, for people: names of one kind stand together,
    with commas between them."""
    defaults: tuple[Variable, ...] = ()
    """Variables that this framework gets beside those of every one."""
    nccl: bool = True
    """Its processes on several nodes exchange data through NCCL, where there are GPUs."""
    ucx: bool = False
    """They exchange data through UCX."""
    waits: bool = False
    """Its interpreter waits for all other processes when it ends, by an exception too."""
    settles: bool = False
    """Its interpreter must not end before the threads of gloo have let go of what they sent last."""
    threads: bool = True
    """Its processes are told how many threads to use; torchrun tells its own."""


def launch(framework: Framework, nodes: Nodes, command: str, shape: Shape) -> Launch:
    """The launch of a multi-instance task with a framework's block.

    Raises PlanError for a number of processes, or a port, that cannot be.
    """
    framework, end = _ending(framework)
    each = processes(nodes, framework.each, shape.instances)
    here = environment.wanted((*_everywhere(framework, shape), *framework.defaults), nodes)
    noted = environment.of_transport(shape, nodes, _text(nodes, command)) if framework.nccl else ()
    fast = (*environment.wanted(_on_infiniband(framework, shape), nodes), *noted)
    looked = _preflight(nodes, shape, each, memlock=bool(fast))
    spec = _spec(framework, nodes, shape, each, here, fast) | {"preflight": looked}
    return Launch(
        coordination=steps.coordination(shape, nodes.coordination_command),
        application=_application(nodes, command, shape),
        files=(
            steps.GANG,
            steps.SSH,
            steps.LAUNCH,
            *((steps.ENDS,) if end else ()),
            *_beside(looked, noted),
            _file(spec),
        ),
        implicit=(
            *_implicit_processes(nodes, each, shape),
            *((_BOUND,) if nodes.binding == "auto" else ()),
            *environment.implicit(_told(framework, nodes, shape)),
            *environment.implicit(here),
            *environment.implicit(fast),
            *((end,) if end else ()),
            *preflight.implicit(looked),
            *steps.implicit_sshd(shape, nodes.coordination_command),
            *((steps.OWN_SSH,) if shape.instances > 1 else ()),
        ),
    )


def _preflight(nodes: Nodes, shape: Shape, each: int | str, *, memlock: bool) -> tuple[str, ...]:
    """What each node is to be like; launch.py itself sees to active InfiniBand ports."""
    if not nodes.preflight:
        return ()
    port = steps.port_of(shape, nodes.coordination_command)
    return preflight.expected(shape, each, port, infiniband=False, memlock=memlock)


def _beside(looked: tuple[str, ...], noted: tuple[Variable, ...]) -> tuple[File, ...]:
    return (*((steps.PREFLIGHT,) if looked else ()), *((steps.VERDICT,) if noted else ()))


def _text(nodes: Nodes, command: str) -> str:
    return f"{nodes.pre_execution_command or ''}\n{command}"


_RUNNER = '"$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/ends.py"'
_ENDS = Implicit(
    "ends.py", "before the script", "a process that ends by an exception would wait for the others", "ends-at-once"
)
_SETTLES = Implicit(
    "ends.py --settle", "before the script", "PyTorch's gloo may abort a process that ends too soon", "ends-settled"
)


def _ending(framework: Framework) -> tuple[Framework, Implicit | None]:
    """The framework with `ends.py` before the scripts of its ranks, where there is a need and a place for it."""
    if not framework.waits and not framework.settles:
        return framework, None
    roles = tuple(
        role._replace(command=ending(role.command, framework.settles)) if role.ranked else role
        for role in framework.roles
    )
    if not any(_RUNNER in role.command for role in roles):
        return framework, None
    return framework._replace(roles=roles), _SETTLES if framework.settles else _ENDS


def ending(command: str, settles: bool) -> str:
    """A command that starts with Python, with `ends.py` before its script; any other as it is."""
    return python.before_script(command, f"{_RUNNER} --settle" if settles else _RUNNER) or command


_RULE = "framework-environment"
_PLACE = (
    Variable(
        "BATCHTRAIN_*", "role, number, rank, nodes, addresses, ports", "a command of any framework may use them", _RULE
    ),
    Variable("AZ_BATCH_HOST_LIST", "the primary first", "all nodes have the same order", "primary-first"),
)
_GPUS = "CUDA_VISIBLE_DEVICES"
_ALL_GPUS = Variable(_GPUS, "all of the node's", "a process takes the one that its local rank says", _RULE)
_OWN_GPUS = Variable(
    _GPUS, "an equal share of the node's; none for roles without", "a process would take every GPU that it sees", _RULE
)
_BOUND = Implicit(
    "binding",
    "auto",
    "each process has cores of its own, those near its GPU; where the node has enough",
    "process-binding",
)


def _told(framework: Framework, nodes: Nodes, shape: Shape) -> tuple[Variable, ...]:
    told = (*framework.told, *_PLACE)
    if shape.gpus or not all(role.gpus for role in framework.roles):
        told = (*told, _ALL_GPUS if framework.each == AUTO else _OWN_GPUS)
    each = (one._replace(name=name) for one in told for name in one.name.split(", "))
    return tuple(one for one in each if one.name not in nodes.leave_unset)


def _everywhere(framework: Framework, shape: Shape) -> tuple[Variable, ...]:
    found = environment.everywhere(shape)
    return found if framework.threads else tuple(one for one in found if one is not environment.NUMBER_OF_THREADS)


def _on_infiniband(framework: Framework, shape: Shape) -> tuple[Variable, ...]:
    return (environment.on_infiniband(shape) if framework.nccl else ()) + (
        environment.of_ucx(shape) if framework.ucx else ()
    )


def processes(nodes: Nodes, otherwise: int | str, instances: int) -> int | str:
    """Processes a node: a number, `auto`, or a command. Raises PlanError for one that cannot be."""
    if nodes.processes is not None:
        return _evenly(nodes, instances)
    given = nodes.processes_per_node
    if given is None:
        return otherwise
    text = str(given).strip()
    if not text:
        raise PlanError("processes_per_node is empty; give a number, `auto`, or a command that prints one")
    if not re.fullmatch(r"[+-]?\d+", text):
        return text
    if int(text) < 1:
        raise PlanError(f"processes_per_node is {text}; it must be at least 1")
    return int(text)


def _evenly(nodes: Nodes, instances: int) -> int:
    total = nodes.processes or 0
    if nodes.processes_per_node is not None:
        raise PlanError("`processes` and `processes_per_node` both say how many processes there are; take one of them")
    if total % instances:
        raise PlanError(
            f"{total} processes do not divide among {instances} nodes; give a multiple of {instances}, or"
            " `processes_per_node`"
        )
    return total // instances


# --- gang.json ------------------------------------------------------------------------------------------------------


def _spec(
    framework: Framework,
    nodes: Nodes,
    shape: Shape,
    each: int | str,
    here: tuple[Variable, ...],
    fast: tuple[Variable, ...],
) -> dict[str, Any]:
    if nodes.port == BATCHS_PORT:
        raise PlanError(f"port {BATCHS_PORT} is Batch's own on the primary (AZ_BATCH_MASTER_NODE); take another")
    return {
        "version": VERSION,
        "framework": framework.name,
        "instances": shape.instances,
        "processes_per_node": each,
        "pre_execution": nodes.pre_execution_command,
        "barrier_seconds": nodes.barrier_seconds,
        "grace_seconds": nodes.grace_seconds,
        "environment": environment.values(here),
        "rdma": bool(fast),
        "rdma_environment": environment.values(fast),
        "leave_unset": nodes.leave_unset,
        "binding": nodes.binding,
        "roles": [_role(role, nodes) for role in framework.roles],
        "options": {"port": nodes.port, "interface": nodes.interface, **framework.options},
    }


def _role(role: Role, nodes: Nodes) -> dict[str, Any]:
    return {
        "name": role.name,
        "per_node": None if role.total is not None else role.per_node,
        "total": role.total,
        "place": role.place,
        "command": _inside(role.command, nodes),
        "gpus": role.gpus,
        "ranked": role.ranked,
        "decides": role.decides,
        "instead_of": role.instead_of,
        "linger": role.linger,
    }


def _inside(command: str, nodes: Nodes) -> str:
    """A role's command, in its image; one that is more than simple words is a shell's matter in there, too."""
    if not nodes.inside:
        return shell.verbatim(command)
    return f"{nodes.inside} {command if shell.is_simple(command) else f'/bin/sh -c {shell.word(command)}'}"


def _file(spec: dict[str, Any]) -> File:
    return File(SPEC, msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n")


# --- the text -------------------------------------------------------------------------------------------------------


def _application(nodes: Nodes, command: str, shape: Shape) -> str:
    return shell.script(
        shell.block(
            "Runs on the primary, when the coordination command has come back on every instance.", steps.SOURCE
        ),
        steps.pre_execution(nodes.pre_execution_command),
        _interpreter(command),
        shell.block(
            "The node launcher: gang.json says how many processes run where; when one fails, it ends all of them:",
            _ssh(nodes, shape),
            'exec "$bt_python" -I -S "$bt_home/launch.py" primary',
        ),
    )


def _ssh(nodes: Nodes, shape: Shape) -> str:
    if shape.instances == 1:
        return ""  # an image need not have one
    return steps.use_ssh(shape, nodes.coordination_command)


def _interpreter(command: str) -> str:
    """The first Python 3.6 or later of those that may be there; the command's own may be an older or a newer one."""
    names = dict.fromkeys(name for name in ("python3", python.interpreter(command), "python") if name)
    return shell.block(
        "The node launcher needs a whole Python 3.6 or later, of any kind:",
        f"for bt_python in {' '.join(names)} ''; do",
        f"  \"$bt_python\" -I -S -c '{_FITS}' >/dev/null 2>&1 && break",
        "done",
        f'[ -n "$bt_python" ] || bt_stop 127 {shell.word(_NO_PYTHON.format(", ".join(names)))}',
    )


_FITS = "import sys, json, selectors; sys.exit(sys.version_info < (3, 6))"
_NO_PYTHON = (
    "none of {} on this node is a Python 3.6 or later, which the node launcher needs: install python3 in the image, or"
    " put one on PATH in pre_execution_command"
)


# --- what was decided -----------------------------------------------------------------------------------------------


def _implicit_processes(nodes: Nodes, each: int | str, shape: Shape) -> tuple[Implicit, ...]:
    if nodes.processes is not None or nodes.processes_per_node is not None:
        return ()
    because = "one process a GPU" if each == AUTO else "one process drives its node's GPUs"
    if shape.size and not shape.gpus:
        because = "one process a node without GPUs"
    return (Implicit("processes_per_node", str(each), f"it is not set: {because}", "processes-per-node"),)
