"""Run directories of earlier releases still open. Each folder of tests/data/runs holds those of one release."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchtrain.cli.app import root
from batchtrain.runs import compare, report
from batchtrain.runs.directory import RunDirectory

RELEASES = Path(__file__).parents[2] / "data/runs"
RUNS = sorted(RELEASES.glob("*/*/run.json"))


@pytest.fixture(params=RUNS, ids=lambda path: "/".join(path.parts[-3:-1]))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunDirectory:
    """A copy of a run, beside the other runs of its release."""
    recorded: Path = request.param
    shutil.copytree(recorded.parents[1], tmp_path / "runs")
    return RunDirectory(tmp_path / "runs" / recorded.parent.name)


def batchtrain(run: RunDirectory, *words: str) -> str:
    done = CliRunner().invoke(root, ["runs", *words, "--runs-dir", str(run.path.parent)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_run_of_an_earlier_release_is_listed_and_shown(run: RunDirectory) -> None:
    record = run.record()
    assert record.job in batchtrain(run, "list")
    shown = batchtrain(run, "show", run.name)
    assert compare.state_of(record) in shown
    if record.failure:
        assert record.failure.message in shown.replace("\n", " ")


def test_a_run_of_an_earlier_release_is_compared_and_exported(run: RunDirectory) -> None:
    """By `runs list`, `runs compare` and `runs export`."""
    other = next(path.parent for path in sorted(run.path.parent.glob("*/run.json")) if path.parent != run.path)
    assert run.record().job in batchtrain(run, "compare", run.name, other.name, "-o", "json")
    exported = batchtrain(run, "export", run.name, "--csv").splitlines()
    assert len(exported) - 1 == sum(len(point.values) for _, point in run.points())


def test_a_run_of_an_earlier_release_has_a_report(run: RunDirectory) -> None:
    assert run.record().job in report.html(run)
