"""MPI: the launcher's line on the primary, and the preparation before it.

The line has the executable, the user's options, ours, and the ranks' command. The dialects differ only in names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from batchtrain.errors import PlanError
from batchtrain.frameworks import counts
from batchtrain.frameworks.base import Shape, Variable
from batchtrain.frameworks.mpi import MPIS
from batchtrain.launchers import cntk, fabric, preflight, python, shell, steps, variables
from batchtrain.launchers.launch import File, Implicit, Launch, MpiLaunch

RANK = 'sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/rank.sh"'

_PLACED = re.compile(r"(?:^|\s)--?(?:np|n|c)(?=[\s=]|$)")
"""Options that set the number of ranks."""

AUTO = "bt_count_gpus"
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
    payload = _inside(options, _payload(options, command))
    return Launch(
        coordination=steps.coordination(shape, options.setup.coordination_command),
        application=_application(options, payload, ranks, shape),
        files=_files(options, payload, shape),
        implicit=_implicit(options, payload, ranks, shape),
    )


def _payload(options: MpiLaunch, command: str) -> python.Payload:
    if options.cntk:
        return python.Payload(command, python.interpreter(command))
    payload = python.with_mpi4py(command)
    return payload if options.misses_mpi4py else payload._replace(note="")


def _files(options: MpiLaunch, payload: python.Payload, shape: Shape) -> tuple[File, ...]:
    looked = (steps.PREFLIGHT,) if options.setup.preflight else ()
    noted = (steps.VERDICT,) if _noted(options, payload, shape) else ()
    return (steps.GANG, steps.NODE, steps.RANK, steps.SWEEP, steps.SSH, *looked, *noted)


def _noted(options: MpiLaunch, payload: python.Payload, shape: Shape) -> tuple[Variable, ...]:
    before = options.setup.pre_execution_command or ""
    text = " ".join((*options.block.options, *options.environment, before, payload.text))
    return variables.of_transport(shape, options.setup.own, text, variables.IN_RANKS)


def _preflight(options: MpiLaunch, shape: Shape) -> tuple[str, ...]:
    if not options.setup.preflight:
        return ()
    port = steps.port_of(shape, options.setup.coordination_command)
    fast = fabric.needs_device(options.block, shape.fabric)
    memlock = fast or bool(variables.on_infiniband(shape))
    given = options.block.processes_per_node
    each = 1 if given is None and not _places_ranks(options) else given
    return preflight.expected(shape, each, port, infiniband=fast, memlock=memlock)


def _inside(options: MpiLaunch, payload: python.Payload) -> python.Payload:
    """The ranks' command inside the image; the check for mpi4py runs its Python there, too."""
    if not options.setup.inside:
        return payload
    interpreter = f"{options.setup.inside} {payload.interpreter}" if payload.interpreter else ""
    return payload._replace(text=f"{options.setup.inside} {payload.text}", interpreter=interpreter)


def ranks_of(options: MpiLaunch, instances: int) -> Ranks:
    """A number, or a command that the primary evaluates once. The default is 1, unless the options set the number."""
    wanted = options.block.processes_per_node
    if wanted is None and _places_ranks(options):
        return Ranks("", "", "")
    if wanted is None:
        note = "bt_say 'processes_per_node is not set: 1 rank on each node'"
        return Ranks(shell.block("Ranks on each node:", note), "1", str(instances))
    if wrong := counts.fault(wanted):
        raise PlanError(wrong)
    if (number := counts.number(wanted)) is not None:
        return Ranks("", str(number), str(instances * number))
    return Ranks(
        _evaluated(AUTO if str(wanted).strip() == "auto" else str(wanted)),
        '"$processes_per_node"',
        f'"$(({instances} * processes_per_node))"',
    )


def _places_ranks(options: MpiLaunch) -> bool:
    return _PLACED.search(" ".join(options.block.options)) is not None


