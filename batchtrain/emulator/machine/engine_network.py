"""A private network of an engine, in a part of 10.0.0.0/8 that this machine does not use."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from batchtrain.emulator.machine.docker_engine import Engine, EngineError
from batchtrain.emulator.machine.leftovers import LABEL, SEEN_FROM, seen_from

MOST_TRIED = 64
Network = ipaddress.IPv4Network


async def make(engine: Engine, name: str, data_dir: Path, first: int) -> str:
    """Create a network, preferably 10.FIRST.0.0/16. Returns its range. Raises EngineError."""
    ranges = await taken(engine)
    for subnet in (Network(f"10.{(first + more) % 256}.0.0/16") for more in range(MOST_TRIED)):
        if any(subnet.overlaps(other) for other in ranges):
            continue
        body = {
            "Name": name,
            "Driver": "bridge",
            "CheckDuplicate": True,
            "Labels": {LABEL: str(data_dir), SEEN_FROM: seen_from()},
            "IPAM": {"Config": [{"Subnet": str(subnet)}]},
        }
        try:
            await engine.ask("POST", "/networks/create", body)
        except EngineError as error:
            if "overlap" not in str(error):  # another emulator was faster
                raise
            continue
        return str(subnet)
    raise EngineError(0, f"10.0.0.0/8 has no free part among {MOST_TRIED}")


async def taken(engine: Engine) -> list[Network]:
    """The address ranges of the engine's networks and of the routes of this machine."""
    subnets = [
        entry["Subnet"]
        for network in await engine.ask("GET", "/networks")
        for entry in (network.get("IPAM") or {}).get("Config") or []
        if ":" not in entry.get("Subnet", ":")
    ]
    return [*map(Network, subnets), *routes()]


def routes(table: Path = Path("/proc/net/route")) -> Iterable[Network]:
    """The routes of the machine, without the default route."""
    with contextlib.suppress(OSError):
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            target, mask = (int.from_bytes(bytes.fromhex(fields[at]), "little") for at in (1, 7))
            if mask:
                yield Network((target, bin(mask).count("1")))
