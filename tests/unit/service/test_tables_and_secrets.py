"""Tables, and the place where secrets enter a request."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from batchtrain.catalog.prices import Price
from batchtrain.cli.documents import plain
from batchtrain.errors import nodes_called, shortened
from batchtrain.plan.wire import Environment, Placeholder, Template, VaultSettings, filled
from batchtrain.records import (
    Counts,
    Failure,
    Job,
    JobSchedule,
    Node,
    Pool,
    Table,
    Task,
    TaskRequest,
    aligned,
    cells,
    least_node_hours,
    node_cost,
    node_hours,
)
from batchtrain.service.tasks import Glance

POOL = Pool("p<1>", "active", "steady", "standard_d2s_v5", 2, 2, 0, 0)


def test_a_table_prints_as_aligned_text() -> None:
    head, row = str(Table([POOL])).splitlines()
    assert head.startswith("id    state   allocation")
    assert row.startswith("p<1>  active  steady    ")


def test_a_table_is_html_in_a_notebook_with_its_text_escaped() -> None:
    shown = Table([POOL])._repr_html_()
    assert ">vm_size</th>" in shown
    assert ">p&lt;1&gt;</td>" in shown
    assert "p<1>" not in shown


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (POOL, ("pool p&lt;1&gt;", "standard_d2s_v5")),
        (Node("tvm<1>", "idle", "10.0.0.4"), ("node tvm&lt;1&gt;", "10.0.0.4")),
        (Job("j", "active", "p", failed=2), ("job j", "failed", "2")),
        (Task("t", "completed", failure=Failure("<script>")), ("task t", "&lt;script&gt;")),
    ],
)
def test_one_object_is_a_card_in_a_notebook(row: Any, words: tuple[str, ...]) -> None:
    shown = row._repr_html_()
    assert [word for word in words if word not in shown] == []
    assert "<script" not in shown


def test_a_cell_stays_in_its_line_and_controls_no_terminal() -> None:
    table = Table([replace(POOL, id="a\nb\x1b]0;title\x07\u202e.pt")])
    assert str(table).splitlines()[1].startswith(r"a\nb\u001b]0;title\u0007\u202e.pt  active")
    assert "\x1b" not in table._repr_html_()


def test_an_empty_table_says_so_in_a_notebook_too() -> None:
    assert (str(Table()), Table()._repr_html_()) == ("nothing", "<i>nothing</i>")


def test_a_placeholder_is_replaced_at_any_depth() -> None:
    body = {"a": ({"password": Template("x ", Placeholder("registry", "hub"), " y")},), "c": 1}
    assert filled(body, str) == {"a": [{"password": "x {{registry:hub}} y"}], "c": 1}
    assert filled(body, lambda _: "secret") == {"a": [{"password": "x secret y"}], "c": 1}


def test_a_users_own_text_is_never_filled_with_a_secret() -> None:
    own = {"commandLine": "echo {{registry:hub}}", "httpUrl": "{{sas:link/c}}", "password": "{{registry:hub}}"}
    assert filled(own, lambda _: "secret") == own


def test_node_hours_are_the_hours_of_every_node_added_up_and_none_is_negative_for_a_clock_that_is_behind() -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
    nodes = [Node("a", "idle", "", allocated=now - timedelta(hours=2)), Node("b", "creating", ""),
             Node("c", "idle", "", allocated=now - timedelta(minutes=30)),
             Node("d", "idle", "", allocated=now + timedelta(hours=1))]  # fmt: skip
    assert node_hours(nodes, now) == 2.5


def test_tasks_prove_the_hours_of_gangs_or_of_the_nodes_that_others_shared() -> None:
    began = datetime(2026, 11, 22, tzinfo=timezone.utc)
    alone = [
        Task(name, "completed", node=node, seconds=3600.0, started=began + timedelta(hours=hour))
        for name, node, hour in (("a", "n1", 0), ("b", "n1", 0), ("c", "n1", 1), ("d", "n2", 0))
    ]
    gang = Task("g", "completed", node="n1", seconds=7200.0, started=began, request=TaskRequest(instances=4))
    waits = Task("w", "active")
    assert [least_node_hours(tasks) for tasks in ((waits,), (*alone, waits), (*alone, gang))] == [0.0, 3.0, 8.0]


def test_a_setting_that_stands_for_a_vaults_mapping_becomes_its_settings_under_those_that_are_said() -> None:
    settings = VaultSettings("https://v/s", (Environment(name="B", value="mine"),))
    vault = {Placeholder("keyvault", "https://v/s"): '{"A": "1", "B": "2"}'}
    assert filled({"commonEnvironmentSettings": settings}, vault.__getitem__) == {
        "commonEnvironmentSettings": [{"name": "A", "value": "1"}, {"name": "B", "value": "mine"}]
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ((), ""),
        (0, "0"),
        (1.005, "1.005"),
        (True, "yes"),
        (False, "no"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc), "2026-01-02 03:04:05Z"),
        (("a", 1), "a; 1"),
        ("x" * 999, shortened("x" * 999)),
    ],
)
def test_a_cell_is_short_text(value: Any, text: str) -> None:
    assert cells({"a": value, "b": "end"}) == (text, "end")


def test_further_rows_keep_the_widths_of_those_before() -> None:
    widths: list[int] = []
    assert aligned([{"a": "1", "bb": "22"}], widths) == ["a  bb", "1  22"]
    assert aligned([{"a": "333", "bb": "4"}], widths, head=False) == ["333  4"]
    assert aligned([{"a": "5", "bb": "6"}], widths, head=False) == ["5    6"]


@pytest.mark.parametrize(("count", "more"), [(100, False), (101, True)])
def test_a_notebook_counts_only_the_rows_that_it_does_not_show(count: int, more: bool) -> None:
    shown = Table([POOL] * count)._repr_html_()
    assert (shown.count("</tr>"), "and 1 more rows" in shown) == (101, more)


def test_a_card_leaves_out_what_has_no_value() -> None:
    shown = JobSchedule("s", "active", job="s:job-1")._repr_html_()
    assert "job schedule s" in shown and "s:job-1" in shown
    assert "next_run" not in shown


def test_a_node_is_called_by_its_id_its_abbreviation_or_its_number() -> None:
    ids = ["tvm-1", "tvm-12", "x" * 300]
    assert nodes_called("tvm-1", ids) == ["tvm-1"]
    assert nodes_called(shortened("x" * 300), ids) == ["x" * 300]
    assert nodes_called("n1", ids) == nodes_called("1", ids) == ["tvm-12"]
    assert nodes_called("1", ["a", "b", "1"]) == ["1"]
    assert nodes_called("n1", ids, by_number=False) == nodes_called("1", ids, by_number=False) == []
    assert nodes_called("n3", ids) == nodes_called("other", ids) == []


def test_nodes_cost_the_price_of_their_kind_since_a_time() -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
    start = now - timedelta(hours=4)
    nodes = [Node("a", "idle", "", allocated=start), Node("b", "idle", "", allocated=start, dedicated=False)]
    assert node_cost(nodes, Price("d2", "r", "USD", 1.0, 0.25), now) == 5.0
    assert node_cost(nodes, Price("d2", "r", "USD", 1.0, 0.25), now, since=now - timedelta(hours=1)) == 1.25
    assert node_cost(nodes, Price("d2", "r", "USD", 1.0, 0.25), now, since=start - timedelta(hours=1)) == 5.0
    assert node_cost(nodes, Price("d2", "r", "USD", None, 0.25), now) is None


def test_a_document_of_a_row_has_failures_as_texts_and_keeps_named_parts() -> None:
    pool = replace(POOL, resize_errors=(Failure("DiskFull", "No space."),))
    assert plain(pool)["resize_errors"] == ["DiskFull: No space."]
    counts = {"active": 0, "running": 0, "succeeded": 0, "failed": 2}
    assert plain(Glance((), Counts(failed=2), 1)) == {"first": [], "counts": counts, "requests": 1}
