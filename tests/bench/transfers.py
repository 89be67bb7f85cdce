"""Print what transfers cost: `python tests/bench/transfers.py`. Not a test: nothing fails.

Every row is measured with the embedded storage, beside the helpers of azure-storage-blob with as many requests at once.
The processor time is measured with a server that only answers. `--small` takes a hundredth of the sizes.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from azure.storage.blob import BlobServiceClient  # noqa: E402

from batchtrain.config.types import Secret, StorageCredentials  # noqa: E402
from batchtrain.service.at_once import WORKERS  # noqa: E402
from batchtrain.storage import blob, sync  # noqa: E402
from batchtrain.storage.blob_requests import Storage  # noqa: E402
from batchtrain.storage.ingress import bring, walk  # noqa: E402
from batchtrain.storage.moving import UNWATCHED  # noqa: E402
from tests.azurite import serve, share  # noqa: E402

SCALE = 100 if "--small" in sys.argv else 1
LARGE, SMALL, MANY = (1 << 30) // SCALE, 10 << 10, 10_000 // SCALE
PART = 8 << 20


class Cost:
    """Wall time and processor time of a call."""

    def __init__(self, work: Callable[[], object]) -> None:
        wall, used = time.perf_counter(), time.process_time()
        work()
        self.wall, self.used = time.perf_counter() - wall, time.process_time() - used

    def __str__(self) -> str:
        return f"{self.wall:6.2f} s ({self.used:5.2f} s of processor)"


class Ours:
    """batchtrain."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def up(self, data: Path, container: str) -> None:
        tally = bring(self._storage, f"link/{container}", "", list(walk(data)), UNWATCHED)
        tally.check()

    def down(self, container: str, to: Path) -> None:
        sync.get(self._storage, container, list(blob.stored(self._storage, container)), "", to).check()


class Sdk:
    """azure-storage-blob, with as many requests at once."""

    def __init__(self, url: str, account: str, key: str) -> None:
        credential = {"account_name": account, "account_key": key}
        self._client = BlobServiceClient(
            url, credential=credential, max_single_put_size=PART, max_block_size=PART, max_chunk_get_size=PART
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


def main() -> None:
    share()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        large, small = place / "large", place / "small"
        large.mkdir()
        small.mkdir()
        with (large / "large").open("wb") as file:
            for _ in range(LARGE >> 20 or 1):
                file.write(os.urandom(1 << 20))
        for number in range(MANY):
            (small / f"{number:05}").write_bytes(os.urandom(SMALL))
        with serve(place / "azurite") as account:
            credentials = StorageCredentials(
                account=account.account, account_key=Secret(account.key), endpoint=account.endpoint
            )
            ours, sdk = Ours(blob.connect("link", credentials)), Sdk(account.endpoint, account.account, account.key)
            compare(ours, sdk, f"one file of {LARGE >> 20} MiB", large, place / "back", "large")
            compare(ours, sdk, f"{MANY:,} files of 10 KiB", small, place / "back", "small")
            print(f"unchanged tree of {MANY:,} files: {Cost(lambda: ours.up(small, 'small-batchtrain'))}")
        print(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB (with the SDK)")
        sink(small)


def compare(ours: Ours, sdk: Sdk, what: str, data: Path, back: Path, container: str) -> None:
    for verb in ("up", "down"):
        costs = {}
        for name, tool in (("batchtrain", ours), ("SDK", sdk)):
            to = back / f"{container}-{name.lower()}"
            box = f"{container}-{name.lower()}"
            costs[name] = Cost(partial(tool.up, data, box) if verb == "up" else partial(tool.down, box, to))
        ratio = costs["SDK"].wall / costs["batchtrain"].wall
        listed = ", ".join(f"{name} {cost}" for name, cost in costs.items())
        print(f"{what}, {verb}: {listed}; {ratio:.2f} times as fast", flush=True)


def sink(data: Path) -> None:
    """Processor time of uploads to a server that answers at once and keeps nothing."""
    program = [sys.executable, "-c", SINK]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/account"
        storage = blob.connect("link", StorageCredentials(account="account", account_key=Secret("a2V5"), endpoint=url))
        ours = Cost(partial(Ours(storage).up, data, "box"))
        sdk = Cost(partial(Sdk(url, "account", "a2V5").up, data, "box"))
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
