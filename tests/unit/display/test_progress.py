"""The progress of a call: a card in a notebook, lines elsewhere, nothing if it is switched off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.client.shown_progress import SHOW, displayed
from batchtrain.config.types import Secret
from batchtrain.display import progress
from batchtrain.display.live_view import View
from batchtrain.errors import BatchtrainError, Finding, JobStopped, LimitReached, TaskFailed
from batchtrain.metrics.stream import MetricStream
from batchtrain.records import Counts
from batchtrain.records.events import Event, PoolAdding, PoolWaits, Stderr, Stdout, TasksSeen
from batchtrain.service.connect import Account

HOSTILE = "loss 0.5 <script>alert(1)</script> \x1b]52;c;x\x07"


def card(drawn: list[tuple[str, str]]) -> progress.Card:
    view = View("digits", "emulator", 0.0)
    return progress.Card(view, lambda html, text: drawn.append((html, text)), clock=lambda: 60.0)


def test_a_card_shows_the_output_of_tasks_as_text() -> None:
    shown = card([])
    shown(Stdout("train", HOSTILE))
    html = shown.html()
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert "\x1b" not in html + shown.text()


def test_a_card_draws_the_curve_of_the_main_metric() -> None:
    shown = card([])
    stream = MetricStream()
    for step in (1, 2, 3):
        shown(stream.event("job", "train", stream.output([f"step {step} loss {1 / step}"], float(step))))
    assert "<polyline" in shown.html()


def test_the_curve_of_a_card_has_the_steps_on_its_axis() -> None:
    view = View("digits", "emulator", 0.0)
    stream = MetricStream()
    for step in (100, 200, 400):
        view.note(stream.event("job", "train", stream.output([f"step {step} loss {1 / step}"], float(step))), 1.0)
    assert [x for x, _ in view.history["loss"]["train"]] == [100, 200, 400]


def test_a_call_whose_tasks_failed_says_so_although_it_raises_nothing() -> None:
    drawn: list[tuple[str, str]] = []
    with card(drawn).drawn("x") as shown:
        shown(TasksSeen("job", counts=Counts(succeeded=1, failed=2)))
    assert drawn[-1][1].endswith("failed after 1m00s")


@pytest.mark.parametrize(
    ("error", "state"),
    [(LimitReached("x"), "interrupted"), (JobStopped("x"), "interrupted"), (TaskFailed("x"), "failed")],
)
def test_a_call_that_raises_says_what_its_record_says(error: BatchtrainError, state: str) -> None:
    drawn: list[tuple[str, str]] = []
    with pytest.raises(type(error)), card(drawn).drawn("x"):
        raise error
    assert drawn[-1][1].endswith(f"{state} after 1m00s")


def test_a_card_of_a_failure_has_its_cause_and_the_next_step() -> None:
    drawn: list[tuple[str, str]] = []
    error = TaskFailed("task digits/train failed")
    error.finding = Finding("import-error", "task train", "module torch is missing", "No module", "add `torch`")
    with pytest.raises(TaskFailed), card(drawn).drawn(""):
        raise error
    for shown in drawn[-1]:
        assert "cause  module torch is missing" in shown
        assert "next   add `torch`" in shown


def test_a_deletion_leaves_one_line() -> None:
    drawn: list[tuple[str, str]] = []
    view = View("digits", "emulator", 0.0)
    quiet = progress.Card(view, lambda html, text: drawn.append((html, text)), clock=lambda: 60.0, quiet=True)
    with quiet.drawn("x") as shown:
        shown(PoolWaits("p", "a line"))
    assert drawn[-1][0].endswith(">digits · emulator: done after 1m00s</div>")
    assert "a line" not in drawn[-1][0]


def test_a_card_is_drawn_at_the_start_and_with_its_end() -> None:
    drawn: list[tuple[str, str]] = []
    with card(drawn).drawn("x") as shown:
        shown(Stdout("train", "hello"))
    assert "starting" in drawn[0][1]
    assert drawn[-1][1] == "digits · emulator: done after 1m00s"
    assert "<details><summary" in drawn[-1][0]
    assert "hello" in drawn[-1][0]


def test_the_commands_of_a_card_run_in_a_cell_and_reach_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/b/batchtrain")
    shown = progress.Card(View("digits", "emulator", 0.0, emulated=True), lambda html, text: None)
    shown(PoolWaits("p", "look: `batchtrain pool show p`, or `batchtrain pool ssh p n0`"))
    shown(Stderr("train", "`batchtrain pool show q`"))
    assert "`client.pools.get(&quot;p&quot;)`, or `!batchtrain pool ssh --local p n0`" in shown.html()
    assert "`batchtrain pool show q`" in shown.html()


def test_a_failed_call_leaves_its_output_open() -> None:
    drawn: list[tuple[str, str]] = []
    with pytest.raises(TaskFailed), card(drawn).drawn("x") as shown:
        shown(Stderr("train", "hello"))
        raise TaskFailed("bad")
    assert drawn[-1][1].endswith("failed after 1m00s")
    assert "<details open>" in drawn[-1][0]


def test_ctrl_c_is_one_short_frame_that_says_what_stays() -> None:
    drawn: list[tuple[str, str]] = []
    with pytest.raises(KeyboardInterrupt) as caught, card(drawn).drawn("the job continues"):
        raise KeyboardInterrupt
    assert drawn[-1][1].endswith("interrupted after 1m00s")
    assert "the job continues" in caught.value._render_traceback_()[0]  # type: ignore[attr-defined]


def test_lines_go_to_the_streams_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    progress.line(Stdout("t", HOSTILE))
    progress.line(PoolWaits("p", "pool p: resizing; `batchtrain pool show p` shows it"), " --local")
    progress.line(TasksSeen("j"))
    printed = capsys.readouterr()
    assert printed.out == "loss 0.5 <script>alert(1)</script> \n"
    assert printed.err == "pool p: resizing; `batchtrain pool show p --local` shows it\n"


@pytest.mark.parametrize(("chosen", "shows"), [(True, True), (False, False), (None, False)])
def test_display_decides_and_by_default_a_pipe_shows_nothing(
    chosen: bool | None, shows: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("sys.ps1", raising=False)
    Things(chosen).add("a thing")
    assert capsys.readouterr().err == ("adding a thing\n" if shows else "")


def test_the_callers_own_tell_replaces_the_display(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[Event] = []
    Things(True).add("a thing", tell=told.append)
    assert [event.text for event in told] == ["adding a thing"]
    assert capsys.readouterr().err == ""


class Things:
    def __init__(self, display: bool | None) -> None:
        account = Account("http://127.0.0.1:1", "x", Secret("a2V5"), emulated=True)
        self._client = SimpleNamespace(display=display, account=account)

    @displayed("interrupted")
    def add(self, name: str, *, tell: Any = SHOW) -> None:
        """Adds a thing."""
        tell(PoolAdding(name, f"adding {name}"))
