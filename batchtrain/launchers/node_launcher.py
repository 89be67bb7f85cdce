"""The launch of a framework's block by batchtrain's own node launcher: gang.json, and the text that starts it.

The block defines its roles, options and variables.
"""

from __future__ import annotations

from typing import Any

import msgspec

from batchtrain.errors import PlanError
from batchtrain.frameworks import counts
from batchtrain.frameworks.base import AUTO, NUMBER_OF_THREADS, Nodes, OverMpi, Role, Runner, Shape, Variable
from batchtrain.frameworks.mpi import MpiBlock
from batchtrain.frameworks.transports import NCCL_NAMES, UCX_NAMES
from batchtrain.launchers import fabric, mpi, preflight, python, shell, steps, variables
from batchtrain.launchers.launch import File, Implicit, MpiLaunch, Setup, Step

VERSION = 1
SPEC = ".batchtrain/gang.json"


def launch(block: Nodes, setup: Setup, command: str, shape: Shape) -> tuple[Step, ...]:
    """The steps of a multi-instance task with a framework's block. Raises PlanError for a block that cannot be
    launched."""
    for fault in block.faults(command, shape.instances):
        if not fault.launchable:
            raise PlanError(fault.text)
    setup = setup._replace(own=setup.own | frozenset(block.leave_unset))
    over = block.over_mpi
    return _over_mpi(block, over, setup, command, shape) if over else _by_nodes(block, setup, command, shape)


def _over_mpi(block: Nodes, over: OverMpi, setup: Setup, command: str, shape: Shape) -> tuple[Step, ...]:
    """The launch by the MPI; the ranks have the framework's variables."""
    environment = variables.wanted(over.environment, setup.own)
    ranks = MpiBlock(
        runtime=over.runtime,
        executable_path=over.executable_path,
        options=over.options,
        processes_per_node=processes(block, shape.instances),
        allow_singletons=over.allow_singletons,
    )
    binds = block.binding == "auto"
    return mpi.launch(MpiLaunch(ranks, setup, environment, binds=binds, misses_mpi4py=False), command, shape)


def _by_nodes(block: Nodes, setup: Setup, command: str, shape: Shape) -> tuple[Step, ...]:
    roles, ends = _ending(block, block.roles(command, shape.instances))
    each = processes(block, shape.instances)
    general = (item for item in variables.everywhere(shape) if block.threads or item is not NUMBER_OF_THREADS)
    everywhere = variables.wanted((*general, *_of_size(block, shape, each), *block.defaults), setup.own)
    text = f"{setup.pre_execution_command or ''}\n{command}"
    nccl_notes = variables.of_transport(shape, setup.own, text) if block.nccl else ()
    ucx = variables.of_ucx(shape) if block.ucx and not shape.tcp else ()
    infiniband = (variables.on_infiniband(shape) if block.nccl else ()) + ucx
    fast = (*variables.wanted(infiniband, setup.own), *nccl_notes)
    of_image = _disregarded(block, setup, shape)
    checks: tuple[str, ...] = ()
    if setup.preflight:  # over InfiniBand, all ports of the size and lockable memory
        port = steps.port_of(shape, setup.coordination_command)
        imex = "0" if variables.NVLINK in variables.values(everywhere) else ""
        checks = preflight.expected(shape, each, port, infiniband=bool(fast), memlock=bool(fast), imex=imex)
    spec = _spec(block, setup, shape, each, everywhere, fast) | {
        "roles": [_role(role, setup) for role in roles],
        "options": {**block.meeting, **block.settings()},
        "preflight": checks,
    }
    if rivals := {variable.name: variable.rivals for variable in everywhere if variable.rivals}:
        spec["rivals"] = rivals
    if over_image := (*of_image, *(item.name for item in everywhere if item.value == variables.NO_GRAPH)):
        spec["over_image"] = over_image
    spec |= _options(setup)
    shown = (
        *_shown_variables(block, roles, setup, shape),
        *variables.wanted(everywhere, variables.values(fast)),
        *fast,
    )
    return (
        *steps.coordination(shape, setup.coordination_command),
        Step(shell.block(steps.ON_THE_PRIMARY, steps.SOURCE)),
        _transport(of_image, shape),
        steps.pre_execution(setup.pre_execution_command),
        _python(command),
        _processes(block, each, shape),
        Step(implicit=variables.implicit(shown)),
        ends,
        Step(files=tuple(file for role in roles if role.runner for file in _runner_files(role.runner, role.command))),
        preflight.step(checks),
        Step(files=(
            *(() if setup.preemption is None else (steps.PREEMPTION,)),
            *((steps.UPLOADS,) if setup.collects else ()),
            *((steps.VERDICT,) if nccl_notes else ()),
        )),
        _line(block, spec, shape, setup),
    )  # fmt: skip


