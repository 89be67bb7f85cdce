"""The live block: its lines at a width, from events and a clock that is an argument."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import click
import pytest

from batchtrain.catalog.prices import Price
from batchtrain.cli import live, options
from batchtrain.cli.live_block import DRAW_SECONDS, _Log
from batchtrain.cli.log_lines import LogLine
from batchtrain.config.types import Secret
from batchtrain.display import subject
from batchtrain.display.live_view import View, span
from batchtrain.display.terminal import terminal_text
from batchtrain.errors import width_of
from batchtrain.metrics.stream import MetricStream
from batchtrain.records import Attempt, FailedBy, Node, TrainingProgress
from batchtrain.records.events import (
    AttemptEnded,
    AttemptSeen,
    FailuresSeen,
    MetricsSeen,
    NodesSeen,
    PoolWaits,
    RanksFailed,
    Stderr,
    Stdout,
    TaskProgress,
    TasksSeen,
)
from batchtrain.records.rank_end import RankEnd
from batchtrain.runs.curves import spark
from batchtrain.service.connect import Account
from batchtrain.service.retry import Answers
from batchtrain.service.tasks import Counts
from tests import block_pictures
from tests.unit.plan.jobs import recipe

BEGAN = 1_800_000_000.0
ALLOCATED = datetime.fromtimestamp(BEGAN, timezone.utc)


def printer(view: View) -> Callable[[str, float], None]:
    """Shows a line that a task prints at a time, and what it measures with it."""
    stream = MetricStream()

    def printed(line: str, now: float) -> None:
        view.note(stream.event("job", "train", stream.output([line], now)), now)
        view.note(Stdout("train", line), now)

    return printed


def trained(ranks: int = 3, steps: int = 12, stops: int = 3) -> View:
    """A view of a training that has printed some steps; its last rank prints none from the step `stops` on."""
    view = View("digits", "pool gpu2 · Azure westeurope", BEGAN, ranks=ranks)
    nodes = tuple(Node(f"tvmps_{number}", "running", "", allocated=ALLOCATED) for number in range(2))
    view.note(NodesSeen("gpu2", target=2, nodes=nodes), BEGAN + 60)
    printed = printer(view)
    for step in range(1, steps + 1):
        for rank in range(ranks):
            if rank < ranks - 1 or step < stops:
                line = f"[{rank * 2 // ranks}:{rank}] step {step}/30 loss {2.0 / step:.4f} 303.0 images/sec"
                printed(line, BEGAN + 60 + 10 * step)
    view.seen = 2.0
    return view


def shown(view: View, width: int, now: float) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in view.lines(width, now)]


def test_the_block_at_80_columns() -> None:
    assert shown(trained(), 80, BEGAN + 185) == [
        "digits · pool gpu2 · Azure westeurope                              running 3m05s",
        "nodes  n0 n1 ready                                      2 of 2   0.10 node hours",
        "step   ██░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 2/30  6 %",
        "loss 0.1667 █▄▃▂▂▂▁▁▁▁▁▁                                            606 images/s",
        "rank node    step      /s  quiet  state last line",
        "   0 n0        12     303     5s        step 12/30 loss 0.1667 303.0 images/sec",
        "   1 n0        12     303     5s        step 12/30 loss 0.1667 303.0 images/sec",
        "   2 n1         2          1m45s  stops step 2/30 loss 1.0000 303.0 images/sec",
        "3 ranks: 1 stopped, 2 fine",
    ]


def test_ranks_have_no_column_for_states_while_all_are_fine() -> None:
    fine, quiet = trained(2, stops=99), trained(2)
    assert [shown(view, 80, BEGAN + 185)[4].split()[-3:] for view in (fine, quiet)] == [
        ["quiet", "last", "line"],
        ["state", "last", "line"],
    ]


def test_nodes_that_another_run_left_count_from_the_begin_of_this_one_as_in_its_record() -> None:
    view = View("digits", "", BEGAN)
    earlier = datetime.fromtimestamp(BEGAN - 7200, timezone.utc)
    view.note(NodesSeen("gpu2", target=1, nodes=(Node("n0", "idle", "", allocated=earlier),)), BEGAN)
    assert shown(view, 80, BEGAN + 3600)[1].endswith("1 of 1   1.00 node hours")


def test_with_a_price_the_block_shows_what_the_nodes_have_cost() -> None:
    view = View("digits", "", BEGAN, price=Price("D4s_v5", "westeurope", "USD", 0.24, 0.05))
    nodes = tuple(Node(f"n{number}", "idle", "", allocated=ALLOCATED, dedicated=number < 2) for number in range(3))
    view.note(NodesSeen("gpu2", target=3, nodes=nodes), BEGAN)
    assert shown(view, 80, BEGAN + 3600)[1].endswith("3 of 3   3.00 node hours   0.53 USD")
    assert shown(view, 40, BEGAN + 3600)[1] == "3/3 nodes   0.53 USD"


def test_the_block_at_40_columns() -> None:
    assert shown(trained(), 40, BEGAN + 185) == [
        "digits                     running 3m05s",
        "2/2 nodes  1 stopped: r2",
        "██░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 6 %",
        "loss 0.1667 █▄▃▂▂▂▁▁▁▁▁▁    606 images/s",
        "rank  quiet  last line",
        "   0     5s  step 12/30 loss 0.1667 303…",
        "   1     5s  step 12/30 loss 0.1667 303…",
        "   2  1m45s  step 2/30 loss 1.0000 303.…",
        "1 stopped, 2 fine",
    ]


@pytest.mark.parametrize("ranks", [0, 1, 4, 12, 13, 256])
def test_the_block_keeps_its_height_and_its_width(ranks: int) -> None:
    view, view_of_trained = View("digits", "pool gpu2 · Azure westeurope", BEGAN, ranks=ranks), trained(ranks)
    for width in (20, 39, 40, 59, 60, 80, 200):
        before = view.lines(width, BEGAN + 1)
        after = view_of_trained.lines(width, BEGAN + 500)
        assert len(before) == len(after) == view.height
        assert all(sum(len(text) for text, _ in line) <= width for line in (*before, *after)), width


def test_a_view_that_joins_a_gang_shows_the_ranks_that_it_has_seen_and_counts_no_others() -> None:
    view = View("digits", "pool gpu2", BEGAN, ranks=4, joins=True)
    assert not any("rank of 4" in line for line in shown(view, 80, BEGAN + 1))
    for rank in range(2):
        printer(view)(f"[{rank}:{rank}] step 1/30 loss 2.0", BEGAN + 2)
    lines = shown(view, 80, BEGAN + 3)
    assert lines[-1] == "2 ranks: 2 fine"
    assert not any(line.startswith(("   2", "   3")) for line in lines)


@pytest.mark.parametrize("width", [40, 80, 140])
def test_names_and_lines_with_wide_letters_fit_the_width(width: int) -> None:
    view = View("損失" * 30, "pool", BEGAN, ranks=2)
    printer(view)(f"[0:0] step 1 {'損失é' * 60}", BEGAN + 1)
    assert max(map(width_of, shown(view, width, BEGAN + 2))) in (width - 1, width)


@pytest.mark.parametrize("line", ["step " + "9" * 5000 + "/3", "[0:" + "1" * 5000 + "] x", "__k__=" + "[" * 100_000])
def test_an_absurd_line_of_a_task_does_not_end_the_view(line: str) -> None:
    view = View("digits", "here", BEGAN, ranks=2)
    printer(view)(line, BEGAN + 1)
    assert len(shown(view, 80, BEGAN + 2)) == view.height


@pytest.mark.parametrize("width", [-1, 0, 1, 8])
def test_the_block_has_its_height_on_a_terminal_that_is_too_narrow_or_reports_no_width(width: int) -> None:
    view = View("digits", "pool", BEGAN, ranks=2)
    assert len(view.lines(width, BEGAN + 1)) == view.height


def test_ranks_that_have_ended_or_failed_are_not_called_fine() -> None:
    view = trained(2, stops=12)
    view.note(TasksSeen("j", counts=Counts(0, 0, 0, 1)), BEGAN + 200)
    assert shown(view, 80, BEGAN + 300)[-1].startswith("2 ranks: 2 ended")
    view = trained(4)
    ends = tuple(RankEnd(f"rank {rank}", rank, exit_code=1) for rank in range(4))
    view.note(RanksFailed("train", ends=ends), BEGAN + 186)
    assert shown(view, 80, BEGAN + 400)[-1] == "4 ranks: 4 failed"
    view.note(RanksFailed("train", ends=ends[:1]), BEGAN + 187)
    assert shown(view, 80, BEGAN + 400)[-1] == "4 ranks: 1 failed, 3 ended"
    view.note(AttemptEnded("train", "it starts again"), BEGAN + 188)
    printer(view)("[0:0] step 1/30 loss 2", BEGAN + 190)
    assert shown(view, 80, BEGAN + 191)[-1] == "1 of 4 ranks: 1 fine"


def test_a_view_that_joins_a_task_counts_from_its_start() -> None:
    started = datetime.fromtimestamp(BEGAN + 60, timezone.utc)
    for joins, time in ((True, "1m00s"), (False, "2m00s")):
        view = View("digits", "pool", BEGAN, joins=joins)
        view.note(AttemptSeen("train", attempt=Attempt("train", 1, started=started)), BEGAN + 100)
        assert shown(view, 80, BEGAN + 120)[0].endswith(time)


def test_a_large_gang_shows_the_ranks_that_matter_first() -> None:
    rows = shown(trained(64), 80, BEGAN + 185)
    assert len(rows) == 11
    assert rows[-1] == "64 ranks: 1 stopped, 63 fine"
    assert rows[5].startswith("  63 n1         2 ")


def test_a_job_of_many_tasks_shows_their_counts() -> None:
    view = View("sweep", "emulator", BEGAN, many=True)
    view.note(TasksSeen("sweep", counts=Counts(35, 5, 18, 2), pool="two"), BEGAN + 1)
    view.note(TasksSeen("sweep", counts=Counts(15, 5, 38, 2), pool="two"), BEGAN + 11)
    causes = FailedBy("exit code 3", 1, "t7", "task sweep/t7 failed"), FailedBy("DiskFull", 1, "t9")
    view.note(FailuresSeen("sweep", failed_by=causes), BEGAN + 11)
    assert shown(view, 80, BEGAN + 12)[2:7] == [
        "tasks  ████████████████████░░░░░░░░░░ 40/60  66 %  2/s  ETA 10s",
        "5 running (two 5)  15 waiting  2 failed by 2 causes",
        "     1  exit code 3  as t7: task sweep/t7 failed",
        "     1  DiskFull  as t9:",
        "",
    ]
    assert shown(view, 40, BEGAN + 12)[2:5] == [
        "█████████████████░░░░░░░░░ 66 %  ETA 10s",
        "5 running  2 failed  2/s",
        "     1  exit code 3: t7",
    ]


def test_the_progress_of_a_sweep_is_that_of_its_tasks_and_not_of_what_one_prints() -> None:
    view, stream = View("sweep", "emulator", BEGAN), MetricStream()
    for task in ("t0", "t1"):
        view.note(stream.event("sweep", task, stream.output(["step 1/1 loss 0.5"], BEGAN)), BEGAN)
    view.note(TasksSeen("sweep", counts=Counts(300, 8, 190, 2)), BEGAN + 1)
    text = "\n".join(shown(view, 80, BEGAN + 1))
    assert "192/500  38 %" in text and "2 failed" in text
    assert "1/1" not in text and "loss" not in text
    assert {task: values[-1] for task, values in view.history["loss"].items()} == {"t0": (1.0, 0.5), "t1": (1.0, 0.5)}


def test_a_rate_is_not_shown_while_its_ranks_are_silent() -> None:
    assert "606 images/s" in shown(trained(), 80, BEGAN + 181)[3]
    assert "images/s" not in shown(trained(), 80, BEGAN + 400)[3]


def test_ranks_are_not_silent_because_their_output_is_read_late() -> None:
    view, stream = View("digits", "emulator", BEGAN, ranks=2), MetricStream()
    lines = [f'{{"time": {BEGAN}}}']
    lines += [f'{{"time": {BEGAN + 1}, "rank": {rank}, "file": "stdout", "line": "step 1 loss 1"}}' for rank in (0, 1)]
    view.note(stream.event("digits", "train", stream.records(lines, BEGAN + 1)), BEGAN + 1)
    assert shown(view, 80, BEGAN + 300)[-1].startswith("2 ranks: 2 fine")
    view.note(stream.event("digits", "train", stream.records([f'{{"time": {BEGAN + 299}}}'], BEGAN + 300)), BEGAN + 300)
    assert shown(view, 80, BEGAN + 300)[-1].startswith("2 ranks: 2 quiet")


def test_a_job_whose_tasks_are_added_shows_how_far_that_is() -> None:
    view = View("sweep", "emulator", BEGAN, many=True)
    for seconds, number in ((1, 500), (3, 1500)):
        view.note(TaskProgress("sweep", "added", added=number, total=2000), BEGAN + seconds)
    assert shown(view, 80, BEGAN + 4)[2] == "added  ██████████████████████░░░░░░░░ 1,500/2,000  75 %  500/s  ETA 1s"
    view.note(TasksSeen("sweep", counts=Counts(1990, 10)), BEGAN + 5)
    assert shown(view, 80, BEGAN + 6)[0].split()[-2:] == ["running", "6s"]
    assert shown(view, 80, BEGAN + 6)[2] == "tasks  ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 0/2,000  0 %"


@pytest.mark.parametrize(
    ("steps", "stops", "now", "shows"), [(5, 99, 125, False), (6, 99, 125, True), (12, 8, 185, False)]
)
def test_the_remaining_time_comes_from_the_fifth_step_on_unless_a_rank_stands(
    steps: int, stops: int, now: int, shows: bool
) -> None:
    assert ("ETA" in shown(trained(steps=steps, stops=stops), 80, BEGAN + now)[2]) is shows


def test_the_others_of_a_hang_wait_for_the_rank_that_stands() -> None:
    rows = shown(trained(4, stops=11), 80, BEGAN + 400)
    assert [row[34:39].strip() for row in rows[5:9]] == ["waits", "waits", "waits", "stops"]
    assert rows[-1].startswith("4 ranks: 1 stopped, 3 waiting")


def test_the_ranks_have_rows_before_they_start_and_the_block_names_the_nodes_that_are_missing() -> None:
    view = View("digits", "emulator", BEGAN, ranks=4, emulated=True)
    stream = MetricStream()
    joined = [json.dumps({"node": node, "nodes": 3}) for node in ("n0", "n2")]
    view.note(stream.event("job", "train", stream.records(joined, BEGAN + 1)), BEGAN + 1)
    rows = shown(view, 80, BEGAN + 2)
    assert rows[2] == "waiting for the others: 2 of 3 have joined; n1 is missing"
    assert [row.strip() for row in rows[5:9]] == ["0", "1", "2", "3"]
    assert rows[-1] == "no rank of 4 has started"
    started = [json.dumps({"node": "n1", "nodes": 3}), json.dumps({"rank": 3, "node": "n1", "time": BEGAN + 3})]
    view.note(stream.event("job", "train", stream.records(started, BEGAN + 3)), BEGAN + 3)
    rows = shown(view, 80, BEGAN + 4)
    assert rows[2] == ""
    assert rows[8].split() == ["3", "n1", "1s"]
    assert rows[-1] == "1 of 4 ranks: 1 fine"


def test_a_wait_says_what_usually_takes_how_long_but_not_of_the_emulator() -> None:
    for emulated in (True, False):
        view = View("digits", "here", BEGAN, emulated=emulated)
        view.note(PoolWaits("gpu2", "pool gpu2: resizing"), BEGAN + 5)
        assert ("usually" in shown(view, 80, BEGAN + 65)[0]) is not emulated


def test_a_curve_has_one_bar_a_column_and_skips_what_is_no_number() -> None:
    curves = ([1.0, 2.0, 3.0], [1.0, float("nan"), 1.0], [1.0])
    assert [spark(curve, 12) for curve in curves] == ["▁▅█", "▄▄", ""]
    assert len(spark(range(1000), 12)) == 12
    assert [span(seconds) for seconds in (0.4, 59, 460, 7500)] == ["0s", "59s", "7m40s", "2h05m"]


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ("plain text", "plain text"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m\x1b[0m"),
        ("\x1b]0;title\x07a\x1b]52;c;YQ==\x1b\\b", "ab"),
        ("\x1b[2J\x1b[10;10Hmoved\x1b[?25l", "moved"),
        ("10 %\r50 %\r100 %\r", "100 %"),
        ("a\x00b\x08c\td", "abc\td"),
        ("[/b] <script>", "[/b] <script>"),
        ("cut \x1b]0;never ended", "cut "),
        ("\x9b31mC1", "31mC1"),
        ("loss \u202e5.0 \u2066x\u061c", r"loss \u202e5.0 \u2066x\u061c"),
    ],
)
def test_a_line_of_a_task_cannot_take_over_the_terminal(line: str, safe: str) -> None:
    assert terminal_text(line) == safe


class Screen:
    """A terminal that notes when it was drawn, with its clock."""

    def __init__(self) -> None:
        self.now, self.size = 0.0, (80, 24)
        self.drawn: list[float] = []
        self.waited: list[float] = []

    def print(self, text: Any, **_: Any) -> None:
        self.refresh()
        self.waited += [self.now - float(line) for line in text.plain.split("\n")]

    def refresh(self) -> None:
        self.drawn.append(self.now)


def test_the_block_is_drawn_four_times_a_second_and_no_line_waits_longer_than_that() -> None:
    screen: Any = Screen()
    log = _Log(screen, screen.refresh, lambda: screen.now)
    for hundredth in range(400):
        screen.now = hundredth / 100
        log.tick()
        if hundredth % 3 == 0:
            log.add(LogLine(f"{screen.now}"))
    log.flush()
    assert min(later - earlier for earlier, later in itertools.pairwise(screen.drawn[:-1])) >= DRAW_SECONDS
    assert len(screen.waited) == 134
    assert max(screen.waited) <= DRAW_SECONDS


@pytest.mark.parametrize("is_drawn", [True, False])
def test_no_output_comes_into_a_question(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_drawn: bool
) -> None:
    monkeypatch.setattr(live, "wanted", lambda: is_drawn)
    account = Account("http://127.0.0.1:1", "x", Secret("a2V5"), emulated=True)
    with click.Context(click.Command("run"), obj=options.Settings()) as context, live.block(account, None, "a") as tell:

        def follow() -> None:
            with context:
                tell(Stderr("train", "train: step 1"))

        following = threading.Thread(target=follow)
        with options.settings().undrawn():
            following.start()
            following.join(0.5)
            assert following.is_alive()
            assert "step 1" not in capsys.readouterr().err
        following.join()
    assert "step 1" in capsys.readouterr().err


def test_nothing_is_drawn_while_the_window_is_dragged() -> None:
    screen: Any = Screen()
    log = _Log(screen, screen.refresh, lambda: screen.now)
    for tenth in range(40):
        screen.now = tenth / 10
        if 10 <= tenth < 30:
            screen.size = (80 - tenth, 24)
        log.tick()
    assert [now for now in screen.drawn if 1 <= now < 3] == []
    assert [now for now in screen.drawn if now >= 3]


def test_the_age_of_the_last_answer_is_shown_once_it_is_old() -> None:
    now = [0.0]
    answers = Answers(lambda: now[0])
    assert answers.age is None
    answers.note()
    for seconds, end in ((2.5, "2 fine"), (64.0, "seen 1m04s ago")):
        now[0] = seconds
        view = trained()
        view.seen = answers.age
        assert shown(view, 80, BEGAN + 185)[-1].endswith(end)


@pytest.mark.parametrize("width", [40, 80])
def test_ids_of_64_characters_keep_every_line_in_the_width(width: int) -> None:
    long = "j" * 64
    view = View(long, f"pool {long} · Azure {long}", BEGAN, ranks=2)
    node = Node(f"tvmps_{'a' * 64}_d", "running", "", allocated=ALLOCATED)
    view.note(NodesSeen(long, target=1, nodes=(node,)), BEGAN + 1)
    printer(view)(f"[0:0] {long}: step 1/2 loss 0.5", BEGAN + 2)
    rows = shown(view, width, BEGAN + 3)
    assert max(map(len, rows)) <= width and len(rows) == view.height
    assert rows[0].endswith("running 3s") and "…" in rows[0]


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


@pytest.mark.parametrize("width", block_pictures.WIDTHS)
def test_the_pictures_of_the_documentation_show_the_block_of_today(width: int) -> None:
    kept = (block_pictures.IMAGES / f"live-block-{width}.svg").read_text(encoding="utf-8")
    assert kept == block_pictures.picture(width), "run `python -m tests.block_pictures`"


def test_no_word_of_a_node_is_shown_raw() -> None:
    view, stream = View("digits", "here", BEGAN, ranks=2), MetricStream()
    own = {"time": 1.0, "rank": 0, "node": "\x1b]0;evil\x07", "file": "metrics", "line": '{"\\u001b[2Jx": 1}'}
    view.note(stream.event("job", "train", stream.records([json.dumps(own)], BEGAN)), BEGAN)
    assert "\x1b" not in "".join(shown(view, 80, BEGAN + 1))


def test_a_job_without_a_recipe_shows_no_step_of_one_task_before_its_tasks_are_counted() -> None:
    view = View("sweep", "emulator", BEGAN, ranks=4, joins=True)
    view.note(MetricsSeen("task-0", progress=TrainingProgress("step", 3, 3)), BEGAN + 1)
    assert not any("3/3" in line for line in shown(view, 80, BEGAN + 1))
    view.note(TasksSeen("sweep", counts=Counts(0, 1, 4, 1)), BEGAN + 2)
    assert any("5/6" in line for line in shown(view, 80, BEGAN + 2))
