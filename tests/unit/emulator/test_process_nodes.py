"""Process nodes whose agent is a thread of the test: what a node gets, how its runs end, and what is cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from batchtrain.emulator import mapped_images
from batchtrain.emulator.interface import (
    NO_WINDOWS,
    Container,
    Containers,
    Download,
    Exit,
    Forward,
    Mount,
    NodeLost,
    NodeSpec,
    NodeUnfit,
    NodeUp,
    Package,
    Run,
    StorageAccount,
    Upload,
)
from batchtrain.emulator.machine import agent, hold, marked_processes, output_files, process
from batchtrain.emulator.machine.docker import Joined
from batchtrain.emulator.machine.process import MARKER, Isolation, ProcessMachine, open_machine
from batchtrain.emulator.machine.resource_files import DownloadError
from batchtrain.emulator.package_files import FOLDER
from tests.waiting import reached

TASK = "workitems/job/job-1/task"
NAMESPACES = Isolation("namespaces")
PLAIN = Isolation("process", reason="the kernel refuses", remedy="change it")
NO_PROCESS = 1 << 30
Message = dict[str, Any]


class FakeAgent:
    """Stands for the process of an agent: answers the requests of the machine in a thread.

    `exit N` and `fail CODE` end at once; `wait` ends with its scope, or with the agent. A mount at /locked fails."""

    pid = NO_PROCESS

    def __init__(self, agents: Agents, control: socket.socket) -> None:
        self._agents = agents
        self._channel = agent.Channel(control.dup())
        self._ended = threading.Event()
        self.returncode = 0
        self.boot: Message = {}
        self.requests: list[Message] = []
        self._waiting: dict[str, int] = {}
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while (messages := self._channel.receive()) is not None:
            for message in messages:
                self.requests.append(message)
                for answer in getattr(self, f"_{message['op']}")(message):
                    self._channel.send({"id": message.get("id", 0), **answer})
        self._channel.socket.close()
        self._ended.set()

    def _boot(self, message: Message) -> list[Message]:
        self.boot = message
        answer = self._agents.reports.pop(0) if self._agents.reports else {"event": "up", "pid": NO_PROCESS}
        if answer["event"] == "killed":
            self.kill()
            return []
        return [answer]

    def _run(self, message: Message) -> list[Message]:
        word, *rest = message["program"]
        if word == "wait":
            self._waiting[message["scope"]] = message["id"]
            return []
        if word == "fail":
            return [{"event": "failed", "code": rest[0], "message": "as asked"}]
        return [{"event": "exit", "code": int(rest[0]) if word == "exit" else 0}]

    def _end(self, message: Message) -> list[Message]:
        run = self._waiting.pop(message["scope"], None)
        ended: list[Message] = [{"event": "ended"}]
        return ended if run is None else [{"event": "exit", "code": 143, "id": run}, *ended]

    def _expose(self, message: Message) -> list[Message]:
        return [{"event": "exposed"}]

    def _mount(self, message: Message) -> list[Message]:
        return [{"event": "mounted", "failure": "as asked" if message["target"] == "/locked" else ""}]

    def _unmount(self, message: Message) -> list[Message]:
        return [{"event": "unmounted"}]

    # as of subprocess.Popen

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("agent", timeout or 0.0)
        return self.returncode

    def kill(self) -> None:
        if not self._ended.is_set():
            self.returncode = -9
            with contextlib.suppress(OSError):
                self._channel.socket.shutdown(socket.SHUT_RDWR)


class Agents:
    """The agents that were started; `reports` are their next answers to the request to boot."""

    def __init__(self) -> None:
        self.started: list[FakeAgent] = []
        self.reports: list[Message] = []

    def start(self, control: socket.socket, name: str, stderr: Any) -> FakeAgent:
        self.started.append(FakeAgent(self, control))
        return self.started[-1]


class FakeContainers:
    """Stands for the containers of nodes."""

    missing = "no engine answers"

    def __init__(self) -> None:
        self.joined: list[tuple[str, list[str]]] = []
        self.left: list[str] = []
        self.up: set[str] = set()
        self.answers = True
        self.exit: Exit | NodeLost = Exit(5)
        self.prepared: Exit | None = None
        self.runs: list[Run] = []
        self.on_lost: Callable[[], None] = lambda: None

    async def join(self, spec: NodeSpec, root: Path, prefetch: Any, on_lost: Callable[[], None]) -> Joined | None:
        self.joined.append((spec.node_id, list(prefetch)))
        self.on_lost = on_lost
        if not self.answers:
            return None
        self.up.add(spec.node_id)
        return Joined("10.7.0.4", "", "nameserver 10.0.0.1\n")

    def has(self, node_id: str) -> bool:
        return node_id in self.up

    async def ready(self) -> bool:
        return self.answers

    async def prepare(self, node_id: str, run: Run) -> Exit | None:
        return self.prepared

    async def run(self, run: Run, node_id: str, program: list[str], up: NodeUp, tmp: Path) -> Exit:
        self.runs.append(run)
        if isinstance(self.exit, NodeLost):
            raise self.exit
        return self.exit

    async def end(self, node_id: str, scope: str, grace: float) -> None:
        pass

    async def leave(self, node_id: str) -> None:
        self.left.append(node_id)
        self.up.discard(node_id)

    async def close(self) -> None:
        pass


class Nodes:
    """A machine with its agents."""

    def __init__(self, data_dir: Path, isolation: Isolation) -> None:
        self.data_dir, self.agents, self.containers = data_dir, Agents(), FakeContainers()
        self.images: dict[str, str] = {}
        self.machine = ProcessMachine(data_dir, self.images.get, isolation, cast(Any, self.containers))
        self.lost: list[str] = []

    async def __aenter__(self) -> None:
        self.data_dir.mkdir()

    async def __aexit__(self, *_: object) -> None:
        await self.machine.close()

    def spec(self, name: str = "a", **more: Any) -> NodeSpec:
        return NodeSpec("pool", name, f"10.77.1.{2 + ord(name) - ord('a')}", f"Host-{name}", "STANDARD_NC6", **more)

    def map_environment(self, prefix: Path) -> None:
        (prefix / "bin").mkdir(parents=True)
        shutil.copy("/bin/true", prefix / "bin/python")
        self.images["train"] = str(prefix)

    async def boot(self, name: str = "a", **more: Any) -> NodeUp:
        return await self.machine.boot(self.spec(name, **more), self.lost.append)

    async def run(self, command: str, name: str = "a", **more: Any) -> Exit:
        return await self.machine.run(name, Run("s", TASK, command, more.pop("environment", {}), **more))

    @property
    def requests(self) -> list[Message]:
        return [request for request in self.agents.started[-1].requests if request["op"] != "boot"]

    def pool(self, path: str) -> Path:
        return self.data_dir / "machine/pool" / path


@pytest.fixture
def isolation() -> Isolation:
    return NAMESPACES


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: Isolation) -> Nodes:
    machine = Nodes(tmp_path / "data", isolation)
    monkeypatch.setattr(process, "_start_agent", machine.agents.start)
    return machine


# --- booting --------------------------------------------------------------------------------------------------------


async def test_a_node_has_batchs_directories_and_its_own_environment(nodes: Nodes) -> None:
    up = await nodes.boot()
    azure = ["applications", "fsmounts", "shared", "startup", "volatile", "workitems"]
    assert sorted(path.name for path in up.root.iterdir()) == azure
    root_inside = str(nodes.data_dir / "mnt/pool")
    # A process node has an address of this machine.
    assert up._replace(environment={}) == NodeUp(
        nodes.data_dir / "nodes/pool/a", root_inside, {}, "namespaces", "127.77.1.2"
    )
    home = {"HOME": f"{root_inside}/volatile/home/_azbatch", MARKER: root_inside, "FI_TCP_IFACE": "lo"}
    assert home.items() <= up.environment.items()
    assert up.environment["PATH"].startswith(f"{nodes.pool('bin')}:/")
    assert process.PLAIN not in up.environment
    assert (up.root / "volatile/home/_azbatch/.profile").read_text() == f"PATH={nodes.pool('bin')}:$PATH\n"


@pytest.mark.parametrize(("uid", "has"), [(0, True), (1000, False)])
async def test_open_mpi_is_allowed_to_run_as_root_if_the_emulator_does(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, uid: int, has: bool
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: uid)
    assert ("OMPI_ALLOW_RUN_AS_ROOT" in (await nodes.boot()).environment) is has


@pytest.mark.parametrize("isolation", [PLAIN])
async def test_a_plain_node_says_why_it_is_one(nodes: Nodes) -> None:
    up = await nodes.boot()
    assert up.root_inside == str(up.root)
    assert up.environment[process.PLAIN] == "the kernel refuses; change it"


async def test_the_agent_is_told_what_its_node_is(nodes: Nodes) -> None:
    await nodes.boot("b", mounts=(Mount("box", "mounts/box"),))
    boot, root = nodes.agents.started[0].boot, nodes.data_dir / "nodes/pool/b"
    assert (boot["isolation"], boot["user_namespace"], boot["network"]) == ("namespaces", False, "")
    assert (boot["hostname"], boot["address"]) == ("Host-b", "127.77.1.3")
    assert boot["first_pid"] == 1000 + (256 + 3) * 997 % 20000
    assert boot["tmp"] == str(nodes.pool("nodes/b/tmp"))
    assert Path(boot["tmp"]).stat().st_mode & 0o7777 == 0o1777
    binds = [tuple(bind) for bind in boot["binds"]]
    assert binds[0] == (str(root), str(nodes.data_dir / "mnt/pool"), False)
    assert (str(nodes.pool("bin")), str(nodes.pool("bin")), True) in binds
    assert (str(nodes.data_dir / "mounts/box"), str(nodes.data_dir / "mounts/box"), False) in binds
    assert (str(nodes.pool("hosts")), "/etc/hosts", False) in binds
    assert (str(nodes.pool("nodes/b/hostname")), "/etc/hostname", False) in binds
    assert nodes.pool("nodes/b/hostname").read_text() == "Host-b\n"
    assert "/etc/resolv.conf" not in [over for _, over, _ in binds]
    link = root / "fsmounts/box"
    assert (link.readlink(), link.is_dir()) == (nodes.data_dir / "mounts/box", True)
    assert (root / "fsmounts/box.log").read_text() == "box is mounts/box of the emulator's data directory\n"


async def test_a_node_is_known_to_its_pool_while_it_is_up(nodes: Nodes) -> None:
    await nodes.boot()
    assert "127.77.1.2 Host-a" in nodes.pool("hosts").read_text()
    await nodes.machine.shutdown("a")
    assert "Host-a" not in nodes.pool("hosts").read_text()


@pytest.mark.parametrize("isolation", [Isolation("namespaces", user_namespace=True)])
async def test_a_user_namespace_names_the_user_of_batch(nodes: Nodes) -> None:
    up = await nodes.boot()
    assert (up.environment["USER"], up.environment["LOGNAME"]) == ("_azbatch", "_azbatch")
    assert any(bind[1] == "/etc/passwd" for bind in nodes.agents.started[0].boot["binds"])


async def test_a_size_with_gpus_has_nvidia_smi_unless_the_machine_has_it(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    await nodes.boot("a")
    assert not nodes.pool("bin/nvidia-smi").exists()
    await nodes.boot("b", gpus=2)
    text = nodes.pool("bin/nvidia-smi").read_text()
    assert "@" not in text.replace('"$@"', "")
    assert nodes.pool("bin/nvidia-smi").stat().st_mode & 0o777 == 0o755


async def test_an_agent_that_is_killed_while_it_comes_up_is_started_three_times(nodes: Nodes) -> None:
    nodes.agents.reports = [{"event": "killed"}] * 2
    await nodes.boot("a")
    assert len(nodes.agents.started) == 3
    nodes.agents.reports = [{"event": "killed"}] * 3
    with pytest.raises(NodeLost, match=r"b: its agent did not come up; see .*/nodes/b/agent\.log"):
        await nodes.boot("b")
    assert len(nodes.agents.started) == 6
    assert "b" in nodes.containers.left


async def test_an_agent_that_refuses_is_not_started_again(nodes: Nodes) -> None:
    nodes.agents.reports = [{"event": "failed", "message": "mount: no"}]
    with pytest.raises(NodeLost, match="a: mount: no"):
        await nodes.boot()
    assert len(nodes.agents.started) == 1
    assert not nodes.pool("peers/host-a").is_symlink()


async def test_a_directory_that_a_task_replaced_by_a_link_needs_a_reimage(nodes: Nodes) -> None:
    await nodes.boot()
    await nodes.machine.shutdown("a")
    root = nodes.data_dir / "nodes/pool/a"
    (root / "shared").rmdir()
    (root / "shared").symlink_to("/etc")
    with pytest.raises(NodeLost, match="a task replaced it by a link; a reimage of the node makes it anew"):
        await nodes.boot()


async def test_what_an_earlier_start_left_in_tmp_is_gone_and_its_files_stay(nodes: Nodes) -> None:
    up = await nodes.boot()
    (up.root / "shared/file").touch()
    (nodes.pool("nodes/a/tmp") / "old").touch()
    await nodes.boot()
    assert (up.root / "shared/file").exists()
    assert list(nodes.pool("nodes/a/tmp").iterdir()) == []
    assert nodes.lost == [], "the first start was shut down"


# --- runs -----------------------------------------------------------------------------------------------------------


async def test_a_run_is_sent_to_the_agent_and_ends_with_its_code(nodes: Nodes) -> None:
    up = await nodes.boot()
    assert await nodes.run("exit 7", environment={"WORD": "a b"}) == Exit(7)
    (request,) = nodes.requests
    assert (request["scope"], request["program"], request["directory"]) == ("s", ["exit", "7"], TASK)
    assert request["root"] == up.root_inside
    assert request["environment"] == {**up.environment, "WORD": "a b"}
    assert (up.root / TASK / "wd").is_dir()


async def test_the_packages_of_a_node_and_of_a_run_are_unpacked_before_they_are_needed(nodes: Nodes) -> None:
    folder = nodes.data_dir / FOLDER / "solver"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "1.0.zip", "w") as archive:
        archive.writestr("bin/solve", "x")
    shutil.copytree(folder, folder.with_name("other"))
    up = await nodes.boot(packages=(Package("solver", "1.0"),))
    assert (up.root / "applications/solver/1.0/bin/solve").read_text() == "x"
    await nodes.run("exit 0", packages=(Package("other", "1.0"),))
    assert (up.root / "applications/other/1.0/bin/solve").read_text() == "x"
    missing = await nodes.run("exit 0", packages=(Package("solver", "2.0"),))
    assert (missing.code, missing.failure) == (None, "ApplicationPackageError")


async def test_a_node_that_does_not_come_up_has_no_name_in_its_pool(nodes: Nodes) -> None:
    with pytest.raises(NodeUnfit):
        await nodes.boot(packages=(Package("solver", "2.0"),))
    assert "Host-a" not in nodes.pool("hosts").read_text()
    assert list(nodes.pool("peers").iterdir()) == []


@pytest.mark.parametrize("place", ["wd", ""])
async def test_resource_files_are_downloaded_before_the_command_and_a_failure_is_the_tasks(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    fetched: list[tuple[str, str]] = []

    def fetch(item: Download, directory: str, *_: object) -> None:
        fetched.append((item.url, directory))
        if item.path == "bad":
            raise DownloadError("BlobNotFound", f"{item.url}: gone")

    monkeypatch.setattr(process, "fetch", fetch)
    await nodes.boot()
    files = tuple(Download(f"http://x/{name}", name) for name in ("a", "b"))
    assert await nodes.run("exit 7", downloads=files, downloads_to=place) == Exit(7)
    assert sorted(fetched) == [("http://x/a", f"{TASK}/{place}"), ("http://x/b", f"{TASK}/{place}")]
    bad = (Download("http://x/bad", "bad"), *files)
    assert await nodes.run("exit 7", downloads=bad) == Exit(None, "BlobNotFound", "http://x/bad: gone")
    assert len(nodes.requests) == 1


async def test_the_logs_of_a_node_are_sent_from_the_data_directory(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[object, ...]] = []
    monkeypatch.setattr(output_files, "send_logs", lambda *arguments: sent.append(arguments))
    await nodes.machine.send_logs("a", "https://store/logs", "pool/a/now")
    assert sent == [(nodes.data_dir, "a", "https://store/logs", "pool/a/now")]


@pytest.mark.parametrize(
    ("error", "failure", "message"),
    [
        (None, None, ""),
        (output_files.UploadError("FileUploadAccessDenied", "no"), "FileUploadAccessDenied", "no"),
        (OSError("gone"), "FileUploadMiscError", "gone"),
    ],
)
async def test_output_files_are_sent_after_the_command_and_a_failure_is_the_tasks(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, error: Exception | None, failure: str | None, message: str
) -> None:
    sent: list[tuple[Any, ...]] = []

    def send(uploads: tuple[Upload, ...], source: output_files.Source, called_off: Callable[[], bool]) -> None:
        sent.append((uploads, source.inside, source.directory, source.environment["WORD"], called_off()))
        if error is not None:
            raise error

    monkeypatch.setattr(output_files, "send", send)
    up = await nodes.boot()
    uploads = tuple(Upload("*.txt", "https://store/c", condition=name) for name in ("taskfailure", "tasksuccess"))
    outcome = await nodes.run("exit 7", uploads=uploads, environment={"WORD": "a b"})
    assert outcome == Exit(7, failure, message)
    assert sent == [(uploads[:1], up.root_inside, TASK, "a b", False)]


@pytest.mark.parametrize(
    ("command", "failure", "message"),
    [
        ("fail CommandProgramNotFound", "CommandProgramNotFound", "as asked"),
        ("echo 'open", "CommandLaunchFailed", "echo 'open: No closing quotation"),
        ("", "CommandProgramNotFound", "the command line is empty; `batchtrain emulator images map IMAGE PREFIX --en"),
    ],
)
async def test_a_run_that_does_not_start_has_batchs_code(
    nodes: Nodes, command: str, failure: str, message: str
) -> None:
    await nodes.boot()
    end = await nodes.run(command)
    assert (end.code, end.failure) == (None, failure)
    assert end.message.startswith(message)


async def test_a_command_of_a_windows_pool_that_is_not_here_names_simulated_nodes(nodes: Nodes) -> None:
    await nodes.boot(windows=True)
    end = await nodes.run("fail CommandProgramNotFound")
    assert end.message == f"as asked. {NO_WINDOWS}"
    assert "`batchtrain-nodes: simulated`" in NO_WINDOWS


async def test_a_directory_that_leads_out_of_the_node_is_not_prepared(nodes: Nodes) -> None:
    up = await nodes.boot()
    (up.root / "workitems/job").symlink_to("/etc")
    assert (await nodes.run("exit 0"))[:2] == (None, "ResourceDirectoryCreateFailed")
    assert nodes.requests == []


async def test_elevated_commands_run_as_the_user_and_that_is_told_once(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    up = await nodes.boot()
    for _ in range(2):
        assert await nodes.run("exit 0", elevated=True) == Exit(0)
    line = f"a: elevated commands run as {up.environment['USER']} here"
    assert [record.getMessage() for record in caplog.records] == [line]


async def test_a_scope_that_has_ended_starts_nothing_more(nodes: Nodes) -> None:
    await nodes.boot()
    run = asyncio.ensure_future(nodes.run("wait"))
    await reached(lambda: nodes.requests)
    await nodes.machine.end("a", "s", 3.0)
    assert await run == Exit(143)
    assert (nodes.requests[-1]["op"], nodes.requests[-1]["grace"]) == ("end", 3.0)
    assert await nodes.run("exit 0") == Exit(None, "TaskEnded", "the task ended before its command started")
    await nodes.machine.end("none", "s")


async def test_an_upload_is_called_off_by_the_end_of_its_scope(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    called_off, sending = threading.Event(), threading.Event()

    def send(_uploads: object, _source: object, is_called_off: Callable[[], bool]) -> None:
        sending.set()
        while not is_called_off():
            called_off.wait(0.001)
        called_off.set()

    monkeypatch.setattr(output_files, "send", send)
    await nodes.boot()
    run = asyncio.ensure_future(nodes.run("exit 7", uploads=(Upload("*", "https://store/c"),)))
    await reached(sending.is_set)
    await nodes.machine.end("a", "s")
    assert await run == Exit(7)
    await reached(called_off.is_set)


async def test_a_command_that_was_ended_sends_its_output_files_afterwards(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(output_files, "send", lambda uploads, *_: sent.extend(item.pattern for item in uploads))
    await nodes.boot()
    conditions = ("taskcompletion", "taskfailure", "tasksuccess")
    uploads = tuple(Upload(name, "https://store/c", condition=name) for name in conditions)
    run = asyncio.ensure_future(nodes.run("wait", uploads=uploads))
    await reached(lambda: nodes.requests)
    await nodes.machine.end("a", "s")
    assert (await run, sent) == (Exit(143), [])
    await nodes.machine.upload("a", Run("s", TASK, "wait", {}, uploads=uploads))
    assert sent == ["taskcompletion", "taskfailure"]
    await nodes.machine.upload("none", Run("s", TASK, "wait", {}))


async def test_a_mapped_image_gives_its_programs_after_the_stand_ins(nodes: Nodes, tmp_path: Path) -> None:
    nodes.map_environment(tmp_path / "env")
    up = await nodes.boot()
    await nodes.run("exit 0", image="train", environment={"PATH": f"/mine:{nodes.pool('bin')}:/usr/bin"})
    run = next(request for request in nodes.requests if request["op"] == "run")
    assert run["environment"]["PATH"] == f"{nodes.pool('bin')}:{tmp_path}/env/bin:/mine:/usr/bin"
    exposed = [request["path"] for request in nodes.requests if request["op"] == "expose"]
    assert str(tmp_path / "env") in exposed, "a node has its own /tmp"
    await nodes.run("exit 0", image="train")
    assert [request["op"] for request in nodes.requests].count("expose") == len(exposed)
    assert up.environment["PATH"].startswith(str(nodes.pool("bin")))


async def test_a_mapped_environment_that_is_gone_fails_the_task(nodes: Nodes, tmp_path: Path) -> None:
    nodes.images["train"] = str(tmp_path / "none")
    await nodes.boot()
    end = await nodes.run("exit 0", image="train")
    assert (end.code, end.failure) == (None, "ContainerInvalidImage")
    assert str(tmp_path / "none") in end.message


@pytest.mark.parametrize(
    ("options", "stays", "program"),
    [
        ("", False, ["entry", "exit", "4"]),
        ("--entrypoint=mine", False, ["mine", "exit", "4"]),
        ("--entrypoint=''", False, ["exit", "4"]),
        ("", True, ["exit", "4"]),
    ],
)
async def test_the_entry_point_of_a_mapped_image_comes_before_the_command(
    nodes: Nodes, tmp_path: Path, options: str, stays: bool, program: list[str]
) -> None:
    nodes.map_environment(tmp_path / "env")
    mapped_images.map_image(nodes.data_dir, "train", tmp_path / "env", entrypoint="entry")
    await nodes.boot()
    await nodes.run("exit 4", image="train", container=Container("train", options), stays=stays)
    assert nodes.requests[-1]["program"] == program


@pytest.mark.parametrize(
    ("volume", "isolation", "message"),
    [
        ("inputs:here", NAMESPACES, "a volume at `here`; its path must be absolute"),
        ("inputs:/locked", NAMESPACES, "cannot be mounted at /locked: as asked"),
        ("inputs:/there", PLAIN, "cannot show the task's directories /there at these paths"),
    ],
)
async def test_a_volume_that_a_mapped_image_cannot_have_fails_the_task(
    nodes: Nodes, tmp_path: Path, volume: str, message: str
) -> None:
    nodes.map_environment(tmp_path / "env")
    await nodes.boot()
    end = await nodes.run("exit 0", image="train", container=Container("train", f"-v {volume}"))
    assert (end.code, end.failure) == (None, "ContainerInvalidSettings")
    assert message in end.message


async def test_a_run_on_a_node_that_is_not_up_is_lost(nodes: Nodes) -> None:
    with pytest.raises(NodeLost, match="a: no such node is up"):
        await nodes.run("exit 0")
    await nodes.boot()
    run = asyncio.ensure_future(nodes.run("wait"))
    await reached(lambda: nodes.requests)
    nodes.agents.started[-1].kill()
    with pytest.raises(NodeLost, match="a: the node died"):
        await run
    await reached(lambda: nodes.lost)
    assert nodes.lost == ["a"]
    assert nodes.containers.left[-1] == "a"


@pytest.mark.parametrize("isolation", [PLAIN])
async def test_the_processes_of_a_plain_node_that_died_are_killed_by_its_marker(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[str] = []
    monkeypatch.setattr(marked_processes, "kill", killed.append)
    up = await nodes.boot()
    nodes.agents.started[-1].kill()
    await reached(lambda: nodes.lost)
    assert killed == [f"{MARKER}={up.root}"]
    await nodes.boot()
    await nodes.machine.shutdown("a")
    assert len(killed) == 1, "an agent that is asked to end ends them itself"


# --- containers -----------------------------------------------------------------------------------------------------

UNMAPPED = Containers(("train", "mapped"))


async def test_a_node_with_containers_has_its_images_its_address_and_its_key(nodes: Nodes, tmp_path: Path) -> None:
    nodes.images["mapped"] = str(tmp_path)
    up = await nodes.boot(containers=UNMAPPED)
    assert nodes.containers.joined == [("a", ["train"])]
    assert (up.isolation, up.address) == ("docker", "10.7.0.4")
    assert (up.root / "volatile/home/_azbatch/.ssh/authorized_keys").exists()
    resolver = nodes.pool("nodes/a/resolv.conf")
    assert resolver.read_text() == "nameserver 10.0.0.1\n"
    assert [str(resolver), "/etc/resolv.conf", False] in nodes.agents.started[0].boot["binds"]


async def test_a_node_whose_images_are_all_mapped_needs_no_engine(nodes: Nodes, tmp_path: Path) -> None:
    nodes.images["mapped"] = str(tmp_path)
    await nodes.boot("a", containers=Containers(("mapped",)))
    await nodes.boot("b")
    assert nodes.containers.joined == []
    await nodes.boot("c", containers=Containers())
    assert nodes.containers.joined == [("c", [])]


async def test_an_image_that_is_not_mapped_runs_in_a_container_with_the_tasks_variables(nodes: Nodes) -> None:
    await nodes.boot(containers=UNMAPPED)
    container = Container("train", "-v $AZ_BATCH_DIR:/x -e A=$none")
    end = await nodes.run("", image="train", container=container, environment={"AZ_BATCH_DIR": "/d"})
    assert end == Exit(5)
    (run,) = nodes.containers.runs
    assert run.container is not None and run.container.options == "-v /d:/x -e A=$none"
    assert nodes.requests == []
    nodes.containers.prepared = Exit(None, "ContainerInvalidImage", "no")
    assert await nodes.run("exit 0", image="train", container=Container("train")) == nodes.containers.prepared


async def test_a_node_that_loses_its_container_dies(nodes: Nodes) -> None:
    await nodes.boot(containers=UNMAPPED)
    nodes.containers.on_lost()
    await reached(lambda: nodes.lost)
    await nodes.boot(containers=UNMAPPED)
    nodes.containers.exit = NodeLost("gone")
    with pytest.raises(NodeLost, match="gone"):
        await nodes.run("exit 0", image="train", container=Container("train"))
    assert nodes.lost == ["a", "a"]


async def test_an_image_without_an_engine_fails_the_task_with_the_reason(nodes: Nodes) -> None:
    nodes.containers.answers = False
    await nodes.boot(containers=UNMAPPED)
    end = await nodes.run("exit 0", image="train", container=Container("train"))
    assert (end.code, end.failure) == (None, "ContainerInvalidImage")
    assert "no engine answers" in end.message and "`batchtrain emulator images map train PREFIX`" in end.message
    nodes.containers.answers = True
    with pytest.raises(NodeLost, match="a Docker Engine answers now; the node boots again to have it"):
        await nodes.run("exit 0", image="train", container=Container("train"))
    await reached(lambda: nodes.lost)


async def test_an_image_on_a_node_without_containers_fails_the_task(nodes: Nodes) -> None:
    nodes.containers.missing = ""
    await nodes.boot()
    end = await nodes.run("exit 0", image="train", container=Container("train"))
    assert "the pool's nodes came up without it" in end.message


# --- cleaning up ----------------------------------------------------------------------------------------------------


async def test_a_closed_machine_has_no_node_left(nodes: Nodes) -> None:
    await nodes.boot("a")
    await nodes.boot("b")
    await nodes.machine.close()
    assert [agent.wait(0) for agent in nodes.agents.started] == [0, 0]
    with pytest.raises(NodeLost):
        await nodes.run("exit 0", "b")


async def test_a_removed_node_leaves_no_directory(nodes: Nodes) -> None:
    up = await nodes.boot("a")
    await nodes.boot("b")
    await nodes.machine.remove("a")
    assert not up.root.exists()
    assert not nodes.pool("nodes/a").exists()
    assert (nodes.data_dir / "nodes/pool/b").exists()
    with pytest.raises(NodeLost):
        await nodes.run("exit 0")


async def test_directories_without_a_record_are_deleted_and_no_others(nodes: Nodes) -> None:
    await nodes.boot("a")
    old = ("nodes/pool/old", "nodes/gone/a", "machine/pool/nodes/old", "machine/gone/bin", "mnt/pool")
    for name in (*old, f"docker/{hold.NAME}", "x"):
        (nodes.data_dir / name).mkdir(parents=True, exist_ok=True)
    (nodes.data_dir / "nodes/file").touch()
    await nodes.machine.sweep({"pool": ["a"]})
    left = {path.relative_to(nodes.data_dir).as_posix() for path in nodes.data_dir.glob("*/*")}
    assert left == {"nodes/pool", "machine/pool", f"docker/{hold.NAME}"}
    assert [path.name for path in (nodes.data_dir / "nodes/pool").iterdir()] == ["a"]
    assert [path.name for path in nodes.pool("nodes").iterdir()] == ["a"]
    assert (nodes.data_dir / "x").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0", "a*", "a?", "a[b]"])
async def test_a_text_that_is_no_id_names_no_directory(nodes: Nodes, name: str) -> None:
    with pytest.raises(ValueError, match="not an id"):
        await nodes.machine.remove(name)


async def test_a_login_leads_to_the_address_of_the_node(nodes: Nodes) -> None:
    await nodes.boot()
    login = nodes.machine.login("a")
    assert login.ssh[-2:] == (str(nodes.pool("peers")), "127.77.1.2")
    assert login.relay[-1].endswith("relay.py")
    with pytest.raises(NodeLost):
        nodes.machine.login("b")


async def test_another_account_has_the_storage_of_the_first(nodes: Nodes) -> None:
    first = StorageAccount("first", "a2V5", "http://host/first")
    nodes.machine.share_storage(lambda: first)
    assert await nodes.machine.storage() == first


async def test_an_endpoint_of_a_node_is_open_while_it_is_up(nodes: Nodes) -> None:
    with socket.socket() as probe:
        probe.bind(("127.77.1.2", 0))
        port = probe.getsockname()[1]
    await nodes.boot(forwards=(Forward(port, 1),))
    socket.create_connection(("127.77.1.2", port)).close()
    await nodes.machine.shutdown("a")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.77.1.2", port))


def test_plain_nodes_are_told_with_the_reason_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_ISOLATION", "process")
    machine = asyncio.run(open_machine(tmp_path / "data", {}.get))
    assert machine.plain_nodes == "BATCHTRAIN_EMULATOR_ISOLATION=process"
    assert machine.plain_nodes_remedy == "unset the variable, then `batchtrain emulator stop`, and run again"
    assert f"{machine.plain_nodes}; {machine.plain_nodes_remedy}" in caplog.text


@pytest.mark.parametrize(("uid", "tries"), [(0, [False, True]), (1000, [True])])
def test_a_kernel_is_tried_without_a_user_namespace_only_by_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, tries: list[bool]
) -> None:
    probe = Mock(return_value="no")
    monkeypatch.setattr(process, "_probe", probe)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.delenv("BATCHTRAIN_EMULATOR_ISOLATION", raising=False)
    plain = process._isolation(tmp_path)
    assert (plain.kind, plain.reason) == ("process", "the kernel refuses namespaces: no")
    assert [call.args[1] for call in probe.call_args_list] == tries
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_ISOLATION", "namespaces")
    with pytest.raises(OSError, match="but this kernel refuses them: no"):
        process._isolation(tmp_path)
    monkeypatch.setattr(process, "_probe", lambda data_dir, user_namespace: "" if user_namespace else "no")
    assert process._isolation(tmp_path) == Isolation("namespaces", user_namespace=True)


def test_a_visible_environment_has_its_interpreters_and_installation(tmp_path: Path) -> None:
    for name in ("env/bin", "installed/bin", "between"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "installed/bin/python3").touch()
    (tmp_path / "between/python").symlink_to("../installed/bin/python3")
    (tmp_path / "env/bin/python").symlink_to(tmp_path / "between/python")
    pool = process._Pool(tmp_path / "data", "pool")
    paths = {Path(path).relative_to(tmp_path).as_posix() for path in pool.visible_paths_of(tmp_path / "env")}
    assert paths == {"env", "env/bin", "between", "installed/bin", "installed"}
    assert pool.visible_paths_of("/usr") == []


@pytest.mark.parametrize(("file", "closed", "setting"), process.SWITCHES)
def test_the_command_that_lifts_a_limit_is_read_from_the_kernels_settings(
    tmp_path: Path, file: str, closed: str, setting: str
) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(f"{closed}\n")
    assert f"`sudo sysctl -w {setting}`" in process._remedy(tmp_path)


def test_where_no_setting_forbids_them_it_is_the_container_that_does(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user/max_user_namespaces").write_text("96365\n")
    assert "--security-opt" in process._remedy(tmp_path)
    assert "sysctl" not in process._remedy(tmp_path)


# --- files on this machine, and processes that are left over ---------------------------------------------------------

SPEC = NodeSpec("pool", "node", "10.1.2.3", "Node0", "standard_d2_v3")


def test_what_is_to_be_deleted_gets_another_name_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "pool").mkdir()
    away = process._renamed(tmp_path / "pool")
    assert list(tmp_path.iterdir()) == [away]
    assert away.name.startswith(".gone-")
    assert process._renamed(tmp_path / "none") == tmp_path / "none"
    assert f"{tmp_path}/none belongs to nothing and cannot be moved away: [Errno 2]" in caplog.text


def test_directories_links_and_files_are_deleted_but_not_what_a_link_leads_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder").chmod(0o500)
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "file").touch()
    process._delete_each([tmp_path / name for name in ("folder", "link", "file", "none")])
    assert list(tmp_path.iterdir()) == [kept]
    assert (kept / "file").exists()


def test_a_program_is_written_anew_only_where_its_text_changed(tmp_path: Path) -> None:
    path = tmp_path / "ssh"
    process._write_program(path, "#!/bin/sh\necho a\n")
    first = path.stat()
    process._write_program(path, "#!/bin/sh\necho a\n")
    assert path.stat().st_ino == first.st_ino
    process._write_program(path, "#!/bin/sh\necho b\n")
    assert subprocess.check_output([path]) == b"b\n"
    assert list(tmp_path.iterdir()) == [path]


def test_the_names_of_a_pools_nodes_are_known_as_long_as_they_are_in_it(tmp_path: Path) -> None:
    pool = process._Pool(tmp_path, "pool")
    other = SPEC._replace(node_id="other", address="10.1.2.4", hostname="node1")
    for spec in (SPEC, other):
        pool.admit(spec)
    assert (pool.peers / "node0").readlink() == Path("10.1.2.3")
    assert (pool.peers / "@other").readlink() == Path("10.1.2.4")
    lines = pool.hosts.read_text().splitlines()
    assert lines[0] == "127.0.0.1 localhost"
    assert {"10.1.2.3 Node0", "10.1.2.4 node1"} < set(lines)
    pool.dismiss(SPEC._replace(address="10.9.9.9"))
    assert (pool.peers / "node0").is_symlink(), "the node has booted again since"
    pool.dismiss(SPEC)
    assert {path.name for path in pool.peers.iterdir()} == {"node1", "@other"}
    assert "Node0" not in pool.hosts.read_text()
    assert pool.hosts.read_text().endswith("\n")


def test_batchs_user_is_known_where_etc_passwd_can_have_it(tmp_path: Path) -> None:
    pool = process._Pool(tmp_path, "pool")
    assert pool.user("/with:colon") is None
    assert pool.user("/mnt/node") == "_azbatch"
    entry, *others = (tmp_path / "machine/pool/passwd").read_text().splitlines()
    assert entry == f"_azbatch:x:{os.getuid()}:{os.getgid()}::/mnt/node/volatile/home/_azbatch:/bin/bash"
    assert others == Path("/etc/passwd").read_text().splitlines()


def test_processes_with_the_marker_of_a_node_are_killed_and_no_others() -> None:
    marker = f"BATCHTRAIN_TEST_NODE={os.getpid()}-{time.monotonic_ns()}"
    name, _, value = marker.partition("=")
    processes = [
        subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, env={name: text}) for text in (value, f"{value}x", value)
    ]
    marked_processes.kill(marker)
    processes[1].communicate()
    assert [ended.wait() for ended in processes] == [-9, 0, -9]
    for ended in processes:
        if ended.stdin:
            ended.stdin.close()
    marked_processes.kill(marker)  # none is left


def test_the_end_of_a_process_is_awaited() -> None:
    waiting = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    marked_processes._wait_for_end(waiting.pid, 0.0)
    assert waiting.poll() is None
    assert waiting.stdin
    waiting.stdin.close()
    marked_processes._wait_for_end(waiting.pid, 60.0)
    assert waiting.poll() == 0, "it returned because the process ended"
    marked_processes._wait_for_end(waiting.pid, 60.0)


def test_a_process_that_a_signal_ended_was_killed() -> None:
    for command, killed in (("kill -KILL $$", True), ("exit 1", False), ("exit 0", False)):
        assert process._was_killed(subprocess.Popen(["/bin/sh", "-c", command])) is killed
