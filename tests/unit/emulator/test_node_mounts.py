"""What a task of a mapped image finds at paths of its image, and when that is mounted on a node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import mapped_images
from batchtrain.emulator.interface import Container, NodeUp, Run
from batchtrain.emulator.machine import node_mounts
from batchtrain.emulator.machine.contained import NodePaths, NotTheNodes
from batchtrain.emulator.machine.node_mounts import NodeMount, NodeMounts
from batchtrain.emulator.machine.run_options import Refused

INSIDE = "/mnt/batch/tasks"


@pytest.fixture
def data(outside_tmp: Path) -> Path:
    for name in ("node/shared", "tmp", "image"):
        (outside_tmp / name).mkdir(parents=True)
    return outside_tmp


def mounts(data: Path, options: str | None, image: Mapping[str, Path] = {}) -> tuple[NodeMount, ...]:
    container = None if options is None else Container("train", options)
    run = Run("s", "job/task", "true", {}, image="train", container=container)
    paths = NodePaths(NodeUp(data / "node", INSIDE, {}, "namespaces"), data / "tmp", data)
    return node_mounts.of_run(run, image, paths, data / "volumes")


def test_the_directories_of_the_image_are_read_only_and_without_links(data: Path) -> None:
    (data / "link").symlink_to(data / "image")
    assert mounts(data, None, {"/opt/data": data / "link"}) == (NodeMount(str(data / "image"), "/opt/data", True),)
    assert mounts(data, "") == ()


@pytest.mark.parametrize(
    ("options", "source", "target", "read_only"),
    [
        (f"-v {INSIDE}/shared:/data", "node/shared", "/data", False),
        (f"-v {INSIDE}/shared:/data/:ro,z", "node/shared", "/data", True),
        (f"--mount type=bind,source={INSIDE}/shared,target=/data,readonly", "node/shared", "/data", True),
        (f"--mount type=bind,source={INSIDE}/shared,target=/data", "node/shared", "/data", False),
        ("-v cache:/cache", "volumes/cache", "/cache", False),
        ("-v first:/x -v last:/x", "volumes/last", "/x", False),
        ("-v /scratch", "volumes/%2Fscratch", "/scratch", False),
        ("--tmpfs /scratch:size=1m", "volumes/%2Fscratch", "/scratch", False),
        ("-v /not/here:/x", "volumes/%2Fnot%2Fhere", "/x", False),
        (f"-v {INSIDE}/shared/new:/x", "node/shared/new", "/x", False),
    ],
)
def test_a_volume_is_a_directory_of_the_machine(
    data: Path, options: str, source: str, target: str, read_only: bool
) -> None:
    assert mounts(data, options) == (NodeMount(str(data / source), target, read_only),)
    assert (data / source).is_dir()


def test_what_the_node_shows_already_is_not_mounted(data: Path) -> None:
    assert mounts(data, f"-v {INSIDE}/shared:{INSIDE}/shared -v /usr:/usr:ro") == ()
    assert mounts(data, "-v /usr:/usr") == (NodeMount("/usr", "/usr", False),), "a writable one is another"


@pytest.mark.parametrize("target", ["data", "/", "/.", "./x"])
def test_a_volume_needs_an_absolute_path_that_is_not_the_root(data: Path, target: str) -> None:
    with pytest.raises(Refused, match=f"a volume at `{target}`; its path must be absolute, not /"):
        mounts(data, f"--mount type=bind,source=/usr,target={target}")


def test_files_of_the_emulator_are_no_volume(data: Path) -> None:
    with pytest.raises(NotTheNodes):
        mounts(data, f"-v {data}/key:/x")


# --- on a node ------------------------------------------------------------------------------------------------------


class Agent:
    """What the agent of a node was asked to do."""

    def __init__(self) -> None:
        self.mounted: dict[str, str] = {}
        self.failure = ""
        self.asked: list[str] = []

    async def ask(self, op: str, target: str, source: str = "", **_: Any) -> dict[str, Any]:
        self.asked.append(f"{op} {target}")
        if op == "unmount":
            del self.mounted[target]
            return {}
        if not self.failure:
            self.mounted[target] = source
        return {"failure": self.failure}


async def test_a_mount_lives_as_long_as_a_scope_that_uses_it() -> None:
    agent, ended = Agent(), set[str]()
    node = NodeMounts(agent.ask, ended)
    assert await node.mount([NodeMount("/a", "/x"), NodeMount("/b", "/y")], "first") == ""
    assert await node.mount([NodeMount("/a", "/x")], "second") == ""
    assert agent.mounted == {"/x": "/a", "/y": "/b"}
    ended.add("first")
    await node.unmount_unused()
    assert agent.mounted == {"/x": "/a"}
    ended.add("second")
    await node.unmount_unused()
    assert agent.mounted == {}
    await node.unmount_unused()


async def test_a_path_shows_one_directory_at_a_time() -> None:
    agent, ended = Agent(), set[str]()
    node = NodeMounts(agent.ask, ended)
    await node.mount([NodeMount("/a", "/x")], "first")
    assert await node.mount([NodeMount("/b", "/x")], "second") == ("/x is /a for another task that runs on this node")
    ended.add("first")
    assert await node.mount([NodeMount("/b", "/x")], "second") == ""
    assert agent.mounted == {"/x": "/b"}
    assert agent.asked == ["mount /x", "unmount /x", "mount /x"]  # not one on top of the other


async def test_a_mount_that_fails_is_told_and_tried_again() -> None:
    agent = Agent()
    node = NodeMounts(agent.ask, set())
    agent.failure = "no such device"
    assert await node.mount([NodeMount("/a", "/x")], "first") == "/a cannot be mounted at /x: no such device"
    agent.failure = ""
    assert await node.mount([NodeMount("/a", "/x")], "first") == ""
    assert agent.mounted == {"/x": "/a"}


def test_a_node_without_namespaces_says_which_paths_it_cannot_show() -> None:
    text = mapped_images.impossible(["/x", "/y"], "the kernel refuses them", "change it")
    assert "the task's directories /x, /y at these paths" in text
    assert text.endswith("(the kernel refuses them; change it)")
