"""The Docker Engine of this machine: its address, and its HTTP interface over a unix socket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from batchtrain.emulator.interface import Login

DEFAULT_SOCKET = "/var/run/docker.sock"
PATIENCE = 30.0
"""Maximum seconds for the answer to an ordinary request."""
FIRST_PATIENCE = 3.0
NO_COMMAND = "the docker command, which makes the containers, is not installed"


class EngineError(Exception):
    """The engine refused a request, or does not answer (status 0). The message is that of the engine."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Address(NamedTuple):
    """The address of the engine by the settings of this machine: a socket, or the reason why none is usable."""

    socket: Path | None
    shown: str
    """For a message: the address and its source."""


def address(environment: Mapping[str, str]) -> Address:
    """The address that docker itself uses: DOCKER_HOST, the current context, or the default socket. Only a socket of
    this machine is usable, because containers need the directories of the nodes."""
    if host := environment.get("DOCKER_HOST", ""):
        return _local(host, "DOCKER_HOST")
    folder = Path(environment.get("DOCKER_CONFIG") or Path(environment.get("HOME") or "/", ".docker"))
    name = environment.get("DOCKER_CONTEXT") or _read(folder / "config.json").get("currentContext") or "default"
    if name == "default":
        return _local(f"unix://{DEFAULT_SOCKET}", "docker's default")
    about = folder / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
    host = _read(about).get("Endpoints", {}).get("docker", {}).get("Host", "")
    return _local(host, f"docker's context {name}")


def _local(host: str, why: str) -> Address:
    text = f"{host or 'no address'} ({why})"
    return Address(Path(host.removeprefix("unix://")), text) if host.startswith("unix://") else Address(None, text)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


class Engine:
    """Sends requests to one engine, each on its own connection, by HTTP/1.0: a body lasts to its end."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float | None = PATIENCE,
    ) -> Any:
        """The decoded JSON answer, None if it is empty. Raises EngineError."""
        try:
            return await asyncio.wait_for(self._whole(method, path, body, query, headers), patience)
        except asyncio.TimeoutError:
            raise EngineError(0, f"the Docker Engine did not answer within {patience:g} s") from None

    async def _whole(
        self, method: str, path: str, body: object, query: Mapping[str, str] | None, headers: Mapping[str, str] | None
    ) -> Any:
        reader, writer = await self.stream(method, path, body, query=query, headers=headers)
        with contextlib.closing(writer):
            return _decoded(await reader.read())

    async def lines(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """A stream of JSON objects, until the engine ends it. Raises EngineError."""
        reader, writer = await self.stream(method, path, query=query, headers=headers)
        with contextlib.closing(writer):
            async for line in objects(reader):
                yield line

    async def stream(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request and read the head of the answer. Raises EngineError for a status that is not a success."""
        target = quote(path, safe="/:@") + (f"?{urlencode(query)}" if query else "")
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.socket), limit=1 << 20)
        except OSError as error:
            raise EngineError(0, f"cannot connect to {self.socket}: {error.strerror or error}") from None
        try:
            writer.write(_request(method, target, body, headers))
            _, status_text, *_ = (await reader.readuntil(b"\r\n\r\n")).split(b" ")
            if (status := int(status_text)) >= 400:
                message = _decoded(await reader.read())
                message = message.get("message") if isinstance(message, dict) else None
                raise EngineError(status, str(message or f"HTTP status {status}").strip())
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            writer.close()
            raise EngineError(0, f"the Docker Engine at {self.socket} broke off: {error}") from None
        except BaseException:
            writer.close()
            raise
        return reader, writer


def registry_header(login: Login) -> dict[str, str]:
    """A login in the form of the header of requests for an image."""
    where = login.server or "https://index.docker.io/v1/"
    text = json.dumps({"username": login.username, "password": login.password, "serveraddress": where})
    return {"X-Registry-Auth": base64.urlsafe_b64encode(text.encode()).decode()}


def _request(method: str, path: str, body: object, headers: Mapping[str, str] | None) -> bytes:
    data, kind = b"", "application/json"
    if isinstance(body, bytes):
        data, kind = body, "application/x-tar"
    elif body is not None:
        data = json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.0", "Host: docker", f"Content-Length: {len(data)}", f"Content-Type: {kind}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def _decoded(data: bytes) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(data) if data.strip() else None
    return {"message": data.decode(errors="replace")}


async def objects(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a stream, one per line."""
    try:
        while line := await reader.readline():
            if line.strip():
                yield json.loads(line)
    except (OSError, ValueError) as error:
        raise EngineError(0, f"the Docker Engine broke off: {error}") from None


def compact(value: object) -> str:
    """JSON for a query string."""
    return json.dumps(value, separators=(",", ":"))


async def find(environment: Mapping[str, str] | None = None) -> tuple[Engine | None, str]:
    """The engine that answers, or None; and its address or the reason, for a message."""
    endpoint = address(os.environ if environment is None else environment)
    if endpoint.socket is None:
        return None, f"the Docker Engine at {endpoint.shown} is not a unix socket of this machine"
    engine = Engine(endpoint.socket)
    try:
        await engine.ask("GET", "/_ping", patience=FIRST_PATIENCE)
    except EngineError as error:
        return None, f"no Docker Engine answers at {endpoint.shown}: {error}"
    return engine, endpoint.shown


async def missing() -> str:
    """Why no container can run on this machine; empty if containers can run."""
    engine, reason = await find()
    if engine is None:
        return reason
    return "" if shutil.which("docker") else NO_COMMAND
