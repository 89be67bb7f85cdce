"""What a node observes for `batchtrain verify`: facts, and reasons for those that it cannot read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchtrain.runtime import observe
from batchtrain.verify.probes import AREAS

FACTS = {"size": "Standard_D4s_v5", "ports": 0, "rate": 0, "gpus": 0}


def test_a_fact_that_cannot_be_read_has_its_reason_and_costs_no_other_one() -> None:
    def fails(facts: dict[str, Any]) -> Any:
        raise PermissionError("not yours")

    values = observe.observed({"first": fails, "second": lambda facts: facts["gpus"]}, FACTS)
    assert values == {"first": {"unread": "PermissionError: not yours"}, "second": 0}


def test_every_observation_that_a_probe_reads_is_made() -> None:
    for probe in (probe for area in AREAS for probe in area.probes):
        part, kind, *name = probe.reads.split("/")
        if kind == "nodes":
            assert name[0] in observe.NODE, probe.name
        elif kind == "gang" and name and part not in ("term", "runtimes"):
            assert name[0] in observe.GANG, probe.name


def test_no_value_of_a_secret_variable_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZ_BATCH_AUTHENTICATION_TOKEN", "secret")
    monkeypatch.setenv("AZ_BATCH_HOST_LIST", "10.0.0.4,10.0.0.5")
    assert observe.environment(FACTS)["AZ_BATCH_HOST_LIST"] == "10.0.0.4,10.0.0.5"
    assert "secret" not in observe.environment(FACTS).values()


def test_programs_of_the_fabric_are_not_started_on_a_size_without_one() -> None:
    unread = {"nccl": {"unread": "OSError: the size has no InfiniBand"}}
    assert observe.observed({"nccl": observe.program("nccl")}, FACTS) == unread


def test_names_whose_listing_the_client_looks_at_are_made_twice_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "output").mkdir()
    assert observe.files(FACTS) == observe.files(FACTS) is True
    assert (tmp_path / "output" / "link").read_text() == "0123456789"


def test_the_file_appears_only_when_everything_is_observed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "output").mkdir()
    monkeypatch.setitem(observe.PARTS, "task", {"files": lambda facts: list((tmp_path / "output").iterdir()) == []})
    observe.write("task", FACTS)
    (file,) = (tmp_path / "output").iterdir()
    assert (file.name, file.read_text()) == ("observed-task.json", '{"files": true}')


def test_a_port_of_2_5_gigabits_and_missing_devices_are_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    texts = {"link_layer": "InfiniBand", "state": "1: DOWN", "rate": "2.5 Gb/sec (1X SDR)"}
    monkeypatch.setattr(observe.glob, "glob", lambda pattern: [port] if pattern.endswith("ports/*") else [])
    monkeypatch.setattr(observe, "text", lambda path: texts[path.rpartition("/")[2]])
    monkeypatch.setattr(observe, "DEVICES", str(tmp_path / "missing"))
    seen = observe.infiniband({"ports": 1, "rate": 200})
    assert (seen["ports"][0]["rate"], seen["devices"]) == (2, [])
