"""When a container gets a command as it was written, and when a shell stands before it."""

from __future__ import annotations

import pytest

from batchtrain.plan.command import speaks_for_itself


@pytest.mark.parametrize(
    "text",
    [
        "python train.py --epochs 3",
        "-i sample.mp4 out.mkv",
        "/bin/bash -c 'echo $HOME; ls'",
        "sh -c 'a | b'",
        "cmd.exe /c dir & ver",
        "powershell -Command Get-Date; 1",
        'program "two words"',
        "",
    ],
)
def test_a_command_without_shell_words_is_the_containers_own(text: str) -> None:
    assert speaks_for_itself(text, entrypoint=False)


@pytest.mark.parametrize(
    "text",
    [
        "python train.py --out $AZ_BATCH_TASK_WORKING_DIR/output",
        "a | b",
        "cd /data && make",
        "cd /data",
        "exit 3",
        "A=1 program",
        "rm *.txt",
        "bashful | less",
        "first\nsecond",
    ],
)
def test_a_command_with_shell_words_gets_a_shell(text: str) -> None:
    assert not speaks_for_itself(text, entrypoint=False)


def test_arguments_of_an_entry_point_are_never_wrapped() -> None:
    assert speaks_for_itself("-c 'echo $HOME'", entrypoint=True)
