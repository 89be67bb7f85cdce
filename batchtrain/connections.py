"""Connections of the clients of our servers, where uvicorn's behaviour is changed: timeouts, and how one ends."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 30.0
"""How long a new connection may be silent, and how long a request may take to arrive; uvicorn would wait forever."""


class Connection(H11Protocol):
    """uvicorn's protocol with three changes: an incomplete request ends the connection, a client that has closed only
    its own half still gets its answers, and the application can close a connection without an answer (an injected
    fault)."""

    open: dict[Any, asyncio.BaseTransport]
    """The open connections by client address; set by `of`."""
    _late: asyncio.TimerHandle | None = None
    _ended = False
    """The client has stopped sending."""

    @classmethod
    def of(cls, connections: dict[Any, asyncio.BaseTransport]) -> type[Connection]:
        """A protocol class whose connections are added to `connections`."""
        return type("Connection", (cls,), {"open": connections})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.open[self.client] = transport
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self.open.pop(self.client, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._expect()
        else:
            self._expect_nothing()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn never keeps such a connection
        """Whether to keep the connection open: only while an answer is due."""
        self._ended = self._is_answering()
        return self._ended

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._ended and not self._is_answering():
            self.transport.close()

    def _is_answering(self) -> bool:
        """Whether a complete request is still being answered."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _expect(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _expect_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
