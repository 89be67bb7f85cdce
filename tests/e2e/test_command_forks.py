"""A fork of the command line ends, prints and sees what a start of it does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.command_forks import Forks

from .conftest import Shell

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def process() -> Iterator[Forks]:
    process = Forks()
    yield process
    process.close()


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        ("--version", {}),
        ("run nothing", {}),
        ("config validate .", {"BATCHTRAIN_CONFIGDIR": "nothing"}),
        ("config validate", {"BATCHTRAIN_CONFIGDIR": "nothing"}),
        ("", {}),
    ],
)
def test_a_fork_ends_and_prints_as_a_start_does(
    batchtrain: Shell, process: Forks, words: str, environment: dict[str, str]
) -> None:
    done = [
        Shell(batchtrain.home, batchtrain.cwd, forks).finish(*words.split(), environment=environment)
        for forks in (process, None)
    ]
    answers = [(one.returncode, one.stdout, one.stderr) for one in done]
    assert answers[0] == answers[1]


def test_a_command_that_hangs_is_killed(batchtrain: Shell, process: Forks) -> None:
    shell = Shell(batchtrain.home, batchtrain.cwd, process)
    with pytest.raises(subprocess.TimeoutExpired):
        shell.finish("emulator", "start", "--foreground", "--port", "0", timeout=0.5)
