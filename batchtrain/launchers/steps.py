"""The steps that all launches share: their files, the coordination, and the preparation of a command."""

from __future__ import annotations

import re

from batchtrain import runtime
from batchtrain.frameworks.base import Shape
from batchtrain.frameworks.mpi import MPIS, Mpi
from batchtrain.launchers import shell
from batchtrain.launchers.launch import File, Implicit, Step
from batchtrain.launchers.variables import links_nodes

SOURCE = 'source "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/gang.sh" || exit 1'
ON_THE_PRIMARY = "Runs on the primary, when the coordination command has come back on every instance."
SSHD_PORT = "23"
_RANK_NAMES = tuple(dict.fromkeys(name for mpi in MPIS.values() for name in mpi.rank))
"""The variables in which the MPIs tell a rank its number; rank.sh reads the first that is set."""
_SIZE_NAMES = tuple(dict.fromkeys(name for mpi in MPIS.values() for name in mpi.world_size))


def _rank_script() -> bytes:
    """rank.sh with what the table says of the MPIs."""
    libraries = {mpi.library: (name, mpi) for name, mpi in reversed(MPIS.items()) if mpi.world}
    worlds = [
        f'  "$1" {" ".join(map(shell.word, (name, library, mpi.singleton, _without_note(mpi), *mpi.world)))}'
        for library, (name, mpi) in libraries.items()
    ]
    text = runtime.read("rank.sh").decode()
    text = text.replace("\nrank=\nsize=\n", f"\nrank={_first_set(_RANK_NAMES)}\nsize={_first_set(_SIZE_NAMES)}\n")
    return text.replace("() { # COMMAND\n  :\n", "() { # COMMAND\n" + "\n".join((*worlds, ""))).encode()


def _without_note(mpi: Mpi) -> str:
    """The launchers under which a file that is written at the end would be written in each good run."""
    return "" if mpi.singleton else ",".join(sorted(mpi.starts))


def _first_set(names: tuple[str, ...]) -> str:
    """The value of the first of these variables that is set, in the shell."""
    return "".join(f"${{{name}:-" for name in names) + "}" * len(names)


def _script(name: str, mode: int = 0o644) -> File:
    return File(f".batchtrain/{name}", runtime.read(name), mode)


GANG = _script("gang.sh")
NODE = _script("node.sh")
RANK = File(".batchtrain/rank.sh", _rank_script(), 0o755)
LINES = (_script("lines.sh", 0o755), _script("lines.awk"))
SWEEP = _script("sweep.sh", 0o755)
SSH = File(".batchtrain/bin/ssh", runtime.read("ssh.sh"), 0o755)
PREFLIGHT = _script("preflight.sh")
VERDICT = _script("verdict.py")
PREEMPTION = _script("preemption.py")
UPLOADS = _script("uploads.py")
BEFORE_UPLOAD = _script("before_upload.sh")
ENDS = _script("ends.py")
TORCHRUN = _script("torchrun.py")
ACCELERATED = _script("accelerated.py")
SITECUSTOMIZE = File(".batchtrain/python/sitecustomize.py", runtime.read("registered_stacks.py"))
TORCHRUN_SHELL = _script("torchrun.sh")

OWN_SSH = Implicit("PATH", ".batchtrain/bin first", "ssh between the nodes uses the gang's port and keys", "gang-ssh")


RECORDED = Step(
    shell.block(
        "The number of this attempt of the task, and the record of its beginning and its end:",
        'source "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/attempt.sh"',
        "bt_begin_attempt",
    ),
    files=(_script("attempt.sh"),),
)
MEASURED = Step(
    shell.block(
        "The task's file for metrics, and samples of the node, as the ranks of a gang have them:",
        'bt_metrics="$AZ_BATCH_TASK_WORKING_DIR/ranks"',
        'if mkdir -p "$bt_metrics" && rm -f "$bt_metrics"/*.metrics.jsonl; then',
        '  export BATCHTRAIN_METRICS="$bt_metrics/rank-0.metrics.jsonl"',
        '  (bash "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/node.sh" samples "$bt_metrics/node.metrics.jsonl" $$ \\',
        "    </dev/null >/dev/null 2>&1 &)",
        "fi",
    ),
    files=(NODE,),
)


