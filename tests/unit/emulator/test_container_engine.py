"""Where the Docker Engine is looked for, what its refusals mean, how images and logins are told apart."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from batchtrain.emulator.interface import Login, NodeLost, NodeSpec, NodeUnfit
from batchtrain.emulator.machine import docker, docker_engine, engine_failures, hold, leftovers
from batchtrain.emulator.machine.docker_engine import Engine, EngineError, address, registry_header
from batchtrain.emulator.machine.image_store import ImageStore, login_for, reference, server_of
from tests.waiting import until

# --- where it is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "socket", "shown"),
    [
        ("unix:///run/x.sock", Path("/run/x.sock"), ""),
        ("tcp://10.0.0.1:2375", None, "tcp://10.0.0.1:2375 (DOCKER_HOST)"),
    ],
)
def test_dockers_own_variable_comes_first_and_an_engine_of_another_machine_is_none(
    host: str, socket: Path | None, shown: str
) -> None:
    found = address({"DOCKER_HOST": host})
    assert found.socket == socket
    assert shown in found.shown


def test_the_context_in_use_is_followed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": "mine"}))
    folder = tmp_path / "contexts" / "meta" / hashlib.sha256(b"mine").hexdigest()
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"Endpoints": {"docker": {"Host": "unix:///run/mine.sock"}}}))
    assert address({"DOCKER_CONFIG": str(tmp_path)}).socket == Path("/run/mine.sock")


@pytest.mark.parametrize("config", ["", "[]", "no json", '{"currentContext": "default"}'])
def test_without_a_context_it_is_dockers_default(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    assert address({"DOCKER_CONFIG": str(tmp_path)}).socket == Path("/var/run/docker.sock")


@pytest.mark.parametrize(("went_before", "found"), [(1.0, True), (docker.RETURN_SECONDS + 1, False)])
async def test_an_engine_that_went_a_moment_ago_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, went_before: float, found: bool
) -> None:
    engine = Engine(tmp_path / "socket")
    answers = [(None, "no engine answers"), (None, "no engine answers"), (engine, "here")]
    monkeypatch.setattr(docker_engine, "find", AsyncMock(side_effect=answers))
    monkeypatch.setattr(docker, "RETURN_PAUSE", 0.0)
    nodes = docker.ContainerNodes(tmp_path)
    nodes._awaited_until = asyncio.get_running_loop().time() + docker.RETURN_SECONDS - went_before
    assert ((await nodes._find())[0] is engine) == found


@pytest.mark.parametrize("went", [True, False])
async def test_a_node_that_boots_while_the_engine_goes_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, went: bool
) -> None:
    """An engine that ends kills its containers first, and so nodes boot again that it has no time for."""
    spec = NodeSpec("pool", "node", "10.1.0.4", "node", "standard_d2_v3")
    joined = docker.Joined("10.1.0.4", "", "")
    nodes = docker.ContainerNodes(tmp_path)
    nodes._engine = cast(Engine, FakeEngine())
    nodes._watcher = asyncio.ensure_future(asyncio.sleep(0 if went else 60))
    monkeypatch.setattr(nodes, "_join", AsyncMock(side_effect=[EngineError(0, "cannot connect"), joined]))
    monkeypatch.setattr(nodes, "ready", AsyncMock(return_value=True))
    monkeypatch.setattr(docker, "WENT_SECONDS", 0.01)
    if went:
        assert await nodes.join(spec, tmp_path, [], lambda: None) == joined
    else:
        with pytest.raises(NodeLost, match="cannot connect"):
            await nodes.join(spec, tmp_path, [], lambda: None)


# --- what its words mean --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("manifest for a/b:1 not found: manifest unknown: manifest unknown", "ContainerInvalidImage"),
        ("pull access denied for x, repository does not exist or may require 'docker login'", "ContainerInvalidImage"),
        ("no matching manifest for linux/amd64 in the manifest list entries", "ContainerInvalidImage"),
        ("Head https://r.example/v2/x/manifests/1: no basic auth credentials", "ContainerInvalidRegistry"),
        ("unauthorized: authentication required", "ContainerInvalidRegistry"),
        ("Get https://r.example/v2/: dial tcp: lookup r.example: no such host", "ContainerInvalidRegistry"),
        ("write /var/lib/docker/tmp/x: input/output error", "ContainerMiscError"),
    ],
)
def test_why_an_image_cannot_be_had(message: str, code: str) -> None:
    assert engine_failures.of_pull(message) == code


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ('OCI runtime create failed: exec: "x": executable file not found in $PATH: unknown', "CommandProgramNotFound"),
        ('runc: exec: "/x/y": stat /x/y: no such file or directory: unknown', "CommandProgramNotFound"),
        ('starting container process caused: exec: "/etc/passwd": permission denied', "CommandLaunchFailed"),
        ('error gathering device information: no such file "/dev/x"', "ContainerInvalidSettings"),
        ("invalid mount config for type bind: bind source path does not exist: /x", "ContainerInvalidSettings"),
        ("something else", "ContainerMiscError"),
    ],
)
def test_why_a_container_does_not_start(message: str, code: str) -> None:
    assert engine_failures.of_start(message) == code


@pytest.mark.parametrize(
    "message",
    [
        "docker: Error response from daemon: it is so.\nSee 'docker create --help'.",
        "docker: it is so.\n\nRun 'docker create --help' for more information",
        "it is so.",
    ],
)
def test_what_docker_says_around_a_reason_is_left_out(message: str) -> None:
    assert engine_failures.cleaned(message) == "it is so."


def test_exit_code_137_is_explained_with_the_limit_where_memory_was_the_cause() -> None:
    for is_told in (True, False):  # the engine may miss it
        assert "(--memory=64m) was used up" in engine_failures.of_exit(137, {"OOMKilled": is_told}, 64 << 20)
    assert "SIGKILL" in engine_failures.of_exit(137, {"OOMKilled": False}, 0)
    assert engine_failures.of_exit(1, {}, 0) == ""


# --- images ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "server", "named"),
    [
        ("ubuntu", "", ("ubuntu", "latest")),
        ("me/it:1", "", ("me/it", "1")),
        ("docker.io/me/it", "", ("docker.io/me/it", "latest")),
        ("my-registry.azurecr.io:5000/a-b/c:v1.0", "my-registry.azurecr.io:5000", None),
        ("localhost/x", "localhost", ("localhost/x", "latest")),
        ("r.example:443/x@sha256:abc", "r.example:443", ("r.example:443/x@sha256:abc", "")),
    ],
)
def test_an_images_registry_and_tag(image: str, server: str, named: tuple[str, str] | None) -> None:
    assert server_of(image) == server
    assert named is None or reference(image) == named


@pytest.mark.parametrize(
    ("server", "image"),
    [
        ("docker.io", "me/it"),
        ("r.example", "r.example/it"),
        ("https://index.docker.io/v1/", "me/it:1"),
        ("https://hub.docker.com", "me/it:1"),
        ("https://r.example:5000/", "r.example:5000/it"),
        ("Mine.azurecr.io", "mine.azurecr.io/it"),
    ],
)
def test_a_login_is_for_its_own_registry_alone_which_it_may_name_by_a_url(server: str, image: str) -> None:
    login = Login(server, "me", "a")
    assert login_for(image, [Login("another.example", "me", "b"), login]) is login
    assert login_for("other.example/it", [login]) is None


def test_a_login_shows_its_password_only_to_the_engine() -> None:
    login = Login("r.example", "me", "s3cret")
    assert "s3cret" not in f"{login!r} {login}"
    assert registry_header(login)["X-Registry-Auth"]


class FakeEngine:
    """Has one image, once that was fetched, with a login if it needs one."""

    def __init__(self, error: str = "", architecture: str = "amd64", login: Login | None = None) -> None:
        self.pulls, self._error, self._architecture = 0, error, architecture
        self._login, self._there = login, False

    async def ask(self, method: str, path: str, **_: Any) -> Any:
        if path == "/version":
            return {"Arch": "amd64"}
        if not self._there:
            raise EngineError(404, "No such image")
        return {"Architecture": self._architecture}

    async def lines(self, method: str, path: str, *, headers: Mapping[str, str], **_: Any) -> AsyncIterator[Any]:
        self.pulls += 1
        await asyncio.sleep(0)
        wrong = self._login is not None and headers != registry_header(self._login)
        error = "unauthorized: authentication required" if wrong else self._error
        yield {"error": error} if error else {"status": "done"}
        self._there = not wrong


async def fetch(engine: FakeEngine, times: int = 1) -> None:
    store = ImageStore(cast(Engine, engine))
    await asyncio.gather(*(store.fetch("me/it:1") for _ in range(times)))


async def test_many_nodes_fetch_an_image_once() -> None:
    engine = FakeEngine()
    await fetch(engine, times=5)
    assert engine.pulls == 1


@pytest.mark.parametrize(
    ("engine", "code", "words"),
    [
        (FakeEngine(error="manifest unknown"), "ContainerInvalidImage", "me/it:1 cannot be used: manifest unknown"),
        (FakeEngine(architecture="arm64"), "ContainerInvalidImage", "built for arm64, and the nodes are amd64"),
    ],
)
async def test_an_image_that_does_not_do_says_why(engine: FakeEngine, code: str, words: str) -> None:
    with pytest.raises(NodeUnfit, match=words) as raised:
        await fetch(engine)
    assert raised.value.code == code


async def test_a_wrong_login_is_no_fault_of_another_task_with_the_same_image() -> None:
    good, wrong = Login("r.example", "me", "a"), Login("r.example", "me", "b")
    store = ImageStore(cast(Engine, FakeEngine(login=good)))
    fetches = (store.fetch("r.example/it:1", [login]) for login in (wrong, good))
    first, second = await asyncio.gather(*fetches, return_exceptions=True)
    assert isinstance(first, NodeUnfit)
    assert second is None


@pytest.mark.parametrize("name", ["x/../y:1", "x//y", "/x", "./x"])
def test_a_name_that_leads_elsewhere_is_no_images(name: str) -> None:
    with pytest.raises(NodeUnfit, match="invalid reference format") as raised:
        asyncio.run(ImageStore(cast(Engine, FakeEngine())).fetch(name))
    assert raised.value.code == "ContainerInvalidImage"


# --- removing -------------------------------------------------------------------------------------------------------


class Refusing:
    """Answers each request with the next of some errors, or with nothing, and has no more to say after the last."""

    def __init__(self, *answers: EngineError | None) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    async def ask(self, method: str, path: str, *_: Any, **__: Any) -> Any:
        self.asked.append(f"{method} {path}")
        if answer := self._answers.pop(0):
            raise answer


REMOVE, WAIT = "DELETE /containers/c1", "POST /containers/c1/wait"


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([None], [REMOVE]),
        ([EngineError(404, "No such container: c1")], [REMOVE]),
        ([EngineError(0, "cannot connect")], [REMOVE]),
        ([EngineError(409, "removal of container c1 is already in progress"), None], [REMOVE, WAIT]),
        ([EngineError(409, "already in progress"), EngineError(404, "No such container")], [REMOVE, WAIT]),
        ([EngineError(500, "did not receive an exit event"), None], [REMOVE, REMOVE]),
    ],
)
def test_a_container_counts_as_removed_when_it_is_gone(
    monkeypatch: pytest.MonkeyPatch, answers: list[EngineError | None], asked: list[str]
) -> None:
    monkeypatch.setattr(leftovers, "PAUSES", (0.0, 0.0))
    engine = Refusing(*answers)
    asyncio.run(leftovers.remove(cast(Engine, engine), "c1"))
    assert engine.asked == asked


def test_a_container_that_cannot_be_removed_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leftovers, "PAUSES", (0.0, 0.0))
    asyncio.run(leftovers.remove(cast(Engine, Refusing(*[EngineError(500, "device is busy")] * 2)), "c1"))
    assert "c1 could not be removed: device is busy" in caplog.text


class Networks:
    """Has one network, and says whose things are asked for."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.swept: list[str] = []
        self._labels = labels

    async def ask(self, method: str, path: str, *, query: Mapping[str, str] | None = None, **_: Any) -> Any:
        if path == "/containers/json" and query:
            self.swept += json.loads(query["filters"])["label"]
        if path == "/networks":
            return [{"Id": "n1", "Name": "n1", "Labels": self._labels}]
        return {} if path == "/volumes" else []


