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

from tests import environments, needs, recipe_readmes
from tests.readme_block import README, blocks

ROOT = README.parent
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if re.search(r"^```(sh|python)$", path.read_text(), re.M))
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", flags=re.M | re.S)
SAVED = re.compile(r"^```\w+\n(?P<text>(?:(?!^```).)*?)^```\n\nSave it as `(?P<name>[^`]+)`", flags=re.M | re.S)
"""A block and the name of the file that it is."""

pytestmark = [pytest.mark.process, pytest.mark.mpi]


def _az(directory: Path) -> None:
    """`az`, on the page's PATH alone: its environment has a Python of its own."""
    program = directory / "bin" / "az"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {_prefix("azure-cli")}/bin/python -m azure.cli "$@"\n')
    program.chmod(0o755)


def _old_sdk(directory: Path) -> None:
    (directory / "old-sdk").symlink_to(_prefix("azure-batch-14"))


def _npm(directory: Path) -> None:
    needs.program("npm")
    (directory / "package.json").write_text("{}")  # npm would look for one upwards


def _prefix(name: str) -> Path:
    try:
        return environments.prefix(name)
    except environments.Missing as missing:
        pytest.skip(str(missing))


NEEDS = {"other-clients": (_az, _old_sdk, _npm)}
"""What else a page's commands find on their machine."""
RECIPES = {"check-the-network": "Fabric-Checks-OpenMPI", "first-sweep": "Digits-Sweep"}
"""Recipes whose environments a page uses."""


def _stem(page: Path) -> str:
    return page.stem


def run(script: str, cwd: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=_stem)
def test_the_blocks_of_a_page_run(
    page: Path, batchtrain: Any, mpi_environment: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / ".venv").symlink_to(mpi_environment("mpich"))
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    for prepare in NEEDS.get(page.stem, ()):
        prepare(tmp_path)
    if recipe := RECIPES.get(page.stem):
        recipe_readmes.prepare(batchtrain, mpi_environment, recipe)
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**batchtrain.environment, "PATH": path, "AZURE_CONFIG_DIR": str(tmp_path / "azure")}
    text = page.read_text(encoding="utf-8")
    shell = "\n".join(block for kind, block in BLOCK.findall(text) if kind == "sh")
    for file in SAVED.finditer(text):
        saved = tmp_path / file["name"]
        saved.parent.mkdir(exist_ok=True)
        saved.write_text(file["text"], encoding="utf-8")
    if not shell:
        batchtrain("emulator", "images", "map", "example/mpich:digits", ".venv")
        (tmp_path / "page.py").write_text(BLOCK.findall(text)[0][1], encoding="utf-8")
        shell = f"{sys.executable} page.py"
    run(shell, tmp_path, environment)


@pytest.mark.slow
def test_the_first_command_of_the_readme_trains_in_a_fresh_clone(batchtrain: Any, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run([needs.program("git"), "clone", "--quiet", "--depth=1", f"file://{ROOT}", clone], check=True)
    environment = {**batchtrain.environment, "PATH": os.environ["PATH"]}
    environment.pop("VIRTUAL_ENV", None)
    printed = run(blocks(README.read_text(encoding="utf-8"))[0], clone, environment)
    accuracy = re.findall(r"^test accuracy (\S+)$", printed, flags=re.M)
    assert accuracy
    assert float(accuracy[0]) >= 0.95
