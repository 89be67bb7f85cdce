"""`python -m tests.screenshots [DIR]`: pictures of all pages to DIR; without DIR, those of the documentation."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from batchtrain.client import connect
from batchtrain.testing import emulated_batch
from tests import dashboards
from tests.browsers import browser

FIRST, SECOND = "20261122T111502Z-digits-7f3a", "20261122T131502Z-digits-1c2e"
PAGES = {
    "overview": "/",
    "pools": "/pools",
    "pool": "/pools/gpu-a100",
    "jobs": "/jobs",
    "job": "/jobs/digits",
    "timeline": "/jobs/sweep?view=timeline",
    "request": "/jobs/digits?view=request",
    "sweep": "/jobs/sweep?state=failed",
    "task": "/jobs/digits/tasks/train",
    "rank": "/jobs/digits/tasks/train?rank=3&files=on",
    "failed": "/jobs/digits/tasks/broken",
    "runs": f"/runs?id={FIRST}&id={SECOND}",
    "run": f"/runs/{FIRST}",
    "compare": f"/runs/compare?id={FIRST}&id={SECOND}",
}
DOCUMENTED = ("pool", "task")
WIDE, NARROW = (1280, 900), (400, 860)


def main() -> None:
    """Take the pictures."""
    target = Path(sys.argv[1]) if sys.argv[1:] else Path("docs/images")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, emulated_batch() as service, browser() as chromium:
        runs = Path(folder)
        dashboards.record_three(runs)
        dashboards.furnish(connect(environment=service.environment).batch, pause=0.05)
        with dashboards.dashboard(service.environment, "--allow-changes", runs=runs) as running:
            for scheme in ("light", "dark") if sys.argv[1:] else ("light",):
                for width, height in (WIDE, NARROW) if sys.argv[1:] else (WIDE,):
                    _pictures(chromium, running, scheme, width, height, target)


def _pictures(chromium: Any, running: dashboards.Dashboard, scheme: str, width: int, height: int, target: Path) -> None:
    viewport = {"width": width, "height": height}
    context = chromium.new_context(color_scheme=scheme, viewport=viewport, reduced_motion="reduce")
    page = context.new_page()
    page.goto(running.link)
    page.wait_for_selector("h1")
    documented = len(sys.argv) == 1
    for name, address in PAGES.items():
        if documented and name not in DOCUMENTED:
            continue
        page.goto(f"{running.url}{address}")
        page.wait_for_selector("main[data-ready]")
        page.wait_for_timeout(400)  # curves are drawn in the next frames
        file = target / (f"dashboard-{name}.png" if documented else f"{name}-{scheme}-{width}.png")
        page.screenshot(path=file, full_page=not documented)
    context.close()


if __name__ == "__main__":
    main()
