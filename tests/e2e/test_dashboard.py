"""`batchtrain dashboard` against a real emulator: the API as scripts use it, and the pages in a browser."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchtrain.client.client import connect
from batchtrain.testing import BatchService, emulated_batch
from tests import dashboards, recorded_runs
from tests.browsers import browser
from tests.dashboards import BEGUN, GANG, HOSTILE, LARGE, Dashboard, Gate
from tests.screenshots import FIRST, PAGES, SECOND
from tests.waiting import GUARD, until

from .conftest import pool_file

pytestmark = pytest.mark.browser
ONE_NODE = pool_file("one")
DRAWN = "() => document.querySelector('.charts canvas').toDataURL()"
"""The first chart as it is drawn."""
RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BatchService, Dashboard]]:
    """An emulator with something to see, and its dashboard."""
    runs = tmp_path_factory.mktemp("runs")
    dashboards.record_three(runs)
    dashboards.record_gangs(runs)
    with emulated_batch() as service:
        batch = connect(environment=service.environment).batch
        dashboards.furnish(batch)
        hostile = dashboards.python(f"import sys; sys.stdout.write({HOSTILE!r} + chr(10))")
        dashboards.add_job(batch, "hostile", "cpu", shout=hostile)
        with dashboards.dashboard(service.environment, runs=runs) as running:
            yield service, running


@pytest.fixture(scope="module")
def running(stage: tuple[BatchService, Dashboard]) -> Dashboard:
    return stage[1]


def ended(running: Dashboard, job: str, task: str) -> Any:
    """A task, when it has ended."""
    return until(lambda: (seen := running.get(f"/jobs/{job}/tasks/{task}"))["state"] == "completed" and seen)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


def signed_in(chromium: Any, running: Dashboard, **options: Any) -> Any:
    """A page of a browser that has followed the printed link."""
    page = chromium.new_context(accept_downloads=True, **options).new_page()
    page.set_default_timeout(GUARD * 1000)
    page.goto(running.link)
    page.wait_for_selector("main[data-ready]")
    return page


SignIn = Callable[..., Any]


@pytest.fixture
def sign_in(chromium: Any) -> Iterator[SignIn]:
    """Signs in to a dashboard, with options of the browser; what it opens is closed after the test."""
    pages = list[Any]()

    def opened(running: Dashboard, **options: Any) -> Any:
        pages.append(signed_in(chromium, running, **options))
        return pages[-1]

    yield opened
    for page in pages:
        page.context.close()


@pytest.fixture
def page(sign_in: SignIn, running: Dashboard) -> Any:
    return sign_in(running)


@pytest.mark.parametrize(
    "lost", ["api/v1/session", "api/v1/account", "api/v1/events?*", "static/js/app.js", "static/js/jobs.js", "*.css"]
)
def test_a_page_is_shown_although_one_of_its_requests_is_lost(chromium: Any, running: Dashboard, lost: str) -> None:
    page = chromium.new_page()
    page.route(f"**/{lost}", lambda route: route.abort("connectionaborted"), times=1)
    page.goto(running.link)
    page.wait_for_selector("main[data-ready]", timeout=GUARD * 1000)
    page.wait_for_function(
        "getComputedStyle(document.querySelector('.skip')).position == 'absolute'", timeout=GUARD * 1000
    )
    page.close()


@pytest.fixture(scope="module")
def reader(chromium: Any, running: Dashboard) -> Iterator[Any]:
    """A page that is signed in once, for tests that go to another address and leave nothing behind."""
    page = signed_in(chromium, running)
    yield page


RULES: dict[str, Any] = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
"""Of axe, by colour scheme: only the contrast depends on it."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_barrier(reader: Any, running: Dashboard, name: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    reader.set_viewport_size({"width": 1280, "height": 900})
    for scheme, rules in RULES.items():
        reader.emulate_media(color_scheme=scheme)  # before the page is loaded, so that no colour is between two
        reader.goto(f"{running.url}{PAGES[name]}")
        reader.wait_for_selector("main[data-ready]")
        results = Axe().run(reader, options={"resultTypes": ["violations"], **rules})
        assert results.violations_count == 0, f"{scheme}: {results.generate_report()}"
    reader.set_viewport_size({"width": 320, "height": 700})
    assert reader.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways at 320 pixels"


