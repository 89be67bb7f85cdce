"""Removing containers and networks: those of a node that goes, and those that a killed emulator left behind."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from batchtrain.emulator.machine.engine import Engine, EngineError, compact

LABEL = "batchtrain.emulator"
"""On everything, with the emulator's data directory."""


async def remove(engine: Engine, container: str) -> None:
    """With its anonymous volumes; one that is gone, or going, is as good."""
    with contextlib.suppress(EngineError):
        await engine.ask("DELETE", f"/containers/{container}", query={"force": "1", "v": "1"})


async def sweep(engine: Engine, label: str) -> int:
    """Remove every container and network with a label; how many containers there were."""
    query = {"all": "1", "filters": filters(label=[label])}
    found = await engine.ask("GET", "/containers/json", query=query)
    await asyncio.gather(*(remove(engine, one["Id"]) for one in found))
    for network in await engine.ask("GET", "/networks", query={"filters": filters(label=[label])}):
        with contextlib.suppress(EngineError):
            await engine.ask("DELETE", f"/networks/{network['Id']}")
    return len(found)


async def sweep_forgotten(engine: Engine) -> None:
    """The same for emulators whose data directory is gone: they never start again."""
    for network in await engine.ask("GET", "/networks", query={"filters": filters(label=[LABEL])}):
        if not Path(network["Labels"][LABEL]).exists():
            await sweep(engine, f"{LABEL}={network['Labels'][LABEL]}")


def filters(**filters: list[str]) -> str:
    return compact(filters)
