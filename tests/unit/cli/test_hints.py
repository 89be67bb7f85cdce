"""Commands inside messages: what is pasted reaches the same account, by the same program."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from batchtrain.cli import messages
from batchtrain.cli.options import Settings
from batchtrain.cli.wrapping import wrapped
from batchtrain.hints import pasted, program
from batchtrain.service.faults import NEXT_STEPS

LOCAL, PLACE = " --local", " --configdir 'my files'"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("`batchtrain jobs list` shows them", "`batchtrain jobs list --local` shows them"),
        ("delete it: batchtrain pool del p", "delete it: batchtrain pool del p --local"),
        (
            "batchtrain jobs logs j · batchtrain jobs del j",
            "batchtrain jobs logs j --local · batchtrain jobs del j --local",
        ),
        ("`batchtrain jobs wait j --local`", "`batchtrain jobs wait j --local`"),
        ("`batchtrain config plan d --diff`", "`batchtrain config plan d --diff --local`"),
        ("`batchtrain jobs diagnose --help`", "`batchtrain jobs diagnose --help`"),
        ("`batchtrain config checks`", "`batchtrain config checks`"),
        ("`batchtrain pool autoscale evaluate F`", "`batchtrain pool autoscale evaluate F`"),
        ("  batchtrain runs attach r1", "  batchtrain runs attach r1 --local"),
        ("`batchtrain runs list --account` names it", "`batchtrain runs list --account --local` names it"),
        ("`batchtrain jobs sweep j` ranks", "`batchtrain jobs sweep j --local` ranks"),
        ("  batchtrain jobs sweep 20261201T015029Z-j-a3b3", "  batchtrain jobs sweep 20261201T015029Z-j-a3b3"),
        ("`batchtrain runs list` lists them", "`batchtrain runs list` lists them"),
        (
            "more: batchtrain run --resume 20261130T05Z-j-1",
            f"more: batchtrain run --resume 20261130T05Z-j-1{LOCAL}{PLACE}",
        ),
        ("`batchtrain data list a/b`", "`batchtrain data list a/b --configdir 'my files'`"),
        ("`batchtrain images env 'my files'`", "`batchtrain images env 'my files'`"),
        ("`batchtrain images check`", "`batchtrain images check --configdir 'my files'`"),
        ("`batchtrain jobs exec j -- ls -l`", "`batchtrain jobs exec --local j -- ls -l`"),
        ("`batchtrain config show` prints it", f"`batchtrain config show{PLACE}` prints it"),
        ("`batchtrain jobs tasks` lists them", f"`batchtrain jobs tasks{LOCAL}{PLACE}` lists them"),
        ("`batchtrain jobs logs --file 'a b' --follow`", f"`batchtrain jobs logs --file 'a b' --follow{LOCAL}{PLACE}`"),
        ("`batchtrain pool get . n0 f`", f"`batchtrain pool get . n0 f{LOCAL}{PLACE}`"),
        ("`batchtrain pool ssh n ls`", "`batchtrain pool ssh --local n ls`"),
        ("made by batchtrain for you", "made by batchtrain for you"),
    ],
)
def test_a_command_that_asks_a_service_repeats_the_target(said: str, shown: str) -> None:
    assert pasted(said, LOCAL, PLACE) == shown


def test_a_run_of_a_script_is_repeated_with_the_script_and_its_arguments() -> None:
    script = ("train.py --nodes 2", " -- --epochs 3")
    shown = pasted("`batchtrain run --reuse` uses it, `batchtrain run x` does not", LOCAL, "", script=script)
    assert shown == (
        "`batchtrain run train.py --nodes 2 --reuse --local -- --epochs 3` uses it, `batchtrain run x --local` does not"
    )


def test_a_command_that_reads_the_same_files_repeats_the_values_of_the_command_line() -> None:
    settings = Settings(local=True, values={"job_specifications[0].id": "two words"})
    shown = messages.pasted("`batchtrain run --reuse` uses it, `batchtrain pool del p` deletes it", settings)
    values = "--set 'job_specifications[0].id=two words'"
    secret = Settings(local=True, values={"job_specifications[0].tasks[0].environment_variables.API_KEY": "topsecret"})
    assert "topsecret" not in messages.pasted("`batchtrain run --reuse` uses it", secret)
    assert shown == f"`batchtrain run --reuse {values} --local` uses it, `batchtrain pool del p --local` deletes it"


def test_each_line_of_a_message_is_completed_and_a_line_that_is_a_command_as_a_whole() -> None:
    text = "left as it is: job j\n  delete: batchtrain jobs del j\n  batchtrain run x --set 'a=b; c, d'"
    assert pasted(text, "", PLACE).splitlines() == [
        "left as it is: job j",
        f"  delete: batchtrain jobs del j{PLACE}",
        f"  batchtrain run x --set 'a=b; c, d'{PLACE}",
    ]


def test_every_next_step_of_a_fault_repeats_the_target() -> None:
    commands = [pasted(step, LOCAL, "") for step in NEXT_STEPS.values() if "`batchtrain " in step]
    assert commands
    assert all("--local`" in text for text in commands)


def test_the_target_is_the_emulator_or_the_files_that_name_the_account() -> None:
    assert Settings(local=True, configdir="x").target == " --local"
    assert Settings(configdir="my files").target == PLACE
    assert Settings(configdir="x", directory="y", files={"credentials": "c.yaml"}).target == (
        " --configdir y --credentials c.yaml"
    )
    assert Settings(configdir=".").target == ""


def test_a_program_that_is_not_on_path_is_named_as_it_was_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "batchtrain"
    script.write_text("")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == str(script)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == "batchtrain"


def test_a_long_message_is_broken_between_words_and_a_command_that_fits_stays_whole() -> None:
    text = "one two three `batchtrain jobs list --local` and more words than fit"
    lines = wrapped(text, 32).split("\n")
    assert "`batchtrain jobs list --local`" in lines
    assert " ".join(lines) == text


def test_no_space_is_put_between_a_parenthesis_and_its_command() -> None:
    text = "imports mpi4py (`--framework NAME` chooses another)"
    assert wrapped(text, 30) == "imports mpi4py\n(`--framework NAME` chooses\nanother)"


@pytest.mark.parametrize(
    "line",
    ["  delete: batchtrain jobs logs j --set 'a=b  c' --local", "say `batchtrain jobs logs j --set 'a=b  c' --local`"],
)
def test_a_command_that_is_wider_than_the_terminal_can_be_pasted_all_the_same(line: str) -> None:
    shown = wrapped(line, 24)
    assert max(map(len, shown.splitlines())) <= 24
    command = shown[shown.index("batchtrain") :].rstrip("`")
    assert shlex.split(command.replace("\\\n", "")) == [
        "batchtrain", "jobs", "logs", "j", "--set", "a=b  c", "--local"
    ]  # fmt: skip
