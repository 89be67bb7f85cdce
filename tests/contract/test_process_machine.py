"""A node runs commands as Azure Batch's does, and ends all that it started: in namespaces and as plain processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from batchtrain.emulator.interface import Download, Exit, NodeLost, Run
from batchtrain.emulator.machine import marked_processes
from batchtrain.emulator.machine.agent import descendants
from batchtrain.emulator.machine.process import open_machine
from tests import examples, needs
from tests.contract.nodes_on_this_machine import SCOPE, TASK, Nodes, address, alive
from tests.waiting import reached, until

pytestmark = pytest.mark.process

DAEMON = r"""bash -c '
(setsid bash -c "trap : TERM; touch up; while [ \$SECONDS -lt 60 ]; do sleep 5 & wait; done" &) & wait
until [ -e up ]; do sleep 0.01; done'"""
"""Leaves a process two forks away, in a session of its own, that does not heed SIGTERM. (For a minute at most: when the
code under test is broken, the machine need not suffer.)"""

FORKER = "bash -c 'for i in 1 2 3; do (while [ $SECONDS -lt 20 ]; do (sleep 0.01 &); done &); done'"
"""Leaves three processes that fork without end, or for 20 seconds."""


@pytest.fixture(params=examples.first(["namespaces", "process"]))
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    kind: str = request.param
    if kind == "namespaces":
        namespaces(monkeypatch, tmp_path)
    else:
        monkeypatch.setenv("BATCHTRAIN_EMULATOR_ISOLATION", kind)
    return kind


@pytest.fixture
def as_plain_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_ISOLATION", "process")


@pytest.fixture
def in_namespaces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    namespaces(monkeypatch, tmp_path)


def namespaces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_ISOLATION", "namespaces")
    try:
        asyncio.run(open_machine(tmp_path / "probe", {}.get))
    except OSError as error:
        needs.namespaces(str(error))


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    """The image `i` is mapped to `env`."""
    return Nodes(tmp_path / "d", i=tmp_path / "env")


@pytest.fixture
def marker() -> str:
    """A value that only one test's processes have in their environment."""
    return uuid.uuid4().hex


# --- a run ------------------------------------------------------------------------------------------------------


async def test_a_run_has_its_exit_code_output_files_directory_and_environment(isolation: str, nodes: Nodes) -> None:
    up = nodes.up["a"]
    for _ in range(2):  # a second run of the same scope appends
        assert await nodes.run("a", "bash -c 'echo $WORD; echo oops >&2; pwd; exit 7'", WORD="hello") == Exit(7)
    assert nodes.file("a", "stdout.txt").read_text() == f"hello\n{up.root_inside}/{TASK}/wd\n" * 2
    assert nodes.file("a", "stderr.txt").read_text() == "oops\n" * 2
    assert up.isolation == isolation


