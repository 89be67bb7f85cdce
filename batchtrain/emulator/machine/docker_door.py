"""A node's own Docker: a socket that looks to `docker` on the node like an engine of its own.

The one engine of this machine answers; `docker_view` translates the requests. A connection takes one request, so that
everything after its head (a stream, an upgrade) can be forwarded unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from batchtrain.emulator.machine import docker_view
from batchtrain.emulator.machine.below import Below
from batchtrain.emulator.machine.contained import NotTheNodes
from batchtrain.emulator.machine.docker_engine import PATIENCE, Engine, EngineError
from batchtrain.emulator.machine.docker_view import Known, Request, Unknown, View
from batchtrain.emulator.machine.leftovers import filters, make_volumes, remove

logger = logging.getLogger("batchtrain.emulator.machine")

MACHINES = "/var/run/docker.sock"
"""The default socket of docker: on a node, it is the node's own."""
LONGEST_ADDRESS = 107
"""Maximum length of the path of a unix socket."""
LOCK = "batchtrain.lock"
"""Label of a container that is removed with its task: a file of the task, as `runtime/docker.sh` writes it."""
LONGEST_BODY = 1 << 24
_CHUNK = 1 << 16
_HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length"))


class _Head(NamedTuple):
    """The head of a request or an answer, without its last empty line."""

    first: str
    lines: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        return next((value for key, value in self.lines if key.lower() == name), "")

    def but(self, *names: str) -> tuple[tuple[str, str], ...]:
        return tuple(line for line in self.lines if line[0].lower() not in names)


