"""The installation of the emulator's storage: limited in time, and ended with the emulator."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from batchtrain.emulator.interface import StorageMissing
from batchtrain.emulator.machine import azurite
from batchtrain.emulator.machine.azurite import Azurite, Node
from tests.waiting import until

pytestmark = pytest.mark.process


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An npm that never ends; the file has its process id as soon as it runs."""
    pid = tmp_path / "pid"
    program = tmp_path / "npm"
    program.write_text(f"#!/bin/sh\necho $$ >{pid}.new && mv {pid}.new {pid}\nsleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv(azurite.DIRECTORY_VARIABLE, str(tmp_path / "installed"))
    monkeypatch.setattr(azurite, "find_node", lambda: Node("/usr/bin/node", (str(program),)))
    return pid


def test_the_end_of_the_emulator_ends_an_installation(hanging: Path, tmp_path: Path) -> None:
    storage, problems = Azurite(tmp_path / "data"), []

    def ensure() -> None:
        try:
            storage.ensure()
        except StorageMissing as missing:
            problems.append(str(missing))

    thread = threading.Thread(target=ensure)
    thread.start()
    until(hanging.exists)
    npm = psutil.Process(int(hanging.read_text()))
    storage.close()
    thread.join()
    assert "the emulator is stopping" in problems[0]
    assert not npm.is_running() or npm.status() == psutil.STATUS_ZOMBIE
    assert not (tmp_path / "installed").exists()


def test_an_installation_has_a_time_limit(hanging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azurite, "INSTALL_SECONDS", 0.3)
    with pytest.raises(StorageMissing, match=r"cannot be installed by npm: it has not ended after 0\.3 s"):
        Azurite(tmp_path / "data").ensure()


def test_an_interrupt_ends_an_installation(hanging: Path, tmp_path: Path) -> None:
    def interrupt() -> bool:
        if hanging.exists():
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        azurite.install(azurite.find_node(), lambda _: None, interrupt)
    npm = psutil.Process(int(hanging.read_text())) if psutil.pid_exists(int(hanging.read_text())) else None
    assert npm is None or npm.status() == psutil.STATUS_ZOMBIE
