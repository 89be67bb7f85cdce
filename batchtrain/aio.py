"""The Python API for asyncio. It has the classes and methods of the sync API; each call runs in a thread.

client = await bt.aio.connect(local=True)
result = await client.run(recipe)
job = await client.jobs.add(recipe)
async for line in job.logs(follow=True):
    print(line)
tasks = await job.tasks

Methods and properties are awaited, because they may send requests. Cancelling a call, as Ctrl-C does under
`asyncio.run`, interrupts its next pause as Ctrl-C does in the sync API: `client.run` fetches what is there and deletes
what it created; other calls end only their waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from batchtrain.client import client as sync
from batchtrain.client import job, jobs, pools
from batchtrain.service.retry import INTERRUPT

_END = object()


class _Twin:
    """An object of the sync API, whose methods run in threads."""

    def __init__(self, of: Any) -> None:
        self.sync = of
        """The object of the sync API."""

    def __repr__(self) -> str:
        return f"aio.{self.sync!r}"

    def _repr_html_(self) -> Any:
        return self.sync._repr_html_()


def _twin(kind: type) -> type[_Twin]:
    """The class with an awaited member for each public one."""
    members = {name: _awaited(name, member) for name, member in inspect.getmembers(kind) if not name.startswith("_")}
    return type(kind.__name__, (_Twin,), {"__doc__": kind.__doc__, "__module__": __name__, **members})


def _awaited(name: str, member: Any) -> Any:
    if isinstance(member, property):
        return property(lambda self: _in_thread(getattr, self.sync, name), doc=member.__doc__)
    if str(inspect.signature(member).return_annotation).startswith("Iterator"):

        @functools.wraps(member)
        def iterate(self: _Twin, *args: Any, **options: Any) -> AsyncIterator[Any]:
            return _each(lambda: member(self.sync, *args, **options))

        return iterate

    @functools.wraps(member)
    async def call(self: _Twin, *args: Any, **options: Any) -> Any:
        return await _in_thread(member, self.sync, *args, **options)

    return call


async def _in_thread(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return _twin_of(await _interruptible(function, *args, **options))


async def _each(begin: Callable[[], Iterator[Any]]) -> AsyncIterator[Any]:
    items = await _interruptible(begin)
    while (item := await _interruptible(next, items, _END)) is not _END:
        yield item


async def _interruptible(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function in a thread. If this is cancelled, the function is interrupted as by Ctrl-C, and awaited."""
    interrupt = threading.Event()

    def call() -> Any:
        INTERRUPT.set(interrupt)
        with contextlib.suppress(KeyboardInterrupt):
            return function(*args, **options)

    work = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        interrupt.set()
        await asyncio.wait([work])
        raise


def _twin_of(value: Any) -> Any:
    """A job as its twin, also in a tuple of jobs; any other value is as it is."""
    if type(value) is tuple:
        return tuple(map(_twin_of, value))
    return _TWINS[type(value)](value) if type(value) in _TWINS else value


Client, Pools, Jobs, Job, JobSchedule = map(_twin, (sync.Client, pools.Pools, jobs.Jobs, job.Job, jobs.JobSchedule))
_TWINS = {job.Job: Job, jobs.JobSchedule: JobSchedule, sync.Client: Client}
for _name, _kind in (("pools", Pools), ("jobs", Jobs)):
    setattr(Client, _name, property(lambda self, kind=_kind, name=_name: kind(getattr(self.sync, name))))
for _kind in (Job, JobSchedule):
    setattr(_kind, "id", property(lambda self: self.sync.id))  # noqa: B010  # a stub types these classes


@functools.wraps(sync.connect)
async def connect(**options: Any) -> Any:
    return await _in_thread(sync.connect, **options)
