"""What `--help`, `help WORD` and unknown commands answer."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from batchtrain.cli import failures
from batchtrain.cli.app import GROUPS, root
from batchtrain.cli.help import FIRST_WORDS, SHARED
from batchtrain.cli.options import Settings
from batchtrain.errors import NotFound
from tests.unit.cli.test_commands_of_docs import refusal


def printed(*words: str) -> str:
    result = CliRunner().invoke(root, words, obj=Settings(), catch_exceptions=False, standalone_mode=False)
    return result.stdout


def test_help_shows_the_options_of_the_command_examples_and_one_line_about_the_others() -> None:
    text = printed("recipe", "new", "--help")
    assert "--configdir" not in text
    assert SHARED in text
    assert "  batchtrain recipe new " in text


def test_help_all_shows_the_options_of_all_commands() -> None:
    text = printed("recipe", "new", "--help-all")
    assert "--configdir DIR" in text
    assert SHARED not in text


def test_first_sentences_are_whole() -> None:
    assert "..." not in printed("jobs", "--help").partition("Commands:")[2]


@pytest.mark.parametrize("word", FIRST_WORDS)
def test_a_usual_first_word_is_answered_with_commands_that_exist(word: str) -> None:
    assert word not in GROUPS
    with pytest.raises(click.UsageError) as error:
        printed(word)
    assert FIRST_WORDS[word] in error.value.message
    for command in re.findall("`batchtrain ([^`]+)`", FIRST_WORDS[word]):
        assert refusal(command.split()) == ""


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("pytorch", "train-with-your-framework"),
        ("checkpoint", "checkpoints"),
        ("logs", "jobs logs JOB"),
        ("infiniband", "infiniband-and-gpus"),
    ],
)
def test_a_word_leads_to_the_page_about_it(word: str, page: str) -> None:
    with pytest.raises(NotFound, match=page):
        printed("help", word)


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        ("jbos list", "batchtrain jobs`", 2),
        ("jobs lst", "batchtrain jobs list`", 2),
        ("pool autoscale evalute", "batchtrain pool autoscale evaluate`", 2),
        ("pool list --loacl", "--local", 2),
        ("help first-trainig", "help first-training", 3),
        ("pol list", "No such command 'pol'", 2),
        ("run empty --local", "holds no configuration", 2),
        ("run nosuch.py --local", "nosuch.py does not exist", 2),
        ("run empty --local -- --epochs", "is not a Python script", 2),
        ("config plan --exit-code --configdir set", "add --diff", 2),
        ("config explain vm_siez --configdir set", "is called `vm_siez`. Did you mean `vm_size`?", 2),
        ("pool resize p --local", "--dedicated N, --spot N or both", 2),
    ],
)
def test_a_mistake_in_a_command_has_its_next_step(
    words: str, text: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "set").mkdir()
    (tmp_path / "set/pool.yaml").write_text(
        "pool_specification: {id: p, vm_size: STANDARD_D2S_V5, vm_count: {dedicated: 1}, vm_configuration:"
        " {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}}\n"
    )
    result = CliRunner().invoke(root, words.split(), obj=Settings(), prog_name="batchtrain", standalone_mode=False)
    assert result.exception is not None
    message, exit_code = failures.message_of(result.exception)
    assert text in message
    assert exit_code == code


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("j", {"jobs"}),
        ("jobs l", {"list", "logs"}),
        ("pool autoscale e", {"evaluate"}),
        ("jobs logs --fo", {"--follow"}),
        ("pool list -o js", {"json", "jsonl"}),
        ("recipe new mpi4py-M", {"mpi4py-MPICH"}),
        ("help first-t", {"first-training"}),
        ("config validate --ignore account-k", {"account-key"}),
    ],
)
def test_the_shell_completes_every_level(line: str, offered: set[str]) -> None:
    *words, last = line.split()
    completions = ShellComplete(root, {}, "batchtrain", "_BATCHTRAIN_COMPLETE").get_completions(words, last)
    assert {item.value for item in completions} == offered


@pytest.mark.parametrize("words", ["run", "jobs add", "pool add", "config validate", "config plan", "doctor"])
def test_every_command_takes_its_directory_alike(words: str) -> None:
    usage = printed(*words.split(), "--help").splitlines()[0]
    assert usage.endswith(("[OPTIONS] [DIR]", "[OPTIONS] [DIR|SCRIPT] [-- ARGUMENTS]")), usage