def passes_on(preemption: str | None) -> Step:
    """Passes an announced preemption on to the command of this node. preemption: as in `Setup`.

    In the background of another shell, so that a `wait` of the command does not wait for it.
    """
    if preemption is None:
        return Step()
    text = shell.block(
        "On a spot node, an announced preemption is passed on:",
        '[ "${AZ_BATCH_NODE_IS_DEDICATED-}" != false ] ||',
        '  (python3 -I -S "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/preemption.py" "$BATCHTRAIN_PREEMPTION"'
        f" $$ {preemption}".rstrip()
        + " </dev/null >/dev/null 2>&1 &)",
    )
    return Step(text, (PREEMPTION,))


def node_launcher(framework: str, module: str = "") -> tuple[File, ...]:
    """The package that launches the processes of a framework, with the file of this framework only, and the script for
    its facts. module: the text of that file if the framework is of another package."""
    file = f"{_FRAMEWORKS}{framework}.py"
    ours = (f"{_FRAMEWORKS}__init__.py", f"{_FRAMEWORKS}base.py", file)
    modules = {name: data for name, data in runtime.LAUNCH.items() if name in ours or not name.startswith(_FRAMEWORKS)}
    modules.setdefault(file, module.encode())
    main = File(".batchtrain/launch/__main__.py", runtime.LAUNCH_MAIN)
    return (NODE, SITECUSTOMIZE, main, *(File(f".batchtrain/launch/{name}", data) for name, data in modules.items()))


_FRAMEWORKS = "launch/frameworks/"
PYTHON_PATH = 'export PYTHONPATH="$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/python${PYTHONPATH:+:$PYTHONPATH}"'
"""The directory of the modules that come with a task."""


def coordination(shape: Shape, command: str | None) -> tuple[Step, ...]:
    """The steps of every instance.

    In a native container the default is the image's sshd on port 23 (Batch Shipyard's contract); on the host Batch's
    own sshd is there, and there is nothing more to do. A command of the user replaces the default.
    """
    last_step = shell.block("coordination_command:", shell.verbatim(command)) if command else ""
    implicit: tuple[Implicit, ...] = ()
    if starts_sshd(shape, command):
        last_step = shell.block("The ranks are started through the container's own ssh server:", "bt_start_sshd")
        replaced = (
            f"; it replaces `{command}`, because a server with `-D` never ends" if "-D" in (command or "") else ""
        )
        because = f"a container needs its own ssh server{replaced}"
        implicit = (Implicit("coordination_command", f"/usr/sbin/sshd -p {SSHD_PORT}", because, "container-sshd"),)
    title = "Runs on every instance. This node's own AZ_BATCH_* values, for its ranks:"
    imex = shell.block("NVLink between the nodes:", "bt_join_imex") if links_nodes(shape) else ""
    return (
        Step(shell.block(title, SOURCE, "bt_keep_environment"), (GANG,), everywhere=True),
        Step(imex, everywhere=True),
        Step(last_step, implicit=implicit, everywhere=True),
    )


def port_of(shape: Shape, command: str | None) -> str:
    """The port of a node's ssh server; empty in a container with the user's own coordination command."""
    return "22" if not shape.container else SSHD_PORT if starts_sshd(shape, command) else ""


def use_ssh(shape: Shape, command: str | None) -> str:
    """The line after which ssh reaches the other nodes."""
    return f"bt_use_ssh {SSHD_PORT}" if starts_sshd(shape, command) else "bt_use_ssh"


_SSHD = re.compile(r"/usr/sbin/sshd(?:\s+-[De])*\s+-p\s+23(?:\s+-[De])*(?:\s+&)?")


def starts_sshd(shape: Shape, command: str | None) -> bool:
    """Whether the launch starts sshd: also if the user writes the default, as Batch Shipyard's recipes do.

    Its images contained keys, which these need not. Its option `-D`, which kept its containers alive, would never end.
    """
    return shape.container and (not command or _SSHD.fullmatch(command.strip()) is not None)


def pre_execution(command: str | None) -> Step:
    """The user's text, in the shell that runs the command; a file it sources must be there."""
    if not command:
        return Step()
    text = shell.block(
        "pre_execution_command, in this same shell; a file that it sources must be there:",
        "trap 'bt_check_source \"$BASH_COMMAND\"' DEBUG",
        shell.verbatim(command),
        "{ bt_code=$?; trap - DEBUG; set +eu; } 2>/dev/null",
        '[ "$bt_code" -eq 0 ] || bt_say "warning: pre_execution_command ended with code $bt_code"',
    )
    return Step(text)