def swept(directory: Path, seen_from: str = "") -> list[str]:
    """The labels of what counts as forgotten, where an emulator with this directory made a network."""
    labels = {leftovers.LABEL: str(directory), leftovers.SEEN_FROM: seen_from or leftovers.seen_from()}
    engine = Networks(labels)
    asyncio.run(leftovers.sweep_forgotten(cast(Engine, engine)))
    return engine.swept


def test_what_an_emulator_had_is_forgotten_with_its_directory(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert swept(gone) == [f"{leftovers.LABEL}={gone}"]
    assert swept(tmp_path) == []


def test_an_emulator_of_another_user_or_in_a_container_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert swept(tmp_path / "gone", seen_from="mnt:[1]") == []
    monkeypatch.setattr(Path, "stat", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert swept(tmp_path / "theirs" / "data") == []


@pytest.mark.parametrize(
    ("answers", "command", "reason"),
    [(False, "/usr/bin/docker", "none answers"), (True, None, docker_engine.NO_COMMAND), (True, "/usr/bin/docker", "")],
)
def test_containers_need_an_engine_and_the_docker_command(
    monkeypatch: pytest.MonkeyPatch, *, answers: bool, command: str | None, reason: str
) -> None:
    found = (Engine(Path("/engine")), "unix:///engine") if answers else (None, "none answers")
    monkeypatch.setattr(docker_engine, "find", AsyncMock(return_value=found))
    monkeypatch.setattr(shutil, "which", lambda name: command)
    assert asyncio.run(docker_engine.missing()) == reason


# --- the program that holds a container open ------------------------------------------------------------------------


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_the_holding_program_is_an_elf_file_for_its_machine(machine: str, number: int) -> None:
    data = hold.program(machine)
    assert data[:16] == b"\x7fELF\x02\x01\x01" + bytes(9), "64 bits, little-endian, version 1"
    executable, one_segment, readable_and_executable = 2, 1, 5
    kind, machine_number, version, entry, *rest = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)
    assert (kind, machine_number, version) == (executable, number, 1)
    assert rest == [64, 0, 0, 64, 56, one_segment, 0, 0, 0]
    segment, flags, offset, address, physical, *sizes, alignment = struct.unpack_from("<IIQQQQQQ", data, 64)
    assert (segment, flags, offset, alignment) == (1, readable_and_executable, 0, 0x1000)
    assert (address, sizes) == (physical, [len(data)] * 2)
    assert (address % alignment, entry - address) == (0, 64 + 56)


ASSEMBLED = (
    "d28010c8 d2800220 10000181 d2800002 d2800103 d4000001"  # rt_sigaction(SIGCHLD, the struct behind, NULL, 8)
    " d2800928 d2800000 d2800001 d2800002 d2800003 d4000001 17fffffa"  # ppoll(NULL, 0, NULL, NULL), again and again
)


def test_the_holding_program_of_an_arm_machine_is_what_an_assembler_makes() -> None:
    words = b"".join(bytes.fromhex(word)[::-1] for word in ASSEMBLED.split())
    assert hold.program("aarch64")[64 + 56 :] == words + bytes(4) + struct.pack("<4Q", 1, 0, 0, 0)


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="it runs on this machine")
def test_the_holding_program_waits_and_ignores_the_ends_of_children(tmp_path: Path) -> None:
    path = tmp_path / "hold"
    path.write_bytes(hold.program("x86_64"))
    path.chmod(0o755)
    with subprocess.Popen([path]) as process:

        def facts() -> dict[str, str]:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

        until(lambda: process.poll() is not None or int(facts()["SigIgn"], 16) >> (signal.SIGCHLD - 1) & 1)
        until(lambda: process.poll() is not None or facts()["State"].startswith("S"))
        assert process.poll() is None
        process.kill()


def test_the_nodes_image_has_the_program_and_nothing_else() -> None:
    with tarfile.open(fileobj=io.BytesIO(hold.image())) as archive:
        (entry,) = archive.getmembers()
        assert (entry.name, entry.mode) == ("hold", 0o755)
