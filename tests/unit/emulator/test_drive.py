"""How what is due reaches the store and the machine, when all goes well and when it does not."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from batchtrain.emulator import drive, http, jobs, pools, tasks
from batchtrain.emulator.reply import Slice
from tests.emulation import POOL, Account, tell


def test_what_could_not_be_stored_is_tried_again_and_then_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive, "STORE_AGAIN", 0.001)
    failures = iter(range(3))

    async def story(account: Account) -> None:
        commit = account.store.commit

        def full(*arguments: object) -> None:
            if account.world.jobs and account.world.jobs["job"].running and next(failures, None) is not None:
                raise sqlite3.OperationalError("database or disk is full")
            commit(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(account.store, "commit", full)
        await account.begin("exit 0")
        await account.until(lambda: account.state() == "completed")

    tell(tmp_path, story)
    assert next(failures, None) is None


def test_a_deleted_task_s_directory_is_out_of_the_way_before_its_namesake_starts(tmp_path: Path) -> None:
    async def story(account: Account) -> None:
        await account.begin("print first")
        await account.until(lambda: account.state() == "completed")
        account.do(tasks.delete_task, "job", "task")
        account.make("print second")
        await account.until(lambda: account.state() == "completed")
        node_id, run = account.machine.runs[-1]
        root = tmp_path / "nodes" / node_id
        await account.until(lambda: not any((root / "volatile").iterdir()))
        assert (root / run.directory / "stdout.txt").read_text() == "second\n"

    tell(tmp_path, story)


@pytest.mark.parametrize("act", ["preempt", "lose", "break"])
def test_a_node_that_takes_a_while_to_die_costs_its_task_one_requeue(tmp_path: Path, act: str) -> None:
    """The machine says that the run is lost before it says that the node is down."""

    async def story(account: Account) -> None:
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

    tell(tmp_path, story)


def test_a_download_ends_when_its_client_goes(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    sent: list[object] = []

    async def story() -> None:
        gone = asyncio.Event()

        async def receive() -> http.Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: http.Message) -> None:
            sent.append(message)
            gone.set()

        await http._send_slice(Slice(path.open("rb"), 0, 1 << 30), receive, send)

    asyncio.run(story())
    assert len(sent) < 10


def test_a_record_that_cannot_be_stored_does_not_stop_the_next(tmp_path: Path) -> None:
    async def story(account: Account) -> None:
        account.do(jobs.create_job, body={"id": "job", "poolInfo": {"poolId": "pool"}})
        account.world.jobs["job"].record.started = 2**70
        with pytest.raises(OverflowError):
            account.do(jobs.update_job, "job", body={"priority": 1})
        assert not account.world.take_changes()
        account.do(pools.create_pool, body=POOL)
        assert [change.kind for change in account.store.load()] == ["pool", "job"]

    tell(tmp_path, story)
