"""MPI: the launcher's line on the primary, and the preparation before it.

The line has the executable, the user's options, ours, and the ranks' command. The dialects differ only in names.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from batchtrain.errors import PlanError
from batchtrain.frameworks import counts
from batchtrain.frameworks.base import Shape, Variable
from batchtrain.frameworks.mpi import MPIS, Added
from batchtrain.launchers import binding, fabric, preflight, python, shell, steps, variables
from batchtrain.launchers.launch import Implicit, Launch, MpiLaunch

RANK = 'sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh"'
_SINGLETONS = "If each rank is rank 0 of 1 after MPI_Init, the gang ends (`allow_singletons: true` allows it):"

_PLACED = re.compile(r"(?:^|\s)--?(?:np|n|c)(?=[\s=]|$)")
"""Options that set the number of ranks."""

_COUNTED = {"auto": "bt_count_gpus", "nproc": "env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc"}
"""The commands for numbers with a name. nproc alone would answer with the threads of one rank."""
"""The meaning of `auto`: the GPUs of the primary (NVIDIA or AMD), or one rank if it has none."""


class Ranks(NamedTuple):
    """The number of ranks, in the form of the launch text."""

    step: str
    each: str
    total: str


def launch(options: MpiLaunch, command: str, shape: Shape) -> Launch:
    """The launch of a multi-instance task with an `mpi` block.

    Raises PlanError for an unknown runtime or an invalid number of ranks.
    """
    if options.block.runtime not in MPIS:
        raise PlanError(f"mpi.runtime `{options.block.runtime}` is not one of {', '.join(MPIS)}")
    ranks = ranks_of(options, shape.instances)
    payload = _payload(options, command)
    files = [steps.GANG, steps.NODE, steps.RANK, *steps.LINES, steps.SWEEP, steps.SSH]
    if options.setup.preflight:
        files.append(steps.PREFLIGHT)
    if _noted(options, payload, shape):
        files.append(steps.VERDICT)
    if fabric.graph(options, shape):
        files.append(steps.GRAPH)
    return Launch(
        coordination=steps.coordination(shape, options.setup.coordination_command),
        application=_application(options, payload, ranks, shape),
        files=tuple(files),
        implicit=_implicit(options, payload, ranks, shape),
    )


def _payload(options: MpiLaunch, command: str) -> python.Payload:
    """The ranks' command, inside the image if there is one; the check for mpi4py runs its Python there, too."""
    payload = python.with_mpi4py(command)
    payload = payload if options.misses_mpi4py else payload._replace(note="")
    if not options.setup.inside:
        return payload
    interpreter = f"{options.setup.inside} {payload.interpreter}" if payload.interpreter else ""
    return payload._replace(text=f"{options.setup.inside} {payload.text}", interpreter=interpreter)


def _noted(options: MpiLaunch, payload: python.Payload, shape: Shape) -> tuple[Variable, ...]:
    before = options.setup.pre_execution_command or ""
    text = " ".join((*options.block.options, *options.environment, before, payload.text))
    return variables.of_transport(shape, options.setup.own, text, variables.IN_RANKS)


def _preflight(options: MpiLaunch, shape: Shape) -> tuple[str, ...]:
    if not options.setup.preflight:
        return ()
    port = steps.port_of(shape, options.setup.coordination_command)
    fast = options.block.mpi.on(shape.fabric).device
    memlock = fast or bool(variables.on_infiniband(shape))
    return preflight.expected(shape, options.block.processes_per_node, port, infiniband=fast, memlock=memlock)


def ranks_of(options: MpiLaunch, instances: int) -> Ranks:
    """A number, or a command that the primary evaluates once. The default is 1, unless the options set the number."""
    processes = options.block.processes_per_node
    if processes is None and _places_ranks(options):
        return Ranks("", "", "")
    if processes is None:
        note = "bt_say 'processes_per_node is not set: 1 rank on each node'"
        return Ranks(shell.block("Ranks on each node:", note), "1", str(instances))
    if wrong := counts.fault(processes):
        raise PlanError(wrong)
    if (number := counts.number(processes)) is not None:
        return Ranks("", str(number), str(instances * number))
    command = _COUNTED.get(str(processes).strip(), str(processes)).strip()
    inner = f"\n{shell.verbatim(command)}\n" if "\n" in command or "#" in command else command
    step = shell.block(
        "Ranks on each node, as the primary counts them:",
        f"processes_per_node=$({inner})",
        f"bt_check_ranks {shell.word(command)}",
    )
    return Ranks(step, '"$processes_per_node"', f'"$(({instances} * processes_per_node))"')


def _places_ranks(options: MpiLaunch) -> bool:
    return _PLACED.search(" ".join(options.block.options)) is not None


