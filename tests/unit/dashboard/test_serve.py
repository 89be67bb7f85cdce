"""The server process: its socket, its secrets and its end."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from batchtrain.dashboard import serve
from batchtrain.dashboard.app import application
from batchtrain.dashboard.board import Board
from batchtrain.dashboard.budget import Budget, Unlimited
from batchtrain.dashboard.guard import Guard, Keys
from batchtrain.dashboard.note import FILE, Note, address_of
from batchtrain.dashboard.serve import Options, Served
from batchtrain.errors import UsageError
from tests.unit.dashboard.asking import FAR, NEAR


class Started:
    """What `serve` made of its options for a server, which ends at once, as by Ctrl-C."""

    def __init__(self, connection: Any, board: Board, budget: Budget, keys: Keys, hosts: frozenset[str]) -> None:
        self.board, self.budget, self.keys = board, budget, keys
        self.guard = application(connection, board, budget, keys, hosts)

    def run(self, sockets: list[socket.socket]) -> None:
        assert not self.board.closed
        self.address = sockets[0].getsockname()
        raise KeyboardInterrupt


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    """The servers that `serve` starts; none serves anything."""
    servers: list[Started] = []

    def noted(*parts: Any) -> Guard:
        servers.append(Started(*parts))
        return servers[-1].guard

    monkeypatch.setattr(serve, "_Server", lambda *_: servers[-1])
    monkeypatch.setattr(serve, "application", noted)
    return servers


def served(options: Options) -> Served:
    """The dashboard that `serve` reports as ready."""
    ready: list[Served] = []
    serve.serve(options, ready.append)
    (only,) = ready
    return only


def test_a_server_listens_on_this_machine_alone_and_its_board_ends_with_it(
    started: list[Started], tmp_path: Path
) -> None:
    dashboard = served(Options(None, tmp_path, port=0))
    (server,) = started
    assert server.address[0] == "127.0.0.1"
    assert dashboard.url == f"http://127.0.0.1:{server.address[1]}"
    assert dashboard.link == f"{dashboard.url}/#token={dashboard.token}"
    assert server.board.closed


def test_a_server_that_ends_erases_its_note(started: list[Started], tmp_path: Path) -> None:
    serve.serve(Options(None, tmp_path, port=0), lambda served: (tmp_path / FILE).write_text(served.url) and None)
    assert started and not (tmp_path / FILE).exists()


def test_each_server_has_secrets_of_its_own(started: list[Started], tmp_path: Path) -> None:
    dashboards = [served(Options(None, tmp_path, port=0)) for _ in range(2)]
    assert [dashboard.token for dashboard in dashboards] == [server.keys.token for server in started]
    secrets = {secret for server in started for secret in (server.keys.token, server.keys.session)}
    assert len(secrets) == 4 and min(map(len, secrets)) >= 43  # 32 random bytes
    assert all(server.keys.cookie == f"batchtrain_{server.address[1]}" for server in started)


@pytest.mark.parametrize(("account", "unlimited"), [(None, True), (NEAR, True), (FAR, False)])
def test_only_requests_to_azure_are_limited(
    started: list[Started], tmp_path: Path, account: Any, unlimited: bool
) -> None:
    served(Options(account, tmp_path, port=0))
    assert isinstance(started[0].budget, Unlimited) is unlimited


def test_the_names_of_a_proxy_reach_the_guard(started: list[Started], tmp_path: Path) -> None:
    served(Options(None, tmp_path, port=0, hosts=frozenset({"gpu.example"})))
    assert started[0].guard._hosts == {"gpu.example"}


@pytest.fixture
def taken() -> Any:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_named_port_that_is_taken_is_refused_with_the_next_step(taken: int) -> None:
    with (
        pytest.raises(UsageError, match=rf"port {taken} cannot be used: .*`--port 0` takes a free one"),
        serve._listening(taken),
    ):
        pass


def test_the_usual_port_is_used_if_it_is_free_and_another_one_if_it_is_taken(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve._listening(0) as free:
        port = free.getsockname()[1]
    for usual in (port, taken):
        monkeypatch.setattr(serve, "PORT", usual)
        with serve._listening(None) as listener:
            assert (listener.getsockname()[1] == port) is (usual == port)


def test_requests_wait_from_the_moment_a_server_listens() -> None:
    with serve._listening(0) as listener, socket.create_connection(listener.getsockname(), timeout=5):
        pass
    assert listener.fileno() == -1


def test_the_event_streams_end_before_the_server_does(tmp_path: Path) -> None:
    board = Board(lambda _: (_ for _ in ()).throw(AssertionError), Unlimited(), near=True)
    server = serve._Server(uvicorn.Config(lambda: None), board, Note(tmp_path, ""), None)
    try:
        server.handle_exit(2, None)
        assert (board.closed, server.should_exit) == (True, True)
    finally:
        board.close()


def test_a_dashboard_tells_where_it_shows_the_runs_of_a_directory_while_it_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        note = Note(tmp_path, url)
        note.write()
        assert address_of(tmp_path) == url
    assert address_of(tmp_path) == ""
    note.erase()
    assert not (tmp_path / FILE).exists()


def test_a_note_of_another_dashboard_is_left_alone_and_no_directory_is_made_for_one(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("http://example.org:80")
    assert address_of(tmp_path) == ""
    Note(tmp_path, "http://127.0.0.1:1").erase()
    assert (tmp_path / FILE).exists()
    Note(tmp_path / "runs", "http://127.0.0.1:1").write()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("idle", "ends"), [(None, False), (1e9, False), (0.0, True)])
def test_a_dashboard_ends_only_when_no_page_was_open_for_its_time(
    tmp_path: Path, idle: float | None, ends: bool
) -> None:
    board = Board(lambda _: (_ for _ in ()).throw(AssertionError), Unlimited(), near=True)
    server = serve._Server(uvicorn.Config(lambda: None), board, Note(tmp_path, ""), idle)
    server.config.load()
    try:
        assert asyncio.run(server.on_tick(1)) is ends
        assert board.closed is ends
    finally:
        board.close()
