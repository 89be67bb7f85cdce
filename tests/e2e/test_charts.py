"""The charts of the page and of report.html in a browser: what their axes say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from batchtrain.records import Task
from batchtrain.records.metric import MAIN
from batchtrain.runs import directory, report
from batchtrain.runs.directory import RunDirectory, RunRecord
from tests import dashboards, recorded_runs
from tests.browsers import browser
from tests.waiting import GUARD

START = datetime(2026, 11, 28, 12, tzinfo=timezone.utc)
HOSTILE = "</script><img src=x onerror='document.title=1'>/\u202e\"損失"
NOTE_LABELS = """
const fill = CanvasRenderingContext2D.prototype.fillText;
window.labels = [];
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.labels.push(String(text));
  return fill.call(this, text, ...rest);
};
"""
"""Keeps the labels that uPlot draws."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


def recorded(root: Path, *lines: dict[str, Any]) -> RunDirectory:
    """A run with one task and the lines of its metrics, and its report."""
    run = directory.make(root, "charts", START)
    run.write(RunRecord(id=run.name, state="completed", started=START, ended=START, job="charts"))
    run.write_tasks([Task("train", "completed", "success", 0)])
    directory.replace_lines(run.metrics_file("train"), map(directory.line_of, lines))
    run.replace(run.report, report.html(run).encode())
    return run


CAPTIONS = "[...document.querySelectorAll('figcaption > span:first-child')].map((span) => span.textContent)"


def labels_in(chromium: Any, run: RunDirectory, expression: str = "labels") -> Iterator[list[str]]:
    """The labels of the page, and those of the report, which no request leaves. expression: what to read instead."""
    context = chromium.new_context(timezone_id="UTC", viewport={"width": 1280, "height": 900})
    context.add_init_script(NOTE_LABELS)
    page = context.new_page()
    page.set_default_timeout(GUARD * 1000)
    with dashboards.dashboard({}, runs=run.path.parent) as running:
        page.goto(running.link)
        page.wait_for_selector("main[data-ready]")
        page.goto(f"{running.url}/runs/{run.name}?view=curves")
        page.wait_for_selector(".charts canvas")
        page.wait_for_function("labels.length > 3")
        yield page.evaluate(expression)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(run.report.as_uri())
    page.wait_for_selector(".charts canvas")
    page.wait_for_function("labels.length > 3")
    assert (page.title(), requests) == (run.name, [run.report.as_uri()])
    yield page.evaluate(expression)
    context.close()


@pytest.mark.browser
def test_the_labels_of_axes_are_as_far_apart_as_their_values(chromium: Any, tmp_path: Path) -> None:
    run = recorded(tmp_path, *({"t": START.timestamp() + step, "step": step, "loss": step} for step in range(11)))
    for labels in labels_in(chromium, run):
        assert "2.5" in labels or {"2", "4", "6", "8"} <= set(labels)
        numbers = [float(label) for label in labels]
        rises = [round(after - before, 6) for before, after in pairwise(numbers)]
        assert len({rise for rise in rises if rise > 0}) <= 2  # one of each axis


@pytest.mark.browser
def test_the_charts_of_page_and_report_have_the_order_of_metrics_of_all_views(chromium: Any, tmp_path: Path) -> None:
    names = ("a", *reversed(MAIN))
    run = recorded(tmp_path, *({"t": START.timestamp(), "step": step} | dict.fromkeys(names, 0.5) for step in (1, 2)))
    for captions in labels_in(chromium, run, CAPTIONS):
        assert captions == [*MAIN, "a"]


@pytest.mark.browser
def test_the_chart_of_a_sweep_has_the_failed_and_then_the_best_tasks(chromium: Any, tmp_path: Path) -> None:
    run = recorded_runs.recorded(tmp_path, "sweep")
    run.replace(run.report, report.html(run).encode())
    page = next(labels_in(chromium, run, "document.querySelector('.keys').innerText"))
    assert "16 of 500 lines, the failed first, then the best" in str(page)
    names = re.findall(r"task-\d+", str(page))
    assert names == [f"task-{n:05}" for n in (*range(7, 500, 50), *range(6))]


@pytest.mark.browser
def test_one_sample_spans_one_step(chromium: Any, tmp_path: Path) -> None:
    run = recorded(tmp_path, {"t": START.timestamp(), "step": 7, HOSTILE: 0.5})
    for labels in labels_in(chromium, run):
        steps = [float(label) for label in labels if float(label) > 1]
        assert steps and all(6.5 <= step <= 7.5 for step in steps)


@pytest.mark.browser
def test_the_axis_has_the_steps_at_which_a_value_was_not_finite(chromium: Any, tmp_path: Path) -> None:
    values = {200: None, **dict.fromkeys(range(201, 205), 0.5), 210: None}
    run = recorded(tmp_path, *({"t": START.timestamp(), "step": step, "loss": values[step]} for step in values))
    for labels in labels_in(chromium, run):
        assert {"200", "210"} <= set(labels)


@pytest.mark.browser
def test_what_nodes_measure_has_times_of_a_clock_and_each_node_has_its_line(chromium: Any, tmp_path: Path) -> None:
    seconds = START.timestamp()
    samples = ({"t": seconds + t, "node": node, "cpu_percent": 50} for t in (0, 30, 60) for node in ("a", "b"))
    run = recorded(tmp_path, *samples, {"t": seconds, "loss": 1.0}, {"t": seconds + 9, "step": 1, "loss": 0.5})
    for labels in labels_in(chromium, run):
        assert not [label for label in labels if re.search(r"e\+|^17\d{8}", label)]
        assert [label for label in labels if ":" in label]
