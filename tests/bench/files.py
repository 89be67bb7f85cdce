"""Print what fetching files costs: `python tests/bench/files.py`. Not a test: nothing fails.

The files are those of a node of an emulator in this process; the peer is the SDK's own download of the same file.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from batchtrain.client.client import Client  # noqa: E402
from batchtrain.config.types import Secret  # noqa: E402
from batchtrain.emulator.server import Settings  # noqa: E402
from batchtrain.emulator.serving import Emulator  # noqa: E402
from batchtrain.runs.recording import Origin  # noqa: E402
from batchtrain.service import downloads  # noqa: E402
from batchtrain.service.connect import Account  # noqa: E402
from batchtrain.service.downloads import Wanted, node_tree  # noqa: E402
from batchtrain.service.retry import NEAR  # noqa: E402
from tests.contract.conftest import idle, pool  # noqa: E402
from tests.emulation import FakeMachine  # noqa: E402

LARGE, SMALL, MANY = 512 << 20, 10 << 10, 5000


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with Emulator(Settings(place / "data", port=0), FakeMachine.open) as emulator:
            account = Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True)
            client = Client(account)
            client.batch.create_pool(pool())
            (node,) = idle(client.batch)
            measure(client, node.id, place / "data/nodes" / node.id, place / "got")


def measure(client: Client, node: str, root: Path, got: Path) -> None:
    """One large file beside the SDK, then many small ones, then a run of one task."""
    (root / "large").write_bytes(bytes(LARGE))
    (root / "small").mkdir()
    for number in range(MANY):
        (root / f"small/{number}").write_bytes(bytes(SMALL))
    tree = node_tree("pool", node)
    seen = {file.path: file for file in downloads.listed(client.batch, tree)}

    def fetched(*names: str) -> None:
        wanted = (Wanted(tree, seen[name], got / name) for name in names)
        bad = [done.reason for done in downloads.fetch(client.batch, wanted, got, patience=NEAR) if not done.sha256]
        assert not bad, bad[0]

    sdk = timed(lambda: _by_sdk(client, node, got / "sdk"))
    ours = timed(lambda: fetched("large"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{LARGE >> 20} MiB: {ours:6.2f} s = {(LARGE >> 20) / ours:5.0f} MiB/s, checked; SDK alone {sdk:.2f} s")
    small = timed(lambda: fetched(*(f"small/{number}" for number in range(MANY))))
    print(f"{MANY} files of {SMALL >> 10} KiB: {small:6.2f} s = {MANY / small:5.0f} files/s; peak memory {peak} MiB")
    print(f"list of {len(seen)} files: {timed(lambda: list(downloads.listed(client.batch, tree))):6.3f} s")
    print(f"fetch of a small run: {_run_overhead(client, got.parent):6.3f} s, held to 0.1")


def _by_sdk(client: Client, node: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    stream: Any = client.batch.download_node_file("pool", node, "large")
    with target.open("wb") as file:
        for chunk in stream:
            file.write(chunk)


def _run_overhead(client: Client, place: Path) -> float:
    from azure.batch import models

    client.batch.create_job(models.BatchJobCreateOptions(id="j", pool_info=models.BatchPoolInfo(pool_id="pool")))
    client.batch.create_task("j", models.BatchTaskCreateOptions(id="t", command_line="print hello"))
    job = client.jobs.handle("j").wait(timeout=60)
    return timed(lambda: job.fetch(Origin(place / "runs")))


if __name__ == "__main__":
    main()
