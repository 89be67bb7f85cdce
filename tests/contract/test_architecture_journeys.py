"""The journeys of docs/explanation/architecture.md, traced in a run. The processes of a node are not traced."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

import pytest

from batchtrain.cli import failures
from batchtrain.client import client, orphans
from batchtrain.client.ending import Ending
from batchtrain.config.types import Secret
from batchtrain.errors import TaskFailed
from batchtrain.records.events import Event, Stdout
from batchtrain.service import connect
from batchtrain.testing import emulated_batch
from tests import architecture
from tests.architecture import ROOT, Hop

pytestmark = pytest.mark.process

JOURNEYS = architecture.journeys()
POOL = """\
pool_specification:
  id: pool
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 1}
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: "2404"}}
  job_default_order: creationtime
"""
JOBS = "job_specifications: [{id: job, tasks: [{id: task, command: exit 3}]}]"


@contextmanager
def traced(functions: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """The calls of these functions, (file, name), in this thread and in those that start inside."""
    wanted, calls = set(functions), list[tuple[str, str]]()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        call = (code.co_filename.removeprefix(f"{ROOT}/"), code.co_name)
        if event == "call" and call in wanted:
            calls.append(call)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


Calls = Mapping[str, list[tuple[str, str]]]
INTERRUPTED, LOST = "Ctrl-C while tasks run", "A run that lost its client is ended by the next command"
MOST_FILES = 6
"""Of the journeys of an ending."""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """By journey. One process is both client and service."""
    hops = {(hop.file, hop.function) for journey in JOURNEYS.values() for hop in journey}
    directory, runs = tmp_path_factory.mktemp("recipe"), tmp_path_factory.mktemp("runs")
    (directory / "pool.yaml").write_text(POOL)
    (directory / "jobs.yaml").write_text(JOBS)
    with traced(hops) as failing, emulated_batch() as service:
        caller = client.Client(connect.account(service.endpoint, service.account, Secret(service.key)))
        with pytest.raises(TaskFailed) as failed:
            caller.run(client.load(directory), runs_dir=runs)
        assert failures.message_of(failed.value)[1] == TaskFailed.exit_code
        (directory / "jobs.yaml").write_text(JOBS.replace("exit 3", "echo works; sleep 60"))
        with traced(hops) as interrupted, pytest.raises(KeyboardInterrupt):
            caller.run(client.load(directory), runs_dir=runs, tell=interrupt)
        (directory / "jobs.yaml").write_text(JOBS.replace("exit 3", "exit 0"))
        with pytest.MonkeyPatch.context() as killed:
            killed.setattr(Ending, "end", lambda ending, _: ending.recordings["job"].release())
            caller.run(client.load(directory), runs_dir=runs, check=False)
        with traced(hops) as lost:
            orphans.adopt(caller, runs, lambda _: None)
        assert not caller.pools.list()
    return dict.fromkeys(JOURNEYS, failing) | {INTERRUPTED: interrupted, LOST: lost}


def interrupt(event: Event) -> None:
    """Press Ctrl-C at the first line of the task."""
    if isinstance(event, Stdout):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("title", JOURNEYS)
def test_a_run_passes_the_functions_of_a_journey_in_their_order(title: str, calls: Calls) -> None:
    hops = [hop for hop in JOURNEYS[title] if hop.where != "node"]
    assert hops
    assert missed(hops, iter(calls[title])) == []


@pytest.mark.parametrize("title", [INTERRUPTED, LOST])
def test_an_ending_passes_few_files(title: str) -> None:
    assert len({hop.file for hop in JOURNEYS[title]}) <= MOST_FILES


def missed(hops: list[Hop], calls: Iterator[tuple[str, str]]) -> list[Hop]:
    """The first step that no call after those of the steps before it is, and all that follow."""
    for at, hop in enumerate(hops):
        if (hop.file, hop.function) not in calls:
            return hops[at:]
    return []
