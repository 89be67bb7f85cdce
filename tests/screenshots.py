"""`python -m tests.screenshots [DIR]`: pictures of all pages to DIR; without DIR, those of the documentation.

The pictures are of the dashboard (light and dark), of a notebook's output, and of the live block.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from batchtrain.client.client import connect
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.finished import Run
from batchtrain.testing import emulated_batch
from tests import block_pictures, dashboards
from tests.browsers import browser
from tests.dashboards import GANG, LARGE

FIRST, SECOND = "20261122T111502Z-digits-7f3a", "20261122T131502Z-digits-1c2e"
PAGES = {
    "overview": "/",
    "pools": "/pools",
    "pool": "/pools/gpu-a100",
    "changes": "/pools/gpu-a100?view=timeline",
    "jobs": "/jobs",
    "job": "/jobs/digits",
    "numbers": "/jobs/sweep?view=numbers",
    "timeline": "/jobs/sweep?view=timeline",
    "request": "/jobs/digits?view=request",
    "sweep": "/jobs/sweep?state=failed",
    "task": "/jobs/digits/tasks/train",
    "task-output": "/jobs/digits/tasks/train?view=output&rank=3",
    "task-curves": "/jobs/digits/tasks/train?view=curves",
    "task-files": "/jobs/digits/tasks/train?view=files",
    "failed": "/jobs/digits/tasks/broken",
    "runs": f"/runs?id={FIRST}&id={SECOND}",
    "run": f"/runs/{FIRST}",
    "attempts": f"/runs/{GANG}",
    "ranks": f"/runs/{GANG}?view=ranks",
    "output": f"/runs/{GANG}?view=output&find=step+40",
    "colours": f"/runs/{GANG}?view=output&file=stderr.txt",
    "split": f"/runs/{GANG}?view=output&split=on",
    "curves": f"/runs/{GANG}?view=curves&smooth=0.6&with={LARGE}",
    "files": f"/runs/{FIRST}?view=files&look=outputs/train/model.txt",
    "configuration": f"/runs/{SECOND}?view=configuration",
    "many-ranks": f"/runs/{LARGE}?view=ranks",
    "many-curves": f"/runs/{LARGE}?view=curves&y=log",
    "no-job": "/jobs/none",
    "no-page": "/none",
    "compare": f"/runs/compare?id={FIRST}&id={SECOND}",
}
COMMITTED = ("pool", "ranks", "output", "curves")
"""The pages whose pictures are in the repository; the documentation site has all."""
WIDE, NARROW = (1280, 900), (400, 860)


def take(target: Path, pages: Collection[str] = tuple(PAGES), sizes: Collection[tuple[int, int]] = (WIDE,)) -> None:
    """Take the pictures."""
    target.mkdir(parents=True, exist_ok=True)
    block_pictures.write(target)
    with tempfile.TemporaryDirectory() as folder, emulated_batch() as service, browser() as chromium:
        runs = Path(folder)
        dashboards.record_three(runs)
        dashboards.record_gangs(runs)
        dashboards.furnish(connect(environment=service.environment).batch, pause=0.05)
        _notebook(chromium, Run(RunDirectory(runs / FIRST)), target)
        with dashboards.dashboard(service.environment, runs=runs) as running:
            for scheme, size in itertools.product(("light", "dark"), sizes):
                ending = ("" if scheme == "light" else "-dark") + ("" if size == WIDE else f"-{size[0]}")
                files = {name: target / f"dashboard-{name}{ending}.png" for name in pages}
                _dashboard(chromium, running, scheme, size, files)


def _notebook(chromium: Any, run: Run, target: Path) -> None:
    """The output of a cell that shows a run."""
    page = chromium.new_page(viewport={"width": 900, "height": 600})
    page.set_content(f'<!doctype html><body style="margin:0">{run._repr_html_()}</body>')
    page.locator("body > *").screenshot(path=target / "notebook-run.png")
    page.close()


def _dashboard(
    chromium: Any, running: dashboards.Dashboard, scheme: str, size: tuple[int, int], files: dict[str, Path]
) -> None:
    viewport = {"width": size[0], "height": size[1]}
    context = chromium.new_context(color_scheme=scheme, viewport=viewport, reduced_motion="reduce")
    page = context.new_page()
    page.goto(running.link)
    page.wait_for_selector("main[data-ready]")
    for name, file in files.items():
        page.goto(f"{running.url}{PAGES[name]}")
        page.wait_for_selector("main[data-ready]")
        page.wait_for_timeout(400)  # curves are drawn in the next frames
        page.screenshot(path=file)
    context.close()


if __name__ == "__main__":
    if sys.argv[1:]:
        take(Path(sys.argv[1]), sizes=(WIDE, NARROW))
    else:
        take(block_pictures.IMAGES, COMMITTED)
