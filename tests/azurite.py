"""A real Azurite, the storage service on one machine, for as long as a test needs it."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from tests import needs
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[1]
AZURITE = "azurite@3.37.0"
ACCOUNT = "devstoreaccount1"
KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # Azurite's own, public
)


@contextmanager
def serve(location: Path) -> Iterator[str]:
    """The blob endpoint of an Azurite that keeps everything in `location`; installed below .cache/ at first use."""
    needs.program("npm")  # Azurite comes from npm
    home = ROOT / ".cache" / "azurite"
    home.mkdir(parents=True, exist_ok=True)
    program = home / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"
    with FileLock(home / "lock"):
        if not program.exists():
            subprocess.run(["npm", "install", "--silent", "--prefix", home, AZURITE], check=True)
    ports = [_free_port() for _ in range(3)]
    words = [f"--{kind}Port={port}" for kind, port in zip(("blob", "queue", "table"), ports, strict=True)]
    process = subprocess.Popen(
        ["node", program, "--silent", "--skipApiVersionCheck", "--loose", f"--location={location}", *words]
    )
    try:
        until(lambda: _answers(ports[0]))
        yield f"http://127.0.0.1:{ports[0]}/{ACCOUNT}"
    finally:
        process.kill()  # its servers close at once, the process itself takes its time
        process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as knock:
        return knock.connect_ex(("127.0.0.1", port)) == 0
