"""A run leaves a directory: after success, failure and Ctrl-C, and nothing is deleted that was not fetched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Prices
from batchtrain.client import planning
from batchtrain.client.client import Client
from batchtrain.client.run import follow, run
from batchtrain.config.types import AutoPool, Recipe, Secret
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import ResultsLeft, ServiceError, TimedOut
from batchtrain.formula import Seen, evaluate
from batchtrain.life.intents import PROBE
from batchtrain.records.events import Event, Standing
from batchtrain.runs import directory
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.recording import Origin, Progress, Recording
from batchtrain.service import read
from batchtrain.service.connect import Account
from batchtrain.service.register import Register, Thing
from batchtrain.service.requests import posted
from tests.emulation import FakeMachine
from tests.unit.plan import jobs

pytestmark = pytest.mark.process

MODEL = bytes(range(256)) * 80
MACHINE = {
    "imageReference": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"},
    "nodeAgentSKUId": "batch.node.ubuntu 24.04",
}
NAMES = ("model.pt", "größe #?%.txt", "line\nbreak", "deep/er/file")
LINKS = dict[str, str]()
"""Links that a task leaves in `output`, with their targets."""


@pytest.fixture(scope="module")
def emulator_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """An emulator whose tasks write results."""
    original = FakeMachine.run

    async def run_and_write(self: FakeMachine, node_id: str, task: Any) -> Any:
        line = task.command_line.removeprefix("/bin/bash -c ").strip("'\"")
        output = self.data_dir / "nodes" / node_id / task.directory / "wd/output"
        for name in NAMES if "workitems" in task.directory else ():
            (output / name).parent.mkdir(parents=True, exist_ok=True)
            (output / name).write_bytes(MODEL)
        for name, target in LINKS.items():
            (output / name).symlink_to(target)
        return await original(self, node_id, task._replace(command_line=line))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeMachine, "run", run_and_write)
        settings = Settings(tmp_path_factory.mktemp("emulator") / "data", port=0)
        with Emulator(settings, FakeMachine.open) as running:
            yield running


@pytest.fixture
def client(emulator: Emulator) -> Client:
    return Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path / "runs", ("batchtrain", "run", "x"), {}, {"x/jobs.yaml": b"job_specifications: []\n"})


def recipe(*commands: str, **more: Any) -> Recipe:
    listed = [{"id": f"t{n}", "command": text, **more} for n, text in enumerate(commands)]
    return jobs.recipe({"tasks": listed}, pool={"vm_size": "STANDARD_D2S_V5", "vm_count": {"dedicated": 1}})


def latest(origin: Origin) -> RunDirectory:
    return directory.find(origin.root, "latest")


def outputs(found: RunDirectory, task: str = "t0") -> list[str]:
    top = found.outputs(task)
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())


def test_the_last_lines_of_a_command_change_no_record_that_has_ended(client: Client, origin: Origin) -> None:
    said: list[Event] = []
    run(client, recipe("exit 0"), tell=said.append, timeout=60, origin=origin)
    assert said[-1].kind == "results" and "results" not in [event.kind for event in latest(origin).events()]


def test_a_run_leaves_logs_results_and_what_it_was(client: Client, origin: Origin) -> None:
    said: list[Event] = []
    outcome = run(client, recipe("print hello"), tell=said.append, timeout=60, origin=origin)
    found = latest(origin)
    assert outcome.runs == (origin.root / found.name,) or outcome.runs[0].name == found.name
    assert outputs(found) == ["deep/er/file", "größe #?%.txt", "line%0Abreak", "model.pt"]
    assert (found.outputs("t0") / "model.pt").read_bytes() == MODEL
    assert (found.logs("t0") / "stdout.txt").read_text() == "hello\n"
    record = found.record()
    assert (record.state, record.job, record.pool, record.nodes) == ("completed", "j", "p", 1)
    assert [task.exit_code for task in found.tasks()] == [0]
    assert [node.name for node in found.nodes()] == ["n0"]
    assert {"pool.add", "job.add", "deleted"} <= {event.kind for event in found.events()}
    assert not {"stdout", "stderr"} & {event.kind for event in found.events()}
    assert {path.name for path in found.config.iterdir()} == {"jobs.yaml", "effective.yaml", "plan.json"}
    assert "http" not in found.report.read_text()
    last = said[-1].text.splitlines()
    assert last[0].startswith("j succeeded after ")
    assert last[1:] == [
        f"  model  {found.outputs('t0') / 'model.pt'}",
        f"results: {origin.root / found.name}: 4 files, 80.0 KiB in outputs/",
    ]
    assert not client.pools.list()


def test_results_whose_names_are_not_utf_8_or_that_links_lead_to_are_fetched(
    client: Client, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.NAMES", (os.fsdecode(b"\xff\xfebad"), "%FF", "../ckpt/step100/model.pt", "A", "a"))
    monkeypatch.setattr(f"{__name__}.LINKS", {"best": "../ckpt/step100", "last.pt": "../ckpt/step100/model.pt"})
    outcome = run(client, recipe("true"), tell=lambda _: None, timeout=60, origin=origin)
    found = outputs(latest(origin))
    assert (outcome.problem, found[:3], found[4:]) == (
        None, ["%FF", "%FF%FEbad", "A"], ["best/model.pt", "ckpt/step100/model.pt", "last.pt"],
    )  # fmt: skip
    assert found[3].startswith("a~")
    recorded = {file.path for file in latest(origin).files()}
    assert {"wd/output/%FF%FEbad", "wd/output/a", "wd/output/best/model.pt"} <= recorded


def test_links_that_lead_out_are_named_and_nothing_is_deleted(
    client: Client, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.LINKS", {"out": "/etc/passwd", "bin": "/bin", "none": "nothing"})
    said = list[Event]()
    outcome = run(client, recipe("true"), tell=said.append, timeout=60, origin=origin)
    assert "wd/output/bin, wd/output/none and wd/output/out were not fetched: a link to nothing" in said[-1].text
    assert isinstance(outcome.problem, ResultsLeft) and "a link to nothing" in str(outcome.problem)
    assert [pool.id for pool in client.pools.list()] == ["p"]
    assert not {"out", "bin", "none"} & set(outputs(latest(origin)))


def test_a_run_whose_results_are_expendable_deletes_them_and_what_was_created_after_its_tasks(
    client: Client, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.LINKS", {"secrets": "/etc"})
    states: list[str] = []

    def create(register: Register) -> None:
        states.extend(pool.id for pool in client.pools.list())
        body = {"id": "q", "vmSize": "STANDARD_D2S_V5", "virtualMachineConfiguration": MACHINE}

        def send(document: Any, attempts: Any) -> None:
            posted(client.batch, "/pools", msgspec.json.encode(document), attempts)

        register.create(client.batch, Thing("pool", "q"), body, send)
        states.extend(pool.id for pool in client.pools.list())

    run(
        client, recipe("true"), tell=lambda _: None, timeout=60, origin=origin, afterwards=create, intent=PROBE,
    )  # fmt: skip
    assert states == ["p", "p", "q"]
    assert not client.pools.list()
    assert not client.jobs.list()


def test_an_expendable_run_deletes_after_a_deadline(client: Client, origin: Origin) -> None:
    def fails(register: Register) -> None:
        raise TimedOut("no answer in time")

    with pytest.raises(TimedOut):
        run(
            client, recipe("true"), tell=lambda _: None, timeout=60, origin=origin, afterwards=fails, intent=PROBE,
        )  # fmt: skip
    assert not client.pools.list()


def interrupting(after: str) -> Any:
    def tell(event: Event) -> None:
        if event.kind == after:
            raise KeyboardInterrupt

    return tell


def test_ctrl_c_fetches_the_results_of_a_job_whose_pool_ends_with_it(client: Client, origin: Origin) -> None:
    wanted = recipe("print now", "wait")
    (job,) = wanted.jobs
    wanted = msgspec.structs.replace(wanted, jobs=(msgspec.structs.replace(job, auto_pool=AutoPool()),))
    with pytest.raises(KeyboardInterrupt):
        run(client, wanted, tell=interrupting("stdout"), timeout=60, origin=origin)
    assert "model.pt" in outputs(latest(origin))
    assert not client.jobs.list()


def test_a_second_ctrl_c_skips_the_fetching(client: Client, origin: Origin) -> None:
    def begin(files: int, size: int) -> None:
        raise KeyboardInterrupt

    said: list[Event] = []

    def tell(event: Event) -> None:
        said.append(event)
        interrupting("stdout")(event)

    with pytest.raises(KeyboardInterrupt):
        run(client, recipe("print now", "wait"), tell=tell, timeout=60, origin=origin, progress=Progress(begin))
    assert "results.skipped" in [event.kind for event in said]
    assert outputs(latest(origin)) == []
    assert not client.pools.list()


def test_following_reads_what_tasks_are_made_from_once(
    client: Client, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, read = recipe("print x"), []
    client.pools.add(wanted, timeout=60)
    monkeypatch.setattr(planning, "read_made", lambda recipe: read.append(recipe) or {})
    for recreate in (False, True):
        follow(client, wanted, tell=lambda _: None, timeout=60, origin=origin, recreate=recreate)
    assert read == [wanted, wanted]


def test_ctrl_c_deletes_nothing_if_the_files_could_not_be_listed(
    client: Client, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise ServiceError("the service is busy", operation="look at the task", code="ServerBusy")

    said: list[Event] = []

    def tell(event: Event) -> None:
        said.append(event)
        if event.kind == "stdout":
            monkeypatch.setattr(read, "task_nodes", refused)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(client, recipe("print now", "wait"), tell=tell, timeout=60, origin=origin)
    assert [pool.id for pool in client.pools.list()] == ["p"]
    assert "the results of job j could not be fetched: the service is busy" in [event.text for event in said]


def nodes_after(formula: str, minutes: int) -> int:
    """The nodes of a pool so long after its last task."""
    now = datetime(2026, 11, 28, tzinfo=timezone.utc)
    samples = tuple((now - timedelta(seconds=n * 30), float(n >= minutes * 2)) for n in range(80, -1, -1))
    return evaluate(formula, Seen(now, {"$PendingTasks": samples}, 1)).dedicated


@pytest.mark.parametrize("auto_pool", [False, True])
def test_a_created_file_beyond_the_limit_keeps_its_job_and_its_nodes_for_half_an_hour(
    emulator: Emulator, origin: Origin, monkeypatch: pytest.MonkeyPatch, auto_pool: bool
) -> None:
    monkeypatch.setattr(f"{__name__}.NAMES", ("../model.bin", "../.state/small model"))
    client = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key)))
    said: list[Event] = []
    made = recipe("exit 0", results={"max_created_size": "30k"})
    prices = Prices("westeurope", "USD", {"Standard_D2s_v5": 0.25})
    if auto_pool:
        made = msgspec.structs.replace(made, jobs=(msgspec.structs.replace(made.jobs[0], auto_pool=AutoPool()),))
    made = msgspec.structs.replace(made, catalog=Catalog(prices=(prices,)))
    outcome = run(client, made, tell=said.append, timeout=60, origin=origin)
    assert isinstance(outcome.problem, ResultsLeft) and outcome.problem.exit_code == 8
    assert outputs(latest(origin)) == [".state/small model"]
    assert "wd/model.bin (20.0 KiB) was not fetched: `results.max_created_size` is 30k" in said[-1].text
    [left] = (event.text for event in said if isinstance(event, Standing))
    assert "for 30 min at most after the last task: then its nodes leave" in left
    assert "fetch files: batchtrain jobs fetch j --all" in left
    assert auto_pool or "USD" in left.partition("\n")[0]
    [pool] = client.pools.list()
    formula = read.pool_document(client.batch, pool.id)["autoScaleFormula"]
    assert [nodes_after(formula, minutes) for minutes in (20, 26)] == [1, 0]
    client.jobs.handle("j").fetch(origin, everything=True)
    assert outputs(latest(origin)) == [".state/small model", "model.bin"]


def test_a_created_file_beyond_the_limit_that_is_in_storage_keeps_no_pool(
    client: Client, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.NAMES", ("../model.bin",))
    monkeypatch.setattr(Recording, "_is_in_storage", lambda self, task, task_id, node, path: path == "wd/model.bin")
    made = recipe("exit 0", results={"max_created_size": "1k"})
    outcome = run(client, made, tell=lambda _: None, timeout=60, origin=origin)
    assert isinstance(outcome.problem, ResultsLeft) and "their job was kept" in str(outcome.problem)
    assert client.jobs.state("j") and not client.pools.list()


def test_a_directory_that_cannot_be_written_is_refused_before_anything_is_made(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="results cannot be written to"):
        run(client, recipe("exit 0"), tell=lambda _: None, origin=Origin(tmp_path / "file"))
    assert not client.pools.list()
