"""The command line in the process of the test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from batchtrain.cli import __main__

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def batchtrain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command that needs no service to its end; it must end with `code`."""

    def run(
        *words: str, code: int = 0, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith(("AZURE_", "BATCHTRAIN_"))]:
                patch.delenv(name)
            for name, value in {"BATCHTRAIN_EMULATOR_DIR": str(tmp_path / "emulator"), **(environment or {})}.items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            patch.setattr("sys.argv", ["batchtrain", *words])
            ended = __main__._run()
        printed = capsys.readouterr()
        assert ended == code, printed
        return subprocess.CompletedProcess(words, ended, printed.out, printed.err)

    return run
