"""Blocking work in threads that the process does not wait for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable


async def in_daemon_thread(work: Callable[[], None]) -> None:
    """Like `asyncio.to_thread`, in a thread for which neither a cancelled call nor the end of the process waits."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[BaseException | None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if not outcome.done():
            outcome.set_result(error)

    def body() -> None:
        error = None
        try:
            work()
        except BaseException as caught:  # noqa: BLE001 - raised again where it is awaited
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=body, daemon=True).start()
    if (error := await outcome) is not None:
        raise error
