"""A service that takes task collections and does nothing else: `python tests/bench/task_server.py --latency 0.1`.

It prints its address, then the time (of the monotonic clock) of the first collection of each job. It answers each
collection with success after the latency, so that a client is measured and not a service. One thread serves every
connection.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time

TASK_ID = re.compile(rb'"id": ?"([^"]*)"')
POOL = b'{"id":"p","state":"active","vmSize":"standard_d2s_v5","allocationState":"steady","taskSlotsPerNode":1}'
HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json; odata=minimalmetadata\r\nContent-Length: %d\r\n\r\n"


class Sink(asyncio.Protocol):
    """One connection."""

    latency = 0.0
    begun = False
    """Whether the job that was added last has tasks."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._data, self._missing = transport, bytearray(), 0

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._missing and len(self._data) < self._missing:
            return
        head, found, _ = bytes(self._data[:8192]).partition(b"\r\n\r\n")
        if not found:
            return
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        self._missing = len(head) + 4 + int(length[1] if length else 0)
        if len(self._data) < self._missing:
            return
        request = bytes(self._data[: self._missing])
        self._data, self._missing = bytearray(), 0
        answer = answer_to(request, len(head) + 4)
        asyncio.get_running_loop().call_later(self.latency, self._transport.write, answer)


def answer_to(request: bytes, start: int) -> bytes:
    """Success for each task of a collection, and a pool without nodes; an empty answer to anything else."""
    if request.startswith(b"GET /pools/"):
        return HEAD % (b"200 OK", len(POOL)) + POOL
    if b"/addtaskcollection" not in request[:2048]:
        Sink.begun = Sink.begun and not request.startswith(b"POST /jobs?")
        return HEAD % (b"201 Created", 0)
    if not Sink.begun:
        Sink.begun = True
        print(time.monotonic(), flush=True)
    results = (b'{"status":"Success","taskId":"%s"}' % name for name in TASK_ID.findall(request, start))
    body = b'{"value":[' + b",".join(results) + b"]}"
    return HEAD % (b"200 OK", len(body)) + body


async def main(latency: float) -> None:
    Sink.latency = latency
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--latency", type=float, default=0.0, help="Seconds until an answer.")
    asyncio.run(main(arguments.parse_args().latency))
