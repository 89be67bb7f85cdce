"""`python -m tests.limits_pictures DIR [--minutes 8]`: pictures of the dashboard at its limits, and of the home page.

* `address-1.png`, …: a real run at one address, from its first node to its record; a picture of each change
* `search.png`: a text that is searched in 223 MB
* `sweep.png`, `sweep-numbers.png`: a job of 20,000 tasks after some minutes
* `site-1440.png`, `site-400.png`: the home page, if the extra `docs` is installed
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from batchtrain.client.client import connect
from batchtrain.runs import directory
from batchtrain.service.requests import ask
from batchtrain.testing import BatchService, emulated_batch
from tests import dashboards, site
from tests.browsers import browser
from tests.dashboards import GANG, SCRIPT, Dashboard
from tests.waiting import until

TASKS, NODES, LINES = 20_000, 100, 3_340_000
WIDE, NARROW = (1440, 900), (400, 860)
POOL = {"id": "one", "vm_size": "STANDARD_D2S_V5", "vm_count": {"dedicated": 1}}
IMAGE = {"publisher": "almalinux", "offer": "almalinux-x86_64", "sku": "8-gen2"}
COMMAND = "bash -c 'for i in $(seq 12); do echo step $i/12 loss 0.$((20 - i)); sleep 1; done'"


def take(target: Path, minutes: float) -> None:
    """Take the pictures."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, emulated_batch() as service, browser() as chromium:
        place = Path(folder)
        runs = place / "runs"
        runs.mkdir()
        _fill(runs)
        began = time.monotonic()
        _sweep(service)
        with dashboards.dashboard(service.environment, runs=runs) as running:
            page = chromium.new_page(viewport=dict(zip(("width", "height"), WIDE, strict=True)))
            page.goto(running.link)
            page.wait_for_selector("main[data-ready]")
            _address(page, running, service, place, target)
            page.goto(f"{running.url}/runs/{GANG}?view=output&find=step+77+")
            page.wait_for_selector("[role=status] >> text=1 match")
            page.click("text=Next")
            page.wait_for_selector(".line.current")
            page.screenshot(path=target / "search.png")
            time.sleep(max(began + 60 * minutes - time.monotonic(), 0.0))
            for name, query in {"sweep": "", "sweep-numbers": "?view=numbers"}.items():
                page.goto(f"{running.url}/jobs/sweep{query}")
                page.wait_for_selector("main[data-ready]")
                page.wait_for_timeout(1000)
                page.screenshot(path=target / f"{name}.png")
        _home(chromium, place, target)


def _fill(runs: Path) -> None:
    """A run with 223 MB of output."""
    dashboards.record_gang(runs, GANG, 8, hung=5)
    with (runs / GANG / "logs/train/stdout.txt").open("w", encoding="utf-8") as file:
        for number in range(LINES):
            file.write(f"[0:{number % 8}] step {number} loss 0.1234 accuracy 0.5678 images/sec 1234.5\n")


def _sweep(service: BatchService) -> None:
    batch = connect(environment=service.environment).batch
    dashboards.add_pool(batch, "large", NODES, simulated=True, taskSlotsPerNode=2)
    dashboards.add_job(batch, "sweep", "large")
    for first in range(0, TASKS, 100):
        numbers = range(first, first + 100)
        rows = [{"id": f"t{number:05}", "commandLine": _trial(number)} for number in numbers]
        ask(batch, "POST", "/jobs/sweep/addtaskcollection", "add tasks", {"value": rows})


def _trial(number: int) -> str:
    return f"exit {number % 3 + 1}" if number % 50 == 0 else f"sleep {2 + number % 7}"


def _address(page: Any, running: Dashboard, service: BatchService, place: Path, target: Path) -> None:
    """A run at one address: a picture whenever its state or its text changed."""
    recipe = place / "recipe"
    recipe.mkdir()
    pool = {**POOL, "vm_configuration": {"platform_image": IMAGE}}
    job = {"id": "train", "auto_complete": True, "tasks": [{"id": "train", "command": COMMAND}]}
    (recipe / "pool.yaml").write_text(json.dumps({"pool_specification": pool}))
    (recipe / "jobs.yaml").write_text(json.dumps({"job_specifications": [job]}))
    words = [str(SCRIPT), "run", str(recipe), "--runs-dir", str(place / "runs")]
    before = {run.name for run in directory.runs(place / "runs")}
    log = (place / "log").open("w")
    with log, subprocess.Popen(words, env={**os.environ, **service.environment}, stdout=log, stderr=log) as training:
        until(lambda: training.poll() is not None or {run.name for run in directory.runs(place / "runs")} > before)
        assert training.poll() is None, (place / "log").read_text()
        (name,) = {run.name for run in directory.runs(place / "runs")} - before
        page.goto(f"{running.url}/runs/{name}")
        address, number, ended, text = page.url, 0, False, ""
        while not ended:
            ended = training.poll() is not None
            page.wait_for_timeout(2000)
            if (now := page.inner_text("main")) != text:
                number, text = number + 1, now
                page.screenshot(path=target / f"address-{number}.png")
    assert page.url == address
    assert "succeeded" in text, text


def _home(chromium: Any, place: Path, target: Path) -> None:
    try:
        built = site.build(place / "site")
    except site.NotBuilt as error:
        print(f"no picture of the home page: {error}")
        return
    for width, height in (WIDE, NARROW):
        page = chromium.new_page(viewport={"width": width, "height": height})
        page.goto((built / "index.html").as_uri())
        page.screenshot(path=target / f"site-{width}.png")
        page.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0, help="how long the job of 20,000 tasks has run")
    options = parser.parse_args()
    take(options.target, options.minutes)
