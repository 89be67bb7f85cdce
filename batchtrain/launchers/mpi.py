"""MPI: the launcher's line on the primary, and the steps before it.

The line has the executable, the user's options, ours, and the ranks' command. The dialects differ only in names.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from batchtrain.errors import PlanError
from batchtrain.frameworks import counts
from batchtrain.frameworks.base import Shape, Variable
from batchtrain.frameworks.mpi import MPIS, Added, MpiBlock
from batchtrain.launchers import binding, fabric, preflight, python, shell, steps, variables
from batchtrain.launchers.launch import Implicit, MpiLaunch, Step

RANK = 'sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh"'

_PLACED = re.compile(r"(?:^|\s)--?(?:np|n|c)(?=[\s=]|$)")
"""Options that set the number of ranks."""

_COUNTED = {"auto": "bt_count_gpus", "nproc": "env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc"}
"""The commands for numbers with a name. nproc alone would answer with the threads of one rank."""
"""The meaning of `auto`: the GPUs of the primary (NVIDIA or AMD), or one rank if it has none."""


class Ranks(NamedTuple):
    """The number of ranks, in the form of the launch text."""

    step: Step
    each: str
    """On a node; empty if the options place the ranks."""
    total: str


def launch(options: MpiLaunch, command: str, shape: Shape) -> tuple[Step, ...]:
    """The steps of a multi-instance task with an `mpi` block.

    Raises PlanError for an unknown runtime or an invalid number of ranks.
    """
    block, setup = options.block, options.setup
    if block.runtime not in MPIS:
        raise PlanError(f"mpi.runtime `{block.runtime}` is not one of {', '.join(MPIS)}")
    ranks = ranks_of(options, shape.instances)
    payload = _payload(options, command)
    nccl_notes, checks = _nccl_notes(options, payload, shape), _preflight(options, shape)
    return (
        *steps.coordination(shape, setup.coordination_command),
        _preemption(setup.preemption),
        Step(shell.block(steps.ON_THE_PRIMARY, steps.SOURCE), (steps.NODE,)),
        fabric.prologue(options, shape),
        variables.step_of_ranks(variables.of_ranks(shape, setup.own)),
        variables.step_of_node(fabric.of_node(options, shape)),
        variables.step_of_transport(nccl_notes),
        _environment(options),
        _abort(block.mpi.abort, setup.own),
        steps.pre_execution(setup.pre_execution_command),
        fabric.check(block, shape.fabric),
        fabric.parameters(options, shape),
        _singletons(block),
        _question_for_mpi4py(payload),
        preflight.step(checks),
        _hosts(options, checks, shape),
        ranks.step,
        _counted(options, ranks),
        binding.step(options, ranks.each),
        _mpi4py(options, payload),
        _prepared(block),
        _line(options, payload, ranks, shape, judges=bool(nccl_notes)),
    )


def _preemption(preemption: str | None) -> Step:
    """rank.sh watches for a preemption on every node with ranks."""
    title = "The signal that rank.sh passes on to the ranks of a node with an announced preemption:"
    text = shell.block(title, f"export BATCHTRAIN_PREEMPTION_SIGNAL={preemption}") if preemption else ""
    return Step(text, () if preemption is None else (steps.PREEMPTION,))


def _payload(options: MpiLaunch, command: str) -> python.Payload:
    """The ranks' command, inside the image if there is one; the check for mpi4py runs its Python there, too."""
    payload = python.with_mpi4py(command)
    payload = payload if options.misses_mpi4py else payload._replace(note="")
    if not options.setup.inside:
        return payload
    interpreter = f"{options.setup.inside} {payload.interpreter}" if payload.interpreter else ""
    return payload._replace(text=f"{options.setup.inside} {payload.text}", interpreter=interpreter)