def _of_size(block: Nodes, shape: Shape, each: int | str) -> tuple[Variable, ...]:
    """The variables for the GPUs of a node, and those of a gang without InfiniBand."""
    nccl = (*variables.on_ethernet(shape), *variables.of_node(shape, each)) if block.nccl else ()
    return (*nccl, *(variables.of_ucx(shape) if block.ucx and shape.tcp else ()))


def _disregarded(block: Nodes, setup: Setup, shape: Shape) -> tuple[str, ...]:
    """The variables of the image that an explicit `infiniband` replaces."""
    if not shape.explicit_fabric:
        return ()
    names = (*(NCCL_NAMES if block.nccl and shape.gpus else ()), *(UCX_NAMES if block.ucx else ()))
    return tuple(name for name in names if name not in setup.own)


_RUNNER = '"$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/ends.py"'
_ENDS = Implicit(
    "ends.py", "before the script", "a process that ends by an exception would wait for the others", "ends-at-once"
)
_SETTLES = Implicit(
    "ends.py --settle", "before the script", "PyTorch's gloo may abort a process that ends too soon", "ends-settled"
)


def _ending(block: Nodes, roles: tuple[Role, ...]) -> tuple[tuple[Role, ...], Step]:
    """The roles with `ends.py` before the scripts of their ranks, if they need it and the command has room for it."""
    if not block.waits and not block.settles:
        return roles, Step()
    runner = f"{_RUNNER} --settle" if block.settles else _RUNNER
    commands = [python.before_script(role.command, runner) if role.ranked or role.runner else None for role in roles]
    with_it = (role._replace(command=text or role.command) for role, text in zip(roles, commands, strict=True))
    step = Step(files=(steps.ENDS,), implicit=(_SETTLES if block.settles else _ENDS,))
    return tuple(with_it), step if any(commands) else Step()


_PLACE = (
    Variable("BATCHTRAIN_*", "role, number, rank, nodes, addresses, ports", "a command of any framework may use them"),
    Variable("AZUREML_CR_NODE_RANK", "number of the node", "programs for Azure ML read it"),
    Variable("AZ_BATCHAI_MPI_MASTER_NODE", "the primary's address", "programs for Azure ML read it"),
    Variable("AZ_BATCH_HOST_LIST", "the primary first", "all nodes have the same order", "primary-first"),
)
_GPUS = "CUDA_VISIBLE_DEVICES"
_ALL_GPUS = Variable(_GPUS, "all of the node's", "a process uses the GPU of its local rank")
_OWN_GPUS = Variable(
    _GPUS, "an equal share of the node's; none for roles without", "a process would take every GPU that it sees"
)
_BOUND = Implicit(
    "binding", "auto", "each process has its own cores near its GPU, if the node has enough cores", "process-binding"
)


def _shown_variables(block: Nodes, roles: tuple[Role, ...], setup: Setup, shape: Shape) -> tuple[Variable, ...]:
    candidates = (*block.shown_variables(), *_PLACE)
    if shape.gpus or not all(role.gpus for role in roles):
        candidates = (*candidates, _ALL_GPUS if block.each == AUTO else _OWN_GPUS)
    hidden = {variable.name for variable in variables.on_infiniband(shape)} | set(block.leave_unset)
    if shape.size and not shape.gpus:
        hidden.add("NCCL_SOCKET_IFNAME")
    return tuple(
        variable._replace(name=name)
        for variable in candidates
        for name in variable.names
        if name not in hidden and not (variable.keeps and name in setup.own)
    )


def processes(block: Nodes, instances: int) -> int | str:
    """Processes per node: a number, `auto`, or a command. Raises PlanError for an invalid value."""
    if block.processes is not None:
        return block.processes // instances
    per_node = block.processes_per_node
    if per_node is None:
        return block.each
    if wrong := counts.fault(per_node):
        raise PlanError(wrong)
    number = counts.number(per_node)
    return str(per_node).strip() if number is None else number


# --- gang.json ------------------------------------------------------------------------------------------------------


def _spec(
    block: Nodes,
    setup: Setup,
    shape: Shape,
    each: int | str,
    everywhere: tuple[Variable, ...],
    fast: tuple[Variable, ...],
) -> dict[str, Any]:
    return {
        "version": VERSION,
        "framework": block.name,
        "instances": shape.instances,
        "processes_per_node": each,
        "pre_execution": setup.pre_execution_command,
        "barrier_seconds": block.barrier_seconds,
        "grace_seconds": block.grace_seconds,
        "environment": variables.values(everywhere),
        "rdma": bool(fast),
        "rdma_environment": variables.values(fast),
        "leave_unset": block.leave_unset,
        "binding": block.binding,
        **({} if setup.rank_logs else {"rank_logs": False}),
    }


