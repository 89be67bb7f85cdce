"""The journeys of docs/explanation/architecture.md, traced in a run. The processes of a node are not traced."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from batchtrain.cli import failures
from batchtrain.client import client
from batchtrain.config.types import Secret
from batchtrain.errors import TaskFailed
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


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Of a run whose task fails, in a process that is both client and service."""
    directory = tmp_path_factory.mktemp("recipe")
    (directory / "pool.yaml").write_text(POOL)
    (directory / "jobs.yaml").write_text(JOBS)
    with traced((hop.file, hop.function) for journey in JOURNEYS.values() for hop in journey) as calls:
        with emulated_batch() as service, pytest.raises(TaskFailed) as failed:
            account = connect.account(service.endpoint, service.account, Secret(service.key))
            client.Client(account).run(client.load(directory))
        assert failures.message_of(failed.value)[1] == TaskFailed.exit_code
    return calls


@pytest.mark.parametrize("title", JOURNEYS)
def test_a_run_passes_the_functions_of_a_journey_in_their_order(title: str, calls: list[tuple[str, str]]) -> None:
    hops = [hop for hop in JOURNEYS[title] if hop.where != "node"]
    assert hops
    assert missed(hops, iter(calls)) == []


def missed(hops: list[Hop], calls: Iterator[tuple[str, str]]) -> list[Hop]:
    """The first step that no call after those of the steps before it is, and all that follow."""
    for at, hop in enumerate(hops):
        if (hop.file, hop.function) not in calls:
            return hops[at:]
    return []
