"""What tests share: real MPIs and frameworks in environments of their own, and where the repository is."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import importlib
import inspect
import os
import re
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator.interface import StorageAccount
from tests import azurite as azurites
from tests import containers, environments, examples, leftovers

ROOT = environments.ROOT
LONG = ("browser", "docker", "framework", "slow")
"""Markers of tests that run with --all only."""
MORE = (*LONG, "property")
"""Markers of tests that do more with --all than without."""
NAMES_OF_MORE = re.compile(rf"\b({'|'.join(MORE)}|azurite|examples)\b")
"""What a file with such tests has in its text: a marker, or what marks a test."""
SMALL_POOL = """\
pool_specification:
  id: p
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 1}
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}
"""
SMALL_JOBS = """\
job_specifications:
- id: j
  max_task_retries: 1
  tasks:
  - {id: a, command: echo a, max_wall_time: '00:10:00'}
  - {command: echo b}
"""
RUNNING: dict[str, float] = {}
"""When each of the tests began that have not ended."""
E2E = ROOT / "tests/e2e"
"""The tests of the whole product: with --all only, except those with the marker `smoke`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also run the tests that take minutes: " + ", ".join(LONG))
    parser.addoption("--rest", action="store_true", help="run only the tests that do more with --all than without")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker per core for unit tests; two for others, as half of their time is waiting for processes; three for those
    of --rest, which wait longer."""
    unit = [Path(argument.partition("::")[0]).resolve().is_relative_to(ROOT / "tests/unit") for argument in config.args]
    return (1 if all(unit) else 3 if config.getoption("--rest") else 2) * (os.cpu_count() or 1)


def _whole(config: pytest.Config) -> bool:
    """Whether the tests that take minutes run."""
    return bool(config.getoption("--all") or config.getoption("--rest"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --rest, a file without any of the markers is not imported: each worker would take seconds for them all."""
    return (
        True if config.getoption("--rest") and collection_path.is_file() and not _names_more(collection_path) else None
    )


@functools.cache
def _names_more(file: Path) -> bool:
    return E2E in file.parents or NAMES_OF_MORE.search(file.read_text(encoding="utf-8")) is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        of_e2e = E2E in item.path.parents and item.get_closest_marker("smoke") is None
        if of_e2e or "azurite" in getattr(item, "fixturenames", ()):  # Azurite is installed first
            item.add_marker(pytest.mark.slow)
    rest = [item for item in items if _does_more(item)]
    if unseen := {str(item.path) for item in rest if not _names_more(item.path)}:
        raise pytest.UsageError(f"--rest would not see the tests of {', '.join(sorted(unseen))}")
    if not config.getoption("--rest"):
        return
    kept = set(rest)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = _longest_first(rest, int(getattr(config, "workerinput", {}).get("workercount", 1)))