def _options(setup: Setup) -> dict[str, Any]:
    return {
        **({} if setup.preemption is None else {"preemption": setup.preemption}),
        **({"collects": True} if setup.collects else {}),
        **({"stop_when": dict(setup.stop_when)} if setup.stop_when else {}),
    }


def _role(role: Role, setup: Setup) -> dict[str, Any]:
    command = _run(role)
    if setup.inside:  # a command of more than simple words needs a shell in its image, too
        command = f"{setup.inside} {command if shell.is_simple(command) else f'/bin/sh -c {shell.word(command)}'}"
    return {
        "name": role.name,
        "per_node": None if role.total is not None else role.per_node,
        "total": role.total,
        "placement": role.placement,
        "command": command if setup.inside else shell.verbatim(command),
        "gpus": role.gpus,
        "ranked": role.ranked,
        "decides": role.decides,
        "instead_of": role.instead_of,
        "linger": role.linger,
    }


def _run(role: Role) -> str:
    """The command, or the runner that starts it with the Python of the command, if it has one."""
    interpreter, runner = python.interpreter(role.command), role.runner
    if role.first:
        return f"{interpreter or 'python3'} -c {shell.word(role.first)} || exit\n{role.command}"
    if runner is None:
        return role.command
    file = f'"$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/{runner.file}"'
    program = f"{interpreter} {file if runner.file else f'-m {runner.module}'}" if interpreter else runner.program
    if runner.file and not interpreter:
        program = f"sh {file.replace('.py', '.sh')}"
    word = role.command if shell.is_simple(role.command) else f"/bin/bash -c {shell.word(role.command)}"
    words = (runner.before, program, *runner.options, word if runner.takes_command else "")
    return " ".join(word for word in words if word)


def _runner_files(runner: Runner, command: str) -> tuple[File, ...]:
    """The file of a runner; of torchrun also what finds a Python for it if the command does not start with one."""
    if runner.file != "torchrun.py":
        return (steps.ACCELERATED,) if runner.file else ()
    return (steps.TORCHRUN,) if python.interpreter(command) else (steps.TORCHRUN, steps.TORCHRUN_SHELL)


# --- the steps ------------------------------------------------------------------------------------------------------


def _transport(disregarded: tuple[str, ...], shape: Shape) -> Step:
    title = f"The transport: {fabric.why(shape)}:"
    line = f"bt_emulated || bt_disregard_image {' '.join(disregarded)}"
    return Step(shell.block(title, line) if disregarded else "")


def _python(command: str) -> Step:
    """Finds the first Python 3.6 or later of several; the Python of the command may be too old."""
    names = dict.fromkeys(name for name in ("python3", python.interpreter(command), "python") if name)
    text = shell.block(
        "The node launcher needs a whole Python 3.6 or later, of any kind:",
        f"for bt_python in {' '.join(names)} ''; do",
        f"  \"$bt_python\" -I -S -c '{_FITS}' >/dev/null 2>&1 && break",
        "done",
        f'[ -n "$bt_python" ] || bt_stop 127 {shell.word(_NO_PYTHON.format(", ".join(names)))}',
    )
    return Step(text)


def _line(block: Nodes, spec: dict[str, Any], shape: Shape, setup: Setup) -> Step:
    has_several = shape.instances > 1  # an image for one node need not have ssh
    text = shell.block(
        "The node launcher: gang.json says how many processes run where; when one fails, it ends all of them:",
        steps.use_ssh(shape, setup.coordination_command) if has_several else "",
        'exec "$bt_python" -I -S -B "$bt_home/launch" primary',
    )
    file = File(SPEC, msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n")
    files = (steps.SSH, *steps.node_launcher(block.name, block.node_module), file)
    return Step(text, files, (steps.OWN_SSH,) if has_several else ())


_FITS = "import sys, json, selectors; sys.exit(sys.version_info < (3, 6))"
_NO_PYTHON = (
    "none of {} on this node is a Python 3.6 or later, which the node launcher needs: install python3 in the image, or"
    " put one on PATH in pre_execution_command"
)


def _processes(block: Nodes, each: int | str, shape: Shape) -> Step:
    bound = (_BOUND,) if block.binding == "auto" else ()
    if block.processes is not None or block.processes_per_node is not None:
        return Step(implicit=bound)
    because = "one process per GPU" if each == AUTO else "one process drives its node's GPUs"
    if shape.size and not shape.gpus:
        because = "one process per node without GPUs"
    because = f"not set: {block.why_each or because}"
    return Step(implicit=(Implicit("processes_per_node", str(each), because, "processes-per-node"), *bound))
