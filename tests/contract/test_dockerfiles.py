"""Dockerfiles and all scripts, read by hadolint and shellcheck; in CI shellcheck must be there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import environments, needs

ROOT = environments.ROOT
DOCKERFILES = sorted([*(ROOT / "docker").glob("*/Dockerfile"), *(ROOT / "recipes").glob("*/docker/Dockerfile")])
PROBE = ROOT / "batchtrain" / "containers" / "probe.sh"
SCRIPTS = sorted(
    [
        *(path for kind in ("*/*.sh", "*/bin/*", "*/activate-cntk") for path in (ROOT / "docker").glob(kind)),
        PROBE,
        *(ROOT / "batchtrain/runtime").glob("*.sh"),
        ROOT / ".ci/run",
    ]
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
@pytest.mark.slow
def test_hadolint_has_nothing_to_say(hadolint: str, path: Path) -> None:
    done = subprocess.run([hadolint, "--no-color", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_shellcheck_has_nothing_to_say(path: Path) -> None:
    done = subprocess.run([needs.program("shellcheck"), str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
