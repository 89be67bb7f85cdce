"""Client and emulator prove to each other who they are, in a data directory that nobody else can change."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import batchtrain as bt
from batchtrain.client import local
from batchtrain.emulator import server
from batchtrain.emulator.server import Emulator, Settings
from batchtrain.errors import Unreachable, UsageError

pytestmark = pytest.mark.process


class Stranger:
    """A program on the port where an emulator was: it knows what that one said of itself, and not the key."""

    def __init__(self, answer: dict[str, object], ask_instead: str = "") -> None:
        self.seen: list[tuple[str, str]] = []
        stranger = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stranger.seen.append((self.path, self.headers.get("Authorization", "")))
                body = json.dumps(answer).encode()
                if ask_instead:
                    with urllib.request.urlopen(f"{ask_instead}{self.path}") as asked:
                        body = asked.read()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"
    server.stop(tmp_path / "data")


def note(data_dir: Path, endpoint: str) -> dict[str, object]:
    """What an emulator that died at this endpoint left behind; what it said of itself."""
    data_dir.mkdir(mode=0o700, exist_ok=True)
    if not (data_dir / server.KEY_FILE).exists():
        (data_dir / server.KEY_FILE).write_text("a2V5\n")
    noted = {"pid": os.getpid(), "endpoint": endpoint, "account": "batchtrain", "version": "1", "ownProcess": True}
    (data_dir / server.STATUS_FILE).write_text(json.dumps(noted))
    return noted


def test_a_stranger_on_the_port_of_a_dead_emulator_is_not_believed(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = Stranger({"pid": os.getpid(), "version": "1", "account": "batchtrain", "proof": "0" * 64})
    note(data_dir, stranger.endpoint)
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_DIR", str(data_dir))
    found = bt.connect(local=True)
    stranger.close()
    assert (found.account.started, list(found.pools.list())) == (True, [])
    assert [authorization for _, authorization in stranger.seen] == [""]
    assert "/_emulator/health?challenge=" in stranger.seen[0][0]


def test_a_stranger_who_asks_the_real_emulator_is_not_believed(data_dir: Path) -> None:
    with Emulator(Settings(data_dir, port=0)) as emulator:
        noted = (data_dir / server.STATUS_FILE).read_text()
        stranger = Stranger({}, ask_instead=emulator.endpoint)
        note(data_dir, stranger.endpoint)
        assert server.status(data_dir) is None
        stranger.close()
        (data_dir / server.STATUS_FILE).write_text(noted)
        assert server.status(data_dir) == emulator.status


def test_an_emulator_that_is_busy_is_waited_for(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Emulator(Settings(data_dir, port=0)) as emulator:
        slow_answers(monkeypatch, 2)
        assert server.status(data_dir) == emulator.status
        assert local.ensure_emulator(data_dir) == (emulator.status, False)


def test_an_emulator_that_stays_busy_is_no_reason_for_a_second_one(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Emulator(Settings(data_dir, port=0)):
        slow_answers(monkeypatch, 1000)
        monkeypatch.setattr(server, "BUSY_SECONDS", 0.0)
        with pytest.raises(Unreachable, match="it lives: try again"):
            local.ensure_emulator(data_dir)
        monkeypatch.undo()


def test_a_port_that_never_answers_is_no_emulator_where_none_lives(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(data_dir, "http://127.0.0.1:1")
    slow_answers(monkeypatch, 1000)
    assert server.status(data_dir) is None


def slow_answers(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The first `count` requests get no answer in time."""
    left, request = [None] * count, server._request

    def late(*arguments: object, **more: object) -> object:
        if left:
            left.pop()
            raise TimeoutError
        return request(*arguments, **more)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(server, "_request", late)


def test_an_emulator_that_is_just_ending_is_waited_for(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Emulator(Settings(data_dir, port=0)):
        pass
    ending = (data_dir / server.LOCK_FILE).open("r")
    fcntl.flock(ending, fcntl.LOCK_EX)
    tries, spawn = [], server.spawn

    def spawned(settings: Settings, timeout: float = 20.0) -> server.Status:
        tries.append(settings)
        if len(tries) == 2:
            ending.close()
        return spawn(settings, timeout)

    monkeypatch.setattr(server, "spawn", spawned)
    assert local.ensure_emulator(data_dir)[1]
    assert len(tries) == 2


@pytest.mark.parametrize(("mode", "who"), [(0o777, "every user"), (0o770, "its group")])
def test_a_data_directory_that_others_can_change_is_refused(data_dir: Path, mode: int, who: str) -> None:
    note(data_dir, "http://127.0.0.1:1")
    data_dir.chmod(mode)
    for ask in (local.ensure_emulator, server.status):
        with pytest.raises((UsageError, server.Unsafe), match=rf"changed by {who}.*chmod -R go-w"):
            ask(data_dir)
    data_dir.chmod(0o700)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives directories away")
def test_a_data_directory_of_another_user_is_refused(data_dir: Path) -> None:
    note(data_dir, "http://127.0.0.1:1")
    os.chown(data_dir, 1234, 1234)
    for ask in (local.ensure_emulator, server.status):
        with pytest.raises((UsageError, server.Unsafe), match=r"belongs to user 1234.*BATCHTRAIN_EMULATOR_DIR"):
            ask(data_dir)
    os.chown(data_dir, 0, 0)


def test_a_key_that_others_could_read_is_for_its_owner_again(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    (data_dir / server.KEY_FILE).write_text("a2V5\n")
    with Emulator(Settings(data_dir, port=0)):
        assert (data_dir / server.KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_the_keys_of_its_starter_are_not_in_the_emulators_environment(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_BATCH_ACCESS_KEY", "secret")
    running = server.spawn(Settings(data_dir, port=0))
    assert b"AZURE_BATCH_ACCESS_KEY" not in Path(f"/proc/{running.pid}/environ").read_bytes()
