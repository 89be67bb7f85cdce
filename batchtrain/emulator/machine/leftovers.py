"""Removes containers, networks and volumes by their labels: those of a node that ends or a killed emulator."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from batchtrain.emulator.machine.docker_engine import Engine, EngineError, compact

logger = logging.getLogger("batchtrain.emulator.machine")

LABEL = "batchtrain.emulator"
"""On everything: the data directory of the emulator."""
SEEN_FROM = f"{LABEL}.seen-from"
"""On a network: the result of `seen_from`."""
PATIENCE = 120.0
"""Seconds for one removal: a busy engine needs time for the processes and the file system of a container."""
GONE = (404, 0)
"""The container does not exist, or the engine itself does not."""
UNDER_WAY = 409
"""The status of the engine for a container that it is removing."""
PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between the attempts. The engine says why one failed, but not when to retry."""


async def remove(engine: Engine, container: str) -> None:
    """Remove a container with its anonymous volumes, and wait until its address and network are free."""
    refusal = ""
    for pause in PAUSES:
        refusal = await _refusal(engine, f"/containers/{container}")
        if not refusal:
            return
        await asyncio.sleep(pause)
    logger.warning("the container %s could not be removed: %s", container, refusal)


async def _refusal(engine: Engine, path: str) -> str:
    """Remove a container, or wait for a removal in progress. Returns why it failed, or an empty text."""
    try:
        await engine.ask("DELETE", path, query={"force": "1", "v": "1"}, patience=PATIENCE)
        return ""
    except EngineError as error:
        if error.status != UNDER_WAY:
            return "" if error.status in GONE else str(error)
    try:
        answer = await engine.ask("POST", f"{path}/wait", query={"condition": "removed"}, patience=PATIENCE)
    except EngineError as error:
        return "" if error.status in GONE else str(error)
    return str(((answer or {}).get("Error") or {}).get("Message") or "")


async def sweep(engine: Engine, *labels: str) -> int:
    """Remove every container, network and volume with these labels. Returns the number of containers."""
    query = {"filters": filters(label=list(labels))}
    containers = await engine.ask("GET", "/containers/json", query={"all": "1", **query})
    await asyncio.gather(*(remove(engine, container["Id"]) for container in containers))
    for network in await engine.ask("GET", "/networks", query=query):
        await _remove_network(engine, network)
    for volume in (await engine.ask("GET", "/volumes", query=query)).get("Volumes") or ():
        with contextlib.suppress(EngineError):
            await engine.ask("DELETE", f"/volumes/{volume['Name']}")
    return len(containers)


async def _remove_network(engine: Engine, network: dict[str, Any]) -> None:
    try:
        await engine.ask("DELETE", f"/networks/{network['Id']}")
    except EngineError as error:
        if error.status not in GONE:
            logger.warning("the network %s could not be removed: %s", network["Name"], error)


async def make_volumes(engine: Engine, names: Iterable[str], labels: Mapping[str, str]) -> None:
    """Create volumes before a container binds them: the engine would create them without labels."""
    for name in names:
        await engine.ask("POST", "/volumes/create", {"Name": name, "Labels": dict(labels)})


async def sweep_forgotten(engine: Engine) -> None:
    """Remove the objects of emulators whose data directory is gone: they never start again.

    This applies only to emulators that saw the same files as this one. Another emulator of this engine, with its own
    /tmp or container, has a directory that does not exist here.
    """
    for network in await engine.ask("GET", "/networks", query={"filters": filters(label=[LABEL, SEEN_FROM])}):
        labels = network["Labels"]
        if labels[SEEN_FROM] == seen_from() and _gone(Path(labels[LABEL])):
            await sweep(engine, f"{LABEL}={labels[LABEL]}")


def seen_from() -> str:
    """Identifies the files that this process sees: its mount namespace."""
    with contextlib.suppress(OSError):
        return str(Path("/proc/self/ns/mnt").readlink())
    return ""


def _gone(directory: Path) -> bool:
    try:
        directory.stat()
    except OSError as error:  # only its owner may check another user's
        return isinstance(error, FileNotFoundError)
    return False


def filters(**filters: list[str]) -> str:
    return compact(filters)