async def test_nothing_of_the_emulators_environment_reaches_a_run(
    isolation: str, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_BATCH_ACCESS_KEY", "secret")
    printed = dict(line.split("=", 1) for line in (await nodes.output("a", "env", WORD="1")).splitlines())
    assert printed == {**nodes.up["a"].environment, "WORD": "1"}


async def test_a_large_environment_and_many_runs_at_once_arrive_whole(isolation: str, nodes: Nodes) -> None:
    chunks = {f"CHUNK_{number}": "x" * 32_000 for number in range(8)}
    runs = [
        Run(f"scope-{number}", f"{TASK}-{number}", "bash -c 'exit ${#CHUNK_7}'", {**chunks, "CHUNK_7": "x" * number})
        for number in range(12)
    ]
    ended = await asyncio.gather(*(nodes.machine.run("a", run) for run in runs))
    assert [exit.code for exit in ended] == list(range(12))


# --- the end of things ------------------------------------------------------------------------------------------


async def test_what_a_run_leaves_behind_lives_until_its_scope_ends(isolation: str, nodes: Nodes, marker: str) -> None:
    assert await nodes.run("a", DAEMON, MARK=marker) == Exit(0)
    assert await nodes.run("a", "true") == Exit(0)
    assert alive(f"MARK={marker}")
    await nodes.machine.end("a", SCOPE)
    assert not alive(f"MARK={marker}")


async def test_ending_one_scope_leaves_the_others_alone(isolation: str, nodes: Nodes, marker: str) -> None:
    await nodes.run("a", DAEMON, MARK=marker)
    await nodes.machine.end("a", "another")
    assert alive(f"MARK={marker}")


async def test_a_process_gets_its_grace_to_end_by_itself(isolation: str, nodes: Nodes) -> None:
    command = "bash -c 'trap \"echo bye; exit 3\" TERM; echo up > up; while :; do sleep 9 & wait; done'"
    running = asyncio.create_task(nodes.run("a", command))
    await reached(lambda: nodes.file("a", "wd/up").exists())
    await nodes.machine.end("a", SCOPE, grace=30)
    assert await running == Exit(3)
    assert nodes.file("a", "stdout.txt").read_text() == "bye\n"


async def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(isolation: str, nodes: Nodes) -> None:
    running = asyncio.create_task(nodes.run("a", "bash -c 'trap \"\" TERM; echo > up; sleep 100'"))
    await reached(lambda: nodes.file("a", "wd/up").exists())
    await nodes.machine.end("a", SCOPE, grace=0.1)
    assert await running == Exit(137)


async def test_a_tree_that_keeps_forking_is_ended(isolation: str, nodes: Nodes, marker: str) -> None:
    await nodes.run("a", FORKER, MARK=marker)
    assert alive(f"MARK={marker}")
    await nodes.machine.end("a", SCOPE)
    assert not alive(f"MARK={marker}")


async def test_a_node_that_is_shut_down_leaves_no_process(isolation: str, nodes: Nodes, marker: str) -> None:
    await nodes.boot("b")
    await nodes.run("a", DAEMON, MARK=marker)
    await nodes.run("b", f"ssh {address('a')} 'MARK={marker} setsid sleep 100 > /dev/null 2>&1 &'")
    running = asyncio.create_task(nodes.run("a", "sleep 100", MARK=marker))
    await asyncio.sleep(0)
    assert len(alive(f"MARK={marker}")) >= 2
    await nodes.machine.shutdown("a")
    assert not alive(f"MARK={marker}")
    with pytest.raises(NodeLost):
        await running
    await nodes.machine.shutdown("a")
    assert nodes.lost.empty()
    assert nodes.up["a"].root.is_dir()


async def test_a_node_whose_agent_is_killed_is_lost_with_its_runs(isolation: str, nodes: Nodes, marker: str) -> None:
    await nodes.run("a", DAEMON, MARK=marker)
    running = asyncio.create_task(nodes.run("a", "bash -c 'touch ready; sleep 100'", MARK=marker))
    await reached(lambda: nodes.file("a", "wd/ready").exists())
    for pid in agents("a"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert await nodes.lost.get() == "a"
    with pytest.raises(NodeLost):
        await running
    with pytest.raises(NodeLost):
        await nodes.run("a", "true")
    assert not alive(f"MARK={marker}")
    await nodes.boot("a")
    assert await nodes.run("a", "true") == Exit(0)


def agents(name: str) -> list[int]:
    """The processes of a node's agent, its supervisors too, which are forks of it."""
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(f"\0{name}\0".encode()):
                found.append(pid)
    return found


async def test_cancelling_a_boot_leaves_no_agent(isolation: str, nodes: Nodes) -> None:
    booting = asyncio.create_task(nodes.boot("b"))
    await reached(lambda: agents("b"), pause=0)
    for _ in range(10):  # on to where it waits for the agent's answer
        await asyncio.sleep(0)
    booting.cancel()
    await asyncio.wait({booting})
    assert booting.cancelled()
    assert not agents("b")


async def test_a_scope_that_stopped_its_own_supervisor_is_ended(in_namespaces: None, nodes: Nodes, marker: str) -> None:
    running = asyncio.create_task(nodes.run("a", "bash -c 'touch up; kill -STOP $PPID; sleep 100'", MARK=marker))
    while not (stopped := [pid for pid in agents("a") if state(pid) == "T"]):
        await asyncio.sleep(0.01)
    try:
        await nodes.machine.end("a", SCOPE)
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    await running
    assert not alive(f"MARK={marker}")


def state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


async def test_a_run_that_kills_its_supervisor_leaves_no_process_but_those_of_ssh_sessions(
    isolation: str, nodes: Nodes, marker: str
) -> None:
    await nodes.run("a", f"ssh {address('a')} 'LOGIN={marker} setsid sleep 100 > /dev/null 2>&1 &'")
    await nodes.run("a", DAEMON, MARK=marker)
    ended = await nodes.run("a", "bash -c 'kill -9 $PPID; sleep 100'", MARK=marker)
    assert ended == Exit(137)
    until(lambda: not alive(f"MARK={marker}"))
    assert alive(f"LOGIN={marker}")


OWNER = """
import asyncio, sys
from pathlib import Path
from tests.contract.nodes_on_this_machine import Nodes
from tests.contract.test_process_machine import DAEMON

async def main():
    async with Nodes(Path(sys.argv[1])) as nodes:
        await nodes.boot("b")
        for name in "ab":
            await nodes.run(name, DAEMON, MARK=sys.argv[2])
        print("ready", flush=True)
        await nodes.run("a", "sleep 1000", MARK=sys.argv[2])

asyncio.run(main())
"""


def test_kill_9_of_the_emulator_leaves_no_process_of_any_node(
    isolation: str, tmp_path: Path, marker: str, root: Path
) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "d"), marker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        assert len(alive(f"MARK={marker}")) >= 2
        owner.kill()
    until(lambda: not alive(f"MARK={marker}"))


def test_what_cannot_be_killed_is_logged_and_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, marker: str
) -> None:
    monkeypatch.setattr(marked_processes, "SECONDS", 0.001)
    monkeypatch.setattr(marked_processes.os, "kill", lambda pid, number: None)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"MARK": marker}) as stuck:
        until(lambda: alive(f"MARK={marker}"))
        marked_processes.kill(f"MARK={marker}")
        assert stuck.poll() is None
    assert f"cannot be killed: {stuck.pid}" in caplog.text


