"""How many ranks the live view expects of a recipe."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.display import subject
from tests.unit.plan.jobs import recipe


@pytest.mark.parametrize(
    ("block", "ranks"),
    [
        ({"pytorch": {}}, 16),
        ({"pytorch": {"processes_per_node": 2}}, 4),
        ({"tensorflow": {}}, 2),
        ({"mpi": {"runtime": "openmpi"}}, 2),
    ],
)
def test_the_view_expects_the_ranks_that_the_launch_starts(block: dict[str, Any], ranks: int) -> None:
    gang = recipe(task={"multi_instance": {"num_instances": 2, **block}}, pool={"vm_size": "STANDARD_ND96ISR_H100_V5"})
    assert subject._ranks(gang) == ranks
