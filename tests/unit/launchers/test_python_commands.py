"""Where `-m mpi4py` goes in a command."""

from __future__ import annotations

import pytest

from batchtrain.launchers.python import HOOK, with_mpi4py


@pytest.mark.parametrize(
    ("command", "interpreter"),
    [
        ("python ! train.py -u", "python"),
        ("python3.11 -u -W ignore ! x.py", "python3.11"),
        ("python -Wignore -X dev -B ! x.py > log 2>&1", "python"),
        ("python -u ! -m package.train --epochs 3", "python"),
        ('python ! -c "import a; a.run()"', "python"),
        ("$CONDA_PREFIX/bin/python3 ! $AZ_BATCH_TASK_SHARED_DIR/train.py", "$CONDA_PREFIX/bin/python3"),
        ('"/opt/my python/bin/python" ! x.py', '"/opt/my python/bin/python"'),
        ("  pypy3 ! x.py", "pypy3"),
        ("python ! 'a b.py' && echo done", "python"),
        ("python ! -m", "python"),
        ("python ! -m mpi4python", "python"),
    ],
)
def test_it_goes_before_the_script(command: str, interpreter: str) -> None:
    payload = with_mpi4py(command.replace("! ", ""))
    assert (payload.text, payload.interpreter) == (command.replace("!", HOOK), interpreter)


@pytest.mark.parametrize("command", [
    "./solve python x.py.in", "cntk configFile=a.cntk", "python -u -m mpi4py train.py", "python -m mpi4py.run x.py",
    "python -m mpi4py", "",
])  # fmt: skip
def test_other_commands_are_left_alone_without_a_word(command: str) -> None:
    payload = with_mpi4py(command)
    assert (payload.text, payload.interpreter) == (command, "")
    assert payload.note == "" or command.startswith("./solve")


@pytest.mark.parametrize(
    "command",
    ["/bin/bash -c 'python -u train.py'", "numactl -l python train.py", "python", "python -um train", "python -"],
)
def test_a_python_that_cannot_get_it_is_said(command: str) -> None:
    payload = with_mpi4py(command)
    assert (payload.text, payload.interpreter) == (command, "")
    assert "waiting for ever" in payload.note