async def test_a_deletion_that_is_called_off_is_taken_up_by_the_next(in_namespaces: None, tmp_path: Path) -> None:
    machine = await open_machine(tmp_path / "d", {}.get)
    (tmp_path / "d/nodes/gone/x").mkdir(parents=True)
    async with machine._removals, machine._removals:  # no thread is free
        first = asyncio.create_task(machine.sweep({}))
        await reached(lambda: machine._going)
        first.cancel()
        await asyncio.wait([first])
    await machine.sweep({})
    assert not list((tmp_path / "d/nodes").iterdir())


async def test_a_removed_node_leaves_no_directory_even_where_a_task_locked_it(isolation: str, nodes: Nodes) -> None:
    await nodes.run("a", "bash -c 'mkdir -p x/y; touch x/y/z; chmod 0 x/y; chmod 500 x'")
    await nodes.machine.remove("a")
    await nodes.machine.remove("a")
    assert not nodes.up["a"].root.exists()


async def test_removing_a_node_leaves_the_mode_of_what_its_links_lead_to(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.touch(mode=0o640)
    unlink, refused = os.unlink, []

    def refuse_once(path: str, *, dir_fd: int | None = None) -> None:
        if Path(path).name == "link" and not refused:
            refused.append(path)
            raise PermissionError(path)  # root is refused nothing
        unlink(path, dir_fd=dir_fd)

    await nodes.run("a", f"ln -s {outside} link")
    monkeypatch.setattr(os, "unlink", refuse_once)
    await nodes.machine.remove("a")
    assert refused
    assert not nodes.up["a"].root.exists()
    assert outside.stat().st_mode & 0o777 == 0o640


async def test_a_profile_that_is_a_link_is_replaced_at_boot(nodes: Nodes, tmp_path: Path) -> None:
    outside, profile = tmp_path / "outside", nodes.up["a"].root / "volatile/home/_azbatch/.profile"
    outside.write_text("safe")
    await nodes.machine.shutdown("a")
    profile.unlink()
    profile.symlink_to(outside)
    await nodes.boot("a")
    assert profile.read_text().startswith("PATH=")
    assert outside.read_text() == "safe"


# --- a node among others ----------------------------------------------------------------------------------------


async def test_a_node_has_its_own_name_tree_shm_and_tmp(in_namespaces: None, nodes: Nodes) -> None:
    await nodes.boot("b")
    look = "bash -c 'hostname; hostname -i; cat /etc/hostname; ls /tmp/note /dev/shm/note ../note 2>/dev/null; echo .'"
    assert await nodes.run("a", "touch /tmp/note /dev/shm/note ../note") == Exit(0)
    assert await nodes.output("b", look) == f"host-b\n{address('b')}\nhost-b\n.\n"
    assert (await nodes.output("a", look)).splitlines()[:2] == ["host-a", address("a")]
    assert nodes.up["a"].root_inside == nodes.up["b"].root_inside
    assert nodes.up["a"].root != nodes.up["b"].root


async def test_a_node_learns_the_name_of_one_that_joins_later(in_namespaces: None, nodes: Nodes) -> None:
    assert (await nodes.run("a", "getent hosts host-b")).code == 2
    await nodes.boot("b")
    assert (await nodes.output("a", "getent hosts host-b")).split() == [address("b"), "host-b"]


async def test_two_nodes_have_two_homes(isolation: str, nodes: Nodes) -> None:
    await nodes.boot("b")
    await nodes.run("a", "bash -c 'touch ~/note'")
    assert (await nodes.output("b", "bash -c 'ls ~'")) == ""
    assert (nodes.up["a"].root / "volatile/home/_azbatch/note").exists()


async def test_an_ssh_session_has_the_nodes_environment_and_nothing_of_the_callers(
    isolation: str, nodes: Nodes
) -> None:
    await nodes.boot("b")
    printed = await nodes.output("a", f"ssh {address('b')} env", AZ_BATCH_TASK_ID="t", PATH="/usr/bin:/bin")
    session = dict(line.split("=", 1) for line in printed.splitlines())
    connection = session.pop("SSH_CONNECTION").split()
    assert (connection[0], connection[2:]) == (address("a"), [address("b"), "22"])
    assert session.pop("SSH_CLIENT").split() == [connection[0], connection[1], "22"]
    assert session.pop("PWD") == nodes.up["b"].environment["HOME"]
    for made_by_bash in ("SHLVL", "_"):
        session.pop(made_by_bash)
    assert session == nodes.up["b"].environment


async def test_an_ssh_session_has_no_descriptor_but_its_streams(isolation: str, nodes: Nodes) -> None:
    await nodes.boot("b")
    listings_own = "3"
    printed = await nodes.output("a", f"ssh {address('b')} ls /proc/self/fd")
    assert printed.split() == ["0", "1", "2", listings_own]


async def test_ssh_passes_on_the_streams_and_the_exit_status(isolation: str, nodes: Nodes) -> None:
    await nodes.boot("b")
    ended = await nodes.run("a", f"bash -c 'echo word | ssh -x {address('b')} \"cat; echo oops >&2; exit 7\"'")
    assert ended == Exit(7)
    assert nodes.file("a", "stdout.txt").read_text() == "word\n"
    assert nodes.file("a", "stderr.txt").read_text() == "oops\n"
    assert await nodes.run("a", f"ssh {address('b')} 'kill -9 $$'") == Exit(255)
    assert await nodes.output("a", "bash -c 'echo echo from stdin | ssh host-b'") == "from stdin\n"


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("127.0.77.99", "ssh: connect to host 127.0.77.99 port 22: No route to host\n"),
        ("nowhere", "ssh: Could not resolve hostname nowhere: Name or service not known\n"),
        ("../../x", "ssh: Could not resolve hostname ../../x: Name or service not known\n"),
    ],
)
async def test_ssh_to_no_node_of_the_pool_ends_with_255(nodes: Nodes, host: str, message: str) -> None:
    assert await nodes.run("a", f"ssh {host} true") == Exit(255)
    assert nodes.file("a", "stderr.txt").read_text() == message


