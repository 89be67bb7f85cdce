"""Four ways to the service through the official SDK: sync and async, each over HTTP and straight into the application.

Whichever it is, `ask(NAME, …)` gives plain values: a list for pages, bytes for a download, nothing for a poller.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from azure.batch import BatchClient
from azure.batch.aio import BatchClient as AsyncBatchClient
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.paging import ItemPaged
from azure.core.pipeline.transport import AsyncHttpTransport, HttpTransport
from azure.core.polling import AsyncLROPoller, LROPoller
from azure.core.rest._http_response_impl import HttpResponseImpl
from azure.core.rest._http_response_impl_async import AsyncHttpResponseImpl
from azure.core.utils import case_insensitive_dict

from batchtrain.emulator import server, serving
from batchtrain.emulator.alarms import Alarms
from batchtrain.emulator.clock import Clock
from batchtrain.emulator.control import Identity
from batchtrain.emulator.drive import Driver
from batchtrain.emulator.http import Application
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.emulator.store import Store
from batchtrain.emulator.world import BATCH_SERVICE
from tests.emulation import FakeMachine

T = TypeVar("T")

ACCOUNT, KEY, ENDPOINT = "inside", "c2VjcmV0", "http://localhost:10010"
FAST = {"polling_interval": 0.002}


class Way(Protocol):
    """One client of one service."""

    def ask(self, operation: str, *arguments: Any, wait: bool = True, **options: Any) -> Any:
        """Call an operation by the emulator's name for it; `wait` for what it starts."""

    def reset(self) -> None:
        """An empty account."""


class SyncWay:
    """Through azure.batch.BatchClient."""

    def __init__(self, client: BatchClient, reset: Callable[[], None]) -> None:
        self._client, self.reset = client, reset

    def ask(self, operation: str, *arguments: Any, wait: bool = True, **options: Any) -> Any:
        method, more = _method(self._client, operation)
        outcome = method(*arguments, **more, **options)
        if isinstance(outcome, LROPoller):
            return outcome.result() if wait else None
        if isinstance(outcome, ItemPaged):
            return list(outcome)
        return b"".join(outcome) if isinstance(outcome, Iterator) else outcome