def _application(options: MpiLaunch, payload: python.Payload, ranks: Ranks, shape: Shape) -> str:
    block, setup, abort = options.block, options.setup, options.block.mpi.abort
    defaults = f"bt_default {' '.join(options.environment)}"
    why_abort = (  # MPICH's launcher kills everything on MPI_Abort, itself included, often before it has reported who
        "MPI_Abort is to end its rank by SIGABRT, and the launcher to say who it was; not where cores would be dumped:"
    )
    return shell.script(
        shell.block(steps.ON_THE_PRIMARY, steps.SOURCE),
        fabric.prologue(options, shape),
        variables.block(variables.of_ranks(shape, setup.own)),
        variables.notes(_noted(options, payload, shape)),
        shell.block("For the program; variables that are set already keep their value:", defaults)
        if options.environment
        else "",
        shell.block(why_abort, f'[ "$(ulimit -c)" != 0 ] || bt_default {abort}=1') if abort else "",
        steps.pre_execution(setup.pre_execution_command),
        fabric.check(block, shape.fabric),
        fabric.parameters(options, shape),
        ""
        if block.allow_singletons
        else shell.block(_SINGLETONS, f"export BATCHTRAIN_LAUNCHER={shell.word(block.mpi.library)}"),
        shell.block("Whether Python has mpi4py; the answer is read below:", f"bt_ask_for_mpi4py {payload.interpreter}")
        if payload.hooked
        else "",
        shell.block(
            "The hosts, this one first (rank 0 belongs where the task's files are taken from); each must answer ssh"
            + (", and pass these checks:" if setup.preflight else ":"),
            f"bt_order_hosts {shape.instances}",
            steps.use_ssh(shape, setup.coordination_command),
            " ".join(("bt_wait_for_hosts", *_preflight(options, shape))),
        ),
        ranks.step,
        _counted(options, ranks),
        binding.text(options, ranks.each),
        _mpi4py(options, payload),
        shell.block(*(text.format(executable=block.executable_path) for text in block.mpi.prepared))
        if block.mpi.prepared
        else "",
        _line(options, payload, ranks, shape),
    )


def _mpi4py(options: MpiLaunch, payload: python.Payload) -> str:
    if payload.hooked:
        return shell.block(
            "With mpi4py, a rank with an exception aborts the other ranks instead of waiting for them for ever:",
            f"bt_find_mpi4py {payload.interpreter}{'' if options.misses_mpi4py else ' 2>/dev/null'}",
        )
    if payload.note:
        return shell.block("Python without `-m mpi4py`:", f"bt_say {shell.word(payload.note)}")
    return ""


def _line(options: MpiLaunch, payload: python.Payload, ranks: Ranks, shape: Shape) -> str:
    additions = _added(options, ranks, shape)
    line = shell.continued(
        f"bt_gang {options.block.executable_path}",
        " ".join(options.block.options),
        " ".join(
            filter(
                None,
                (
                    *(each.line for each in additions if each.placing),
                    _rank_options(options, ranks),
                    binding.on_line(options, ranks.each),
                ),
            )
        ),
        " ".join(each.line for each in additions if each.line and not each.placing),
        fabric.on_line(options, shape),
        RANK if options.setup.rank_logs else f"{RANK} --plain",
        shell.verbatim(payload.text),
    )
    return shell.block(
        "The line. bt_gang runs it, and ends the whole gang when one rank fails, with that rank's exit code:",
        "bt_begin",
        "{",
        line,
        "bt_judge_nccl $?" if _noted(options, payload, shape) else "",
        "} <&0 &",
        'bt_attend "$!"',
    )


def _rank_options(options: MpiLaunch, ranks: Ranks) -> str:
    text = options.block.mpi.rank_options.format(total=ranks.total, each=ranks.each) if ranks.each else ""
    return text.partition(" --map-by")[0] if "map-by" in " ".join(options.block.options) else text


def _counted(options: MpiLaunch, ranks: Ranks) -> str:
    lines = options.block.mpi.counted if ranks.each else ()
    return shell.block(*(line.format(each=ranks.each) for line in lines)) if lines else ""


def _added(options: MpiLaunch, ranks: Ranks, shape: Shape) -> tuple[Added, ...]:
    options_text = " ".join(options.block.options)
    return tuple(
        addition
        for addition in options.block.mpi.added
        if (ranks.each or not addition.placing)
        and (shape.container or not addition.in_container)
        and not (addition.unless and re.search(addition.unless, options_text))
    )


def _implicit(options: MpiLaunch, payload: python.Payload, ranks: Ranks, shape: Shape) -> tuple[Implicit, ...]:
    decisions = list(fabric.implicit(options, shape))
    decisions += variables.implicit(variables.of_ranks(shape, options.setup.own))
    decisions += variables.implicit((*_noted(options, payload, shape), *fabric.graph(options, shape)))
    decisions += preflight.implicit(_preflight(options, shape))
    if options.block.processes_per_node is None and _places_ranks(options):
        value, because = "as in mpi.options", "the options place the ranks themselves"
        decisions.append(Implicit("processes_per_node", value, because, "processes-per-node"))
    elif options.block.processes_per_node is None:
        decisions.append(Implicit("processes_per_node", "1", "not set", "processes-per-node"))
    if ranks.each:
        name = f"{options.block.runtime} ranks"
        because = "the ranks run on the nodes of the task, with the requested number on each"
        decisions.append(Implicit(name, _rank_options(options, ranks), because, "ranks-on-nodes"))
    decisions += binding.implicit(options, ranks.each)
    abort = options.block.mpi.abort
    if abort and abort not in options.setup.own:
        decisions.append(Implicit(abort, "1", "MPI_Abort is to end its rank so that the launch sees it", "mpich-abort"))
    decisions += (Implicit(each.what, each.value, each.because, each.rule) for each in _added(options, ranks, shape))
    if payload.hooked:
        because = (
            "ends all ranks if one raises an exception, so that none waits forever; only where mpi4py is installed"
        )
        decisions.append(Implicit("-m mpi4py", "true", because, "mpi4py-abort"))
    decisions += steps.implicit_sshd(shape, options.setup.coordination_command)
    decisions.append(Implicit("AZ_BATCH_HOST_LIST", "the primary first", "rank 0 runs on the primary", "primary-first"))
    return (*decisions, steps.OWN_SSH)