async def test_ssh_to_a_node_that_was_shut_down_ends_with_255(isolation: str, nodes: Nodes) -> None:
    await nodes.boot("b")
    assert await nodes.run("a", f"ssh {address('b')} true") == Exit(0)
    await nodes.machine.shutdown("b")
    assert await nodes.run("a", f"ssh {address('b')} true") == Exit(255)


async def test_an_ssh_session_outlives_its_client(isolation: str, nodes: Nodes, marker: str) -> None:
    await nodes.boot("b")
    session = f"MARK={marker} sleep 100 & touch /dev/shm/{marker}; wait"
    running = asyncio.create_task(nodes.run("a", f"ssh {address('b')} '{session}'"))
    await reached(lambda: alive(f"MARK={marker}"))
    await nodes.machine.end("a", SCOPE)
    assert (await running).code == 143
    assert alive(f"MARK={marker}")
    await nodes.machine.shutdown("b")
    assert not alive(f"MARK={marker}")
    Path("/dev/shm", marker).unlink(missing_ok=True)


async def test_a_login_shell_still_finds_the_stand_ins_first(isolation: str, nodes: Nodes) -> None:
    stand_in = nodes.up["a"].environment["PATH"].partition(":")[0]
    assert await nodes.output("a", "bash -lc 'command -v ssh'") == f"{stand_in}/ssh\n"


# --- images and GPUs --------------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """`hello`, of the image."""
    path = tmp_path / "env/bin/hello"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\necho hello\n")
    path.chmod(0o755)
    return path


