"""The client on Windows and macOS, as far as Linux can show it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest

from batchtrain.config import source_directory
from batchtrain.emulator import local_service
from batchtrain.errors import UsageError
from batchtrain.runs import directory
from batchtrain.runs.local_names import safe_path
from batchtrain.runs.recording import now
from batchtrain.service.local_files import read_at, write_at

BLOCKED = """\
import importlib, pkgutil, sys

ABSENT = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ABSENT:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())
"""
IMPORTED = """\
import batchtrain

LINUX = ("batchtrain.emulator", "batchtrain.runtime", "batchtrain.testing")
names = [found.name for found in pkgutil.walk_packages(batchtrain.__path__, "batchtrain.")]
for name in names:
    if not name.startswith(LINUX) and not name.endswith("__main__"):
        importlib.import_module(name)
"""
EVERYTHING = "".join(map(chr, range(0x20, 0x7F))) + "größe ▇ █ · … 日本 \U0001f600"


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )


def test_the_client_is_imported_without_the_modules_that_only_unix_has() -> None:
    done = python(BLOCKED + IMPORTED)
    assert (done.returncode, done.stderr.decode()) == (0, "")


@pytest.mark.parametrize("command", [("emulator", "start"), ("emulator", "status"), ("pool", "list", "--local")])
def test_another_system_than_linux_is_told_that_the_emulator_needs_linux(command: tuple[str, ...]) -> None:
    code = BLOCKED + "import requests\nsys.platform = 'darwin'\nimport batchtrain.cli.__main__ as entry\nentry.main()\n"
    done = python(code, *command)
    assert done.returncode == 2
    assert done.stderr.decode().startswith("batchtrain: the emulator needs Linux; use an Azure account")


def test_the_directory_of_the_emulator_is_refused_on_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_service.sys, "platform", "win32")
    with pytest.raises(UsageError, match="needs Linux"):
        local_service.emulator_directory({"BATCHTRAIN_EMULATOR_DIR": "/x"})


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_output_in_a_narrow_encoding_ends_no_command(encoding: str) -> None:
    code = "import sys, batchtrain.cli.__main__ as entry\nentry._run = lambda: print(sys.argv[1])\nentry.main()"
    done = python(code, EVERYTHING, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u65e5\\u672c" in done.stdout


@pytest.mark.parametrize("command", [("--help",), ("config", "checks"), ("catalog", "sizes"), ("recipe", "list")])
def test_a_command_runs_on_an_ascii_terminal(command: tuple[str, ...]) -> None:
    done = python("import batchtrain.cli.__main__ as entry\nentry.main()", *command, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()


def test_bytes_are_read_and_written_at_positions_without_pread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "pread")
    monkeypatch.delattr(os, "pwrite")
    with (tmp_path / "file").open("w+b") as file:
        write_at(file.fileno(), b"world", 6)
        write_at(file.fileno(), b"hello ", 0)
        assert (read_at(file.fileno(), 5, 6), read_at(file.fileno(), 9, 0)) == (b"world", b"hello wor")


def test_a_run_is_made_and_found_where_links_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(1314, "A required privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    run = directory.make(tmp_path, "digits", now())
    directory.replace(run.path / "run.json", b"{}")
    assert not (tmp_path / "latest").exists()
    assert directory.find(tmp_path, "latest").name == run.name


def test_names_of_sent_files_have_slashes_where_paths_have_backslashes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "src" / "data").mkdir(parents=True)
    (tmp_path / "src" / "data" / "train.py").write_text("x", encoding="utf-8")
    real = os.path.relpath
    monkeypatch.setattr(os, "sep", "\\")
    monkeypatch.setattr(os.path, "relpath", lambda *path: real(*path).replace("/", "\\"))
    files, _ = source_directory._files(tmp_path, "src")
    assert [file.name for file in files] == ["data/train.py"]


@pytest.mark.parametrize("name", ["output/model.pt", "a:b?.txt", "con", "NUL.txt", "..\\up", "end.", "C:/x", "a|b<c>"])
def test_a_name_of_a_node_is_a_relative_path_on_windows(name: str) -> None:
    safe = PureWindowsPath(safe_path(f"wd/{name}", windows=True))
    assert not safe.is_absolute() and not safe.drive and ".." not in safe.parts
    assert safe.stem.lower() not in ("con", "nul")
    assert re.search(r'[<>:"|?*]|[. ]$', safe.name) is None


def test_a_name_that_only_windows_refuses_is_kept_elsewhere() -> None:
    assert safe_path("wd/a:b?.txt", windows=False) == "wd/a:b?.txt"
