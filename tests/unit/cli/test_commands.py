"""Commands that need no service: plans, explanations, pages, and errors for people and for programs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest


def test_a_plan_ends_with_what_an_hour_of_the_pool_is(small: Any, tmp_path: Path) -> None:
    told = small("config", "plan").stderr
    assert "an hour of pool p is 1 node hours of STANDARD_D2S_V5" in told
    assert told.count("catalog refresh --prices --location") == 1
    assert "refresh --prices" not in small("config", "plan", "--local").stderr
    (tmp_path / "catalog.yaml").write_text("prices: [{region: westeurope, dedicated: {Standard_D2s_v5: 0.12}}]\n")
    assert "an hour of pool p costs 0.12 USD in westeurope" in small("config", "plan").stderr
    assert json.loads(small("config", "plan", "-o", "json").stdout)["cost"]["hour"] == 0.12
    assert json.loads(small("config", "plan", "--local", "-o", "json").stdout)["cost"]["hour"] is None


def test_explain_tells_every_decision_as_json(small: Any) -> None:
    told = json.loads(small("config", "explain", "-o", "json").stdout)
    assert {item["rule"] for item in told["decisions"]} == {"user-identity"}
    assert told["decisions"][0]["source"]


def test_explain_takes_the_directory_first_as_the_other_commands_do(small: Any, tmp_path: Path) -> None:
    orders = (str(tmp_path), "user_identity"), ("user_identity", str(tmp_path))
    first, last = (small("config", "explain", *order).stdout for order in orders)
    assert first == last
    assert "user_identity = " in first


def test_a_configuration_error_is_one_document_with_every_place(batchtrain: Any, tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text("pool_specification: {id: p, vm_sise: x}\n")
    found = json.loads(batchtrain("config", "plan", str(tmp_path), "-o", "json", code=2).stderr)
    assert (found["code"], found["exit_code"]) == ("ConfigError", 2)
    assert ("pool.yaml", 1) in {(Path(one.get("file", "")).name, one.get("line")) for one in found["problems"]}


def test_the_pages_of_the_documentation_are_shown_and_an_errors_page_is_one_of_them(
    batchtrain: Any, tmp_path: Path
) -> None:
    (tmp_path / "pool.yaml").write_text("pool_specification: {id: p, vm_sise: x}\n")
    seen = re.findall(r"= see `\S+ help (\S+)`", batchtrain("config", "validate", code=2).stderr)
    assert seen
    assert "`vm_size`" in batchtrain("help", seen[0]).stdout
    assert "first-training" in batchtrain("help").stdout
    assert batchtrain("help", "jobs").stdout == batchtrain("jobs", "--help").stdout
    assert "config --help` describes the command" in batchtrain("help", "config").stderr


def test_without_an_account_a_run_of_a_script_names_the_recipe_and_the_plan(batchtrain: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    told = batchtrain("run", "train.py", "--nodes", "2", "--", "--epochs=3", code=2).stderr
    assert (
        "`batchtrain init train.py --nodes 2 -- --epochs=3` writes its recipe, and `batchtrain config plan .`" in told
    )
    told = batchtrain("config", "plan", "train.py", code=2).stderr
    assert "train.py is a script, and this command takes a recipe; `batchtrain init train.py` writes its recipe" in told


NOWHERE = {"AZURE_BATCH_ENDPOINT": "http://127.0.0.1:9", "AZURE_BATCH_ACCOUNT": "a", "AZURE_BATCH_ACCESS_KEY": "a2V5"}
"""An account that does not answer."""


def test_an_account_that_does_not_answer_ends_with_exit_code_5(batchtrain: Any) -> None:
    done = batchtrain("doctor", "-o", "json", code=5, environment=NOWHERE)
    assert {row["check"]: row["result"] for row in json.loads(done.stdout)}["account"] == "fail"


@pytest.mark.parametrize(("group", "subject"), [("pool", "pool p"), ("jobs", "job j")])
def test_a_diagnosis_is_by_default_of_the_pool_or_the_job_of_the_files(small: Any, group: str, subject: str) -> None:
    assert f"look at {subject}" in small(group, "diagnose", code=5, environment=NOWHERE).stderr


def test_the_task_of_jobs_logs_may_follow_the_job_as_of_its_siblings(batchtrain: Any) -> None:
    for task in (["b"], ["--task", "b"]):
        assert "stdout.txt of task j/b" in batchtrain("jobs", "logs", "j", *task, code=5, environment=NOWHERE).stderr


def test_a_hint_about_an_emulator_names_its_directory(batchtrain: Any, tmp_path: Path) -> None:
    other = str(tmp_path / "other one")
    said = batchtrain("emulator", "status", "--data-dir", other, code=3).stderr
    assert f"batchtrain emulator start --data-dir '{other}'`" in said
    assert "emulator start`" in batchtrain("emulator", "status", code=3).stderr


def test_an_option_wins_over_its_variable_wherever_it_stands(small: Any, tmp_path: Path) -> None:
    variables = {"BATCHTRAIN_OUTPUT": "yaml", "BATCHTRAIN_CONFIGDIR": "/nonexistent"}
    before = small("-o", "json", "--configdir", str(tmp_path), "config", "validate", environment=variables)
    after = small("config", "validate", "-o", "json", "--configdir", str(tmp_path), environment=variables)
    assert json.loads(before.stdout) == json.loads(after.stdout)


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        ("doctor", "nowhere to run", 2),
        ("emulator env", "no emulator is running", 3),
        ("emulator start --name a.example", "add --https", 2),
        ("emulator start --https --name a_b", "`a_b` is not a host name", 2),
        ("jbos list", "batchtrain jobs`", 2),
        ("jobs lst", "batchtrain jobs list`", 2),
        ("pool autoscale evalute", "batchtrain pool autoscale evaluate`", 2),
        ("pool list --loacl", "--local", 2),
        ("help first-trainig", "help first-training", 3),
        ("pol list", "No such command 'pol'", 2),
        ("run empty --local", "/empty holds no configuration", 2),
        ("pool show --configdir empty --local", "or the pool or the job if the command takes its id", 2),
        ("run nosuch.py --local", "nosuch.py does not exist", 2),
        ("run empty --local --framework mpi", "is not a Python script", 2),
        ("config plan --exit-code", "add --diff", 2),
        ("config explain vm_siez", "is called `vm_siez`. Did you mean `vm_size`?", 2),
        ("pool resize p --local", "--dedicated N, --spot N or both", 2),
    ],
)
def test_a_mistake_in_a_command_has_its_next_step(words: str, text: str, code: int, small: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert text in small(*words.split(), code=code).stderr
