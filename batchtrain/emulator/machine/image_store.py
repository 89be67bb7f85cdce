"""The images of one engine, pulled for many nodes: one request per image at a time, by one login."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from batchtrain.emulator.interface import Login, NodeUnfit
from batchtrain.emulator.machine import engine_failures
from batchtrain.emulator.machine.docker_engine import Engine, EngineError, registry_header

logger = logging.getLogger("batchtrain.emulator.machine")

HUB = ("", "docker.io", "hub.docker.com", "index.docker.io", "registry-1.docker.io")


class ImageStore:
    """Pulls images by name with the available logins."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._fetching: dict[tuple[str, Login | None], asyncio.Task[None]] = {}
        self._architecture = ""

    async def fetch(self, image: str, logins: Iterable[Login] = ()) -> None:
        """Wait until the image exists and fits this machine. Raises NodeUnfit with a code of Batch, or EngineError."""
        key = image, login_for(image, logins)  # another login may be wrong, unlike this one
        if key not in self._fetching:
            task = asyncio.create_task(self._fetch(*key))
            self._fetching[key] = task
            task.add_done_callback(lambda finished_task: self._on_fetched(key, finished_task))
        await asyncio.shield(self._fetching[key])

    def _on_fetched(self, key: tuple[str, Login | None], finished_task: asyncio.Task[None]) -> None:
        self._fetching.pop(key, None)
        if not finished_task.cancelled():
            finished_task.exception()  # its caller may be gone

    async def _fetch(self, image: str, login: Login | None) -> None:
        try:
            image_id = await self._there(image)
            if image_id is None:
                await self._pull(image, login)
                image_id = await self._there(image)
        except EngineError as error:
            if error.status == 0:
                raise  # the engine fails, not the image
            raise self._unfit(image, str(error), engine_failures.of_pull(str(error))) from None
        if image_id is None:
            raise self._unfit(image, "it was fetched, and the engine does not list it", engine_failures.MISC)
        await self._check(image, image_id)

    async def _there(self, image: str) -> str | None:
        """The architecture of an existing image."""
        if not {"", ".", ".."}.isdisjoint(image.split("/")):
            raise EngineError(400, "invalid reference format")  # the engine would interpret it as another request
        try:
            about = await self._engine.ask("GET", f"/images/{image}/json")
        except EngineError as error:
            if error.status == 404:
                return None
            raise
        return str(about.get("Architecture") or "")

    async def _pull(self, image: str, login: Login | None) -> None:
        logger.info("fetching the image %s", image)
        name, tag = reference(image)
        headers = registry_header(login) if login else {}
        query = {"fromImage": name, **({"tag": tag} if tag else {})}
        async for line in self._engine.lines("POST", "/images/create", query=query, headers=headers):
            if "error" in line:
                raise EngineError(500, str(line["error"]))

    async def _check(self, image: str, architecture: str) -> None:
        if not self._architecture:
            with contextlib.suppress(EngineError):
                self._architecture = (await self._engine.ask("GET", "/version")).get("Arch", "")
        if architecture and self._architecture and architecture != self._architecture:
            message = f"it is built for {architecture}, and the nodes are {self._architecture}"
            raise self._unfit(image, message, engine_failures.INVALID_IMAGE)

    def _unfit(self, image: str, message: str, code: str) -> NodeUnfit:
        step = _STEPS.get(code, "")
        return NodeUnfit(code, f"The container image {image} cannot be used: {engine_failures.cleaned(message)}.{step}")


_ELSE = " On this machine it may also be built under that name, or mapped (batchtrain emulator images map)."
_STEPS = {
    engine_failures.INVALID_IMAGE: f" Check its name and tag.{_ELSE}",
    engine_failures.INVALID_REGISTRY: f" Check the registry's address, user name and password.{_ELSE}",
}


def server_of(image: str) -> str:
    """The registry in the name of an image; empty for Docker Hub."""
    first, slash, _ = image.partition("/")
    server = first if slash and (first == "localhost" or "." in first or ":" in first) else ""
    return "" if server in HUB else server


def login_for(image: str, logins: Iterable[Login]) -> Login | None:
    """The login for an image's registry, if there is one with a password."""
    server = server_of(image).lower()
    for login in logins:
        host = login.server.rpartition("://")[2].partition("/")[0].lower()  # some users write a URL, as it is called
        if ("" if host in HUB else host) == server and (login.username or login.password):
            return login
    return None


def reference(image: str) -> tuple[str, str]:
    """(name, tag) as the engine takes them. A digest stays with the name, and the default tag is `latest`."""
    if "@" in image:
        return image, ""
    name, colon, tag = image.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (image, "latest")