def test_a_line_is_on_the_page_while_its_task_runs(page: Any, stage: tuple[BatchService, Dashboard]) -> None:
    service, running = stage
    gate = Gate()
    program = f"print('first', flush=True)\n{gate.wait}\nprint('second')"
    dashboards.add_job(connect(environment=service.environment).batch, "live", "cpu", train=dashboards.python(program))
    page.goto(f"{running.url}/jobs/live/tasks/train?view=output")
    page.wait_for_selector(".log .line >> text=first")
    assert "second" not in page.inner_text(".log")
    gate.open()
    page.wait_for_selector(".log .line >> text=second")


def test_the_timeline_of_a_pool_tells_when_its_nodes_changed(page: Any, running: Dashboard) -> None:
    page.goto(f"{running.url}/pools/gpu-a100")
    page.click("text=Timeline")
    page.wait_for_selector("td >> text=allocated")
    rows = [row.split("\t") for row in page.inner_text("main tbody").splitlines()]
    for change in ("allocated", "booted"):
        assert sum(int(row[2]) for row in rows if row[1] == change) == 48


HIDDEN = """hidden => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_hidden_page_closes_its_stream_and_loses_nothing(page: Any, stage: tuple[BatchService, Dashboard]) -> None:
    service, running = stage
    gate = Gate()
    program = f"print('before', flush=True)\n{gate.wait}\nfor n in range(1000): print('line', n)"
    dashboards.add_job(connect(environment=service.environment).batch, "asleep", "cpu", t=dashboards.python(program))
    page.goto(f"{running.url}/jobs/asleep/tasks/t?view=output")
    page.wait_for_selector(".log .line >> text=before")
    streams: list[Any] = []
    page.on("request", lambda request: streams.append(request) if "/events?" in request.url else None)
    with page.expect_event("requestfailed", lambda request: "/events?" in request.url):
        page.evaluate(HIDDEN, arg=True)
    gate.open()
    ended(running, "asleep", "t")
    assert streams == [] and "line" not in page.inner_text(".log")
    page.evaluate(HIDDEN, arg=False)
    page.wait_for_selector(".log .line >> text=line 999")
    assert [stream.headers.get("last-event-id") is not None for stream in streams] == [True]
    assert page.inner_text(".log").split("\n") == ["before", *(f"line {number}" for number in range(1000))]


@pytest.mark.mpi
def test_a_real_training_is_followed_from_its_pool_to_its_curve_and_its_model_comes_home(
    sign_in: SignIn, trained: Any, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with dashboards.dashboard(trained.environment, "--local", runs=runs) as running:
        page = sign_in(running)
        training = trained.start("run", str(RECIPES / "mpi4py-MPICH"), "--local", "--keep")
        page.click("nav >> text=Pools")
        page.click("main >> text=digits-mpich")
        page.wait_for_selector(".heat a >> nth=1")
        page.click("nav >> text=Jobs")
        page.click("main td a >> text=digits")
        page.wait_for_url("**/runs/*")  # the job's page is that of its run
        page.click(".tabs >> text=Output")
        page.wait_for_selector(".log .line >> text=test accuracy")
        shown = page.inner_text(".log")
        page.wait_for_selector("h1 + .state >> text=succeeded")
        assert page.inner_text(".log").startswith(shown), "the record took over with a jump"
        page.click(".tabs >> text=Curves")
        page.wait_for_selector(".charts canvas")
        page.click(".tabs >> text=Files")
        with page.expect_download() as download:
            page.click("[aria-label='Download outputs/train/weights.npz']")
        out, err = training.communicate(timeout=GUARD)
        assert training.returncode == 0, err
        (accuracy,) = re.findall(r"^test accuracy [\d.]+$", out, flags=re.M)
        assert accuracy in shown
        model = runs / "latest" / "outputs" / "train" / "weights.npz"
        assert Path(download.value.path()).read_bytes() == model.read_bytes()


def test_the_page_of_a_job_that_is_gone_goes_on_as_that_of_its_run(
    sign_in: SignIn, batchtrain: Any, tmp_path: Path
) -> None:
    """One address from the first node to the record: no reload, no line twice or lost, no JobNotFound."""
    runs, recipe = tmp_path / "runs", tmp_path / "recipe"
    runs.mkdir()
    recipe.mkdir()
    (recipe / "pool.yaml").write_text(ONE_NODE)
    with dashboards.dashboard(batchtrain.environment, "--local", runs=runs) as running:
        gate = Gate()
        program = (
            f"for n in range(50): print('before', n, flush=True)\n{gate.wait}\nfor n in range(50): print('after', n)"
        )
        task = {"id": "train", "command": dashboards.python(program)}
        jobs = {"job_specifications": [{"id": "digits", "auto_complete": True, "tasks": [task]}]}
        (recipe / "jobs.yaml").write_text(json.dumps(jobs))
        command = batchtrain.start("run", str(recipe), "--local")
        name = until(lambda: next((row["id"] for row in running.get("/runs")), None))
        page = sign_in(running)
        loads: list[Any] = []
        page.on("load", lambda: loads.append(page.url))
        page.goto(f"{running.url}/runs/{name}?view=output")
        page.wait_for_selector(".log .line >> text=before 49")
        assert page.inner_text("h1 + .state") == "running"
        gate.open()
        _, err = command.communicate(timeout=GUARD)
        assert f"watch it at {running.url}/runs/{name}\n" in err
        page.wait_for_selector("h1 + .state >> text=succeeded")
        page.wait_for_selector(".log .line >> text=after 49")
        lines = [line for line in page.inner_text(".log").split("\n") if line]
        assert lines == [f"before {n}" for n in range(50)] + [f"after {n}" for n in range(50)]
        assert len(loads) == 1
        page.goto(f"{running.url}/jobs/{running.get('/runs')[0]['job']}")
        page.wait_for_url(f"**/runs/{name}")


def test_a_rank_that_stood_still_is_first_and_marked_when_the_page_is_opened_later(
    page: Any, running: Dashboard
) -> None:
    page.goto(f"{running.url}/runs/{GANG}?view=ranks")
    first = page.inner_text(".ranks li:first-child")
    assert "r5" in first and "step 40" in first and "stands still" in first
    assert page.locator(".ranks .state >> text=stands still").count() == 1
    assert page.inner_text(".warned") == "r5 stands still while the others went on."
    page.goto(f"{running.url}/runs/{LARGE}?view=ranks")
    page.wait_for_selector(".nodes .tile")
    assert (page.locator(".ranks li").count(), page.locator(".nodes .tile").count()) == (10, 1024)
    assert page.inner_text(".ranks li:first-child strong") == "r700 n87"


def test_a_search_counts_the_whole_file_and_goes_to_each_match(
    page: Any, running: Dashboard, stage: tuple[BatchService, Dashboard]
) -> None:
    page.goto(f"{running.url}/runs/{LARGE}?view=output")
    page.wait_for_selector(".log .line")
    assert "step 1/" not in page.inner_text(".log .line >> nth=0")  # only the end is loaded
    page.focus("input[name=find]")
    page.keyboard.type("step 1/120")
    page.wait_for_selector("[role=status] >> text=1,024 matches")
    page.keyboard.press("Enter")
    page.wait_for_selector(".line.current >> text=step 1/120")
    assert page.inner_text(".hits [role=status]") == "1 of 1,024 matches"
    assert page.inner_text(".line.current .who") == "r0"
    page.click("text=Previous")
    page.wait_for_selector(".line.current .who >> text=r1023")
    page.goto(f"{running.url}/runs/{LARGE}?view=output&find=step+2/120")
    page.wait_for_selector(".line.current >> text=step 2/120")  # the address goes to its match


def test_no_handler_of_the_page_cancels_its_event_by_what_it_returns(page: Any, running: Dashboard) -> None:
    cancelled = page.evaluate(
        """async () => {
          const { h } = await import("/static/js/dom.js");
          const names = ["click", "input", "change", "submit", "keydown", "toggle"];
          return names.filter((name) => {
            const node = h("input", { [`on${name}`]: () => false });
            return !node.dispatchEvent(new Event(name, { cancelable: true }));
          });
        }"""
    )
    assert cancelled == []
    page.goto(f"{running.url}/runs/{LARGE}?view=output")
    page.wait_for_selector(".log .line")
    page.focus("input[name=find]")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") != "find"


def test_each_line_has_its_time_when_times_are_switched_on(page: Any, running: Dashboard) -> None:
    page.goto(f"{running.url}/runs/{GANG}?view=output")
    page.wait_for_selector(".log .line")
    assert page.locator(".log .time").count() == 0
    page.check("text=Times")
    stamps = page.locator(".log .time")
    until(lambda: all(stamps.all_text_contents()))
    times = stamps.all_text_contents()
    assert len(times) == page.locator(".log .block > .line").count()
    first, last = (datetime.fromtimestamp(BEGUN + second).strftime("%H:%M:%S") for second in (0, 40))
    assert times[0].endswith(first)
    assert times[-1].endswith(last)
    page.goto(f"{running.url}/runs/{GANG}?view=output&file=stderr.txt&times=on")
    page.wait_for_selector("text=No times were recorded.")


def test_styles_of_a_terminal_are_shown_and_what_turns_a_line_is_written_out(page: Any, running: Dashboard) -> None:
    page.goto(f"{running.url}/runs/{GANG}?view=output&file=stderr.txt")
    page.wait_for_selector(".log .line")
    assert page.inner_text(".log .line >> nth=0").startswith(
        "bold orange on blue reverse underlined red turned \\u202etxt.exe"
    )
    styles = page.eval_on_selector_all(
        ".log .line span", "spans => spans.map(span => [span.textContent, span.className])"
    )
    named = dict(styles)
    assert (named["bold"], named["underlined"], named["red"]) == ("bold", "underline", "ink1")
    assert page.evaluate("getComputedStyle(document.querySelector('.paper')).backgroundColor") == "rgb(30, 90, 200)"


PAINTED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Waits until uPlot has drawn the pointer, which it does in a frame."""