def _nccl_notes(options: MpiLaunch, payload: python.Payload, shape: Shape) -> tuple[Variable, ...]:
    names = variables.values(options.environment)
    text = " ".join((*options.block.options, *names, options.setup.pre_execution_command or "", payload.text))
    return variables.of_transport(shape, options.setup.own, text, variables.IN_RANKS)


def _environment(options: MpiLaunch) -> Step:
    if not options.environment:
        return Step()
    words = " ".join(f"{variable.name}={variable.value}" for variable in options.environment)
    text = shell.block("For the program; variables that are set already keep their value:", f"bt_default {words}")
    return Step(text, implicit=variables.implicit(options.environment))


def _abort(name: str, user_names: Collection[str]) -> Step:
    """MPICH's launcher kills everything on MPI_Abort, itself included, often before it has reported who."""
    if not name:
        return Step()
    text = shell.block(
        "MPI_Abort is to end its rank by SIGABRT, and the launcher to say who it was; not where cores would be dumped:",
        f'[ "$(ulimit -c)" != 0 ] || bt_default {name}=1',
    )
    because = "MPI_Abort is to end its rank so that the launch sees it"
    return Step(text, implicit=() if name in user_names else (Implicit(name, "1", because, "mpich-abort"),))


def _singletons(block: MpiBlock) -> Step:
    title = "If each rank is rank 0 of 1 after MPI_Init, the gang ends (`allow_singletons: true` allows it):"
    text = shell.block(title, f"export BATCHTRAIN_LAUNCHER={shell.word(block.mpi.library)}")
    return Step() if block.allow_singletons else Step(text)


def _question_for_mpi4py(payload: python.Payload) -> Step:
    title = "Whether Python has mpi4py; the answer is read below:"
    return Step(shell.block(title, f"bt_ask_for_mpi4py {payload.interpreter}") if payload.hooked else "")


def _hosts(options: MpiLaunch, checks: tuple[str, ...], shape: Shape) -> Step:
    text = shell.block(
        "The hosts, this one first (rank 0 belongs where the task's files are taken from); each must answer ssh"
        + (", and pass these checks:" if checks else ":"),
        f"bt_order_hosts {shape.instances}",
        steps.use_ssh(shape, options.setup.coordination_command),
        " ".join(("bt_wait_for_hosts", *checks)),
    )
    first = Implicit("AZ_BATCH_HOST_LIST", "the primary first", "rank 0 runs on the primary", "primary-first")
    return Step(text, (steps.SSH,), (first, steps.OWN_SSH))


def _preflight(options: MpiLaunch, shape: Shape) -> tuple[str, ...]:
    if not options.setup.preflight:
        return ()
    port = steps.port_of(shape, options.setup.coordination_command)
    fast = options.block.mpi.on(shape.fabric).device
    memlock = fast or bool(variables.on_infiniband(shape))
    chooses_nvlink = variables.NVLINK in variables.values(fabric.of_node(options, shape))
    imex = f'"${{{variables.NVLINK}-1}}"' if chooses_nvlink else ""
    each = options.block.processes_per_node
    return preflight.expected(shape, each, port, infiniband=fast, memlock=memlock, imex=imex)


def ranks_of(options: MpiLaunch, instances: int) -> Ranks:
    """A number, or a command that the primary evaluates once. The default is 1, unless the options set the number."""
    processes = options.block.processes_per_node
    if processes is None and _PLACED.search(" ".join(options.block.options)):
        because = "the options place the ranks themselves"
        return Ranks(Step(implicit=(_not_set("as in mpi.options", because),)), "", "")
    if processes is None:
        note = "bt_say 'processes_per_node is not set: 1 rank on each node'"
        step = Step(shell.block("Ranks on each node:", note), implicit=(_not_set("1", "not set"),))
        return Ranks(step, "1", str(instances))
    if wrong := counts.fault(processes):
        raise PlanError(wrong)
    if (number := counts.number(processes)) is not None:
        return Ranks(Step(), str(number), str(instances * number))
    command = _COUNTED.get(str(processes).strip(), str(processes)).strip()
    inner = f"\n{shell.verbatim(command)}\n" if "\n" in command or "#" in command else command
    text = shell.block(
        "Ranks on each node, as the primary counts them:",
        f"processes_per_node=$({inner})",
        f"bt_check_ranks {shell.word(command)}",
    )
    return Ranks(Step(text), '"$processes_per_node"', f'"$(({instances} * processes_per_node))"')


