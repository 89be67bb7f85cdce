"""A failed task's output cannot move the cursor of the terminal that shows its failure."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import click
import pytest

from batchtrain.cli import failures, help
from batchtrain.cli.messages import say
from batchtrain.cli.options import Settings
from batchtrain.config.types import Recipe, convert
from batchtrain.errors import NotFound, ResultsLeft, ServiceError, TaskFailed
from batchtrain.records import Task
from batchtrain.records.rank_end import RankEnd
from batchtrain.service.failed import failed
from tests.unit.cli.conftest import Run

STDERR = (
    "Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    raise ValueError(text)",
    "ValueError: \x1b[2Jgone", "epoch 1\repoch 2",
)  # fmt: skip


def test_a_message_of_a_service_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    failures.report(ServiceError("list pools: \x1b[2Jno\x9b31m"), Settings())
    with click.Context(click.Command("pool"), obj=Settings()):
        say("the service cannot be reached: it answers 503 \x1b[2J")
    assert capsys.readouterr().err.splitlines() == [
        "batchtrain: list pools: \\u001b[2Jno\\u009b31m",
        "the service cannot be reached: it answers 503 \\u001b[2J",
    ]


@pytest.mark.parametrize("form", ["table", "json"])
def test_no_secret_of_the_recipe_is_in_the_text_of_a_crash(
    form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHTRAIN_DEBUG", "1")
    job = {"id": "j", "environment_variables": {"WANDB_API_KEY": "written-in-a-file"}, "tasks": []}
    recipe = convert({"directory": ".", "jobs": [job]}, Recipe)
    chosen = Settings(output=form, recipe=recipe, values={"credentials.batch.account_key": "written-in-an-option"})
    error = ValueError("written-in-a-file, written-in-an-option, http://a/b?sig=written-in-a-link")
    failures.report(error, chosen)
    printed = capsys.readouterr().err
    assert printed.count("ValueError: ***, ***, http://a/b?sig=***") == 2  # the traceback, and the message
    assert "written-in" not in printed


def test_escape_sequences_of_a_failed_task_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    error = failed("job", Task("train", "completed", "failure", exit_code=1, node="n"), STDERR, RankEnd())
    assert failures.report(error, Settings()) == error.exit_code
    printed = capsys.readouterr().err
    assert "\x1b" not in printed and "\r" not in printed
    assert "ValueError: " in printed and "gone" in printed and "  epoch 2\n" in printed


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_name_in_a_message_does_not_control_the_terminal(
    form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHTRAIN_DEBUG", "1")
    failures.report(NotFound("no run `\x1b[2J\x9b31m\u202e`\r\nnext line"), Settings(output=form))
    printed = capsys.readouterr().err
    assert not set("\x1b\x9b\u202e\r") & set(printed)
    assert "next line" in printed


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_failed_task_hides_no_results_that_are_left(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TaskFailed) as raised:
        raise TaskFailed("task j/t failed", task="j/t") from ResultsLeft("`batchtrain jobs fetch j` fetches them")
    assert failures.report(raised.value, Settings(output=form)) == TaskFailed.exit_code
    printed = capsys.readouterr().err
    assert "task j/t failed" in printed and "`batchtrain jobs fetch j` fetches them" in printed
    assert form == "table" or json.loads(printed)["problem"]["exit_code"] == ResultsLeft.exit_code


def test_an_option_of_the_program_before_the_separator_is_shown_behind_it(batchtrain: Run) -> None:
    message = batchtrain("run", "train.py", "--epochs", "3", "--local", "--nodes", "2", "--lr=1", code=2).stderr
    assert "batchtrain run train.py --local --nodes 2 -- --epochs 3 --lr=1`" in " ".join(message.split())


def test_no_command_line_is_shown_behind_the_separator_where_none_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["a-notebook"])
    command = click.Command("run", params=[click.Argument(["arguments"])])
    text, _ = failures.message_of(click.NoSuchOption("--epochs", ctx=click.Context(command, info_name="run")))
    assert text.endswith("`run --help` shows the usage.")


def test_a_data_directory_that_a_command_does_not_take_names_the_variable() -> None:
    context = click.Context(click.Command("show"), info_name="show")
    text, _ = failures.message_of(click.NoSuchOption("--data-dir", ctx=context))
    assert "BATCHTRAIN_EMULATOR_DIR" in text


def test_a_signal_while_python_ends_prints_nothing() -> None:
    code = "import atexit, signal, sys; from batchtrain.cli.__main__ import main; sys.argv[1:] = ['help']\n" \
        "atexit.register(signal.raise_signal, signal.SIGTERM); main()"  # fmt: skip
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (-signal.SIGTERM, "")


def test_a_signal_waits_until_the_code_of_a_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def imported(*_: str) -> object:
        signal.raise_signal(signal.SIGINT)
        steps.append("imported")
        return failures

    monkeypatch.setattr(help.importlib, "import_module", imported)
    with pytest.raises(KeyboardInterrupt):
        help.late_bound("failures.report")()
    assert steps == ["imported"]
