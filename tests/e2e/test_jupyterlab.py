"""A notebook in JupyterLab, as a user runs it: in a browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browsers import browser
from tests.waiting import GUARD, until

pytest.importorskip("jupyterlab", reason="there is no JupyterLab (pip install -e '.[notebook]')")

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.mpi]

ROOT = Path(__file__).resolve().parents[2]
FIRST = "1-first-training.ipynb"


@contextmanager
def jupyterlab(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of a JupyterLab that shows a folder, with its token."""
    own = {f"JUPYTER_{name}_DIR": str(folder / ".jupyter") for name in ("CONFIG", "DATA", "RUNTIME")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--notebook-dir={folder}"]
    with (folder / "lab.log").open("wb") as log:
        server = subprocess.Popen(command, env={**environment, **own}, cwd=folder, stdout=log, stderr=log)
    try:
        record = folder / ".jupyter" / f"jpserver-{server.pid}.json"
        until(lambda: "\n}" in _text(record) or server.poll() is not None)  # the whole of it is written
        running = json.loads(_text(record))
        yield f"{running['url']}lab/tree/{FIRST}?token={running['token']}"
    finally:
        server.kill()  # at SIGTERM it waits for its kernels
        server.wait()


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def test_the_first_notebook_runs_in_jupyterlab(batchtrain: Any, tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(ROOT / "notebooks" / FIRST, folder)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    with jupyterlab(folder, batchtrain.environment) as address, browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 1600})
        page.set_default_timeout(GUARD * 1000)
        page.goto(address)
        page.get_by_text("| Idle").wait_for()  # the kernel has started; before that, Run asks for one
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        card = page.locator(".jp-OutputArea-output", has_text="done after").first
        card.wait_for()
        page.locator(".jp-OutputArea-output", has_text="did you mean").first.wait_for()  # of the last cell
        if pictures := os.environ.get("BATCHTRAIN_TEST_PICTURES"):
            card.scroll_into_view_if_needed()
            page.screenshot(path=Path(pictures, "jupyterlab.png"))
        assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
        assert page.locator(".jp-OutputArea-output script").count() == 0
        assert page.locator("mjx-container").count() == 0, "JupyterLab read the variables of a command as mathematics"