def test_a_zoom_stays_while_data_arrives_and_all_charts_show_the_values_under_the_pointer(
    sign_in: SignIn, tmp_path: Path
) -> None:
    dashboards.record(tmp_path, FIRST, loss=0.09)
    with dashboards.dashboard({"HOME": str(tmp_path)}, runs=tmp_path) as running:
        page = sign_in(running, viewport={"width": 1280, "height": 900})
        page.goto(f"{running.url}/runs/{FIRST}?view=curves")
        page.wait_for_selector(".charts canvas >> nth=1")
        values = "() => [...document.querySelectorAll('.keys .number')].map(node => Number(node.textContent))"

        def pointed() -> Any:
            area = page.locator(".u-over").nth(0).bounding_box()
            page.mouse.move(area["x"] + area["width"] / 2, area["y"] + 30)
            page.mouse.move(area["x"] + 3, area["y"] + 40)  # the places of two charts differ by a pixel
            page.evaluate(PAINTED)
            return page.evaluate(values)

        area = page.locator(".u-over").nth(0).bounding_box()
        loss, accuracy = first = pointed()
        assert loss > 2 and accuracy == pytest.approx(1 - loss / 3, abs=1e-3)
        page.mouse.move(area["x"] + area["width"] * 0.5, area["y"] + 50)
        page.mouse.down()
        page.mouse.move(area["x"] + area["width"] * 0.8, area["y"] + 50, steps=5)
        page.mouse.up()
        zoomed = pointed()
        assert zoomed[0] < 1
        with (tmp_path / FIRST / "metrics/train.jsonl").open("a") as file:
            file.write(json.dumps({"t": 1795420061.0, "rank": 0, "step": 61, "loss": 7.5, "accuracy": 0.1}) + "\n")
        page.wait_for_selector("figcaption >> text=7.5")
        assert pointed() == zoomed
        page.dblclick(".u-over >> nth=0")
        assert pointed() == first


