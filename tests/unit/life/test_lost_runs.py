"""What becomes of a lost run, in every state that a new run may meet it in."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from batchtrain.life import lost
from batchtrain.life.lost import LOST_RULES, LostRule, SeenLost

WORLDS = [SeenLost(*facts) for facts in itertools.product((True, False), repeat=5) if facts[0] or not facts[1]]


def faults(seen: SeenLost, act: str) -> Iterator[str]:
    """What is wrong with a decision."""
    is_needed = seen.has_job or seen.has_pool
    if act.startswith("end") and (seen.works or not seen.is_here):
        yield "a run that works, or that is not here, is ended"
    if act == "name" and seen.is_here and (not seen.works or seen.has_job or (seen.has_pool and not seen.reuses)):
        yield "a run that is in the way, or costs money for nothing, is only named"
    if act == "refuse" and not (seen.is_here and seen.works and is_needed and (seen.has_job or not seen.reuses)):
        yield "a new run is refused without a reason"
    if (act == "end first") != (is_needed and seen.is_here and not seen.works):
        yield "the end of a run that is needed may fail in silence, or of one that is not needed stops the new run"


def test_a_lost_run_is_ended_named_or_in_the_way() -> None:
    print(f"{len(WORLDS)} worlds of a lost run")
    assert [fault for seen in WORLDS for fault in faults(seen, lost.decide(seen).act)] == []


@pytest.mark.parametrize("left_out", LOST_RULES[:-1], ids=lambda rule: rule.name)
def test_each_row_is_needed(left_out: LostRule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost, "LOST_RULES", tuple(rule for rule in LOST_RULES if rule is not left_out))
    assert any(any(faults(seen, lost.decide(seen).act)) for seen in WORLDS)
