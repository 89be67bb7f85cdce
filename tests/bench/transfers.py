"""Print what transfers cost: `python tests/bench/transfers.py`. Not a test: nothing fails.

Every row is measured with the embedded storage, beside the helpers of azure-storage-blob and blobxfer 1.11 (if this
machine has a Python for it) with as many requests at once. Each call is a process of its own, whose time, processor
time and memory include its imports. The processor time is also measured with a server that only answers. `--small`
takes a hundredth of the sizes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from batchtrain.service.at_once import WORKERS  # noqa: E402

SCALE = 100 if "--small" in sys.argv else 1
LARGE, SMALL, MANY = (1 << 30) // SCALE, 10 << 10, 10_000 // SCALE
PART = 8 << 20


class Account(NamedTuple):
    """A storage account."""

    url: str
    name: str
    key: str


class Cost(NamedTuple):
    """What a process took: wall time, processor time, and its most memory in MiB."""

    wall: float
    used: float
    memory: float

    def __str__(self) -> str:
        return f"{self.wall:6.2f} s ({self.used:5.2f} s of processor, {self.memory:3.0f} MiB)"


def cost(*words: str) -> Cost:
    """Run a command. A process begins with the memory of the one that starts it, so a small one measures."""
    done = subprocess.run([sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{words[0]} ended with code {done.returncode}: {done.stderr[-2000:]}")
    return Cost(*json.loads(done.stdout))


MEASURED = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
code = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
sys.exit(code)
"""


class Ours:
    """batchtrain. A process imports only what it needs."""

    def __init__(self, account: Account) -> None:
        from batchtrain.config.types import Secret, StorageCredentials
        from batchtrain.storage import blob

        credentials = StorageCredentials(account=account.name, account_key=Secret(account.key), endpoint=account.url)
        self._storage = blob.connect("link", credentials)

    def up(self, data: Path, container: str) -> None:
        from batchtrain.storage.ingress import bring, walk
        from batchtrain.storage.moving import UNWATCHED

        bring(self._storage, f"link/{container}", "", list(walk(data)), UNWATCHED).check()

    def down(self, container: str, to: Path) -> None:
        from batchtrain.runs.local_names import names_of_data
        from batchtrain.storage import blob, sync

        sync.get(self._storage, container, list(blob.stored(self._storage, container)), "", to, names_of_data()).check()


class Sdk:
    """azure-storage-blob, with as many requests at once."""

    def __init__(self, account: Account) -> None:
        from azure.storage.blob import BlobServiceClient

        credential = {"account_name": account.name, "account_key": account.key}
        self._client = BlobServiceClient(
            account.url, credential=credential, max_single_put_size=PART, max_block_size=PART, max_chunk_get_size=PART
        )

    def up(self, data: Path, container: str) -> None:
        client = self._client.get_container_client(container)
        if not client.exists():
            client.create_container()

        def send(path: Path) -> None:
            with path.open("rb") as file:
                client.upload_blob(path.name, file, overwrite=True, max_concurrency=WORKERS)

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(send, data.iterdir()))

    def down(self, container: str, to: Path) -> None:
        client = self._client.get_container_client(container)
        to.mkdir(parents=True)

        def fetch(name: str) -> None:
            with (to / name).open("wb") as file:
                client.download_blob(name, max_concurrency=WORKERS).readinto(file)

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(fetch, client.list_blob_names()))


TOOLS: Mapping[str, Callable[[Account], Ours | Sdk]] = {"batchtrain": Ours, "SDK": Sdk}
Tool = Callable[[str, Path, str, Account], Cost]
"""Takes `up` or `down`, the local directory, the container, and the account."""


def tools() -> dict[str, Tool]:
    """How each is run. blobxfer is missing where this machine has no Python for it."""
    from tests import environments

    def of_this_file(name: str) -> Tool:
        return lambda verb, data, box, to: cost(sys.executable, __file__, "--as", name, verb, str(data), box, *to)

    found = {name: of_this_file(name) for name in TOOLS}
    try:
        python = str(environments.prefix("blobxfer") / "bin" / "python")
    except environments.Missing as missing:
        print(f"without blobxfer: {missing}")
        return found

    def blobxfer(verb: str, data: Path, box: str, to: Account) -> Cost:
        data.mkdir(exist_ok=True, parents=True)
        words = ("--storage-account", to.name, "--storage-account-key", to.key, "--remote-path", box, "--quiet")
        threads = ("--local-path", str(data), "--transfer-threads", str(WORKERS), "--file-md5")
        where = to.url.removeprefix("http://")
        return cost(python, "-W", "ignore", "-c", BLOBXFER, where, f"{verb}load", *words, *threads)

    return {**found, "blobxfer": blobxfer}