@pytest.fixture
def curves(page: Any, running: Dashboard) -> Any:
    """The page of a run's curves."""
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{running.url}/runs/{FIRST}?view=curves")
    page.wait_for_selector(".charts canvas >> nth=1")
    return page


def test_what_a_page_cuts_is_one_click_away_and_a_value_that_is_not_finite_is_red(
    sign_in: SignIn, tmp_path: Path
) -> None:
    names = {story: recorded_runs.recorded(tmp_path, story).name for story in ("nan", "sweep", "many-metrics")}
    with dashboards.dashboard({}, runs=tmp_path) as running:
        page = sign_in(running)
        page.goto(f"{running.url}/runs/{names['many-metrics']}?view=curves")
        page.click("text=Show all 45 metrics")
        page.wait_for_selector("figure >> nth=44")
        page.focus("input[name=chart]")
        page.keyboard.type("m44")
        until(lambda: page.locator("figure").count() == 1)
        assert page.locator("figcaption > span:first-child").all_text_contents() == ["m44"]
        page.goto(f"{running.url}/runs/{names['sweep']}")
        page.wait_for_selector("h2 >> text=Tasks (200 of 500, the failed first)")
        page.click("text=Next page")
        page.click("a[href*='skip=400'] >> text=Next page")  # of the second page, once it is drawn
        page.wait_for_selector('td >> text="task-00499"')
        page.goto(f"{running.url}/runs/{names['nan']}")
        page.wait_for_selector(".state.bad >> text=succeeded, diverged")
        page.wait_for_selector("td > .bad")
        assert page.locator("td > .bad").all_text_contents() == ["NaN since step 16"]
        assert page.locator("dd > .bad").all_text_contents() == ["NaN since step 16 (best 0.125)"]
        page.wait_for_selector("figcaption >> text=loss")
        page.goto(f"{running.url}/runs")
        page.focus("input[name=text]")
        page.keyboard.type("diverged")
        until(lambda: page.locator("tbody tr").count() == 1)
        assert page.locator("td.results > .bad").all_text_contents() == ["loss NaN since step 16"]


