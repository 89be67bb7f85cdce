"""Every script that the text of a launch can run travels with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import pytest

from batchtrain import runtime
from batchtrain.frameworks.base import Shape
from batchtrain.frameworks.mpi import MPIS
from batchtrain.launchers import checkpoint, plain, steps, sweep
from batchtrain.launchers.launch import Launch, rendered
from tests.launching import launched
from tests.unit.launchers.test_framework_golden import LAUNCHES, SHAPES

CONTAINERS = Shape(2, container=True)
CHECKPOINTS = checkpoint.Place("shared", "digits", "", "")
EVERY: Mapping[str, Callable[[], Launch]] = {
    "plain": lambda: launched("plain", "./run"),
    "plain, in containers": lambda: launched("plain", "./run", CONTAINERS),
    "plain, coordinated by the user": lambda: launched("plain", "./run", CONTAINERS, coordination_command="./start"),
    "plain, prepared": lambda: launched("plain", "./run", pre_execution_command=". ./prepare"),
    "plain, preempted": lambda: launched("plain", "./run", preemption="SIGUSR1"),
    "mpi, preempted": lambda: launched("mpi", runtime="mpich", preemption="SIGUSR1"),
    "one node, measured": lambda: rendered((steps.RECORDED, steps.MEASURED, plain.alone("./run"))),
    "checkpoint": lambda: rendered((checkpoint.step(CHECKPOINTS, {}, 3), plain.alone("./run"))),
    "sweep": lambda: rendered((sweep.STEP, plain.alone("python s.py batchtrain_sweep"))),
    "collected": lambda: launched("pytorch", collects=True, preemption="SIGUSR1"),
    **{
        f"{name}, {shape}": lambda make=make, shape=shape: make(SHAPES[shape])  # type: ignore[misc]
        for name, make in LAUNCHES.items()
        for shape in SHAPES
    },
    **{
        f"{name}, preflight {preflight}": lambda name=name, preflight=preflight: launched(  # type: ignore[misc]
            "mpi", shape=SHAPES["infiniband"], runtime=name, preflight=preflight
        )
        for name in MPIS
        for preflight in (True, False)
    },
}
_FOLDER = r"(?:\.batchtrain|\$bt_home|\$here|\$\{record%/ranks/\*\}|HERE, )"
IN_TEXT = re.compile(_FOLDER + r"[/\"]+((?:\w+/)*\w+\.(?:sh|py|awk))")
DIRECTORIES = {"$bt_home/launch": ".batchtrain/launch/__main__.py", "$bt_home/bin": steps.SSH.name}
ONLY_WITH = {
    "preemption.py": r'BATCHTRAIN_PREEMPTION|"preemption"',
    "preflight.sh": r'bt_wait_for_hosts \S|"preflight": \[\s*"',
    "uploads.py": '"collects": true',
    "verdict.py": "bt_judge_nccl|NCCL_DEBUG_FILE",
    "attempt.sh": "bt_begin_attempt",
}
"""Scripts that another one runs if the text of the launch asks for it."""
FUNCTION = re.compile(r"^(bt_\w+)\(\) (?:\{ [^\n]*\}\n|.*?^[})])", re.MULTILINE | re.DOTALL)
FUNCTIONS = {match[1]: match[0] for match in FUNCTION.finditer(runtime.read("gang.sh").decode())}


def texts(launch: Launch) -> Iterator[str]:
    """What the launch runs: its own text, the functions of gang.sh that this calls, and its other scripts."""
    text, called = f"{launch.coordination}\n{launch.application}", set[str]()
    while text:
        yield text
        names = {name for name in re.findall(r"\bbt_\w+", text) if name in FUNCTIONS} - called
        called |= names
        text = "\n".join(FUNCTIONS[name] for name in names)
    yield from (file.data.decode() for file in launch.files if file is not steps.GANG)


@pytest.mark.parametrize("name", EVERY)
def test_each_script_that_a_launch_can_run_travels_with_it(name: str) -> None:
    launch = EVERY[name]()
    whole = "\n".join(texts(launch))
    scripts = {f".batchtrain/{script}" for script in IN_TEXT.findall(whole)}
    scripts |= {file for directory, file in DIRECTORIES.items() if directory in whole}
    asked = f"{launch.application}{''.join(file.data.decode() for file in launch.files if file.name.endswith('.json'))}"
    for script, pattern in ONLY_WITH.items():
        if not re.search(pattern, asked):
            scripts.discard(f".batchtrain/{script}")
    assert scripts <= {file.name for file in launch.files}