async def test_an_images_programs_come_first_for_its_runs_but_not_in_ssh_sessions(
    isolation: str, nodes: Nodes, program: Path
) -> None:
    await nodes.boot("b")
    assert await nodes.output("a", "hello", image="i") == "hello\n"
    assert await nodes.output("a", f"ssh {address('b')} {program}", image="i") == "hello\n"
    assert await nodes.run("a", f"ssh {address('b')} hello", image="i") == Exit(127)


async def test_an_environment_that_is_deleted_fails_its_runs_and_no_other(
    isolation: str, nodes: Nodes, program: Path
) -> None:
    assert await nodes.output("a", "hello", image="i") == "hello\n"
    shutil.rmtree(program.parents[1])
    ended = await nodes.run("a", "hello", image="i")
    assert (ended.code, ended.failure) == (None, "ContainerInvalidImage")
    assert f"image i is mapped to {program.parents[1]}, which is not there" in ended.message
    await nodes.boot("b")
    await nodes.boot("a")
    assert await nodes.run("a", "true") == await nodes.run("b", "true") == Exit(0)


async def test_nvidia_smi_counts_the_gpus_of_the_vm_size(isolation: str, nodes: Nodes) -> None:
    await nodes.boot("b", gpus=4)
    assert await nodes.output("b", "bash -c 'nvidia-smi -L | wc -l'") == "4\n"
    assert (await nodes.output("b", "nvidia-smi -L")).startswith("GPU 0: Emulated GPU of STANDARD_NC24R (UUID: GPU-")
    query = "nvidia-smi --query-gpu=index,count --format=csv,noheader"
    assert await nodes.output("b", query) == "0, 4\n1, 4\n2, 4\n3, 4\n"


# --- resource files ---------------------------------------------------------------------------------------------


class Blobs(BaseHTTPRequestHandler):
    """A blob whose second half does not come before it may."""

    asked = threading.Event()
    go_on = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"bo")
        self.asked.set()
        self.go_on.wait()
        self.wfile.write(b"dy")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def slow_blob() -> Iterator[str]:
    Blobs.asked.clear()
    Blobs.go_on.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Blobs) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/blob"
        Blobs.go_on.set()
        server.shutdown()
        thread.join()


async def test_what_was_ended_during_its_downloads_does_not_start(nodes: Nodes, slow_blob: str) -> None:
    run = Run(SCOPE, TASK, "touch started", {}, (Download(slow_blob, "x"),))
    running = asyncio.create_task(nodes.machine.run("a", run))
    await asyncio.to_thread(Blobs.asked.wait, 30)
    await nodes.machine.end("a", SCOPE)
    ended = await running
    assert (ended.code, ended.failure) == (None, "TaskEnded")
    assert (await nodes.machine.run("a", run)).failure == "TaskEnded"
    assert not nodes.file("a", "wd/started").exists()
    assert not nodes.file("a", "wd/x").exists()


async def test_a_directory_that_is_swapped_during_a_download_is_not_entered(
    as_plain_processes: None, nodes: Nodes, slow_blob: str
) -> None:
    """The file comes to where the directory was moved. Only plain processes see what the link leads to."""
    outside, task = nodes.data_dir / "outside", nodes.up["a"].root / TASK
    (outside / "wd").mkdir(parents=True)
    run = Run(SCOPE, TASK, "touch started", {}, (Download(slow_blob, "x"),))
    running = asyncio.create_task(nodes.machine.run("a", run))
    await asyncio.to_thread(until, lambda: [*task.glob("wd/.*")])  # until the file is open
    task.rename(task.with_name("moved"))
    task.symlink_to(outside)
    Blobs.go_on.set()
    assert (await running).failure == "CommandLaunchFailed"
    assert [*outside.rglob("*")] == [outside / "wd"]
    assert (task.with_name("moved") / "wd/x").read_text() == "body"


QUITTER = """
import asyncio, sys
from pathlib import Path
from batchtrain.emulator.interface import Download, Run
from tests.contract.nodes_on_this_machine import Nodes

async def main():
    async with Nodes(Path(sys.argv[1])) as nodes:
        run = Run("s", "t", "true", {}, (Download(sys.argv[2], "x"),))
        running = asyncio.create_task(nodes.machine.run("a", run))
        await asyncio.to_thread(sys.stdin.readline)
        running.cancel()

asyncio.run(main())
"""


def test_a_download_does_not_keep_the_emulators_process(tmp_path: Path, slow_blob: str, root: Path) -> None:
    command = [sys.executable, "-c", QUITTER, str(tmp_path / "d"), slow_blob]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=root) as owner:
        try:
            Blobs.asked.wait()
            owner.communicate(b"quit\n")
            assert owner.returncode == 0
        finally:
            owner.kill()