class AsyncWay:
    """Through azure.batch.aio.BatchClient, on a loop of its own."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], client: Any, reset: Callable[[], None]) -> None:
        self._run, self._client, self.reset = run, client, reset

    def ask(self, operation: str, *arguments: Any, wait: bool = True, **options: Any) -> Any:
        return self._run(self._ask(operation, arguments, options, wait))

    async def _ask(self, operation: str, arguments: tuple[Any, ...], options: Mapping[str, Any], wait: bool) -> Any:
        method, more = _method(self._client, operation)
        outcome = method(*arguments, **more, **options)
        if inspect.isawaitable(outcome) and not hasattr(outcome, "__aiter__"):
            outcome = await outcome
        if isinstance(outcome, AsyncLROPoller):
            return await outcome.result() if wait else None
        if not hasattr(outcome, "__aiter__"):
            return outcome
        found = [one async for one in outcome]
        return b"".join(found) if found and isinstance(found[0], bytes) else found


def _method(client: Any, operation: str) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """What starts something is called `begin_…` in the SDK, and polls."""
    found = getattr(client, operation, None)
    return (found, {}) if found else (getattr(client, f"begin_{operation}"), FAST)


# The four ------------------------------------------------------------------------------------------------------------


@contextmanager
def sync_over_http(data_dir: Path) -> Iterator[Way]:
    with Emulator(Settings(data_dir, port=0), FakeMachine.open) as emulator, _client(emulator) as client:
        yield SyncWay(client, lambda: server.reset(data_dir))


@contextmanager
def async_over_http(data_dir: Path) -> Iterator[Way]:
    with Emulator(Settings(data_dir, port=0), FakeMachine.open) as emulator, _loop() as run:
        client = run(_async_client(emulator.endpoint, emulator.account, emulator.key))
        try:
            yield AsyncWay(run, client, lambda: server.reset(data_dir))
        finally:
            run(client.close())


@contextmanager
def sync_in_process(data_dir: Path) -> Iterator[Way]:
    with Inside(data_dir) as inside:
        credential = AzureNamedKeyCredential(ACCOUNT, KEY)
        with BatchClient(ENDPOINT, credential, retry_total=0, transport=Transport(inside)) as client:
            yield SyncWay(client, inside.reset)


@contextmanager
def async_in_process(data_dir: Path) -> Iterator[Way]:
    with Inside(data_dir) as inside, _loop() as run:
        client = run(_async_client(ENDPOINT, ACCOUNT, KEY, transport=AsyncTransport(inside)))
        try:
            yield AsyncWay(run, client, inside.reset)
        finally:
            run(client.close())


WAYS = (sync_over_http, async_over_http, sync_in_process, async_in_process)


def _client(emulator: Emulator) -> BatchClient:
    return BatchClient(emulator.endpoint, AzureNamedKeyCredential(emulator.account, emulator.key), retry_total=0)


async def _async_client(endpoint: str, account: str, key: str, **options: Any) -> AsyncBatchClient:
    return AsyncBatchClient(endpoint, AzureNamedKeyCredential(account, key), retry_total=0, **options)


@contextmanager
def _loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    loop = asyncio.new_event_loop()
    try:
        yield loop.run_until_complete
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


# Without a socket ----------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: bytes


class Inside:
    """The application on a loop of its own thread; a request is a call of it."""

    def __init__(self, data_dir: Path, allocation: str = BATCH_SERVICE) -> None:
        self._data_dir = data_dir
        self._settings = Settings(data_dir, account=ACCOUNT, allocation=allocation)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="inside", daemon=True)
        self._stack = ExitStack()

    def __enter__(self) -> Inside:
        self._thread.start()
        self._application = self.run(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._application.driver.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """To its end, on the application's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def reset(self) -> None:
        self.run(self._application.driver.reset())

    async def _open(self) -> Application:
        self._data_dir.mkdir(parents=True, exist_ok=True)
        world = serving._world(self._settings, ENDPOINT, "seed")
        machine = await FakeMachine.open(self._data_dir)
        store = Store(self._data_dir / server.DATABASE)
        driver = Driver(world, store, machine, Alarms(Clock(server.clock)))
        driver.recover()
        return Application(driver, Identity("0", 0, ACCOUNT), KEY, lambda: logging.info("stopped"))

    async def answer(self, request: Any) -> Answer:
        """What the application sends for a request of azure-core."""
        where = urlsplit(request.url)
        body = request.content or b""
        headers = {"host": where.netloc, **{name.lower(): value for name, value in request.headers.items()}}
        scope = {
            "type": "http",
            "method": request.method,
            "scheme": where.scheme,
            "client": ("127.0.0.1", 0),
            "raw_path": where.path.encode(),
            "query_string": where.query.encode(),
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        }
        said: list[dict[str, Any]] = []
        asked = asyncio.Queue[dict[str, Any]]()
        content = body.encode() if isinstance(body, str) else body
        asked.put_nowait({"type": "http.request", "body": content, "more_body": False})

        async def say(message: Any) -> None:
            said.append(message)

        await self._application(scope, asked.get, say)
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in said[0]["headers"]}
        return Answer(said[0]["status"], found, b"".join(message.get("body", b"") for message in said[1:]))


class _Nothing:
    """The connection there is not."""

    def close(self) -> None: ...


class _AsyncNothing:
    async def close(self) -> None: ...


def _parts(request: Any, answer: Answer) -> dict[str, Any]:
    headers = case_insensitive_dict(answer.headers)
    return {
        "request": request,
        "status_code": answer.status,
        "reason": "",
        "content_type": headers.get("content-type"),
        "headers": headers,
        "block_size": 4096,
    }


class Transport(HttpTransport[Any, Any]):
    """azure-core's way to a server, which is a call here."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    def send(self, request: Any, **options: Any) -> Any:
        answer = self._inside.run(self._inside.answer(request))

        def download(**_: Any) -> Iterator[bytes]:
            yield answer.content

        response = HttpResponseImpl(
            internal_response=_Nothing(), stream_download_generator=download, **_parts(request, answer)
        )
        if not options.get("stream"):
            response.read()
        return response

    def open(self) -> None: ...

    def close(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class AsyncTransport(AsyncHttpTransport[Any, Any]):
    """The same for the async client."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    async def send(self, request: Any, **options: Any) -> Any:
        asked = asyncio.run_coroutine_threadsafe(self._inside.answer(request), self._inside._loop)
        answer = await asyncio.wrap_future(asked)

        async def download(**_: Any) -> AsyncIterator[bytes]:
            yield answer.content

        response = AsyncHttpResponseImpl(
            internal_response=_AsyncNothing(), stream_download_generator=download, **_parts(request, answer)
        )
        if not options.get("stream"):
            await response.read()
        return response

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...