class DockerDoor:
    """The socket of one node. Use it from one event loop."""

    def __init__(self, engine: Engine, view: View, socket: Path) -> None:
        self._engine, self._view, self.socket = engine, view, socket
        self._server: asyncio.AbstractServer | None = None
        self._serving: set[asyncio.Task[Any]] = set()
        self._making: set[asyncio.Future[bytes]] = set()
        """Requests that create something; they are completed even if the client is gone."""
        self._ids: set[str] = set()
        """Known ids of objects that the node created."""

    async def open(self) -> None:
        """Listen. Raises OSError if the socket cannot be created."""
        listening = _listen(self.socket)
        self._server = await asyncio.start_unix_server(self._on_connection, sock=listening, limit=1 << 20)

    async def close(self) -> None:
        """Close the socket, and remove everything that the node created."""
        if self._server is not None:
            self._server.close()
        self.socket.unlink(missing_ok=True)
        for task in tuple(self._serving):
            task.cancel()
        await self._made()

    async def end(self, directory: str) -> None:
        """Remove the containers that end with a task, by its directory as the node sees it.

        On Azure, a guard that outlives the processes of the task removes them. The emulator has no such guard.
        """
        await self._made()
        with contextlib.suppress(EngineError):
            query = {"all": "1", "filters": filters(label=[*self._labels(), LOCK])}
            containers = await self._engine.ask("GET", "/containers/json", query=query)
            ended = [
                container["Id"] for container in containers if container["Labels"][LOCK].startswith(f"{directory}/")
            ]
            await asyncio.gather(*(remove(self._engine, container) for container in ended))

    async def _made(self) -> None:
        if self._making:
            await asyncio.wait(self._making, timeout=PATIENCE)

    def _labels(self) -> list[str]:
        return [f"{name}={value}" for name, value in self._view.labels.items()]

    # A connection ------------------------------------------------------------------------------------------------

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            logger.debug("a connection to %s ended: %s", self.socket, error)
        except asyncio.CancelledError:
            pass  # the node ends
        finally:
            self._serving.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = _read_head(await reader.readuntil(b"\r\n\r\n"))
        method, target, _ = head.first.split(" ", 2)
        request = docker_view.parse(method, target)
        if why := docker_view.refusal(request):
            writer.write(_answer(403, why))
            return
        try:
            known = await self._known() if docker_view.needs_known(request, self._ids) else Known(ids=self._ids)
            with _understanding():
                translated = docker_view.translate(request, self._view, known)
            if not request.is_short or head.get("upgrade"):
                await self._pass_on(translated, head, reader, writer)
            else:
                writer.write(await self._short(request, translated, head, known, reader))
        except Unknown as unknown:  # docker takes a 404 of `docker create` for a missing image
            writer.write(_answer(400 if request.makes else 404, str(unknown)))
        except EngineError as error:
            writer.write(_answer(error.status or 503, str(error)))

    async def _known(self) -> Known:
        query = {"filters": filters(label=self._labels())}
        containers, networks = await asyncio.gather(
            self._engine.ask("GET", "/containers/json", query={"all": "1", **query}),
            self._engine.ask("GET", "/networks", query=query),
        )
        known = docker_view.known_of(containers, networks)
        self._ids.update(number for number, _ in (*known.containers, *known.networks))
        return known

    async def _short(
        self, request: Request, translated: Request, head: _Head, known: Known, reader: asyncio.StreamReader
    ) -> bytes:
        """The whole answer to a request, with the names that the node uses. Raises Unknown, EngineError."""
        data = await _body(head, reader)
        if docker_view.takes_body(request):
            with _understanding():
                document = docker_view.body(request, json.loads(data or b"{}"), self._view, known)
            if request.kind == "containers":
                await make_volumes(self._engine, docker_view.volumes(document), self._view.labels)
            data = json.dumps(document).encode()
        lines = (*head.but(*_HOP, "expect"), ("Content-Length", str(len(data))))
        exchange = asyncio.ensure_future(self._whole(f"{translated.method} {translated.target} HTTP/1.0", lines, data))
        if request.makes:
            self._making.add(exchange)
            exchange.add_done_callback(self._on_made)
        return await asyncio.shield(exchange)

    def _on_made(self, request: asyncio.Future[bytes]) -> None:
        self._making.discard(request)
        if not request.cancelled() and request.exception() is None:  # its client may be gone
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._ids.add(json.loads(request.result().partition(b"\r\n\r\n")[2])["Id"])

    async def _whole(self, first: str, lines: tuple[tuple[str, str], ...], data: bytes) -> bytes:
        """Uses HTTP/1.0: the body then lasts to the end of the stream."""
        inner, outer = await asyncio.open_unix_connection(str(self._engine.socket), limit=1 << 20)
        try:
            outer.write(_write_head(first, lines) + data)
            head = _read_head(await inner.readuntil(b"\r\n\r\n"))
            body = (await inner.read()).replace(self._view.prefix.encode(), b"")
        finally:
            outer.close()
        status = head.first.split(" ", 1)[1]
        lines = (*head.but(*_HOP), ("Content-Length", str(len(body))), ("Connection", "close"))
        return _write_head(f"HTTP/1.1 {status}", lines) + body

    async def _pass_on(
        self, meant: Request, head: _Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Copy in both directions until the engine closes the stream."""
        inner, outer = await asyncio.open_unix_connection(str(self._engine.socket), limit=1 << 20)
        ends = "Upgrade, close" if head.get("upgrade") else "close"  # more bytes would be another request
        lines = (*head.but("connection"), ("Connection", ends))
        outer.write(_write_head(f"{meant.method} {meant.target} HTTP/1.1", lines))
        asking = asyncio.ensure_future(_pump(reader, outer))
        try:
            await _pump(inner, writer)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            outer.close()


@contextlib.contextmanager
def _understanding() -> Iterator[None]:
    """Refuse requests that do not have the form of docker's. Raises EngineError."""
    try:
        yield
    except NotTheNodes as error:
        raise EngineError(403, str(error)) from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EngineError(400, f"the request does not have the form of docker's requests: {error}") from None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def _body(head: _Head, reader: asyncio.StreamReader) -> bytes:
    if head.get("transfer-encoding"):
        raise EngineError(411, "this request needs a Content-Length")
    length = int(head.get("content-length") or 0)
    if length > LONGEST_BODY:
        raise EngineError(413, f"a request may have {LONGEST_BODY:,} bytes")
    return await reader.readexactly(length)


def _read_head(data: bytes) -> _Head:
    first, *lines = data.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return _Head(first, tuple((name, value.strip()) for name, _, value in pairs))


def _write_head(first: str, lines: tuple[tuple[str, str], ...]) -> bytes:
    return "\r\n".join([first, *(f"{name}: {value}" for name, value in lines), "", ""]).encode("latin-1")


def _answer(status: int, message: str) -> bytes:
    data = json.dumps({"message": message}).encode()
    lines = (("Content-Type", "application/json"), ("Content-Length", str(len(data))), ("Connection", "close"))
    return _write_head(f"HTTP/1.1 {status} Refused", lines) + data


def _listen(path: Path) -> socket.socket:
    """Through the descriptor of the folder: a unix address has at most 107 bytes, and the path of a data directory may
    be longer."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listening.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(0o600)
        listening.listen(128)
        return listening
    except BaseException:
        listening.close()
        raise
    finally:
        os.close(folder)


# --- the variables and programs of a node ----------------------------------------------------------------------------


def folder_of(data_dir: Path, node_id: str) -> Path:
    """The private directory of a node's socket, created if needed."""
    folder = data_dir / "docker"
    folder.mkdir(exist_ok=True, mode=0o700)
    return folder / name(node_id)


def name(node_id: str) -> str:
    """The name of a node's socket: short, unlike the id of a node."""
    return hashlib.sha256(node_id.encode()).hexdigest()[:10]


def address(path: Path, tmp: Path, *, own_tmp: bool) -> str:
    """The address of the socket on the node: its path, or if that is too long, a link in the node's own /tmp. Raises
    OSError for a long path on a node without its own /tmp."""
    if len(os.fsencode(path)) <= LONGEST_ADDRESS:
        return str(path)
    if not own_tmp:
        raise OSError(f"{path} is too long for a socket; use a data directory with a shorter path")
    link = ".docker.sock"
    Below(tmp).link(link, str(path))
    return f"/tmp/{link}"


def binds(path: Path) -> list[tuple[str, str, bool]]:
    """(what, over what) to mount so that the node's socket replaces the default socket of docker, if this machine has
    one."""
    return [(str(path), MACHINES, False)] if Path(MACHINES).exists() else []


def environment(socket: str) -> dict[str, str]:
    """The variables of a node with its own Docker."""
    return {"BATCHTRAIN_EMULATED_DOCKER": "yes", "DOCKER_HOST": f"unix://{socket}"}


def environment_without(why: str) -> dict[str, str]:
    """The variables of a node that lacks its own Docker, with the reason."""
    return {"BATCHTRAIN_EMULATED_NO_DOCKER": why}


def program(docker: str) -> str:
    """The program `docker` of the node. It keeps logins in a file of the node, never in a keyring of the user: docker
    uses an existing keyring unless its file has a login."""
    return f"""#!/bin/sh
folder=${{DOCKER_CONFIG:-$HOME/.docker}}
if [ ! -e "$folder/config.json" ] && mkdir -p -m 700 "$folder"; then
  printf '{{"auths": {{"node.invalid": {{}}}}}}\\n' >"$folder/config.json"
fi 2>/dev/null
exec {shlex.quote(docker)} "$@"
"""
