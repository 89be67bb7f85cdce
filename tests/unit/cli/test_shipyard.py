"""The answers to commands of Batch Shipyard, and the pages for users of other tools, held against the commands that
exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click
import pytest

from batchtrain.cli import job_tasks
from batchtrain.cli.app import root
from batchtrain.cli.messages import pasted
from batchtrain.cli.options import Settings
from batchtrain.cli.shipyard import ANSWERS, BEFORE_3, OPTIONS, PAGE, OtherOption, answer, renamed
from batchtrain.errors import NotFound
from tests.environments import ROOT
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_options import commands

COMMANDS = {path.removeprefix("batchtrain "): command for path, command in commands(root)
            if not isinstance(command, click.Group)}  # fmt: skip
IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204"}
PAGES = sorted((ROOT / "docs/how-to").glob("from-*.md"))


def refusal(words: Sequence[str]) -> str:
    """The message for a command that does not exist; empty for one that exists."""
    at: click.Command = root
    context = click.Context(root, info_name="batchtrain")
    rest = list(words)
    while isinstance(at, click.Group):
        try:
            name, child, rest = at.resolve_command(context, rest)
        except click.UsageError as error:
            return error.message
        assert child is not None
        at, context = child, click.Context(child, info_name=name, parent=context)
    return ""


def test_all_commands_of_batch_shipyard_have_an_answer() -> None:
    assert len(ANSWERS) == 105


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_for_users_of_other_tools_exists(page: Path) -> None:
    commands = re.findall(r"`batchtrain ([a-z][^`]+)`", page.read_text(encoding="utf-8"))
    assert commands
    assert [command for command in commands if refusal(command.split())] == []


def test_a_command_of_batch_shipyard_exists_or_is_answered() -> None:
    refused = {name: refusal([*name.split(), "--configdir", "x"]) for name in ANSWERS}
    same = {name for name, message in refused.items() if not message}
    assert [name for name in same if ANSWERS[name].command != name and not name.startswith("jobs tasks ")] == []
    assert [name for name in ANSWERS.keys() - same if f"Batch Shipyard's `{name}` " not in refused[name]] == []


def test_a_command_of_batch_shipyard_1_or_2_has_the_answer_of_its_name_in_version_3() -> None:
    for name, later in BEFORE_3.items():
        command = " ".join((ANSWERS[later].command, *ANSWERS[later].arguments))
        sentence = f"is `batchtrain {command}` here." if command else "does not exist here."
        assert f"Batch Shipyard's `{name}` {sentence}" in refusal([*name.split(), "--configdir", "x"])


@pytest.mark.parametrize("words", [["fs", "cluster"], ["pool", "nodes"], ["slurm"]])
def test_a_group_of_batch_shipyard_leads_to_the_page(words: list[str]) -> None:
    assert f"`batchtrain help {PAGE}`" in refusal(words)


def test_a_misspelt_command_is_no_command_of_batch_shipyard() -> None:
    assert "Did you mean `batchtrain pool add`?" in refusal(["pool", "ad"])
    assert "Did you mean `batchtrain dashboard`?" in refusal(["dash"])


@pytest.mark.parametrize("words", [["data", "streams"], ["pool", "delnodes"], ["jobs", "deltask"], ["pool", "resizes"]])
def test_a_command_that_deletes_is_the_answer_to_a_plain_typo_only(words: list[str]) -> None:
    assert not re.search(r"`batchtrain (data rm|pool del|jobs (del|term)|jobs tasks)`", refusal(words))
    assert "Did you mean `batchtrain pool del`?" in refusal(["pool", "dle"])


@pytest.mark.parametrize(
    ("command", "words", "here"),
    [
        ("jobs add", "--recreate --tail stdout.txt -y", "--follow --recreate -y"),
        ("jobs del", "--jobid j", "j"),
        ("jobs get", "--taskid=t --jobid j", "j t"),
        ("jobs migrate", "--jobid j --poolid p --wait", "--running wait j p"),
        ("jobs disable", "--jobid j --terminate", "--running terminate j"),
        ("jobs logs", "--jobid j --taskid t", "--task t j"),
        ("pool ssh", "--cardinal 0 --poolid p nvidia-smi --raw", "--pool-id p 0 nvidia-smi --raw"),
        ("pool ssh", "--local --configdir d --cardinal 0 ls", "--local --configdir d 0 ls"),
        ("pool ssh", "--cardinal 0 --local --configdir d ls", "--local --configdir d 0 ls"),
        ("pool ssh", "--cardinal 0 --poolid p --configdir d --local", "--pool-id p --configdir d --local 0"),
        ("pool reboot", "--nodeid tvm-1 --pool-id p", "p tvm-1"),
        ("pool reboot", "--nodeid tvm-1", ". tvm-1"),
        ("pool reboot", "p --nodeid tvm-1", "p tvm-1"),
        ("pool get", "--filespec tvm-1,wd/a,b", ". tvm-1 wd/a,b"),
        ("jobs get", "--filespec j,@FIRSTRUNNING,*.txt", "j *.txt"),
        ("pool del", "--poolid p --wait", "p"),
        ("jobs del", "--jobid j -y --wait", "-y j"),
        ("pool list", "--raw", "--output json"),
    ],
)
def test_an_option_of_batch_shipyard_that_means_the_same_is_taken(command: str, words: str, here: str) -> None:
    interspersed = command != "pool ssh"
    valued = COMMANDS[command].valued
    again = renamed(command, words.split(), interspersed=interspersed, valued=valued)
    assert again == here.split()
    assert renamed(command, again, interspersed=interspersed, valued=valued) is None


@pytest.mark.parametrize("words", [("--poolid",), ("--poolid=",), ("--poolid", "--wait"), ("-y", "--poolid")])
def test_an_option_without_its_value_means_no_pool_of_a_file(words: tuple[str, ...], batchtrain: Run) -> None:
    assert "`--poolid` needs a value" in batchtrain("pool", "del", *words, code=2).stderr


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (("jobs", "add", "--tail", "wd/train.log"), "then `batchtrain jobs logs --file wd/train.log --follow` follows"),
        (("pool", "add", "--recreate"), "`batchtrain pool del`, and then `batchtrain pool add`"),
        (("pool", "add", "--show-config"), "`batchtrain config show` prints it"),
        (("jobs", "term", "j", "--wait"), "`batchtrain jobs wait JOB`"),
        (("jobs", "list", "--jobid", "j"), "`batchtrain jobs show j`"),
        (("jobs", "term", "--all-jobs"), "`batchtrain jobs list` shows the jobs"),
        (("jobs", "tasks", "list", "--jobid", "j"), "`jobs tasks list` is `batchtrain jobs tasks j` here"),
        (("jobs", "tasks", "term", "--jobid", "j", "--taskid", "t"), "is `batchtrain jobs task term j t` here"),
        (("pool", "list", "--aad-user", "me"), "Write `aad` into credentials.yaml"),
        (("jobs", "tasks", "list", "--jobid", "j", "--local"), "`batchtrain jobs tasks j --local` here"),
        (("pool", "ssh", "0", "--local", "--configdir", "d", "ls"), "`batchtrain pool ssh --local --configdir d 0 ls`"),
        (("pool", "ssh", "--pool-id", "p", "0", "--local"), "`batchtrain pool ssh --pool-id p --local 0`"),
        (("jobs", "exec", "--task", "t", "j", "--local", "ls"), "`batchtrain jobs exec --task t --local j ls`"),
        (("jobs", "add", "--tail", "a.log", "--configdir", "d"), "jobs logs --file a.log --follow --configdir d`"),
        (("jobs", "list", "--show-config", "--configdir", "d"), "`batchtrain config show --configdir d`"),
        (("data", "files", "task", "--filespec", "j,t,f"), "`batchtrain jobs fetch j` also"),
        (("data", "files", "list", "--jobid", "j"), "`batchtrain jobs files j TASK`"),
        (("pool", "nodes", "reboot"), "`batchtrain pool reboot . NODE`"),
    ],
)
def test_another_option_of_batch_shipyard_is_answered_with_the_command(
    words: tuple[str, ...], step: str, batchtrain: Run
) -> None:
    assert step in batchtrain(*words, code=2).stderr


def test_a_verb_in_place_of_a_job_is_answered_if_no_job_has_this_id(
    monkeypatch: pytest.MonkeyPatch, batchtrain: Run
) -> None:
    def missing(_: object) -> NoReturn:
        raise NotFound("The specified job does not exist")

    monkeypatch.setattr(job_tasks, "connect", missing)
    message = batchtrain("jobs", "tasks", "list", "--configdir", "foam", code=2).stderr
    assert "`jobs tasks list` is `batchtrain jobs tasks --configdir foam` here" in message
    assert "does not exist" in batchtrain("jobs", "tasks", "other", code=3).stderr


def test_a_file_that_is_streamed_becomes_the_command_for_it() -> None:
    message = refusal(["data", "files", "stream", "--filespec", "job,task,wd/a b.log"])
    assert "`batchtrain jobs logs --follow --task task job --file 'wd/a b.log'`" in message


TYPED = {
    "jobs tasks": "--jobid j --taskid t", "jobs": "--jobid j", "data files": "--jobid j --taskid t",
    "misc": "--jobid j --taskid t --logdir d", "pool": "--nodeid tvm-1", "storage": "--poolid p",
    "diag": "--nodeid tvm-1",
    "data files task": "--all --filespec j,t,*.txt", "data files stream": "--filespec j,t,wd/x.log",
    "data files node": "--filespec tvm-1,startup/stdout.txt",
}  # fmt: skip
"""What users type behind the commands of Batch Shipyard that begin so; the longest beginning counts."""


@pytest.mark.parametrize("name", [*ANSWERS, *BEFORE_3])
def test_the_command_in_an_answer_takes_what_was_typed(name: str) -> None:
    later = BEFORE_3.get(name, name)
    typed = next((TYPED[start] for start in sorted(TYPED, key=len, reverse=True) if later.startswith(start)), "")
    message = refusal([*name.split(), *typed.split(), "--configdir", "x"])
    if not message and name.startswith("jobs tasks "):
        with pytest.raises(OtherOption) as raised:
            renamed("jobs tasks", [*name.split()[2:], *typed.split()])
        message = str(raised.value)
    if " is `batchtrain " not in message:
        return  # the command exists here, or has no equal
    words = shlex.split(message.split(" is `batchtrain ")[1].split("` here")[0])
    path = next(path for path in (" ".join(words[:count]) for count in (3, 2, 1)) if path in COMMANDS)
    assert "j" in words or "--jobid" not in typed or not path.startswith("jobs "), message
    COMMANDS[path].make_context(path, words[len(path.split()) :])


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in COMMANDS])
@pytest.mark.parametrize("is_typed", [True, False])
def test_each_command_in_an_answer_names_the_files_or_what_it_is_about(name: str, is_typed: bool) -> None:
    typed = next((TYPED[start] for start in sorted(TYPED, key=len, reverse=True) if name.startswith(start)), "")
    message = answer(name.split()[:1], [*name.split()[1:], *(typed.split() if is_typed else ())])
    shown = pasted(message or "", Settings(local=True, configdir="d"))
    for command in re.findall(r"`batchtrain ((?:jobs|pool|data|images|config) [^`]+)`", shown):
        words = shlex.split(command)
        path = next(path for path in (" ".join(words[:count]) for count in (3, 2)) if path in COMMANDS)
        if path not in ("jobs list", "pool list", "pool autoscale evaluate"):  # these read no files
            context = COMMANDS[path].make_context(path, words[len(path.split()) :])
            arguments = [item.name for item in COMMANDS[path].params if isinstance(item, click.Argument)]
            names = [context.params[item] for item in arguments if item]
            assert (any(names) and "." not in names) or "--configdir d" in command, command


def test_each_option_of_batch_shipyard_is_replaced_by_one_that_exists() -> None:
    for name, options in OPTIONS.items():
        for option in options:
            for path in (path for path in COMMANDS if path.startswith(option.commands)):
                flags = {flag for parameter in COMMANDS[path].params for flag in parameter.opts}
                assert name not in flags or not path.startswith(option.commands), (path, name)
                assert {word for word in option.words or () if word.startswith("--")} <= flags, (path, name)


@pytest.mark.parametrize(
    "words",
    [
        ("pool", "del"),
        ("pool", "resize", "--spot", "1"),
        ("pool", "ssh", "0"),
        ("pool", "show"),
        ("jobs", "del"),
        ("pool", "reboot", "--nodeid", "tvm-1"),
        ("pool", "get", ".", "n0", "x"),
        ("pool", "files", ".", "n0"),
    ],
)
def test_a_command_that_needs_only_a_name_does_not_check_the_files(
    words: tuple[str, ...], batchtrain: Run, tmp_path: Path
) -> None:
    pool: dict[str, object] = {"id": "p", "vm_size": "Standard_NC6", "vm_count": {"dedicated": 1}}
    pool["vm_configuration"] = {"platform_image": IMAGE}
    (tmp_path / "pool.yaml").write_text(json.dumps({"pool_specification": pool}), encoding="utf-8")
    jobs = [{"id": "j", "tasks": [{"command": "mpirun a", "depends_on": ["b"]}]}]
    (tmp_path / "jobs.yaml").write_text(json.dumps({"job_specifications": jobs}), encoding="utf-8")
    assert " error: " in batchtrain("config", "validate", code=2).stderr
    told = batchtrain(*words, code=2).stderr
    assert "nowhere to run" in told
    assert " warning: " not in told and " error: " not in told


def test_without_an_id_a_message_has_the_command_for_each_job_of_the_file(tmp_path: Path, batchtrain: Run) -> None:
    jobs = [{"id": name, "tasks": [{"command": "x"}]} for name in ("a", "b")]
    (tmp_path / "jobs.yaml").write_text(json.dumps({"job_specifications": jobs}), encoding="utf-8")
    told = batchtrain("jobs", "del", "-y", code=2).stderr
    assert "jobs.yaml has 2 jobs; name one: `batchtrain jobs del a`, `batchtrain jobs del b`" in told
