"""The API for asyncio: the same members as the sync API, awaited."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import batchtrain as bt
from batchtrain import aio
from batchtrain.client.job import Job
from batchtrain.client.jobs import Jobs, JobSchedule
from batchtrain.client.pools import Pools
from batchtrain.errors import NotFound
from batchtrain.service import watch


@pytest.fixture
def job() -> Any:
    return aio.Job(Job(None, "j"))  # type: ignore[arg-type]


def test_every_public_member_of_the_sync_api_is_there() -> None:
    for kind in (bt.Client, Pools, Jobs, Job, JobSchedule):
        twin = getattr(aio, kind.__name__)
        assert {name for name in dir(kind) if not name.startswith("_")} <= set(dir(twin))


def test_help_shows_the_signature_and_the_text_of_the_sync_method() -> None:
    assert inspect.signature(aio.Client.run) == inspect.signature(bt.Client.run)
    assert inspect.getdoc(aio.Job.wait) == inspect.getdoc(Job.wait)


def test_a_method_is_awaited_and_gives_its_value_or_its_error(job: Any) -> None:
    def glance(self: Job, most: int = 1) -> str:
        if most == 0:
            raise NotFound("no job")
        return f"{self.id} {most}"

    twin = aio._awaited("glance", glance)
    assert asyncio.run(twin(job, most=2)) == "j 2"
    with pytest.raises(NotFound):
        asyncio.run(twin(job, most=0))


def test_cancelling_a_call_interrupts_its_wait_as_ctrl_c_does_and_awaits_its_cleaning_up(job: Any) -> None:
    waits, seen = threading.Event(), list[str]()

    def wait(self: Job) -> None:
        try:
            waits.set()
            watch.Deadline(600, "a test").pause(600)
        except KeyboardInterrupt:
            watch.Deadline(600, "the cleaning up").pause(0.001)
            seen.append("cleaned up")
            raise

    async def cancelled() -> list[str]:
        call = asyncio.create_task(aio._awaited("wait", wait)(job))
        await asyncio.to_thread(waits.wait)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return list(seen)

    assert asyncio.run(cancelled()) == ["cleaned up"]


def test_a_method_that_iterates_is_an_async_iterator(job: Any) -> None:
    def lines(self: Job) -> Iterator[str]:
        yield from (self.id, "b")

    async def collected() -> list[str]:
        return [line async for line in aio._awaited("lines", lines)(job)]

    assert asyncio.run(collected()) == ["j", "b"]


def test_jobs_come_back_as_twins(job: Any) -> None:
    handle = asyncio.run(aio.Jobs(Jobs(None)).handle("x"))  # type: ignore[arg-type]
    assert isinstance(handle, aio.Job)
    assert handle.id == "x"
    assert repr(job) == "aio.Job('j')"
