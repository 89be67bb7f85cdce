"""The frameworks that CI does not train with at every commit."""

from __future__ import annotations

import pytest

from batchtrain.containers.environments import ENVIRONMENTS
from tests import environments, legacy_frameworks
from tests.legacy_frameworks import ALL, THIRDS, chosen


def test_they_are_those_of_old_pythons_and_those_built_from_source() -> None:
    old = {name for name, wanted in ENVIRONMENTS.items() if {*wanted.pythons} & {"3.6", "3.7"} or wanted.horovod}
    assert set(legacy_frameworks.ENVIRONMENTS) == old
    assert set(legacy_frameworks.ENVIRONMENTS.values()) == {*ALL}


def test_all_run_after_a_change_or_without_a_history_and_else_a_third_of_them() -> None:
    assert chosen("new", "old", 7)[0] == chosen("same", "same", 0)[0] == ALL
    assert [chosen("same", "same", commits)[0] for commits in (3, 4, 5)] == [*THIRDS]


def test_the_digest_is_that_of_their_own_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    before = legacy_frameworks.digest()
    for name, same in (("jax", True), ("mxnet", False)):
        environment = ENVIRONMENTS[name]._replace(packages=("another==1",))
        monkeypatch.setattr(legacy_frameworks, "ALL_ENVIRONMENTS", {**ENVIRONMENTS, name: environment})
        assert (legacy_frameworks.digest() == before) is same


def test_every_pattern_finds_files() -> None:
    assert [pattern for pattern in legacy_frameworks.FILES if not any(legacy_frameworks.ROOT.glob(pattern))] == []


def test_an_environment_that_does_not_run_is_missing_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(legacy_frameworks.VARIABLE, "mxnet,horovod")
    with pytest.raises(environments.Missing, match="CI trains with cntk at every third commit"):
        environments.prefix("cntk-intelmpi")