BLOBXFER = r"""
import sys
from azure.storage.common import _connection
where = sys.argv.pop(1)
made = _connection._ServiceParameters.__init__
def local(self, *words, **more):
    made(self, *words, **more)
    self.protocol, self.primary_endpoint = "http", where
_connection._ServiceParameters.__init__ = local
from azure.storage.blob.models import Blob
empty = Blob.__init__
def blob(self, *words, **more):
    empty(self, *words, **more)
    self.metadata = self.metadata or {}  # Azurite lists none, where the service lists an empty one
Blob.__init__ = blob
from blobxfer_cli.cli import cli
cli()
"""
"""The command line of blobxfer, with an endpoint that its options cannot name."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what this script started
    if "--as" in sys.argv:
        name, verb, data, box, *account = sys.argv[sys.argv.index("--as") + 1 :]
        tool = TOOLS[name](Account(*account))
        tool.up(Path(data), box) if verb == "up" else tool.down(box, Path(data))
        return
    from tests.azurite import serve, share

    share()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        large, small = place / "large", place / "small"
        large.mkdir()
        small.mkdir()
        with (large / "large").open("wb") as file:
            for _ in range(LARGE >> 20 or 1):
                file.write(os.urandom(1 << 20))
        for number in range(MANY):
            (small / f"{number:05}").write_bytes(os.urandom(SMALL))
        known = tools()
        with serve(place / "azurite") as served:
            to = Account(served.endpoint, served.account, served.key)
            compare(known, to, f"one file of {LARGE >> 20} MiB", large, place / "back")
            compare(known, to, f"{MANY:,} files of 10 KiB", small, place / "back")
            print(f"unchanged tree of {MANY:,} files: {known['batchtrain']('up', small, 'small-batchtrain', to)}")
        sink(known, small)


def compare(known: Mapping[str, Tool], to: Account, what: str, data: Path, back: Path) -> None:
    for verb in ("up", "down"):
        costs = {}
        for name, tool in known.items():
            box = f"{data.name}-{name.lower()}"
            costs[name] = tool(verb, data if verb == "up" else back / box, box, to)
        listed = ", ".join(f"{name} {cost}" for name, cost in costs.items())
        ratios = (
            f"{taken.wall / costs['batchtrain'].wall:.2f} times as fast as {name}" for name, taken in costs.items()
        )
        print(f"{what}, {verb}: {listed}; {', '.join(list(ratios)[1:])}", flush=True)


def sink(known: Mapping[str, Tool], data: Path) -> None:
    """Processor time of uploads to a server that answers at once and keeps nothing."""
    with subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            to = Account(f"http://127.0.0.1:{server.stdout.readline().strip()}/account", "account", "a2V5")
            ours, sdk = (known[name]("up", data, "box", to) for name in TOOLS)
        finally:
            server.kill()
    part = ours.used / sdk.used
    print(f"{MANY:,} files of 10 KiB to a sink: batchtrain {ours}, SDK {sdk}; {part:.2f} of its processor time")


SINK = r"""
import asyncio
LIST = b'<?xml version="1.0"?><EnumerationResults><Blobs/><NextMarker/></EnumerationResults>'
class Sink(asyncio.Protocol):
    def connection_made(self, transport): self.transport, self.data, self.left = transport, b"", 0
    def data_received(self, data):
        self.data += data
        while True:
            head, end, rest = self.data.partition(b"\r\n\r\n")
            if not end: return
            lower = head.lower()
            at = lower.find(b"content-length:")
            size = int(lower[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
            if len(rest) < size: return
            self.data = rest[size:]
            body = LIST if head.startswith(b"GET") else b""
            status = b"200 OK" if head[:3] in (b"GET", b"HEA") else b"201 Created"
            self.transport.write(b"HTTP/1.1 %s\r\nContent-Type: application/xml\r\nETag: \"1\"\r\n"
                b"Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nx-ms-request-id: 1\r\nx-ms-version: 2023-11-03\r\n"
                b"x-ms-request-server-encrypted: true\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\n"
                b"Content-Length: %d\r\n\r\n" % (status, len(body)) + body)
async def main():
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""

if __name__ == "__main__":
    main()
