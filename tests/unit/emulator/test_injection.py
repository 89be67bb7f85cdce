"""Faults on request: which strike, how often, and that the same seed strikes the same again."""

from __future__ import annotations

import re

import pytest

from batchtrain.emulator.injection import KINDS, Injection, Injections, read
from batchtrain.emulator.routes import NAMES
from batchtrain.emulator.testing import Faults


def faults(**document: object) -> Injections:
    return Injections([read({"kind": "error", **document}, NAMES)])


def strikes(made: Injections, count: int = 20, resource: str = "pools/p", operation: str = "get_pool") -> list[bool]:
    return [made.strike(("error",), resource, operation) is not None for _ in range(count)]


def test_a_fault_strikes_every_time_unless_told_otherwise_or_until_it_is_removed() -> None:
    assert sum(strikes(faults(count=3))) == 3
    made = faults()
    assert all(strikes(made))
    assert made.remove(1)
    assert not any(strikes(made))
    assert not made.remove(1)


def test_a_rate_is_a_share_and_its_seed_repeats_it() -> None:
    first = strikes(faults(rate=0.3, seed=7), 1000)
    assert 200 < sum(first) < 400
    assert first == strikes(faults(rate=0.3, seed=7), 1000)
    assert first != strikes(faults(rate=0.3, seed=8), 1000)


@pytest.mark.parametrize(
    ("about", "operation", "resource", "struck"),
    [
        ({"operation": "get_*"}, "get_pool", "pools/p", True),
        ({"operation": "list_*"}, "get_pool", "pools/p", False),
        ({"resource": "pools/P/nodes/*"}, "get_node", "pools/p/nodes/n", True),
        ({"resource": "pools/p"}, "get_pool", "pools/q", False),
    ],
)
def test_a_fault_is_about_operations_and_resources(
    about: dict[str, object], operation: str, resource: str, struck: bool
) -> None:
    assert strikes(faults(**about), 1, resource, operation) == [struck]


@pytest.mark.parametrize(
    "document",
    [{"rate": 0}, {"rate": 1}, {"fraction": 0}, {"fraction": 1}, {"seconds": 0}, {"retry_after": 0},
     {"kind": "skew", "seconds": -1}],
)  # fmt: skip
def test_a_fault_takes_the_ends_of_its_ranges(document: dict[str, object]) -> None:
    read({"kind": "error", **document}, NAMES)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "meteor"}, "there is no fault `meteor`"),
        ({"kind": "error", "rate": 1.1}, "between 0 and 1"),
        ({"kind": "error", "rate": -0.1}, "between 0 and 1"),
        ({"kind": "error", "fraction": 1.1}, "between 0 and 1"),
        ({"kind": "error", "retry_after": -1}, "cannot be negative"),
        ({"kind": "error", "code": "PoolExists"}, "answers with TooManyRequests"),
        ({"kind": "latency", "seconds": -1}, "cannot be negative"),
        ({"kind": "error", "count": 0}, "count is 1 or more"),
        ({"kind": "error", "exit_code": 3}, "only start-task-fails has an exit code"),
        ({"kind": "error", "operation": "createtask"}, "no operation `createtask`; similar: create_task"),
        ({"kind": "error", "operation": "make_*"}, "no operation `make_"),
        ({"kind": "boot-fails", "operation": "create_pool"}, "only faults of answers have an operation"),
        ({"kind": "error", "often": 1}, "unknown field `often`"),
        ({}, "kind"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(document: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(document, NAMES)


@pytest.mark.parametrize("kind", KINDS)
def test_each_fault_needs_its_kind_alone(kind: str) -> None:
    assert read({"kind": kind}, NAMES).kind == kind


def test_what_a_kind_does_is_said_with_the_default_of_its_parameter() -> None:
    defaults = Injection(kind="latency")
    for effect in KINDS.values():
        for name in re.findall(r"`(\w+)` \(default [\d.]+", effect):
            assert f"`{name}` (default {getattr(defaults, name):g}" in effect
    kinds = [kind for kind, effect in KINDS.items() if "`seconds`" in effect]
    assert kinds == ["latency", "skew", "allocation-slow", "node-slow"]
    assert all(f"{kind}: " in (Faults.add.__doc__ or "") for kind in KINDS)
