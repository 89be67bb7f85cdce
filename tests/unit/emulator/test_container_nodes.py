"""Nodes with containers, on an engine in the test process: what is created, what a task gets, and what is removed."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator.interface import Container, Containers, Exit, Login, NodeLost, NodeSpec, NodeUnfit, NodeUp, Run
from batchtrain.emulator.machine import docker, docker_engine, handover, leftovers
from batchtrain.emulator.machine.docker import ContainerNodes, Joined
from tests.unit.emulator.fake_docker import FakeDocker, Program, no
from tests.waiting import reached

TASK, INSIDE = "workitems/job/job-1/task", "/mnt/batch/tasks"
FOREVER = Program(out=b"up\n", waits=True)


class Emulator:
    """The containers of one emulator on an engine, and in the end without them."""

    def __init__(self, engine: FakeDocker, folder: Path) -> None:
        self.engine, self.data_dir = engine, folder
        self.nodes = ContainerNodes(folder)
        self.lost = list[str]()
        self.joined: dict[str, Joined] = {}

    async def __aenter__(self) -> None:
        await self.engine.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self.nodes.close()
        await self.engine.stop()

    def spec(self, name: str, **more: Any) -> NodeSpec:
        more.setdefault("containers", Containers())
        return NodeSpec("pool", name, f"127.7.0.{4 + ord(name[0]) - ord('a')}", f"host-{name}", "size", **more)

    async def boot(self, name: str = "a", images: tuple[str, ...] = (), **more: Any) -> Joined | None:
        root = self.root(name)
        (root / TASK / "wd").mkdir(parents=True, exist_ok=True)
        joined = await self.nodes.join(self.spec(name, **more), root, images, lambda: self.lost.append(name))
        if joined is not None:
            self.joined[name] = joined
        return joined

    def root(self, name: str) -> Path:
        return self.data_dir / "nodes" / name

    async def run(
        self, *program: str, name: str = "a", scope: str = "s", stays: bool = False, options: str = "",
        image: str = "train", elevated: bool = False, login: Login | None = None, **environment: str,
    ) -> Exit:  # fmt: skip
        container = Container(image, options, login=login)
        run = Run(scope, TASK, " ".join(program), environment, image=image, container=container, stays=stays,
                  elevated=elevated)  # fmt: skip
        up = NodeUp(self.root(name), INSIDE, {}, "docker")
        prepared = await self.nodes.prepare(name, run)
        return prepared or await self.nodes.run(run, name, list(program), up, self.data_dir / "tmp")

    async def running(self, *program: str, **more: Any) -> asyncio.Task[Exit]:
        """A run whose program runs."""
        return await self.begun(asyncio.ensure_future(self.run(*program, **more)))

    async def begun(self, run: asyncio.Task[Exit]) -> asyncio.Task[Exit]:
        """The output of a run's program has arrived."""
        await reached(lambda: run.done() or self.read("stdout.txt") == "up\n")
        return run

    def read(self, name: str, node: str = "a") -> str:
        file = self.root(node) / TASK / name
        return file.read_text() if file.exists() else ""

    def nodes_own(self) -> list[Any]:
        return [one for one in self.engine.containers.values() if "body" in one.about]

    def tasks(self) -> list[Any]:
        return [one for one in self.engine.containers.values() if "command" in one.about]

    @property
    def options(self) -> list[tuple[str, str]]:
        return list(self.engine.created[-1]["options"])


