"""The samples that the command line gives a formula."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from batchtrain.cli import samples
from batchtrain.errors import UsageError

NOW = datetime(2027, 1, 31, 9, tzinfo=timezone.utc)


def test_numbers_are_half_a_minute_apart_and_end_now() -> None:
    found = samples.gathered(["PendingTasks=1,2.5"], None, NOW)
    assert found == {"$PendingTasks": ((NOW - timedelta(seconds=30), 1.0), (NOW, 2.5))}


def test_a_file_gives_numbers_or_moments_and_an_option_wins(tmp_path: Path) -> None:
    file = tmp_path / "samples.json"
    moments = [["2027-01-31T09:59:00+01:00", 4], ["2027-01-31T08:58:00Z", 3]]
    file.write_text(json.dumps({"$ActiveTasks": [1], "RunningTasks": moments, "FailedTasks": [7]}))
    found = samples.gathered(["$FailedTasks=8"], str(file), NOW)
    assert found["$ActiveTasks"] == ((NOW, 1.0),)
    assert found["$RunningTasks"] == ((NOW - timedelta(minutes=2), 3.0), (NOW - timedelta(minutes=1), 4.0))
    assert found["$FailedTasks"] == ((NOW, 8.0),)


@pytest.mark.parametrize("text", ["{", "[]", '{"ActiveTasks": 1}', '{"ActiveTasks": [true]}', '{"Tasks": [1]}'])
def test_a_file_that_holds_no_samples_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "samples.json").write_text(text)
    with pytest.raises(UsageError):
        samples.gathered([], str(tmp_path / "samples.json"), NOW)


def test_a_formula_is_a_text_unless_a_file_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "formula").write_text("$x = 1;")
    assert samples.text_of(str(tmp_path / "formula")) == "$x = 1;"
    assert samples.text_of("$x = 2;") == "$x = 2;"
    assert samples.text_of("$x = 1;\0" + "x" * 5000).startswith("$x = 1;")


def test_a_moment_without_a_zone_is_in_utc() -> None:
    assert samples.moment("2027-01-31T09:00:00") == samples.moment("2027-01-31T10:00:00+01:00") == NOW