def test_curves_are_saved_as_csv_with_every_value(curves: Any, running: Dashboard) -> None:
    with curves.expect_download() as download:
        curves.click("text=Save as CSV")
    first, *rows = csv.DictReader(Path(download.value.path()).read_text(encoding="utf-8").splitlines())
    assert download.value.suggested_filename == "curves.csv"
    values = running.get(f"/runs/{FIRST}/tasks/train/metrics")[first["metric"]]
    (columns,) = values.values()
    assert [float(row["value"]) for row in (first, *rows) if row["metric"] == first["metric"]] == columns["value"]
    assert {row["metric"] for row in rows} == {"loss", "accuracy"}


def test_a_chart_is_saved_as_a_picture(curves: Any) -> None:
    with curves.expect_download() as download:
        curves.click("[aria-label='Save loss as PNG']")
    assert download.value.suggested_filename == "loss.png"
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")


def test_a_logarithmic_axis_draws_the_curves_anew_and_stays_in_the_address(curves: Any) -> None:
    linear = curves.evaluate(DRAWN)
    curves.check("label:has-text('Logarithmic') input")
    curves.wait_for_function(f"before => ({DRAWN})() !== before", arg=linear)
    assert curves.url.endswith("&y=log")
    logarithmic = curves.evaluate(DRAWN)
    curves.reload()
    curves.wait_for_function(
        f"before => document.querySelector('.charts canvas') && ({DRAWN})() === before", arg=logarithmic
    )
    assert curves.is_checked("label:has-text('Logarithmic') input")


def test_another_run_is_laid_over_the_curves_and_taken_away(curves: Any) -> None:
    curves.click("text=Lay other runs over this one")
    curves.check(f"label:has-text('{SECOND}') input")
    curves.wait_for_selector(f".keys >> text={SECOND}")
    assert f"with={SECOND}" in curves.url
    curves.uncheck(f"label:has-text('{SECOND}') input")
    curves.wait_for_selector(f".keys >> text={SECOND}", state="detached")


def test_the_numbers_of_a_job_count_its_failures_by_cause(page: Any, running: Dashboard) -> None:
    page.goto(f"{running.url}/jobs/sweep")
    page.click(".tabs >> text=Numbers")
    page.wait_for_selector("text=From the 14 tasks that ended last.")
    row = page.inner_text("[aria-label='Failures by cause'] tbody tr")
    assert row.split("\t")[:2] == ["4", "exit code 1"]
    assert page.locator("text=Retry these").count() == 0  # without --allow-changes
    assert page.locator(".columns").count() == 2


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/none", "no such page"),
        ("/runs/none", "no run none"),
        ("/jobs/none", "no job none"),
        ("/jobs/x/tasks/y", "no task y"),
    ],
)
def test_an_address_of_nothing_has_a_page_with_the_way_on(page: Any, running: Dashboard, path: str, title: str) -> None:
    page.goto(f"{running.url}{path}")
    page.wait_for_selector(f"h1 >> text={title}")
    assert page.locator("text=Loading").count() == 0
    page.click(".ways >> text=Overview")
    page.wait_for_selector("h1 >> text=Overview")


def test_what_a_task_prints_stays_text(page: Any, running: Dashboard) -> None:
    ended(running, "hostile", "shout")
    page.goto(f"{running.url}/jobs/hostile/tasks/shout?view=output")
    page.wait_for_selector(".log .line >> text=<script>")
    assert page.title() == "shout · batchtrain"
    assert page.evaluate("document.querySelectorAll('.log script, .log img').length") == 0
    assert "\x1b" not in page.inner_text(".log") and "52;c" not in page.inner_text(".log")