def _not_set(value: str, because: str) -> Implicit:
    return Implicit("processes_per_node", value, because, "processes-per-node")


def _counted(options: MpiLaunch, ranks: Ranks) -> Step:
    lines = options.block.mpi.counted if ranks.each else ()
    return Step(shell.block(*(line.format(each=ranks.each) for line in lines)) if lines else "")


def _mpi4py(options: MpiLaunch, payload: python.Payload) -> Step:
    if not payload.hooked:
        note = shell.block("Python without `-m mpi4py`:", f"bt_say {shell.word(payload.note)}")
        return Step(note if payload.note else "")
    text = shell.block(
        "With mpi4py, a rank with an exception aborts the other ranks instead of waiting for them for ever:",
        f"bt_find_mpi4py {payload.interpreter}{'' if options.misses_mpi4py else ' 2>/dev/null'}",
    )
    because = "ends all ranks if one raises an exception, so that none waits forever; only where mpi4py is installed"
    return Step(text, implicit=(Implicit("-m mpi4py", "true", because, "mpi4py-abort"),))


def _prepared(block: MpiBlock) -> Step:
    lines = (line.format(executable=block.executable_path) for line in block.mpi.prepared)
    return Step(shell.block(*lines) if block.mpi.prepared else "")


def _line(options: MpiLaunch, payload: python.Payload, ranks: Ranks, shape: Shape, *, judges: bool) -> Step:
    """judges: the launch reports which network NCCL used."""
    additions, placing = _added(options, ranks, shape), _rank_options(options, ranks)
    before = (*(each.line for each in additions if each.placing), placing, binding.on_line(options, ranks.each))
    line = shell.continued(
        f"bt_gang {options.block.executable_path}",
        " ".join(options.block.options),
        " ".join(filter(None, before)),
        " ".join(each.line for each in additions if each.line and not each.placing),
        fabric.on_line(options, shape),
        RANK if options.setup.rank_logs else f"{RANK} --plain",
        shell.verbatim(payload.text),
    )
    text = shell.block(
        "The line. bt_gang runs it, and ends the whole gang when one rank fails, with that rank's exit code:",
        "bt_begin",
        "{",
        line,
        "bt_judge_nccl $?" if judges else "",
        "} <&0 &",
        'bt_attend "$!"',
    )
    because = "the ranks run on the nodes of the task, with the requested number on each"
    on_nodes = Implicit(f"{options.block.runtime} ranks", placing, because, "ranks-on-nodes")
    implicit = (Implicit(each.what, each.value, each.because, each.rule) for each in additions)
    files = (steps.RANK, steps.SITECUSTOMIZE, *steps.LINES, steps.SWEEP, *((steps.VERDICT,) if judges else ()))
    return Step(text, files, (*((on_nodes,) if ranks.each else ()), *implicit))


def _rank_options(options: MpiLaunch, ranks: Ranks) -> str:
    text = options.block.mpi.rank_options.format(total=ranks.total, each=ranks.each) if ranks.each else ""
    return text.partition(" --map-by")[0] if "map-by" in " ".join(options.block.options) else text


def _added(options: MpiLaunch, ranks: Ranks, shape: Shape) -> tuple[Added, ...]:
    options_text = " ".join(options.block.options)
    return tuple(
        addition
        for addition in options.block.mpi.added
        if (ranks.each or not addition.placing)
        and (shape.container or not addition.in_container)
        and not (addition.unless and re.search(addition.unless, options_text))
    )
