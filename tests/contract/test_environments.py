"""The tests' own environments: interpreters are found, what cannot be had is said, and a change is seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import environments
from tests.environments import Environment, Missing

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"

pytestmark = pytest.mark.process


def pretend(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_an_interpreter_runs_and_has_the_version_asked_for() -> None:
    found = environments.interpreter(THIS)
    assert found is not None
    asked = [str(found), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == THIS


def test_a_shim_that_runs_nothing_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path / "python9.9", "echo 'python9.9: command not found' >&2; exit 127")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environments.interpreter("9.9") is None


def test_a_shim_of_another_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path / "python9.9", f'exec {sys.executable} "$@"')
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environments.interpreter("9.9") is None


def test_an_interpreter_of_pyenv_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "versions" / "9.9.1" / "bin").mkdir(parents=True)
    pretend(tmp_path / "versions" / "9.9.1" / "bin" / "python9.9", "echo cpython 9.9 /opt/python9.9")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert environments.interpreter("9.9") == Path("/opt/python9.9")


def test_an_environment_without_its_python_is_missing_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHTRAIN_TEST_ENVS", str(tmp_path))
    monkeypatch.setattr(environments, "ENVIRONMENTS", {"old": Environment((), python="9.9")})
    with pytest.raises(Missing, match=r"no CPython 9\.9 on this machine"):
        environments.prefix("old")


def test_a_package_that_does_not_install_is_named_with_what_pip_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHTRAIN_TEST_ENVS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setattr(environments, "ENVIRONMENTS", {"bad": Environment(("batchtrain-no-such-package==1",))})
    with pytest.raises(Missing, match=r"could not pip install batchtrain-no-such-package==1: exit code 1\n"):
        environments.prefix("bad")


def test_another_package_is_another_environment() -> None:
    one, other = Environment(("torch==2.13.0",)), Environment(("torch==2.13.1",))
    assert environments.key(one) != environments.key(other)
    assert environments.key(one) == environments.key(Environment(("torch==2.13.0",)))
