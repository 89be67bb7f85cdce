"""Every command block of the documentation, run as it stands; the README's first command in a fresh clone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.readme_block import README, blocks

ROOT = README.parent
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if re.search(r"^```(sh|python)$", path.read_text(), re.M))
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", flags=re.M | re.S)

pytestmark = [pytest.mark.process, pytest.mark.mpi]


def run(script: str, cwd: Path, environment: dict[str, str], timeout: float = 300) -> str:
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(
    page: Path, batchtrain: Any, mpi_environment: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / ".venv").symlink_to(mpi_environment("mpich"))
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    environment = {**batchtrain.environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shell = [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == "sh"]
    programs = [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == "python"]
    if programs and shell:
        (tmp_path / "hello.py").write_text(programs[0], encoding="utf-8")
    elif programs:
        batchtrain("emulator", "images", "map", "example/mpich:digits", ".venv")
        (tmp_path / "page.py").write_text(programs[0], encoding="utf-8")
        shell = [f"{sys.executable} page.py"]
    run("\n".join(shell), tmp_path, environment)


@pytest.mark.slow
def test_the_first_command_of_the_readme_trains_in_a_fresh_clone(batchtrain: Any, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", clone], check=True)
    environment = {**batchtrain.environment, "PATH": os.environ["PATH"]}
    environment.pop("VIRTUAL_ENV", None)
    printed = run(blocks(README.read_text(encoding="utf-8"))[0], clone, environment, timeout=600)
    accuracy = re.findall(r"^test accuracy (\S+)$", printed, flags=re.M)
    assert accuracy
    assert float(accuracy[0]) >= 0.95