def test_nothing_of_a_hostile_run_becomes_markup_on_any_of_its_pages(sign_in: SignIn, tmp_path: Path) -> None:
    dashboards.record_gang(tmp_path, GANG, 2, hung=1, steps=22)
    run, evil = tmp_path / GANG, "<img src=x onerror=document.title='owned'>"
    record = json.loads((run / "run.json").read_text())
    failure = {"message": evil, "cause": evil, "task": "digits/train", "finding": {"rule": evil, "evidence": evil}}
    named = {"job": evil, "state": "failed", "failure": failure, "settings": {evil: evil}, "command": [evil]}
    (run / "run.json").write_text(json.dumps({**record, **named, "summary": {evil: {"last": 1, "best": 1}}}))
    ranks = json.loads((run / "metrics/train.ranks.json").read_text())
    for rank in ranks["ranks"]:
        rank.update(node=evil, last=evil)
    (run / "metrics/train.ranks.json").write_text(json.dumps({**ranks, "progress": {"unit": evil, "at": 1, "of": 2}}))
    with (run / "metrics/train.jsonl").open("a") as file:
        file.writelines(json.dumps({"step": step, evil: step}) + "\n" for step in (1, 2))
        file.write(json.dumps({"node": evil, "t": 1, "cpu_percent": 5}) + "\n")
    (run / "logs/train/stderr.txt").write_text(evil + HOSTILE)
    (run / "outputs/train" / evil.replace("/", "-")).write_text(evil)
    (run / "config").mkdir()
    (run / "config/plan.json").write_text(json.dumps({"id": evil}))
    with dashboards.dashboard({"HOME": str(tmp_path)}, runs=tmp_path) as running:
        page = sign_in(running)
        dialogs: list[Any] = []
        page.on("dialog", lambda dialog: dialogs.append(dialog))
        for view in ("", "ranks", "output", "curves", "files", "configuration"):
            page.goto(f"{running.url}/runs/{GANG}?view={view}")
            page.wait_for_selector("main[data-ready]")
            page.wait_for_selector("text=onerror" if view != "curves" else ".charts canvas")
            assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0, view
            assert "owned" not in page.title().split("<")[0], view
        assert dialogs == []


def test_the_token_leaves_the_address_and_a_stranger_must_sign_in(chromium: Any, page: Any, running: Dashboard) -> None:
    assert running.token not in page.url and not page.evaluate("document.cookie")
    stranger = chromium.new_context().new_page()
    stranger.goto(f"{running.url}/jobs")
    stranger.fill("input[name=token]", running.link)
    stranger.click("button >> text=Sign in")
    stranger.wait_for_selector("h1 >> text=Jobs")
    stranger.context.close()


def test_runs_are_chosen_and_compared_by_the_keyboard(page: Any, running: Dashboard) -> None:
    page.goto(f"{running.url}/runs")
    for name in (FIRST, SECOND):
        page.focus(f"[aria-label='Compare {name}']")
        page.keyboard.press("Space")
    page.focus("text=Compare 2 runs")
    page.keyboard.press("Enter")
    page.wait_for_selector(".charts canvas")
    assert page.inner_text("th:nth-child(2)") == FIRST


def test_the_page_of_a_run_is_not_live_once_its_service_is_gone(
    sign_in: SignIn, batchtrain: Any, tmp_path: Path
) -> None:
    """What it reads of the service has no card of its own; its directory is read all the time."""
    runs, recipe = tmp_path / "runs", tmp_path / "recipe"
    runs.mkdir()
    recipe.mkdir()
    (recipe / "pool.yaml").write_text(ONE_NODE)
    tasks = [{"id": "train", "command": "sleep 1d"}]
    (recipe / "jobs.yaml").write_text(json.dumps({"job_specifications": [{"id": "digits", "tasks": tasks}]}))
    with dashboards.dashboard(batchtrain.environment, "--local", runs=runs) as running:
        command = batchtrain.start("run", str(recipe), "--local")
        name = until(lambda: next((row["id"] for row in running.get("/runs")), None))
        until(lambda: running.ask("/api/v1/jobs/digits/tasks/train")[0] == 200)
        page = sign_in(running)
        page.goto(f"{running.url}/runs/{name}")
        page.wait_for_selector("#live.good >> text=live")
        psutil.Process(json.loads((batchtrain.home / "emulator.json").read_text())["pid"]).kill()
        page.wait_for_selector("#live.bad >> text=as of")
        command.kill()
        command.communicate()


def test_a_page_says_that_the_dashboard_has_ended(sign_in: SignIn, tmp_path: Path) -> None:
    with dashboards.dashboard({"HOME": str(tmp_path)}, runs=tmp_path) as running:
        page = sign_in(running)
    page.wait_for_selector("#live >> text=does not answer")
