"""The embedded service as a process of its own: start, stop, crash. Its nodes are real."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from azure.core.exceptions import AzureError

from batchtrain.emulator import logfile, server
from batchtrain.emulator.server import Settings
from tests.contract.conftest import completed, connect, eventually, idle, job, pool, task

pytestmark = pytest.mark.process


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A data directory; whatever still runs on it at the end is stopped."""
    yield tmp_path / "data"
    server.stop(tmp_path / "data")


def spawn(data_dir: Path) -> server.Status:
    return server.spawn(Settings(data_dir, port=0))


def kill(status: server.Status) -> None:
    """As hard as it gets; the process is ours, so it is reaped."""
    os.kill(status.pid, signal.SIGKILL)
    os.waitpid(status.pid, 0)


def living(data_dir: Path) -> list[str]:
    """Command lines of all processes that name the data directory, in arguments or environment."""
    others = (process for process in psutil.process_iter() if process.pid != os.getpid())
    return [words for process in others if str(data_dir) in (words := _words(process))]


def _words(process: psutil.Process) -> str:
    try:
        return f"{' '.join(process.cmdline())} {process.environ()}"
    except psutil.Error:
        return ""


def test_it_starts_answers_in_less_than_80_mb_and_leaves_no_process(data_dir: Path) -> None:
    started = spawn(data_dir)
    assert server.status(data_dir) == started
    with connect(started) as client:
        assert list(client.list_pools()) == []
    assert psutil.Process(started.pid).memory_info().rss < 80e6
    assert server.stop(data_dir)
    assert (server.status(data_dir), server.stop(data_dir)) == (None, False)
    assert not psutil.pid_exists(started.pid)


def test_sigterm_ends_it_and_every_process_of_its_nodes(data_dir: Path) -> None:
    started = spawn(data_dir)
    with connect(started) as client:
        client.create_pool(pool(nodes=2))
        client.create_job(job())
        client.create_task("job", task(command="/bin/sh -c 'sleep 1000 & setsid sleep 1001 & wait'"))
        eventually(lambda: client.get_task("job", "task").state == "running")
    os.kill(started.pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(started.pid, 0)[1]) == 0
    eventually(lambda: not living(data_dir))


def test_no_acknowledged_task_is_lost_to_kill_9(data_dir: Path) -> None:
    started = spawn(data_dir)
    acknowledged: list[str] = []
    with connect(started) as client:
        client.create_job(job())

        def add() -> None:
            for number in range(100_000):
                try:
                    client.create_task("job", task(f"t{number}"))
                except AzureError:
                    return
                acknowledged.append(f"t{number}")

        adding = threading.Thread(target=add)
        adding.start()
        eventually(lambda: len(acknowledged) >= 100)
        kill(started)
        adding.join()
    assert len(acknowledged) < 100_000
    restarted = spawn(data_dir)
    assert (restarted.endpoint, restarted.data_loss) == (started.endpoint, "")
    with connect(restarted) as client:
        found = [one.id for one in client.list_tasks("job")]
    assert set(acknowledged) <= set(found)
    assert len(found) <= len(acknowledged) + 1


def test_after_kill_9_the_running_task_runs_once_more_and_the_finished_one_does_not(data_dir: Path) -> None:
    started = spawn(data_dir)
    count = "/bin/sh -c 'echo run >> ../count; exec sleep {}'"
    with connect(started) as client:
        client.create_pool(pool(task_slots_per_node=2))
        client.create_job(job())
        client.create_task("job", task("done", count.format(0)))
        client.create_task("job", task("long", count.format(1000)))
        completed(client, "done")
        eventually(lambda: "count" in [file.name for file in client.list_task_files("job", "long")])
        before = client.get_task("job", "done").as_dict()
    kill(started)
    eventually(lambda: not living(data_dir))
    with connect(spawn(data_dir)) as client:
        after = client.get_task("job", "done").as_dict()
        assert after["executionInfo"] == before["executionInfo"]
        idle_or_running = {"idle", "running"}
        eventually(lambda: {node.state for node in client.list_nodes("pool")} <= idle_or_running)
        found = eventually(lambda: (one := client.get_task("job", "long")).state == "running" and one)
        assert (found.execution_info.requeue_count, found.execution_info.retry_count) == (1, 0)
        assert found.execution_info.last_requeue_time is not None
        eventually(lambda: b"".join(client.download_task_file("job", "long", "count")) == b"run\nrun\n")


def test_its_log_stays_below_a_bound_and_a_deleted_pool_leaves_no_directory(data_dir: Path) -> None:
    started = spawn(data_dir)
    with started.log.open("a") as log:
        log.write("x" * (logfile.LIMIT + 1))
    with connect(started) as client:
        client.create_pool(pool())
        idle(client, 1)
        assert made(data_dir)
        client.begin_delete_pool("pool", polling_interval=0.05).result()
        eventually(lambda: not made(data_dir))
    former = started.log.with_name("emulator.log.1")
    assert former.stat().st_size == logfile.LIMIT
    assert started.log.stat().st_size < 10_000
    assert "is up at" in former.read_text()[-1000:] + started.log.read_text()


def made(data_dir: Path) -> list[str]:
    """What there is below the directories of pools and nodes. Unlike Path.glob, os.walk skips what goes meanwhile."""
    walks = (os.walk(data_dir / place) for place in ("nodes", "mnt", "machine", "docker"))
    found = (Path(top, name) for walk in walks for top, *names in walk for name in itertools.chain(*names))
    return sorted(str(path.relative_to(data_dir)) for path in found)


def test_a_restart_removes_what_no_record_knows_and_nothing_else(data_dir: Path) -> None:
    started = spawn(data_dir)
    with connect(started) as client:
        client.create_pool(pool())
        (node,) = idle(client, 1)
    (data_dir / "nodes/pool" / str(node.id) / "shared/kept").touch()
    kill(started)
    for place in ("nodes/gone/tvmps_1/shared", f"nodes/pool/{node.id}x", "machine/gone/peers", "mnt/gone",
                  f"machine/pool/nodes/{node.id}x/tmp", "nodes/.gone-1/a"):  # fmt: skip
        (data_dir / place).mkdir(parents=True)
    (data_dir / "machine/hold").touch()
    with connect(spawn(data_dir)) as client:
        idle(client, 1)
        eventually(lambda: not [path for path in made(data_dir) if path.count("gone") or "hold" in path])
    found = made(data_dir)
    assert f"nodes/pool/{node.id}/shared/kept" in found
    assert not [path for path in found if f"{node.id}x" in path or path.startswith("mnt")]


@pytest.mark.parametrize("step", ["", "nodes/pool/"], ids=["at once", "after its nodes"])
def test_a_pool_whose_deletion_is_killed_leaves_no_directory(data_dir: Path, step: str) -> None:
    started = spawn(data_dir)
    with connect(started) as client:
        client.create_pool(pool(nodes=2))
        idle(client, 2)
        client.begin_delete_pool("pool")
        eventually(
            lambda: (
                not step or not any(path.startswith(step) for path in made(data_dir)) or not list(client.list_pools())
            )
        )
    kill(started)
    with connect(spawn(data_dir)) as client:
        eventually(lambda: not list(client.list_pools()) and not made(data_dir))
