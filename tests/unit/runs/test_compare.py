"""Runs as rows, their differences, and the statistics, curves and reports of their metrics."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from batchtrain.errors import NotFound, UsageError
from batchtrain.metrics.summary import Summary, throughput
from batchtrain.records import Attempt, Metric, Point, Task
from batchtrain.records.pools import PoolAttempt
from batchtrain.runs import compare, directory, report, scaling_report
from batchtrain.runs.compare import MetricRow, PhaseRow, PlacementRow
from batchtrain.runs.curves import MOST_LINES, Plot, Series, curves_of, spark
from batchtrain.runs.directory import Commit, Cost, EventRecord, FileRecord
from batchtrain.runs.finished import Comparison, Lines, Metrics, Run, Runs
from batchtrain.runs.scaling_report import Measured

from .batch_server import START
from .made import made

# --- rows -----------------------------------------------------------------------------------------------------------


def test_a_row_names_at_most_three_results(tmp_path: Path) -> None:
    summary = {name: Metric(number, 0) for number, name in enumerate("dcba")}
    ended = START + timedelta(seconds=90)
    record = made(tmp_path, summary=summary, ended=ended, nodes=2, vm_size="D4", node_hours=1.5).record()
    row = compare.row(record)
    assert (row.run, row.state, row.started, row.seconds) == (record.id, "succeeded", START, 90.0)
    assert (row.nodes, row.vm_size, row.node_hours, row.cost) == (2, "D4", 1.5, "")
    assert row.results == "a 3, b 2, c 1"


@pytest.mark.parametrize(("tasks", "best"), [(3, None), (4, (4, "accuracy", 3.0, "t3", 1))])
def test_the_best_value_stands_for_four_tasks_or_more(tmp_path: Path, tasks: int, best: Any) -> None:
    summary = {f"t{number}/accuracy": Metric(number, 9) for number in range(tasks)}
    summary |= {"loss": Metric(0, 0), "/x": Metric(0, 0), "t0/": Metric(0, 0)}
    assert compare.best_of_tasks(made(tmp_path, summary=summary).record()) == best


def test_the_metrics_of_a_run_begin_with_the_most_common(tmp_path: Path) -> None:
    summary = {"b": Metric(1 / 3, 2.0, 7, "s"), "loss": Metric(0.5, 0.25)}
    assert compare.metric_rows(made(tmp_path, summary=summary).record()) == [
        MetricRow("loss", "0.5", "0.25", None, ""), MetricRow("b", "0.333333", "2", 7, "s"),
    ]  # fmt: skip


def test_the_phases_and_events_of_a_run_are_in_their_order(tmp_path: Path) -> None:
    run = made(tmp_path, phases={"training": 2.0, "pool": 1.0})
    run.add_event(EventRecord(START + timedelta(seconds=1.5), "job.add", "j", "added"))
    assert compare.phase_rows(run.record()) == [
        PhaseRow("pool", 1.0, "until all nodes are there"),
        PhaseRow("training", 2.0, "from the start of the first task to the end of the last one"),
    ]
    assert list(compare.events(run)) == [("added", 1.5)]


def test_the_places_where_nodes_were_looked_for_are_in_their_order(tmp_path: Path) -> None:
    end = START + timedelta(seconds=2)
    first = PoolAttempt(candidate="2 dedicated A", account="a", vm_size="A", began=START, ended=end, code="Quota")
    second = replace(first, candidate="2 dedicated B", code="")
    assert compare.placement_rows(made(tmp_path, candidates=(first, second)).record()) == [
        PlacementRow("2 dedicated A", 2.0, "Quota"),
        PlacementRow("2 dedicated B", 2.0, "it had the nodes"),
    ]


def test_a_comparison_has_settings_then_phases_then_metrics(tmp_path: Path) -> None:
    first = made(
        tmp_path, ended=START + timedelta(seconds=10), commit=Commit("0123456789abcdef", dirty=False), nodes=1,
        phases={"training": 2.0}, summary={"loss": Metric(0.5, 0.25), "only": Metric(1, 1)}, vm_size="D4",
        settings={"batch": "8"},
    )  # fmt: skip
    second = made(
        tmp_path, nodes=2, summary={"loss": Metric(0.5, 0.5)}, state="failed", vm_size="D4", settings={"batch": "16"}
    )
    assert [row[:2] for row in compare.compare([first, second])] == [
        ("state", ("succeeded", "failed")),
        ("nodes", ("1", "2")),
        ("commit", ("0123456789ab", "")),
        ("seconds", ("10.0", "")),
        ("batch", ("8", "16")),
        ("training (s)", ("2.0", "")),
        ("loss", ("0.5 (best 0.25)", "0.5")),
        ("only", ("1", "")),
    ]


def test_the_values_of_a_recipe_are_compared_as_they_are_set() -> None:
    document = {"a": [True, {"b": 2}], "c": {"d": None, "e": "x"}}
    assert list(compare.leaves(document)) == [("a[0]", "true"), ("a[1].b", "2"), ("c.e", "x")]


def test_a_setting_of_the_command_is_compared_once_as_the_recipe_has_it(tmp_path: Path) -> None:
    runs = []
    for rate in ("0.5", "0.25"):
        runs.append(made(tmp_path, settings={"nodes": "2", "grid.lr": f"[0.1,{rate}]"}))
        directory.replace(runs[-1].config / "effective.yaml", f"{{grid: {{lr: [0.1, {rate}]}}, none: []}}".encode())
    assert [row[:2] for row in compare.compare(runs)] == [("grid.lr", ("[0.1, 0.5]", "[0.1, 0.25]"))]
    assert [row.id for row in Runs(tmp_path).list()] == sorted(run.name for run in runs)


def test_a_recipe_that_one_run_lacks_is_not_compared(tmp_path: Path) -> None:
    first, second = made(tmp_path), made(tmp_path)
    directory.replace(first.config / "effective.yaml", b"a: 1")
    assert compare.compare([first, second]) == []
    directory.replace(second.config / "effective.yaml", b"a: 2\nb: [true, null, {c: x}]")
    assert [row[:2] for row in compare.compare([first, second])] == [
        ("a", ("1", "2")),
        ("b[0]", ("", "true")),
        ("b[2].c", ("", "x")),
    ]


# --- curves ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "width", "curve"),
    [
        ([1.0], 9, ""),
        ([1.0, float("nan"), float("inf")], 9, ""),
        ([1.0, 2.0], 9, "▁█"),
        ([2.0, 2.0, 2.0], 9, "▄▄▄"),
        ([0, 9, 1, 9, 2, 9, 3, 7], 4, "███▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([5, 0, 5, 1, 5, 2], 3, "▁▅█"),
    ],
)
def test_a_curve_in_text_has_the_last_value_of_each_group(values: list[float], width: int, curve: str) -> None:
    assert spark(values, width) == curve


@pytest.mark.parametrize(("ranks", "lines"), [(MOST_LINES, MOST_LINES), (MOST_LINES + 1, 1)])
def test_the_curves_of_many_ranks_are_a_band(ranks: int, lines: int) -> None:
    series: Series = {"loss": {str(rank): [(1.0, 0.0, float(rank), None)] for rank in range(ranks)}}
    curves = curves_of(series)["loss"]
    assert len(curves) == lines
    if lines == 1:
        assert (curves[""]["low"], curves[""]["high"], curves[""]["value"]) == ([0.0], [ranks - 1], [(ranks - 1) / 2])


def test_a_plot_names_a_curve_unless_it_is_that_of_its_title() -> None:
    plot = Plot({"loss": {"loss": [(0, 1), (1, 2)], "t1": [(0, 2), (1, 1.5)]}})
    assert str(plot) == "loss: ▁█ 2\nloss t1: █▁ 1.5"
    assert repr(plot) == str(plot)
    assert (str(Plot({})), Plot({})._repr_html_()) == ("no curves", "<i>no curves</i>")


class Figure:
    """Stands in for a figure of matplotlib, and records the calls."""

    def __init__(self, figsize: tuple[float, float], layout: str) -> None:
        self.size, self.calls = figsize, list[Any]()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *values, **_: self.calls.append((name, *values)) or self


def test_matplotlib_draws_the_curves_of_a_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", SimpleNamespace(Figure=Figure))  # type: ignore[arg-type]
    plot = Plot({"loss": {"t0": [(0, 1), (10, 2)], "t1": [(0, 2)]}, "speed": {"speed": [(0, 3)]}})
    assert plot.figure().calls == [
        ("add_subplot", 2, 1, 1), ("plot", [0, 10], [1, 2]), ("plot", [0], [2]), ("set_title", "loss"), ("legend",),
        ("add_subplot", 2, 1, 2), ("plot", [0], [3]), ("set_title", "speed"),
    ]  # fmt: skip
    assert plot.figure().size[1] == 2 * Plot({}).figure().size[1]


def test_a_figure_without_matplotlib_names_the_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match="pip install matplotlib"):
        Plot({}).figure()


def test_a_notebook_shows_the_last_lines_of_a_log() -> None:
    page = Lines(f"line {number}." for number in range(201))._repr_html_()
    assert page.startswith("<i>the last 200 of 201 lines</i>")
    assert "line 1." in page and "line 0." not in page
    whole = Lines(f"line {number}." for number in range(200))._repr_html_()
    assert "<i>" not in whole and "line 0." in whole
    assert Lines()._repr_html_() == "<i>no lines</i>"


def test_a_terminal_shows_the_last_lines_of_a_log() -> None:
    note, *lines = repr(Lines(f"line {number}" for number in range(201))).splitlines()
    assert note == "… the last 200 of 201 lines; print() shows all"
    assert lines == [f"line {number}" for number in range(1, 201)]
    assert repr(Lines(["a", "b"])) == "a\nb"


def test_a_table_of_metrics_leaves_out_the_time_and_empty_columns() -> None:
    metrics = Metrics({"t": [1.0, 2.0, 3.0], "node": ["", "", ""], "epoch": [None] * 3, "loss": [0.5, None, 0.25]})
    assert metrics.rows(2) == [{"loss": "0.5"}, {"loss": None}]
    assert len(metrics.rows(9)) == 3
    assert (Metrics().rows(1), str(Metrics())) == ([], "no metrics")
    many = Metrics({"t": [1.0] * 101, "loss": [1.0] * 101})
    assert many._repr_html_().endswith("<i>and 1 more rows</i>")
    all_shown = Metrics({"t": [1.0] * 100, "loss": [1.0] * 100})
    assert "more rows" not in all_shown._repr_html_() + str(all_shown)


def test_the_curves_of_several_tasks_lie_over_each_other(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.write_tasks([Task("a", "completed"), Task("b", "completed")])
    for task, loss in (("a", 1), ("b", 2)):
        text = f'{{"step": 1, "loss": {loss}}}\n{{"step": 2, "loss": 0}}\n'
        directory.replace(run.metrics_file(task), text.encode())
    assert Run(run).plot().figures == {"loss": {"a": [(1.0, 1.0), (2.0, 0.0)], "b": [(1.0, 2.0), (2.0, 0.0)]}}


def test_a_plot_says_since_when_a_metric_is_not_finite(tmp_path: Path) -> None:
    summary = {"loss": Metric(None, 0.25, since="epoch 3"), "lr": Metric(None, None, since="epoch 1")}
    run = made(tmp_path, summary=summary)
    run.write_tasks([Task("t", "completed")])
    text = '{"epoch": 1, "loss": 1}\n{"epoch": 2, "loss": 0.25}\n{"epoch": 3, "loss": null}\n'
    directory.replace(run.metrics_file("t"), text.encode())
    plot = Run(run).plot("loss")
    assert str(plot) == "loss: █▁ 0.25, then NaN since epoch 3"
    for page in (plot._repr_html_(), Run(run)._repr_html_(), Comparison([Run(run), Run(run)]).plot()._repr_html_()):
        assert "then NaN since epoch 3" in page
        assert "l8 8m0 -8l-8 8" in page
    with pytest.raises(NotFound, match="there is no curve of lr: NaN since epoch 1; "):
        Run(run).plot("lr")


def test_a_part_of_a_name_that_two_runs_have_is_refused(tmp_path: Path) -> None:
    first, second = made(tmp_path), made(tmp_path)
    with pytest.raises(Exception, match=f"`2026` names 2 runs of .*: ({first.name}|{second.name}), "):
        Runs(tmp_path).get("2026")


# --- the report -----------------------------------------------------------------------------------------------------


def test_a_report_has_the_facts_of_its_run(tmp_path: Path) -> None:
    run = made(
        tmp_path, ended=START + timedelta(seconds=61), pool="p", nodes=2, vm_size="D4", account="acct",
        commit=Commit("0123456789abcdef", dirty=True), command=("run", "x"), settings={"a": "1", "b": "2"},
        versions={"batchtrain": "9.9"},
    )  # fmt: skip
    facts = dict(report._facts(run.record()))
    assert facts == {
        "run": run.name, "started": "2026-11-22 12:00:00 UTC", "ended": "2026-11-22 12:01:01 UTC", "pool": "p (2 × D4)",
        "account": "acct", "commit": "0123456789ab with changes", "command": "run x", "settings": "a=1, b=2",
        "batchtrain": "9.9",
    }  # fmt: skip
    assert list(report.sections(run, run.record())) == ["About"]
    assert report.failure(run.record()) == ""


def test_the_files_of_a_report_are_the_results_and_what_was_not_fetched(tmp_path: Path) -> None:
    run = made(tmp_path, summary={"loss": Metric(0.5, 0.25)})
    run.write_tasks([Task("t", "completed", exit_code=7, seconds=1.25, node="tvm-1")])
    run.write_files(
        [
            FileRecord(task="t", path="wd/output/m", size=3000, fetched="outputs/t/m"),
            FileRecord(task="t", path="stdout.txt", size=1, fetched="logs/t/stdout.txt"),
            FileRecord(task="t", path="wd/output/lost", size=1, reason="gone"),
        ]
    )
    parts = report.sections(run, run.record())
    assert list(parts) == ["About", "Numbers", "Tasks", "Files"]
    assert "3,000" in parts["Files"] and "gone" in parts["Files"] and "stdout" not in parts["Files"]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", parts["Tasks"])
    assert [re.sub("<[^>]*>", "", cell) for cell in cells] == ["t", "● failed", "7", "1.2", "tvm-1"]


@pytest.mark.parametrize(
    ("lines", "curve"),
    [
        (['{"epoch": 1, "t": 5, "loss": 2}', '{"epoch": 2, "t": 6, "loss": 1}'], [(1.0, 2.0), (2.0, 1.0)]),
        (['{"t": 5, "loss": 2}', '{"t": 8, "loss": 1}'], [(0.0, 2.0), (3.0, 1.0)]),
        (['{"loss": 2}', '{"loss": 1}'], [(0.0, 2.0), (1.0, 1.0)]),
        (['{"t": 10, "loss": 2}', '{"loss": 1}', '{"t": 17, "step": 30, "loss": 1}'], [(0.0, 2), (1.0, 1), (30.0, 1)]),
        (['{"loss": 2, "rank": 3}', '{"loss": 1, "rank": 3}', '{"loss": 8, "rank": 4}'], [(0.0, 2.0), (1.0, 1.0)]),
        (['{"loss": 2}', '{"loss": true}', '{"loss": "1"}', '{"loss": null}'], None),
    ],
)
def test_a_curve_is_over_steps_else_epochs_else_time_else_lines(
    tmp_path: Path, lines: list[str], curve: list[tuple[float, float]] | None
) -> None:
    run = made(tmp_path)
    assert report.points(run, "t") == {}
    directory.replace(run.metrics_file("t"), "\n".join(lines).encode())
    assert report.points(run, "t").get("loss") == curve


# --- scaling and summaries ------------------------------------------------------------------------------------------


def measured(nodes: int, rate: float | None, **values: str) -> Measured:
    return Measured((("nodes", str(nodes)), *values.items()), nodes, rate, f"run{nodes}")


def test_runs_without_a_batch_have_weak_scaling_alone() -> None:
    rows = scaling_report.rows([measured(1, 10.0), measured(2, 15.0)])
    assert [(row.scaling, row.case, row.nodes, row.speedup, row.efficiency) for row in rows] == [
        ("weak", "all", 1, 1.0, 100.0), ("weak", "all", 2, 1.5, 75.0),
    ]  # fmt: skip
    assert {row.scaling for row in scaling_report.rows([measured(1, 1.0, batch="x"), measured(2, 1.0)])} == {"weak"}


def test_the_page_of_a_scaling_has_a_plot_for_two_numbers_of_nodes_or_more() -> None:
    single = scaling_report.rows([measured(1, 10.0), measured(1, 15.0), measured(2, None)])
    assert "<svg" not in scaling_report.as_html("x", "", single)
    page = scaling_report.as_html("x", "", scaling_report.rows([measured(1, 10.0), measured(2, 1 / 3)]))
    assert "weak scaling: rate over nodes" in page and "0.3333" in page and "None" not in page


def test_the_throughput_is_a_total_of_the_lowest_rank_before_a_sum_of_ranks() -> None:
    assert throughput({"images_per_second": {0: [1.0, 2.0], 1: [1.0, 3.0]}}) == (5.0, "images_per_second")
    totals = {"images_per_second": {0: [1.0]}, "results.throughput": {1: [9.0, 9.0], 0: [1.0, 4.0]}}
    assert throughput(totals) == (4.0, "results.throughput")
    assert throughput({}) is None


def test_the_summary_of_a_metric_is_that_of_its_lowest_rank_with_the_best_value() -> None:
    summary = Summary({"speed": "km/h"})
    for rank, step, speed in ((1, 1, 9.0), (0, 2, 5.0), (0, 3, 3.0), (None, 4, 4.0), (None, 5, 2.0)):
        summary.add(Point({"speed": speed}, rank=rank, step=step))
    summary.add(Point({"speed": 99.0}, node="n"))
    assert summary.metrics() == {"speed": Metric(2.0, 4.0, 5, "km/h")}
    summary.add(Point({"speed": None, "lr": None}, epoch=0.5, rank=2))
    summary.add(Point({"speed": None}))
    summary.add(Point({"other": None}))
    assert summary.metrics() == {
        "speed": Metric(None, 4.0, None, "km/h"),
        "lr": Metric(None, None, since="epoch 0.5"),
        "other": Metric(None, None),
    }
    assert not summary.notes
    summary.add(Point({"speed": 6.0}, step=9))
    assert summary.notes == ("speed was NaN or infinite, first at epoch 0.5, rank 2",)


def test_attempts_have_their_node_hours_and_cost(tmp_path: Path) -> None:
    cost = Cost(currency="USD", region="r", dedicated=4.0, spot=1.0, hour=8.0)
    hour = START + timedelta(hours=1)
    attempts = (
        Attempt("t", 1, ("a", "b"), START, hour, "preempted", "b", step=37, dedicated=False),
        Attempt("t", 2, ("a", "b"), hour, None, "unknown", checkpoint="step-30", dedicated=False),
        Attempt("t", 3, ("a",), START, hour, "exit code", exit_code=7, dedicated=True),
    )
    rows = compare.attempt_rows(made(tmp_path, cost=cost).record(), attempts)
    assert [(row.ended_by, row.last_step, row.next_from, row.node_hours, row.cost) for row in rows] == [
        ("preempted (b)", 37, "step-30", 2.0, "2.00 USD"),
        ("unknown", None, "", None, ""),
        ("exit code 7", None, "", 1.0, "4.00 USD"),
    ]
