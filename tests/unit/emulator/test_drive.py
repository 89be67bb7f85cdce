"""How what is due reaches the store and the machine, when all goes well and when it does not."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from batchtrain.emulator import drive, http, jobs, nodes, pools, reports, scheduler, tasks, wire
from batchtrain.emulator.blob_store import BlobStore
from batchtrain.emulator.injection import Injection
from batchtrain.emulator.interface import NodeUnfit
from batchtrain.emulator.pace import Pace
from batchtrain.emulator.records import Node
from batchtrain.emulator.reply import Call, Reply, Slice, Steps
from batchtrain.emulator.world import Change, World
from tests.emulation import POOL, START, Account, Stage

JOB = {"id": "job", "poolInfo": {"poolId": "pool"}}
PATIENCE = 600.0
"""The most seconds of this machine for what follows a step of the clock; nothing waits longer than it takes."""


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(tmp_path)


async def test_what_could_not_be_stored_is_tried_again_and_then_carried_out(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive, "STORE_AGAIN", 0.001)
    failures = iter(range(3))
    commit = account.store.commit

    def full(*arguments: object) -> None:
        if account.world.jobs and account.world.jobs["job"].running and next(failures, None) is not None:
            raise sqlite3.OperationalError("database or disk is full")
        commit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(account.store, "commit", full)
    await account.begin("exit 0")
    await account.until(lambda: account.state() == "completed")
    assert next(failures, None) is None


async def test_a_deleted_task_s_directory_is_out_of_the_way_before_its_namesake_starts(
    account: Account, tmp_path: Path
) -> None:
    await account.begin("print first")
    await account.until(lambda: account.state() == "completed")
    account.do(tasks.delete_task, "job", "task")
    account.make("print second")
    await account.until(lambda: account.state() == "completed")
    node_id, run = account.machine.runs[-1]
    root = tmp_path / "nodes" / node_id
    await account.until(lambda: not any((root / "volatile").iterdir()))
    assert (root / run.directory / "stdout.txt").read_text() == "second\n"


@pytest.mark.parametrize("act", ["preempt", "lose", "break"])
async def test_a_node_that_takes_a_while_to_die_costs_its_task_one_requeue(account: Account, act: str) -> None:
    """The machine says that the run is lost before it says that the node is down."""
    await account.begin("wait", targetLowPriorityNodes=1, targetDedicatedNodes=0)
    (node,) = account.world.pools["pool"].nodes.values()
    stop = account.machine.shutdown

    async def slowly(node_id: str) -> None:
        await stop(node_id)
        for _ in range(20):
            await asyncio.sleep(0)

    account.machine.shutdown = slowly  # type: ignore[method-assign]
    await account.driver.befall(node.id, act, 0)
    task = account.world.jobs["job"].tasks["task"]
    if act == "lose":
        await account.until(lambda: account.state() == "running")
    assert (task.requeues, task.run) == (1, 2 if act == "lose" else 1)


async def test_a_download_ends_when_its_client_goes(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    sent: list[object] = []
    gone = asyncio.Event()

    async def receive() -> http.Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: http.Message) -> None:
        sent.append(message)
        gone.set()

    await http._send_slice(Slice(path.open("rb"), 0, 1 << 30), receive, send)
    assert len(sent) < 10


async def test_a_record_that_cannot_be_stored_does_not_stop_the_next(account: Account) -> None:
    account.do(jobs.create_job, body=JOB)
    account.world.jobs["job"].record.started = 2**70
    with pytest.raises(OverflowError):
        account.do(jobs.update_job, "job", body={"priority": 1})
    assert not account.world.take_changes()
    account.do(pools.create_pool, body=POOL)
    assert [change.kind for change in account.store.load()] == ["pool", "job"]


# --- what the machine reports ----------------------------------------------------------------------------------------


def node_of(account: Account) -> Node:
    (node,) = account.world.pools["pool"].nodes.values()
    return node


async def reaches(account: Account, state: str) -> Node:
    """The only node, when it has this state."""
    await account.until(lambda: [state] == [node.state for node in account.world.pools["pool"].nodes.values()])
    return node_of(account)


async def test_a_node_that_is_unfit_has_the_reason_of_the_machine(
    account: Account, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reason = NodeUnfit("ApplicationPackageError", "no such package")
    monkeypatch.setattr(account.machine, "boot", AsyncMock(side_effect=reason))
    account.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    node = await reaches(account, "unusable")
    (error,) = node.errors
    assert (error["code"], error["message"]) == ("ApplicationPackageError", "no such package")
    assert account.world.pools["pool"].record.allocation == "steady"
    assert f"node {node.id} is unusable: no such package" in caplog.messages


@pytest.mark.parametrize("reason", ["a fault was asked for (boot-fails)", "no space"])
async def test_a_new_node_that_does_not_boot_is_given_up_with_its_reason(
    account: Account, monkeypatch: pytest.MonkeyPatch, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    if reason == "no space":
        monkeypatch.setattr(account.machine, "boot", AsyncMock(side_effect=OSError(reason)))
    else:
        account.world.injections.add(Injection(kind="boot-fails", resource="pools/pool/nodes/*"))
    account.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    pool = account.world.pools["pool"]
    await account.until(lambda: pool.record.resize_errors)
    (error,) = pool.record.resize_errors
    assert (error["code"], error["message"].partition(": ")[2]) == ("AllocationFailed", reason)
    assert caplog.messages[-1].endswith(f" did not boot: {reason}")
    assert (pool.record.allocation, pool.nodes) == ("steady", {})


async def test_a_node_that_is_up_or_dies_is_logged(account: Account, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await account.begin("wait")
        node, task = node_of(account), account.world.jobs["job"].tasks["task"]
        await account.until(lambda: task.state == "running")
        assert f"node {node.id} of pool pool is up at {node.address} (process)" in caplog.messages
        account.machine._lost[node.id](node.id)
        await account.machine.shutdown(node.id)
        await account.until(lambda: task.requeues and node.boots == 2)
        assert f"node {node.id} died" in caplog.messages


@pytest.mark.parametrize(
    ("command", "words"), [("exit 3", "exit code 3"), ("fail BlobNotFound", "BlobNotFound: as asked"), ("exit 0", "")]
)
async def test_a_start_task_that_fails_stops_its_node(
    account: Account, command: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    start = {"commandLine": command, "waitForSuccess": True}
    account.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1, "startTask": start})
    await reaches(account, "starttaskfailed" if words else "idle")
    message = f"start task failed on {node_of(account).id}: {words}"
    assert [one for one in caplog.messages if "start task" in one] == ([message] if words else [])


@pytest.mark.parametrize("kind", ["preparation", "release"])
async def test_a_failing_preparation_or_release_is_logged_with_its_job_and_node(
    account: Account, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    ends = {"preparation": "exit 0", "release": "exit 0", kind: "exit 4"}
    special = {f"job{name.title()}Task": {"commandLine": command} for name, command in ends.items()}
    account.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    account.do(jobs.create_job, body={**JOB, **special})
    account.make("exit 0")
    if kind == "release":
        await account.until(lambda: account.state() == "completed")
        account.do(jobs.terminate_job, "job")
    failed = f"{kind} task of job job failed on {{}}: exit code 4"
    await account.until(lambda: account.machine.specs)
    await account.until(lambda: failed.format(node_of(account).id) in caplog.messages)


async def test_a_preparation_that_is_called_off_is_ended_on_its_node(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, ended = account.machine.end, list[tuple[object, ...]]()
    monkeypatch.setattr(account.machine, "end", lambda *of: ended.append(of) or end(*of))
    account.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    account.do(jobs.create_job, body={**JOB, "jobPreparationTask": {"commandLine": "wait"}})
    account.make("exit 0")
    await account.until(lambda: account.machine.runs)
    node, (_, run) = node_of(account), account.machine.runs[0]
    account.do(jobs.delete_job, "job")
    await account.until(lambda: not account.world.jobs)
    assert ended[0] == (node.id, run.scope, drive.GRACE)


@pytest.mark.parametrize(
    ("end", "uploads"),
    [(tasks.terminate_task, 1), (tasks.delete_task, 0), (jobs.terminate_job, 1), (jobs.delete_job, 0)],
)
async def test_the_output_of_a_task_that_is_ended_but_not_deleted_is_uploaded_before_it_is_complete(
    account: Account, end: Callable[[World, Call], Reply | Steps], uploads: int
) -> None:
    await account.begin("wait")
    await account.until(lambda: account.machine.runs)
    (entry,) = account.world.jobs.values()
    account.do(end, *("job", "task")[: 2 if "task" in end.__name__ else 1])
    await account.until(lambda: not entry.running)
    assert account.machine.uploaded == [account.machine.runs[0][1]] * uploads


async def test_a_command_that_the_machine_cannot_start_fails_with_its_reason(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account.machine, "run", AsyncMock(side_effect=RuntimeError("no more processes")))
    account.queue("exit 0")
    await account.until(lambda: account.state() == "completed")
    failure = account.world.jobs["job"].tasks["task"].failure
    assert failure is not None
    assert (failure["code"], failure["category"]) == ("CommandLaunchFailed", "ServerError")
    assert failure["message"] == "The command could not be launched: no more processes"


async def test_the_logs_of_a_node_are_sent_where_the_request_says(
    account: Account, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await account.begin("wait")
    node, url = node_of(account), "https://store/logs?sig=x"
    body = {"containerUrl": url, "startTime": "2026-11-21T09:00:00Z"}
    account.do(nodes.upload_logs, "pool", node.id, body=body)
    await account.until(lambda: account.machine.logs)
    assert account.machine.logs[0][:2] == (node.id, url)
    monkeypatch.setattr(account.machine, "send_logs", AsyncMock(side_effect=OSError("refused")))
    account.do(nodes.upload_logs, "pool", node.id, body=body)
    await account.until(lambda: f"the logs of node {node.id} were not uploaded: refused" in caplog.messages)


async def test_a_task_that_cannot_start_is_logged_with_the_reason(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    account.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    account.do(jobs.create_job, body=JOB)
    account.make("exit 0", multiInstanceSettings={"numberOfInstances": 2, "coordinationCommandLine": "exit 0"})
    start = "task task of job job stays active: "
    await account.until(lambda: any(message.startswith(start) for message in caplog.messages))


@pytest.mark.parametrize("code", [0, 3])
async def test_a_gang_coordinates_on_all_its_nodes_before_its_application_runs(account: Account, code: int) -> None:
    pool = {**POOL, "targetDedicatedNodes": 2, "enableInterNodeCommunication": True}
    account.do(pools.create_pool, body=pool)
    account.do(jobs.create_job, body=JOB)
    settings = {"numberOfInstances": 2, "coordinationCommandLine": f"exit {code}"}
    account.make("print together", multiInstanceSettings=settings)
    await account.until(lambda: account.state() == "completed")
    commands = [run.command_line for _, run in account.machine.runs]
    assert commands == [f"exit {code}"] * 2 + ["print together"] * (code == 0)
    assert len({node for node, _ in account.machine.runs}) == 2


@pytest.mark.parametrize("operation", [nodes.reboot_node, nodes.deallocate_node, nodes.reimage_node])
async def test_a_reboot_keeps_the_directory_of_a_node_and_a_reimage_does_not(
    account: Account, monkeypatch: pytest.MonkeyPatch, operation: Callable[[World, Call], Reply]
) -> None:
    remove = AsyncMock(side_effect=account.machine.shutdown)
    monkeypatch.setattr(account.machine, "remove", remove)
    account.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    node = await reaches(account, "idle")
    account.do(operation, "pool", node.id, body={})
    if operation is nodes.deallocate_node:
        await account.until(lambda: node.state == "deallocated")
        account.do(nodes.start_node, "pool", node.id, body={})
    await account.until(lambda: node.boots == 2 and node.state == "idle")
    assert remove.await_count == (operation is nodes.reimage_node)


async def test_a_preparation_whose_node_is_lost_runs_again_after_the_boot(account: Account) -> None:
    account.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    account.do(jobs.create_job, body={**JOB, "jobPreparationTask": {"commandLine": "wait"}})
    account.make("exit 0")
    await account.until(lambda: account.machine.runs)
    await account.machine.shutdown(node_of(account).id)
    (job_node,) = account.world.jobs["job"].nodes.values()
    await account.until(lambda: job_node.preparation.phase != "running")
    account.driver._lost(node_of(account).id)
    await account.until(lambda: len(account.machine.runs) == 2)
    assert [run.command_line for _, run in account.machine.runs] == ["wait", "wait"]


async def test_a_reset_waits_for_the_end_of_everything_that_ran(account: Account) -> None:
    await account.begin("wait")
    running = set(account.driver._running)
    assert running
    await account.driver.reset()
    assert all(task.done() for task in running)
    assert account.machine.specs == {}


@pytest.mark.parametrize("moment", ["start", "deletion"])
async def test_files_that_were_kept_for_a_job_that_is_gone_go(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setattr(drive, "GIVE_BACK_AFTER", 0.0)
    account.driver.blob_store = BlobStore(tmp_path, "a2V5")
    if moment == "deletion":
        account.do(jobs.create_job, body=JOB)
    folder = tmp_path / "blob_store" / "job"
    folder.mkdir(parents=True)
    account.driver.recover()
    assert folder.exists() == (moment == "deletion")
    if moment == "deletion":
        account.do(jobs.delete_job, "job")
    await account.until(lambda: not folder.exists())


# --- what goes wrong -------------------------------------------------------------------------------------------------


async def test_a_stored_record_that_belongs_to_nothing_is_named(
    stage: Stage, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    stage.pool(1)
    (node,) = stage.nodes()
    account.store.commit([Change("node", "pool", node.id, node)], 1)
    account.driver.recover()
    assert caplog.messages == [f"stored node {node.id} of pool belongs to nothing: passed over"]


async def test_an_effect_that_cannot_begin_is_logged_and_the_others_begin(
    account: Account, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin = reports.begin

    def failing(world: World, effect: scheduler.Effect, now: int) -> None:
        if isinstance(effect, scheduler.CreateNodes) and effect.pool == "bad":
            raise RuntimeError
        begin(world, effect, now)

    monkeypatch.setattr(reports, "begin", failing)
    for name in ("bad", "pool"):
        account.do(pools.create_pool, body={**POOL, "id": name, "targetDedicatedNodes": 1})
    await account.until(lambda: account.world.pools["pool"].nodes)
    assert "could not begin CreateNodes" in caplog.messages


@pytest.mark.parametrize("function", ["due", "take"])
async def test_an_internal_error_is_logged(
    account: Account, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, function: str
) -> None:
    owner, name = (scheduler, "due") if function == "due" else (account.machine, "sweep")
    monkeypatch.setattr(owner, name, Mock(side_effect=RuntimeError))
    account.driver.recover()
    await account.until(lambda: "internal error" in caplog.messages)


async def test_a_database_that_gives_no_space_back_is_asked_after_the_next_deletion(
    account: Account, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(drive, "GIVE_BACK_AFTER", 0.0)
    monkeypatch.setattr(drive, "GIVE_BACK_AGAIN", 0.0)
    give_back = Mock(side_effect=[sqlite3.OperationalError("database is locked"), True, False])
    monkeypatch.setattr(account.store, "give_back", give_back)
    for name in ("one", "two"):
        account.do(pools.create_pool, body={**POOL, "id": name})
        account.do(pools.delete_pool, name)
        await account.until(lambda: not account.world.pools and account.driver._giving_back is None)
    assert caplog.messages == ["the database gives no space back: database is locked"]
    assert give_back.call_count == 3


def test_a_directory_that_cannot_be_moved_or_deleted_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "task").symlink_to("/etc")
    assert drive._move_away(str(tmp_path), "none/task") == ""
    assert drive._move_away(str(tmp_path), "task/hosts") == "task/hosts"
    drive._delete(str(tmp_path), "task/hosts")
    drive._delete(str(tmp_path), "none")
    assert [message.partition(":")[0] for message in caplog.messages] == [
        f"could not move task/hosts of {tmp_path} away", f"could not delete task/hosts of {tmp_path}",
    ]  # fmt: skip


async def test_nodes_end_although_the_reading_of_the_clock_cannot_be_stored(
    account: Account, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    await account.begin("wait")
    monkeypatch.setattr(account.store, "note", Mock(side_effect=full))
    await account.driver.stop()
    assert account.machine.specs == {}
    assert "the clock's reading is not stored: database or disk is full" in caplog.messages


# --- time and faults -------------------------------------------------------------------------------------------------


async def test_a_stepped_clock_lets_a_node_boot_after_exactly_its_time(account: Account) -> None:
    account.world.pace = Pace(boot=(40, 40), removal=60)
    account.driver.clock.turn("stepped")
    account.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    await account.driver.advance(39 * wire.SECOND, PATIENCE)
    assert node_of(account).state in ("creating", "starting")
    await account.driver.advance(1 * wire.SECOND, PATIENCE)
    assert node_of(account).state == "idle"
    assert account.driver.clock() == START + 40 * wire.SECOND
    account.do(pools.delete_pool, "pool")
    await account.driver.advance(59 * wire.SECOND, PATIENCE)
    assert account.world.pools
    await account.driver.advance(1 * wire.SECOND, PATIENCE)
    assert not account.world.pools
    assert json.loads(account.store.meta("clock", ""))[0] == "stepped"


@pytest.mark.parametrize(
    ("mode", "wall_clock", "seconds"),
    [("real", "PT30M", 1800), ("real", "PT2H", 3600), ("stepped", "PT30M", 3600)],
    ids=["at its moment", "at least once an hour", "a stepped clock"],
)
async def test_the_next_look_is_at_the_next_deadline(
    account: Account, mode: str, wall_clock: str, seconds: int
) -> None:
    account.driver.clock.turn(mode)
    constraints = {"maxWallClockTime": wall_clock}
    account.do(jobs.create_job, body={**JOB, "constraints": constraints})
    await account.until(lambda: account.driver._timer is not None)
    assert account.driver._timer is not None
    left = account.driver._timer.when() - asyncio.get_running_loop().time()
    assert seconds - 900 < left <= seconds


@pytest.mark.parametrize(("pool", "state"), [("pool", "starttaskfailed"), ("other", "idle")])
async def test_a_fault_on_request_strikes_the_nodes_of_its_pool(account: Account, pool: str, state: str) -> None:
    fault = Injection(kind="start-task-fails", resource=f"pools/{pool}/nodes/*", exit_code=7)
    account.world.injections.add(fault)
    start = {"commandLine": "exit 0", "waitForSuccess": True}
    account.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1, "startTask": start})
    await reaches(account, state)


async def test_a_slow_node_starts_its_commands_later(account: Account) -> None:
    account.driver.clock.turn("stepped")
    account.world.injections.add(Injection(kind="node-slow", seconds=30, count=1))
    account.queue("exit 0")
    await account.driver.advance(29 * wire.SECOND, PATIENCE)
    assert account.machine.runs == []
    await account.driver.advance(1 * wire.SECOND, PATIENCE)
    await account.until(lambda: account.state() == "completed")


async def test_a_preempted_node_is_told_before_and_the_notice_goes_with_it(account: Account) -> None:
    await account.begin("wait", targetLowPriorityNodes=1, targetDedicatedNodes=0)
    node = node_of(account)
    notice = Path(node.root) / drive.EVENTS
    notice.parent.mkdir(exist_ok=True)
    account.driver.clock.turn("stepped")
    await account.driver.announce(node.id, 0, 30)
    announced = json.loads(notice.read_text())
    (event,) = announced.pop("Events")
    assert announced == {"DocumentIncarnation": 1}
    assert (event["EventType"], event["Resources"], event["EventId"]) == ("Preempt", [node.id], node.id[-36:])
    await account.driver.advance(29 * wire.SECOND, 0.1)
    assert (account.state(), notice.exists()) == ("running", True)
    await account.driver.advance(1 * wire.SECOND, 0.1)
    await account.until(lambda: account.world.jobs["job"].tasks["task"].requeues == 1 and not notice.exists())
