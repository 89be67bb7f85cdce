"""The API for asyncio on the emulator."""

from __future__ import annotations

from typing import Any

import pytest

SCRIPT = """\
import asyncio, os, signal
import batchtrain as bt

def tell(event):
    if event.text == "hello":
        os.kill(os.getpid(), signal.SIGINT)

async def main():
    client = await bt.aio.connect(local=True)
    await client.run(bt.command("echo hello; sleep 600", name="long"), tell=tell)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
try:
    asyncio.run(main())
except KeyboardInterrupt:
    client = bt.connect(local=True)
    print("interrupted", len(client.pools.list()), len(client.jobs.list()), client.runs.get().record.state)
"""


@pytest.mark.process
def test_ctrl_c_under_asyncio_ends_a_run_and_deletes_what_it_created(batchtrain: Any) -> None:
    done = batchtrain.python("-c", SCRIPT)
    assert done.stdout == "interrupted 0 0 interrupted\n", done.stderr
