"""What `--help`, `help WORD` and unknown commands answer."""

from __future__ import annotations

import re

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from batchtrain.cli.app import root
from batchtrain.cli.help import SHARED
from batchtrain.cli.options import Settings
from batchtrain.cli.unknown import FIRST_WORDS
from batchtrain.emulator import injection
from batchtrain.errors import NotFound
from tests.unit.cli.test_commands_of_docs import refusal


def printed(*words: str) -> str:
    result = CliRunner().invoke(root, words, obj=Settings(), catch_exceptions=False, standalone_mode=False)
    return result.stdout


@pytest.mark.parametrize(("option", "shows_all"), [("--help", False), ("--help-all", True)])
def test_help_shows_the_options_of_the_command_and_help_all_those_of_all_commands(option: str, shows_all: bool) -> None:
    text = printed("recipe", "new", option)
    assert ("--configdir DIR" in text, SHARED in text) == (shows_all, not shows_all)
    assert "  batchtrain recipe new " in text


def test_first_sentences_are_whole() -> None:
    assert "..." not in printed("jobs", "--help").partition("Commands:")[2]


@pytest.mark.parametrize("word", FIRST_WORDS)
def test_a_usual_first_word_is_answered_with_commands_that_exist(word: str) -> None:
    assert word not in root.doors
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


def test_the_help_of_faults_says_what_each_kind_does() -> None:
    text = " ".join(printed("emulator", "fault", "add", "--help").split())
    assert [kind for kind, effect in injection.KINDS.items() if " ".join(f"{kind}: {effect}".split()) not in text] == []


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
