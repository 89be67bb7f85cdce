"""A framework of another package: installed beside batchtrain, checked, planned and run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "tests/data/echo_framework"
PAGE = ROOT / "docs/how-to/add-a-framework.md"
FILES = {
    name: text
    for text, name in re.findall(r"^```\w+\n((?:(?!^```)[\s\S])*?)^```\n\nSave it as `([^`]+)`", PAGE.read_text(), re.M)
}


def test_the_page_shows_the_files_of_the_package() -> None:
    shown = {name.removeprefix("echo/"): text for name, text in FILES.items() if name.startswith("echo/")}
    assert shown == {path.name: path.read_text() for path in EXAMPLE.iterdir() if path.is_file()}


@pytest.mark.process
@pytest.mark.slow
def test_a_framework_is_installed_checked_planned_and_run(batchtrain: Any, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", installed]
    subprocess.run([*pip, EXAMPLE], check=True)
    environment = {**batchtrain.environment, "PYTHONPATH": str(installed)}
    for name in ("pool.yaml", "jobs.yaml"):
        (tmp_path / name).write_text(FILES[f"hello/{name}"])

    def printed(*words: str) -> str:
        return str(batchtrain(*words, environment=environment).stdout)

    assert printed("config", "validate", ".").startswith(". is valid")
    assert "/launch/frameworks/echo.py" in printed("config", "plan", ".")
    lines = printed("run", ".", "--local").splitlines()
    assert {line.partition("] ")[2] for line in lines if "] " in line} >= {f"hi from {rank} of 4" for rank in range(4)}
