"""The embedded service as a process of its own: start, stop, crash. Its nodes are real."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from azure.batch import models
from azure.core.exceptions import AzureError

from batchtrain.emulator import logfile, mapped_images, server
from batchtrain.emulator.server import Settings
from tests import needs
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


def test_it_starts_answers_and_stops(data_dir: Path) -> None:
    started = spawn(data_dir)
    assert server.status(data_dir) == started
    with connect(started) as client:
        assert list(client.list_pools()) == []
    assert server.stop(data_dir)
    assert (server.status(data_dir), server.stop(data_dir)) == (None, False)


def test_it_starts_in_less_than_80_mb(data_dir: Path) -> None:
    assert psutil.Process(spawn(data_dir).pid).memory_info().rss < 80e6


def test_key_and_directory_are_for_their_owner_alone_and_the_key_stays(data_dir: Path) -> None:
    first = spawn(data_dir)
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((data_dir / "key").stat().st_mode) == 0o600
    assert first.key not in (data_dir / "emulator.json").read_text()
    server.stop(data_dir)
    assert spawn(data_dir).key == first.key


def test_two_emulators_never_share_a_data_directory(data_dir: Path) -> None:
    spawn(data_dir)
    with pytest.raises(server.AlreadyRunning, match=str(data_dir)):
        spawn(data_dir)
    assert server.status(data_dir) is not None


def test_a_taken_port_is_said(data_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(server.PortTaken, match=str(port)):
            server.spawn(Settings(data_dir, port=port))


def test_one_that_was_killed_comes_back_on_its_port_where_its_clients_wait(data_dir: Path) -> None:
    first = spawn(data_dir)
    kill(first)
    second = spawn(data_dir)
    assert second.endpoint == first.endpoint
    kill(second)
    with socket.create_server(("127.0.0.1", int(second.endpoint.rpartition(":")[2]))):
        assert spawn(data_dir).endpoint != second.endpoint


def test_a_damaged_database_is_named_with_a_command_after_which_it_starts(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "world.sqlite3").write_text("this is no database, and it is long enough to be taken for one" * 20)
    with pytest.raises(server.StartFailed, match=r"world.sqlite3 is damaged .*jobs cannot be read") as failure:
        spawn(data_dir)
    subprocess.run(str(failure.value).split("`")[1], shell=True, check=True)
    assert spawn(data_dir).endpoint
    assert (data_dir / "damaged/world.sqlite3").exists()


def test_a_damaged_record_is_named_as_well(data_dir: Path) -> None:
    with connect(spawn(data_dir)) as client:
        client.create_pool(pool())
    server.stop(data_dir)
    with contextlib.closing(sqlite3.connect(data_dir / "world.sqlite3", isolation_level=None)) as database:
        database.execute("UPDATE record SET data = x'ff'")
    with pytest.raises(server.StartFailed, match="is damaged"):
        spawn(data_dir)


@pytest.mark.parametrize(
    ("missing", "damage", "lost"),
    [
        ("world.sqlite3-wal", Path.unlink, "had the last changes before the emulator was killed"),
        ("world.sqlite3", Path.unlink, "is missing: all pools and jobs"),
        ("world.sqlite3", lambda path: path.write_bytes(b""), "is empty: all pools and jobs"),
    ],
)
def test_what_is_missing_of_the_database_is_told_once(
    data_dir: Path, missing: str, damage: Callable[[Path], object], lost: str
) -> None:
    kill(spawn(data_dir))
    assert spawn(data_dir).data_loss == ""
    kill(server.at(data_dir))
    damage(data_dir / missing)
    if missing == "world.sqlite3":
        (data_dir / "world.sqlite3-wal").unlink()
    assert lost in spawn(data_dir).data_loss
    assert lost in (data_dir / "emulator.log").read_text()
    server.stop(data_dir)
    assert spawn(data_dir).data_loss == ""


def test_a_number_that_another_process_took_over_is_no_emulator(data_dir: Path) -> None:
    started = spawn(data_dir)
    noted = (data_dir / "emulator.json").read_text()
    (data_dir / "emulator.json").write_text(noted.replace(str(started.pid), str(os.getpid())))
    assert server.status(data_dir) is None
    (data_dir / "emulator.json").write_text(noted)


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


def test_the_data_directory_decides_the_nodes_network(tmp_path: Path) -> None:
    assert len({server.network(tmp_path / str(number)) for number in range(20)}) > 15


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
    with connect(spawn(data_dir)) as client:
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


def test_real_nodes_run_a_gang_whose_daemons_live_until_the_end(data_dir: Path) -> None:
    """What a coordination command leaves in the background serves the application, then goes."""
    needs.program("pgrep")
    coordination = "/bin/sh -c 'sleep 1000 & echo coordinated'"
    application = "/bin/sh -c 'pgrep -f \"sleep 1000\" > /dev/null && echo daemon lives; env | grep -c ^AZ_BATCH_'"
    with connect(spawn(data_dir)) as client:
        client.create_pool(pool(nodes=2, enable_inter_node_communication=True))
        client.create_job(job())
        gang = models.MultiInstanceSettings(number_of_instances=2, coordination_command_line=coordination)
        client.create_task("job", task(command=application, multi_instance_settings=gang))
        assert completed(client).execution_info.exit_code == 0
        output = b"".join(client.download_task_file("job", "task", "stdout.txt"))
        assert output.startswith(b"coordinated\ndaemon lives\n") and int(output.split()[-1]) >= 18
        idle(client, 2)
    assert not [line for line in living(data_dir) if "sleep 1000" in line]


def test_an_image_is_a_local_environment_once_it_is_mapped(data_dir: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "train").write_text("#!/bin/sh\necho trained\n")
    (prefix / "bin" / "train").chmod(0o755)
    containers = models.BatchContainerConfiguration(type="dockerCompatible", container_image_names=["example/train"])
    image = models.BatchVmImageReference(publisher="microsoft-dsvm", offer="ubuntu-hpc", sku="2204")
    machine = models.VirtualMachineConfiguration(
        image_reference=image, node_agent_sku_id="batch.node.ubuntu 22.04", container_configuration=containers
    )
    settings = models.BatchTaskContainerSettings(image_name="example/train")
    with connect(spawn(data_dir)) as client:
        client.create_pool(pool(virtual_machine_configuration=machine))
        client.create_job(job())
        client.create_task("job", task("unmapped", "train", container_settings=settings))
        assert completed(client, "unmapped").execution_info.failure_info.code == "ContainerInvalidImage"
        mapped_images.map_image(data_dir, "example/train", prefix)
        client.create_task("job", task("mapped", "train", container_settings=settings))
        assert completed(client, "mapped").execution_info.exit_code == 0
        assert b"".join(client.download_task_file("job", "mapped", "stdout.txt")) == b"trained\n"
        client.create_task("job", task("no-entrypoint", "", container_settings=settings))
        failure = completed(client, "no-entrypoint").execution_info.failure_info
        assert "--entrypoint CMD" in failure.message
        mapped_images.map_image(data_dir, "example/train", prefix, "/bin/sh -c 'echo entered; train'")
        client.create_task("job", task("entrypoint", "", container_settings=settings))
        assert completed(client, "entrypoint").execution_info.exit_code == 0
        assert b"".join(client.download_task_file("job", "entrypoint", "stdout.txt")) == b"entered\ntrained\n"
        mapped_images.map_image(data_dir, "example/train", prefix, "/bin/echo 'first words'")
        client.create_task("job", task("arguments", "-i 'the film'", container_settings=settings))
        assert completed(client, "arguments").execution_info.exit_code == 0
        assert b"".join(client.download_task_file("job", "arguments", "stdout.txt")) == b"first words -i the film\n"
        settings.container_run_options = "--entrypoint /usr/bin/printf"
        client.create_task("job", task("other", "%s- a b", container_settings=settings))
        assert completed(client, "other").execution_info.exit_code == 0
        assert b"".join(client.download_task_file("job", "other", "stdout.txt")) == b"a-b-"


def test_a_node_that_is_killed_comes_back_and_its_task_runs_again(data_dir: Path) -> None:
    started = spawn(data_dir)
    with connect(started) as client:
        client.create_pool(pool())
        client.create_job(job())
        client.create_task("job", task(command="sleep 1000"))
        eventually(lambda: client.get_task("job", "task").state == "running")
        (agent,) = psutil.Process(started.pid).children()
        agent.kill()
        found = eventually(
            lambda: (
                (one := client.get_task("job", "task")).execution_info.requeue_count == 1
                and one.state == "running"
                and one
            )
        )
        assert found.execution_info.retry_count == 0


def test_reset_removes_every_node(data_dir: Path) -> None:
    with connect(spawn(data_dir)) as client:
        client.create_pool(pool(nodes=2))
        idle(client, 2)
        server.reset(data_dir)
        assert list(client.list_pools()) == []
    assert not list(data_dir.glob("nodes/*/tvmps_*"))
    with pytest.raises(server.NotRunning):
        server.reset(data_dir / "other")


def test_its_log_stays_below_a_bound(data_dir: Path) -> None:
    started = spawn(data_dir)
    with started.log.open("a") as log:
        log.write("x" * (logfile.LIMIT + 1))
    with connect(started) as client:
        client.create_pool(pool())
        idle(client, 1)
    former = started.log.with_name("emulator.log.1")
    assert former.stat().st_size == logfile.LIMIT
    assert started.log.stat().st_size < 10_000
    assert "is up at" in former.read_text()[-1000:] + started.log.read_text()


def made(data_dir: Path) -> list[str]:
    """What there is below the directories of pools and nodes. Unlike Path.glob, os.walk skips what goes meanwhile."""
    walks = (os.walk(data_dir / place) for place in ("nodes", "mnt", "machine", "docker"))
    found = (Path(top, name) for walk in walks for top, *names in walk for name in itertools.chain(*names))
    return sorted(str(path.relative_to(data_dir)) for path in found)


def test_a_deleted_pool_leaves_no_directory(data_dir: Path) -> None:
    with connect(spawn(data_dir)) as client:
        client.create_pool(pool())
        idle(client, 1)
        assert made(data_dir)
        client.begin_delete_pool("pool", polling_interval=0.05).result()
        eventually(lambda: not made(data_dir))


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


@pytest.mark.parametrize("moment", range(4))
def test_a_pool_whose_deletion_is_killed_leaves_no_directory(data_dir: Path, moment: int) -> None:
    started = spawn(data_dir)
    with connect(started) as client:
        client.create_pool(pool(nodes=2))
        idle(client, 2)
        client.begin_delete_pool("pool")
        step = ["", "machine/pool/nodes/", "nodes/pool/", "nodes/pool"][moment]
        eventually(
            lambda: (
                moment == 0
                or not any(path.startswith(step) for path in made(data_dir))
                or not list(client.list_pools())
            )
        )
    kill(started)
    with connect(spawn(data_dir)) as client:
        eventually(lambda: not list(client.list_pools()) and not made(data_dir))


def test_a_directory_of_other_files_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o755)
    (other / "thesis.tex").touch()
    with pytest.raises(server.StartFailed, match="a directory of its own"):
        spawn(other)
    assert stat.S_IMODE(other.stat().st_mode) == 0o755
    assert [path.name for path in other.iterdir()] == ["thesis.tex"]


def test_a_stopped_emulator_has_no_process(data_dir: Path) -> None:
    started = spawn(data_dir)
    server.stop(data_dir)
    assert not psutil.pid_exists(started.pid)