def pytest_collection_finish() -> None:
    """The tests stay for the whole run: each collection of garbage would look at all of them, a tenth of its time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def _does_more(item: pytest.Item) -> bool:
    """Whether a test does more with --all than without."""
    names = {marker.name for marker in item.iter_markers()}
    return "property" in names or not ("smoke" in names or names.isdisjoint(LONG))


LONGEST = (
    "test_release.py", "test_hints.py", "test_scripts.py", "test_docs.py", "test_site.py", "test_sources.py",
    "test_clients.py", "test_saving.py", "test_checkpoints.py",
)  # fmt: skip
"""The files of the tests that take longest. One that begins last would run alone at the end."""


def _longest_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests in an order in which each of the workers, which get equal parts of the list, begins with long ones.

    Those of frameworks follow after a third of the others: `.ci/run` makes their environments meanwhile, and a worker
    whose test needs one that is not ready stands still.
    """
    frameworks = [item for item in items if item.get_closest_marker("framework")]
    longest = [item for item in items if item.path.name in LONGEST and item not in frameworks]
    others = [item for item in items if item.path.name not in LONGEST and item not in frameworks]
    size, order = -(-len(items) // workers), list[pytest.Item]()
    for worker in range(workers):
        first, trainings = longest[worker::workers], frameworks[worker::workers]
        count = max(size - len(first) - len(trainings), 0)
        part, others = others[:count], others[count:]
        order += [*first, *part[: count // 3], *trainings, *part[count // 3 :]]
    return order + others


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


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell without job control started us in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # as the command line: a second less in each worker
    azurites.share()
    if _whole(config):
        os.environ.setdefault(examples.VARIABLE, "many")
    if not hasattr(config, "workerinput"):  # pytest-xdist's workers inherit the mark
        leftovers.mark()


def pytest_sessionstart(session: pytest.Session) -> None:
    """With --reruns, each test of a worker sends two messages for one answer: without this, the second waits 40 ms."""
    if worker := getattr(session.config, "workerinput", None):
        client = getattr(session.config, "failures_db", None)
        if connection := getattr(client, "sock", None):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _import_share(session.config, int(worker["workerid"].removeprefix("gw")), int(worker["workercount"]))


def _import_share(config: pytest.Config, worker: int, workers: int) -> None:
    """Each worker begins with other files, so that not every worker compiles all of them in a new clone: that takes as
    long as a seventh of the README's tests. What fails here is reported by the collection."""
    folders = [path for path in map(Path, config.args) if path.is_dir()]
    files = sorted({file for folder in folders for file in folder.rglob("test_*.py")})
    for file in [file for file in files if not pytest_ignore_collect(file, config)][worker::workers]:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.resolve().relative_to(ROOT).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not _whole(item.config) and not item.get_closest_marker("smoke") and any(map(item.get_closest_marker, LONG)):
        pytest.skip("run with --all")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run that leaves processes behind, and ends them."""
    if hasattr(session.config, "workerinput"):
        return
    factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]  # as xdist does
    session.config.stash[LEFT] = leftovers.end(factory.getbasetemp())
    if session.config.stash[LEFT] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


LEFT = pytest.StashKey[list[str]]()


def pytest_runtest_logstart(nodeid: str) -> None:
    RUNNING[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    RUNNING.pop(nodeid, None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Skips by reason, tests that failed at their first try or run still, and the processes that were left."""
    for nodeid, start in RUNNING.items():  # the run was interrupted
        terminalreporter.line(f"STILL RUNNING after {time.monotonic() - start:.0f} s: {nodeid}")
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"failed at first: {report.nodeid}", sep="_")
        report.toterminal(terminalreporter._tw)
    reports = terminalreporter.getreports("skipped")
    skips = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if skips:
        terminalreporter.section("skipped")
    for reason, count in sorted(skips.items(), key=lambda row: -row[1]):
        terminalreporter.line(f"{count:6} {' '.join(reason.split())}")
    if left := config.stash.get(LEFT, []):
        terminalreporter.section("processes left running", red=True, bold=True)
    for line in left:
        terminalreporter.line(line)


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test meets the settings of this user; only those of containers meet a Docker Engine, if there is one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/no/user")
    if request.node.get_closest_marker("docker") is None:
        monkeypatch.setenv("DOCKER_HOST", "unix:///no/engine")
    if "azurite" in request.fixturenames:  # it stands for an account of credentials.yaml
        monkeypatch.setenv("BATCHTRAIN_REAL_STORAGE", "1")


@pytest.fixture(autouse=True)
def _runs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run directories are made outside the repository."""
    monkeypatch.setenv("BATCHTRAIN_RUNS_DIR", str(tmp_path_factory.getbasetemp() / "runs"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageAccount]:
    """A storage account on this machine, or the test is skipped with the reason."""
    with azurites.serve(tmp_path_factory.mktemp("azurite")) as account:
        yield account


@pytest.fixture(scope="session")
def mpi_environment() -> Callable[[str], Path]:
    """Gives the prefix of a virtual environment with one MPI, mpi4py, numpy and scikit-learn; fails where it cannot.

    MPICH is in this environment already; tests of the others are marked `slow` (`examples.first`).
    """
    return mpi_prefix


@pytest.fixture(scope="session")
def framework_environment() -> Callable[[str], Path]:
    """Gives the prefix of a framework's virtual environment, or skips the test with the reason."""
    return framework_prefix


@pytest.fixture(scope="session")
def engine() -> None:
    """A Docker Engine answers; the test is skipped, with the reason, where none does."""
    with _or_skip():
        containers.require_engine()


@pytest.fixture(scope="session")
def image(engine: None) -> str:
    """Debian with sshd, Python and Open MPI, or the test is skipped with the reason."""
    with _or_skip():
        return containers.image()


@pytest.fixture(scope="module")
def registry(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[containers.Registry]:
    """One with a password, or the test is skipped with the reason."""
    with contextlib.ExitStack() as stack:
        with _or_skip():
            running = stack.enter_context(containers.registry(tmp_path_factory.mktemp("registry")))
        yield running


@contextlib.contextmanager
def _or_skip() -> Iterator[None]:
    try:
        yield
    except containers.Missing as missing:
        pytest.skip(str(missing))


def mpi_prefix(name: str) -> Path:
    """The environment of one MPI; made at first use."""
    return environments.prefix(name)


def framework_prefix(name: str) -> Path:
    """The environment of one framework; made at first use."""
    try:
        return environments.prefix(name)
    except environments.Missing as missing:
        pytest.skip(f"{name}: {missing}")


@pytest.fixture
def small(batchtrain: Any, tmp_path: Path) -> Any:
    """The command line of the directory of the test, beside a small recipe."""
    (tmp_path / "pool.yaml").write_text(SMALL_POOL)
    (tmp_path / "jobs.yaml").write_text(SMALL_JOBS)
    return batchtrain
