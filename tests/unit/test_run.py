"""`run` refuses, before anything is made, what has no end to follow it to."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.errors import UsageError
from batchtrain.run import run
from tests.unit.plan.jobs import recipe


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ({"recurrence": {"schedule": {"recurrence_interval": "01:00:00"}}}, "no end to run to.*batchtrain jobs add"),
        ({"auto_pool": {"keep_alive": True}}, "keeps its pool alive"),
    ],
)
def test_what_has_no_end_is_refused(job: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        run(None, recipe(job), tell=lambda event: None, timeout=1)  # type: ignore[arg-type]
