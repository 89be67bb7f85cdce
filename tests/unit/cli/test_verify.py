"""`batchtrain verify`: what it refuses before it creates anything, and its plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchtrain.cli.app import root
from batchtrain.cli.options import Settings
from batchtrain.errors import UsageError
from batchtrain.verify.verification import Verification

PRICES = """\
prices:
- region: westeurope
  currency: USD
  dedicated: {Standard_HB120rs_v3: 3.6, Standard_ND96isr_H100_v5: 98.0}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("BATCHTRAIN_LOCAL", "AZURE_BATCH_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def verify(*words: str) -> tuple[str, str]:
    result = CliRunner().invoke(root, ["verify", *words], obj=Settings(), catch_exceptions=False, standalone_mode=False)
    return result.stdout, result.stderr


def refused(*words: str) -> str:
    with pytest.raises(UsageError) as refusal:
        verify(*words)
    return str(refusal.value)


def test_a_size_that_does_not_exist_is_refused_with_the_nearest() -> None:
    assert refused("--size", "Standard_D4s_v55").startswith(
        "there is no VM size Standard_D4s_v55 in the catalogue; did"
    )


def test_an_unknown_area_is_refused_with_those_that_exist() -> None:
    assert refused("--only", "gpu").startswith("there is no area gpu; choose one of mpi, frameworks")


def test_without_an_account_the_next_commands_are_said() -> None:
    assert "AZURE_BATCH_ENDPOINT" in refused()


def test_a_budget_without_prices_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_BATCH_ENDPOINT", "https://name.westeurope.batch.azure.com")
    assert "`batchtrain catalog refresh --prices --location westeurope` reads it" in refused()


def test_two_spellings_of_a_size_are_one() -> None:
    plan = ("--plan", "--local", "-o", "json", "--size", "D4s_v5")
    assert verify(*plan, "--size", "Standard_D4s_v5")[0] == verify(*plan)[0]


def test_answers_of_no_probe_are_refused(here: Path) -> None:
    (here / "answers.json").write_text('{"spot-bil": true}', encoding="utf-8")
    assert "has `spot-bil`; the probes by hand are" in refused("--answers", "answers.json")


def test_a_plan_shows_pools_minutes_and_price(here: Path) -> None:
    (here / "catalog.yaml").write_text(PRICES, encoding="utf-8")
    sizes = ("--size", "Standard_HB120rs_v3", "--size", "Standard_ND96isr_H100_v5")
    rows, said = verify("--plan", "--budget", "500", "--image", "image", "-o", "json", *sizes)
    assert [(row["vm_size"], row["nodes"], str(row["minutes"]), row["cost"]) for row in json.loads(rows)] == [
        ("Standard_HB120rs_v3", 2, "60", "7.20 USD"),
        ("Standard_HB120rs_v3", 2, "60", "7.20 USD"),
        ("Standard_ND96isr_H100_v5", 2, "60", "196.00 USD"),
        ("Standard_ND96isr_H100_v5", 2, "60", "196.00 USD"),
    ]
    assert "together 240 minutes, at about 406.40 USD in westeurope" in said


def test_a_plan_that_costs_more_than_the_budget_is_refused(here: Path) -> None:
    (here / "catalog.yaml").write_text(PRICES, encoding="utf-8")
    words = ("--plan", "--size", "Standard_ND96isr_H100_v5")
    assert "the plan costs 196.00 USD, and the budget is 20.00 USD" in refused(*words)


def test_a_second_report_of_a_day_overwrites_none(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_BATCH_ENDPOINT", "https://name.westeurope.batch.azure.com")
    monkeypatch.setenv("AZURE_BATCH_ACCESS_KEY", "a2V5")
    monkeypatch.setattr("batchtrain.cli.verify.work_of", lambda *_, **options: [])
    for _ in range(3):
        verify("--only", "storage")
    assert len(list((here / "verified").glob("*.json"))) == 3
    assert len(list((here / "verified").glob("*-[23].md"))) == 2


def test_a_plan_says_why_there_is_no_pool_for_containers(here: Path) -> None:
    _, said = verify("--plan")
    assert "without the pool for containers: no image: `batchtrain config set registry NAME`" in said
    assert "without the pool" not in verify("--plan", "--image", "image")[1]
    assert "without the pool" not in verify("--plan", "--only", "autoscale")[1]


def test_the_question_names_the_price(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Verification, "refuse_unfit", lambda verification: None)
    monkeypatch.setenv("AZURE_BATCH_ENDPOINT", "https://name.westeurope.batch.azure.com")
    monkeypatch.setenv("AZURE_BATCH_ACCESS_KEY", "a2V5")
    (here / "catalog.yaml").write_text(PRICES, encoding="utf-8")
    question = refused("--size", "Standard_HB120rs_v3")
    assert "with 2 nodes each, at about 7.20 USD, at most 20.00 USD? There is no terminal" in question


def test_a_plan_for_the_emulator_costs_nothing() -> None:
    rows, _ = verify("--plan", "--local", "-o", "json")
    assert [(row["pool"], row["cost"]) for row in json.loads(rows)] == [
        ("verify-host-d4s-v5", ""), ("verify-container-d4s-v5", ""), ("verify-spot-d4s-v5", ""),
    ]  # fmt: skip