def _evaluated(command: str) -> str:
    command = command.strip()
    inner = f"\n{shell.verbatim(command)}\n" if "\n" in command or "#" in command else command
    return shell.block(
        "Ranks on each node, as the primary counts them:",
        f"processes_per_node=$({inner})",
        f"bt_check_ranks {shell.word(command)}",
    )


def _application(options: MpiLaunch, payload: python.Payload, ranks: Ranks, shape: Shape) -> str:
    return shell.script(
        shell.block(
            "Runs on the primary, when the coordination command has come back on every instance.", steps.SOURCE
        ),
        fabric.prologue(options.block, shape.fabric),
        variables.block(variables.of_ranks(shape, options.setup.own)),
        variables.notes(_noted(options, payload, shape)),
        _environment(options),
        _abort(options),
        steps.pre_execution(options.setup.pre_execution_command),
        fabric.check(options.block, shape.fabric),
        cntk.check(options, payload) if options.cntk else "",
        _hosts(options, shape),
        ranks.step,
        _mpi4py(options, payload),
        "" if options.block.mpi.carries_environment else _openmpi(options),
        _line(options, payload, ranks, shape),
    )


def _environment(options: MpiLaunch) -> str:
    if not options.environment:
        return ""
    return shell.block(
        "For the program; variables that are set already keep their value:",
        f"bt_default {' '.join(options.environment)}",
    )


def _abort(options: MpiLaunch) -> str:
    """MPICH's launcher kills everything on MPI_Abort, itself included, often before it has reported the caller."""
    if not options.block.mpi.abort:
        return ""
    return shell.block(
        "MPI_Abort is to end its rank by SIGABRT, and the launcher to say who it was; not where cores would be dumped:",
        f'[ "$(ulimit -c)" != 0 ] || bt_default {options.block.mpi.abort}=1',
    )


