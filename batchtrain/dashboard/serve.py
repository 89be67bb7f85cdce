"""The server process: a socket on loopback, the secrets, and uvicorn until Ctrl-C."""

from __future__ import annotations

import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import uvicorn

from batchtrain.config.types import Recipe
from batchtrain.connections import Connection as HttpConnection
from batchtrain.dashboard.app import application
from batchtrain.dashboard.board import Board
from batchtrain.dashboard.budget import Budget, Unlimited
from batchtrain.dashboard.connection import Connection
from batchtrain.dashboard.guard import Keys
from batchtrain.dashboard.note import HOST, Note
from batchtrain.dashboard.reading import topic
from batchtrain.errors import UsageError
from batchtrain.service.connect import Account

PORT = 8265


class Options(NamedTuple):
    """What to serve, and to whom."""

    account: Account | None
    runs: Path
    port: int | None = None
    """None: the usual port, or any if that is taken."""
    changes: bool = False
    hosts: frozenset[str] = frozenset()
    target: str = ""
    """The options with which a command reaches the account."""
    idle: float | None = None
    """Seconds without a page after which it ends; None: never."""
    login_files: Callable[[Account], Recipe | None] = lambda _: None


class Served(NamedTuple):
    """A running dashboard. The token is in the fragment of the link, which browsers do not send."""

    url: str
    token: str

    @property
    def link(self) -> str:
        """The address that signs in."""
        return f"{self.url}/#token={self.token}"


def serve(options: Options, ready: Callable[[Served], None]) -> None:
    """Serve until Ctrl-C. ready: called when the server accepts requests. Raises UsageError if the port is taken."""
    with _listening(options.port) as listener:
        port = listener.getsockname()[1]
        keys = Keys(secrets.token_urlsafe(32), secrets.token_urlsafe(32), f"batchtrain_{port}")
        connection = Connection(
            options.account, options.runs, options.login_files, changes=options.changes, target=options.target
        )
        budget = Unlimited() if connection.near else Budget(time.monotonic)
        board = Board(
            lambda url: topic(connection, url), budget,
            near=connection.near, renew=connection.renew, completed=connection.completed,
        )  # fmt: skip
        app = application(connection, board, budget, keys, options.hosts)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", timeout_graceful_shutdown=1,
            server_header=False, http=HttpConnection.of({}), loop="asyncio",
        )  # fmt: skip
        served = Served(f"http://{HOST}:{port}", keys.token)
        note = Note(options.runs, served.url)
        server = _Server(config, board, note, options.idle)
        ready(served)
        try:
            with suppress(KeyboardInterrupt):  # uvicorn raises it again after it has ended
                server.run(sockets=[listener])
        finally:
            note.erase()
            board.close()


class _Server(uvicorn.Server):
    """Ends the event streams first: uvicorn waits for open answers. Ends by itself if no page is open for long."""

    def __init__(self, config: uvicorn.Config, board: Board, note: Note, idle: float | None) -> None:
        super().__init__(config)
        self._board, self._note, self._idle = board, note, idle

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second. Whether to end."""
        if counter % 10 == 0:
            self._note.write()
        if self._idle is not None and self._board.idle() >= self._idle:
            self._board.end()
            return True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._board.end()
        super().handle_exit(sig, frame)


@contextmanager
def _listening(port: int | None) -> Iterator[socket.socket]:
    """A socket that queues requests from now on, so that `ready` is true before uvicorn runs."""
    with socket.socket() as listener:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            _bind(listener, PORT if port is None else port)
        except OSError as error:
            if port is not None:
                raise UsageError(f"port {port} cannot be used: {error.strerror}; `--port 0` takes a free one") from None
            _bind(listener, 0)
        yield listener


def _bind(listener: socket.socket, port: int) -> None:
    listener.bind((HOST, port))
    listener.listen()
