"""Files that people wrote for Batch Shipyard: each kind loads, or leads to the right next step."""

from __future__ import annotations

import pytest

from tests import field_files
from tests.field_files import Kind


@pytest.mark.parametrize("kind", field_files.KINDS, ids=lambda kind: kind.name)
def test_a_kind_of_file_leads_to_its_next_step_and_to_no_other_error(kind: Kind) -> None:
    found = field_files.problems(kind)
    assert [item for item in found if item.level == "error" and item.rule != kind.rule] == []
    expected = [problem for problem in found if problem.rule == kind.rule]
    assert bool(expected) == bool(kind.rule), [str(item) for item in found]
    for problem in expected[:1]:
        assert (problem.level, kind.words in problem.rendered()) == (kind.level, True), problem.rendered()