def _hosts(options: MpiLaunch, shape: Shape) -> str:
    return shell.block(
        "The hosts, this one first (rank 0 belongs where the task's files are taken from); each must answer ssh"
        + (", and pass these checks:" if options.setup.preflight else ":"),
        f"bt_order_hosts {shape.instances}",
        steps.use_ssh(shape, options.setup.coordination_command),
        " ".join(("bt_wait_for_hosts", *_preflight(options, shape))),
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


_NO_TREE = ("OMPI_MCA_plm_rsh_no_tree_spawn", "PRTE_MCA_plm_ssh_no_tree_spawn")


def _openmpi(options: MpiLaunch) -> str:
    """Open MPI 4 (OMPI_MCA) and 5 (PRTE_MCA) use different names for the parameters of their daemons; each ignores the
    other's."""
    return shell.block(
        "Open MPI finds its daemons on the other nodes by --prefix, started from here alone, by this shell's ssh; and"
        " nothing of this shell's environment reaches the ranks there but what -x names:",
        shell.exports(dict.fromkeys(_NO_TREE, "1")),
        f"bt_find_prefix {options.block.executable_path}",
        "bt_list_exported",
    )


def _line(options: MpiLaunch, payload: python.Payload, ranks: Ranks, shape: Shape) -> str:
    line = shell.continued(
        f"bt_gang {options.block.executable_path}",
        " ".join(options.block.options),
        _rank_options(options, ranks),
        _openmpi_options(options, shape),
        fabric.on_line(options.block, shape.fabric),
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
    if not ranks.each:
        return ""
    return options.block.mpi.rank_options.format(total=ranks.total, each=ranks.each)


def _openmpi_options(options: MpiLaunch, shape: Shape) -> str:
    if options.block.mpi.carries_environment:
        return ""
    prefix = '"${bt_prefix[@]}" ' if _needs_prefix(options) else ""
    root = f"{_AS_ROOT} " if _needs_root(options, shape) else ""
    unbound = f"{_UNBOUND} " if _needs_unbound(options) else ""
    return f'{root}{unbound}{prefix}"${{bt_exported[@]}}"'


_AS_ROOT = "--allow-run-as-root"


_UNBOUND = MPIS["openmpi"].unbound
"""With more ranks than slots, Open MPI binds no rank. Up to version 4 it binds a single rank on a node, and two ranks
in total, to one core each: with one rank per node, two nodes would train on two cores."""


def _needs_unbound(options: MpiLaunch) -> bool:
    return not re.search(r"bind|rankfile|cpu-(?:set|list)", " ".join(options.block.options))


def _needs_root(options: MpiLaunch, shape: Shape) -> bool:
    return shape.container and _AS_ROOT not in " ".join(options.block.options)


def _needs_prefix(options: MpiLaunch) -> bool:
    return "--prefix" not in " ".join(options.block.options)


# --- what was decided -----------------------------------------------------------------------------------------------


def _implicit(options: MpiLaunch, payload: python.Payload, ranks: Ranks, shape: Shape) -> tuple[Implicit, ...]:
    decisions = list(fabric.implicit(options.block, shape.fabric))
    decisions += variables.implicit(variables.of_ranks(shape, options.setup.own))
    decisions += variables.implicit(_noted(options, payload, shape))
    decisions += preflight.implicit(_preflight(options, shape))
    if options.block.processes_per_node is None:
        decisions.append(_implicit_ranks(options))
    if ranks.each:
        placed = _rank_options(options, ranks).removeprefix("--oversubscribe ")
        because = "the ranks run on the nodes of the task, with the requested number on each"
        decisions.append(Implicit(f"{options.block.runtime} ranks", placed, because, "ranks-on-nodes"))
    abort = options.block.mpi.abort
    if abort and abort not in options.setup.own:
        decisions.append(Implicit(abort, "1", "MPI_Abort is to end its rank so that the launch sees it", "mpich-abort"))
    if options.block.runtime == "openmpi":
        decisions += _implicit_openmpi(options, ranks, shape)
    if payload.hooked:
        because = "a rank with an exception would wait for the other ranks forever; where mpi4py is installed"
        decisions.append(Implicit("-m mpi4py", "true", because, "mpi4py-abort"))
    decisions += steps.implicit_sshd(shape, options.setup.coordination_command)
    decisions.append(Implicit("AZ_BATCH_HOST_LIST", "the primary first", "rank 0 runs on the primary", "primary-first"))
    return (*decisions, steps.OWN_SSH)


def _implicit_openmpi(options: MpiLaunch, ranks: Ranks, shape: Shape) -> Iterator[Implicit]:
    if ranks.each:
        because = "a host without a number has one slot, and Open MPI refuses more ranks than slots"
        yield Implicit("--oversubscribe", "true", because, "openmpi-slots")
    if _needs_root(options, shape):
        because = "a container's processes are root, which Open MPI refuses"
        yield Implicit(_AS_ROOT, "true", because, "openmpi-as-root")
    if _needs_unbound(options):
        because = "ranks have threads; with one rank on each of two nodes, Open MPI 4 would bind each to one core"
        yield Implicit(_UNBOUND.split()[0], "none", because, "openmpi-binding")
    if _needs_prefix(options):
        because = "the other nodes find the daemon at the path of the launcher on this node"
        yield Implicit("--prefix", "the directory above the launcher's bin", because, "openmpi-prefix")
    because = "otherwise the ranks of other nodes do not get the shell's environment"
    value = "each variable of the shell, except those of Batch, the MPI and the login"
    yield Implicit("-x", value, because, "openmpi-environment")
    yield Implicit(", ".join(_NO_TREE), "1", "only the primary logs in to the other nodes", "openmpi-daemons")


def _implicit_ranks(options: MpiLaunch) -> Implicit:
    if _places_ranks(options):
        return Implicit(
            "processes_per_node", "as in mpi.options", "the options place the ranks themselves", "processes-per-node"
        )
    return Implicit("processes_per_node", "1", "not set", "processes-per-node")