@pytest.fixture
def emulator(tmp_path: Path, outside_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    engine = FakeDocker(tmp_path / "engine.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.socket}")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(asyncio, "create_subprocess_exec", engine.command)
    monkeypatch.setattr(docker, "RETURN_SECONDS", 0.0)
    monkeypatch.setattr(docker, "WENT_SECONDS", 0.0)
    monkeypatch.setattr(docker, "RETURN_PAUSE", 0.0)
    return Emulator(engine, outside_tmp)


# --- the engine -----------------------------------------------------------------------------------------------------


async def test_without_an_engine_a_node_joins_nothing_and_the_reason_is_told(emulator: Emulator) -> None:
    await emulator.engine.stop()
    assert await emulator.boot() is None
    assert "no Docker Engine answers" in emulator.nodes.missing
    assert not emulator.nodes.has("a")


async def test_without_the_docker_command_or_on_another_machine_there_is_no_engine(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert await emulator.boot() is None
    assert emulator.nodes.missing == docker_engine.NO_COMMAND
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert await emulator.boot() is None
    assert emulator.nodes.missing == "nodes with containers are for x86_64 and aarch64 alone"


@pytest.mark.parametrize("request_line", ["GET /events", "GET /images/batchtrain/node", "GET /networks"])
async def test_an_engine_that_cannot_be_set_up_is_none_until_it_can(emulator: Emulator, request_line: str) -> None:
    emulator.engine.fails[request_line] = no(500, "no space left")
    assert await emulator.boot() is None
    assert emulator.nodes.missing == "the Docker Engine could not be set up: no space left"
    emulator.engine.fails.clear()
    assert await emulator.boot() is not None
    assert emulator.nodes.missing == ""


async def test_the_engine_is_set_up_once_for_all_nodes(emulator: Emulator) -> None:
    await emulator.boot("a")
    await emulator.boot("b")
    assert emulator.engine.requests.count("GET /events") == 1
    assert emulator.engine.requests.count("POST /images/create") == 1
    assert emulator.engine.requests.count("POST /networks/create") == 1
    program = emulator.data_dir / "docker" / "hold"
    assert program.read_bytes()[:4] == b"\x7fELF"
    assert (program.stat().st_mode & 0o777, program.parent.stat().st_mode & 0o777) == (0o755, 0o700)


async def test_the_image_of_nodes_is_not_made_again(emulator: Emulator) -> None:
    emulator.engine.images["batchtrain/node:1"] = []
    await emulator.boot()
    assert "POST /images/create" not in emulator.engine.requests


async def test_a_new_emulator_removes_what_the_last_one_left_and_nothing_of_others(
    emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    label, engine = "batchtrain.emulator", emulator.engine
    engine.add("left", {label: str(emulator.data_dir)})
    engine.add("others", {label: "/another"})
    engine.add("plain", {})
    await emulator.nodes.sweep()
    assert set(engine.containers) == {"others", "plain"}
    assert "removed 1 containers that an earlier emulator left behind" in caplog.text
    caplog.clear()
    await emulator.nodes.sweep()
    assert caplog.text == ""
    await engine.stop()
    await emulator.nodes.sweep()


async def test_an_emulator_that_comes_up_removes_the_networks_of_forgotten_ones(emulator: Emulator) -> None:
    labels = {"batchtrain.emulator": "/no/such/folder", "batchtrain.emulator.seen-from": leftovers.seen_from()}
    emulator.engine.networks["old"] = {"Id": "old", "Name": "old", "Labels": labels}
    emulator.engine.networks["used"] = {
        "Id": "used", "Name": "used", "Labels": {**labels, "batchtrain.emulator": "/"},
    }  # fmt: skip
    await emulator.boot()
    assert "old" not in emulator.engine.networks
    assert "used" in emulator.engine.networks


async def test_nodes_are_lost_with_the_engine_and_boot_again_on_the_next_one(emulator: Emulator) -> None:
    emulator.engine.programs["serve"] = FOREVER
    await emulator.boot()
    run = await emulator.running("serve")
    await emulator.engine.stop()
    with pytest.raises(NodeLost, match="a: the node died"):
        await run
    await reached(lambda: emulator.lost)
    assert emulator.lost == ["a"]
    async with emulator.engine:
        assert await emulator.boot() is not None
        assert (await emulator.run("true", scope="t")).code == 0
        await emulator.nodes.close()


async def test_an_engine_that_returns_after_its_last_node_was_lost_is_swept_in_the_end(emulator: Emulator) -> None:
    await emulator.boot()
    await emulator.engine.stop()
    await reached(lambda: emulator.lost)
    assert await emulator.boot() is None
    async with emulator.engine:
        assert emulator.nodes_own() != []
        await emulator.nodes.close()
        assert emulator.nodes_own() == []


# --- nodes ----------------------------------------------------------------------------------------------------------


async def test_a_node_has_a_container_with_its_name_its_address_and_its_directory(emulator: Emulator) -> None:
    await emulator.boot("b")
    (container,) = emulator.nodes_own()
    (network,) = emulator.engine.networks
    body, address = container.about["body"], emulator.joined["b"].address
    assert container.status == "running"
    assert container.name == f"{network}-b-1"
    assert container.labels == {
        "batchtrain.emulator": str(emulator.data_dir), "batchtrain.emulator.node": "b",
    }  # fmt: skip
    assert (body["Image"], body["Hostname"], body["Entrypoint"]) == ("batchtrain/node:1", "host-b", ["/hold"])
    assert body["HostConfig"]["NetworkMode"] == network
    assert body["HostConfig"]["Mounts"] == [
        {"Type": "bind", "Source": str(emulator.root("b")), "Target": "/node"}
    ]  # fmt: skip
    endpoint = body["NetworkingConfig"]["EndpointsConfig"][network]
    assert endpoint == {"IPAMConfig": {"IPv4Address": address}, "Aliases": ["host-b"]}
    assert address.startswith("10.")
    assert address.endswith(".0.5"), "the last two bytes are the node's own"
    (subnet,) = emulator.engine.networks[network]["IPAM"]["Config"]
    assert address.split(".")[:2] == subnet["Subnet"].split(".")[:2]


async def test_the_network_is_the_first_that_is_free_from_the_nodes_own_byte_on(emulator: Emulator) -> None:
    emulator.engine.networks["x"] = {
        "Id": "x", "Name": "x", "Labels": {}, "IPAM": {"Config": [{"Subnet": "10.7.0.0/16"}]},
    }  # fmt: skip
    await emulator.boot()
    assert int(emulator.joined["a"].address.split(".")[1]) > 7


@pytest.mark.parametrize("resolver", ["nameserver 10.0.0.1\n", ""])
@pytest.mark.parametrize(("uid", "enters"), [(0, True), (1000, False)])
async def test_only_root_may_enter_the_network_of_a_node(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    *, uid: int, enters: bool, resolver: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(handover, "foreign", lambda *_: [])
    (tmp_path / "space").touch()
    if resolver:
        (tmp_path / "resolv.conf").write_text(resolver)
    joined = await emulator.boot()
    assert joined is not None
    assert joined[1:] == ((str(tmp_path / "space"), resolver) if enters else ("", ""))
    assert ("a: what runs on the node's host uses the machine's network" in caplog.text) is not enters


@pytest.mark.parametrize("request_line", ["POST /containers/c0", "GET /containers/c0", "POST /containers/create"])
async def test_a_node_whose_container_does_not_start_is_lost_and_leaves_none(
    emulator: Emulator, request_line: str
) -> None:
    await emulator.boot("b")
    emulator.engine.fails[request_line] = no(500, "no address")
    with pytest.raises(NodeLost, match="a: its network could not be made: no address"):
        await emulator.boot()
    assert [one.about["body"]["Hostname"] for one in emulator.nodes_own()] == ["host-b"]
    assert not emulator.nodes.has("a")


async def test_a_node_has_its_images_before_it_is_up(emulator: Emulator) -> None:
    emulator.engine.registry = {"r.example/it:1": "me", "other:2": "", "r.example/no:1": "another"}
    logins = (Login("r.example", "me", "x"),)
    await emulator.boot(images=("r.example/it:1", "other:2"), containers=Containers((), logins))
    assert {"r.example/it:1", "other:2"} <= set(emulator.engine.images)
    with pytest.raises(NodeUnfit, match="unauthorized"):
        await emulator.boot("b", images=("r.example/no:1",), containers=None)
    assert not emulator.nodes.has("b")


async def test_a_node_whose_container_ends_is_lost_once_and_others_are_not(emulator: Emulator) -> None:
    await emulator.boot("a")
    await emulator.boot("b")
    first, _ = emulator.nodes_own()
    emulator.engine.end(first, 137)
    await reached(lambda: emulator.lost)
    await emulator.nodes.leave("a")
    await emulator.nodes.leave("b")
    assert emulator.lost == ["a"]


async def test_a_node_that_leaves_takes_its_containers_and_volumes_along_and_no_others(emulator: Emulator) -> None:
    engine = emulator.engine
    engine.programs["serve"] = FOREVER
    await emulator.boot("a")
    await emulator.boot("b")
    run = await emulator.running("serve", options="-v data:/data")
    await emulator.run("true", name="b", options="-v data:/data")
    assert len(engine.volumes) == 2
    await emulator.nodes.leave("a")
    with pytest.raises(NodeLost):
        await run
    assert not emulator.nodes.has("a")
    assert [one.about["body"]["Hostname"] for one in emulator.nodes_own()] == ["host-b"]
    assert [one.labels["batchtrain.emulator.node"] for one in emulator.tasks()] == ["b"]
    assert len(engine.volumes) == 1
    await emulator.nodes.leave("a")
    assert emulator.lost == [], "its end was requested"


async def test_everything_is_removed_in_the_end(emulator: Emulator) -> None:
    emulator.engine.add("others", {"batchtrain.emulator": "/another"})
    await emulator.boot("a")
    await emulator.boot("b")
    await emulator.run("true", options="-v data:/data")
    await emulator.nodes.close()
    assert set(emulator.engine.containers) == {"others"}
    assert (emulator.engine.networks, emulator.engine.volumes) == ({}, {})


@pytest.mark.parametrize(("uid", "uploads"), [(4711, 2), (0, 0)], ids=["a user", "root"])
async def test_directories_of_root_become_the_users_before_a_node_is_gone(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, uid: int, uploads: int
) -> None:
    await emulator.boot()
    (own,) = emulator.nodes_own()
    answers = iter([["outer"], ["outer/inner"], []])
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(handover, "foreign", lambda node, below: next(answers))
    monkeypatch.setattr(handover, "archive", lambda directories: b"tar")
    await emulator.nodes.leave("a")
    assert emulator.engine.uploads == [(own.id, "/node")] * uploads
    assert own.id not in emulator.engine.containers


async def test_a_container_that_is_gone_ends_the_handing_over(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await emulator.boot()
    tries = list[str]()
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    monkeypatch.setattr(handover, "foreign", lambda node, below: tries.append(below) or ["outer"])
    monkeypatch.setattr(handover, "archive", lambda directories: b"tar")
    emulator.engine.fails["PUT"] = no(404, "No such container")
    await emulator.nodes.leave("a")
    assert len(tries) == 1
