"""What tests of the emulator's files share."""

from __future__ import annotations

import asyncio
import inspect
import os
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.emulation import Stage


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own, within those of its arguments that are asynchronous
    context managers."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def run_test() -> None:
        async with AsyncExitStack() as stack:
            for argument in arguments.values():
                if hasattr(argument, "__aexit__"):
                    await stack.enter_async_context(argument)
            await pyfuncitem.obj(**arguments)

    asyncio.run(run_test())
    return True


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def outside_tmp() -> Iterator[Path]:
    """A directory outside of /tmp, of which each node has its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(os.path.realpath(folder))


@pytest.fixture
def _closes_all_files() -> Iterator[None]:
    """The test leaves no file descriptor open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == before
