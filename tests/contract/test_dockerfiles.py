"""Dockerfiles and their scripts, read by hadolint and shellcheck where these can be had."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import environments

ROOT = environments.ROOT
DOCKERFILES = sorted([*(ROOT / "docker").glob("*/Dockerfile"), *(ROOT / "recipes").glob("*/docker/Dockerfile")])
PROBE = ROOT / "batchtrain" / "containers" / "probe.sh"
SCRIPTS = sorted(
    [*(ROOT / "docker").glob("*/*.sh"), *(ROOT / "docker").glob("*/bin/*"), ROOT / "docker/cntk/activate-cntk", PROBE]
)

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def hadolint() -> str:
    if found := shutil.which("hadolint"):
        return found
    try:
        return str(environments.prefix("hadolint") / "bin" / "hadolint")
    except environments.Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: str(path.relative_to(ROOT).parent))
def test_hadolint_has_nothing_to_say(hadolint: str, path: Path) -> None:
    done = subprocess.run([hadolint, "--no-color", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_shellcheck_has_nothing_to_say(path: Path) -> None:
    program = shutil.which("shellcheck")
    if program is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([program, str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
