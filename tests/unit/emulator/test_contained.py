"""A run in a container: what of the machine its container sees, and where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchtrain.emulator.interface import BindMount, Container, Mount, NodeUp, Run
from batchtrain.emulator.machine.contained import (
    LONGEST_LINE,
    Contained,
    NodePaths,
    NotTheNodes,
    fits_a_line,
    has_device,
)

INSIDE = "/mnt/batch/tasks"


@pytest.fixture
def data(outside_tmp: Path) -> Path:
    return outside_tmp


@pytest.fixture
def paths(data: Path) -> NodePaths:
    for folder in ("nodes/n1", "nodes/n2", "tmp", "mounts/box"):
        (data / folder).mkdir(parents=True)
    up = NodeUp(data / "nodes/n1", INSIDE, {}, "process")
    return NodePaths(up, data / "tmp", data, (Mount("box", "mounts/box"),))


def test_a_path_of_the_node_is_found_on_the_machine(paths: NodePaths, data: Path) -> None:
    for path, machine in (
        (f"{INSIDE}/shared", "nodes/n1/shared"),
        (f"{INSIDE}/shared/../startup", "nodes/n1/startup"),
        ("/home/_azbatch/.ssh", "nodes/n1/volatile/home/_azbatch/.ssh"),
        ("/tmp/x", "tmp/x"),
    ):
        assert paths.on_machine(path) == str(data / machine)
    assert paths.on_machine(f"{INSIDE}x") == f"{INSIDE}x", "it only begins alike"
    assert paths.on_machine("/dev/null") == "/dev/null"


@pytest.mark.parametrize("path", ["{data}/nodes/n2", "{data}", "{data}/tmp/../nodes/n2/x"])
def test_files_of_the_emulator_and_of_other_nodes_are_not_the_nodes(paths: NodePaths, path: str, data: Path) -> None:
    with pytest.raises(NotTheNodes, match="belongs to the emulator"):
        paths.on_machine(path.format(data=data))
    assert paths.on_machine(f"{data}/mounts/box/a") == f"{data}/mounts/box/a"
    assert paths.on_machine(f"{data}2") == f"{data}2"


def test_a_node_of_another_account_has_nothing_of_the_first(data: Path) -> None:
    account = data / "accounts/second"
    (account / "nodes/n1").mkdir(parents=True)
    of_account = NodePaths(NodeUp(account / "nodes/n1", INSIDE, {}, "process"), account / "tmp", account)
    assert of_account.on_machine(f"{INSIDE}/x") == str(account / "nodes/n1/x")
    with pytest.raises(NotTheNodes, match="belongs to the emulator"):
        of_account.on_machine(f"{data}/key")
    assert of_account.hidden_in(str(data.parent)) == data.name


def test_a_link_out_of_the_node_is_not_followed(paths: NodePaths, data: Path) -> None:
    (data / "nodes/n1/link").symlink_to(data / "nodes/n2")
    with pytest.raises(NotTheNodes, match="cannot be shown to the container"):
        paths.on_machine(f"{INSIDE}/link/file")
    (data / "nodes/n1/box").symlink_to(data / "mounts/box")
    assert paths.on_machine(f"{INSIDE}/box/a") == str(data / "mounts/box/a")


def test_the_parents_of_a_missing_directory_are_created(paths: NodePaths, data: Path) -> None:
    assert paths.on_machine(f"{INSIDE}/a/b/c") == str(data / "nodes/n1/a/b/c")
    assert (data / "nodes/n1/a/b").is_dir()
    assert not (data / "nodes/n1/a/b/c").exists()


def test_the_data_directory_is_hidden_in_a_directory_above_it(paths: NodePaths, data: Path) -> None:
    assert paths.hidden_in(str(data.parent)) == data.name
    assert paths.hidden_in(str(data)) == ""
    assert paths.hidden_in("/dev") == ""


def contained(
    paths: NodePaths, mounts: tuple[BindMount, ...] | None, *, image_directory: bool = False, elevated: bool = False
) -> Contained:
    environment = {"AZ_BATCH_NODE_SHARED_DIR": f"{INSIDE}/shared", "AZ_BATCH_TASK_DIR": f"{INSIDE}/job/task"}
    container = Container("a", mounts=mounts, image_directory=image_directory)
    run = Run("s", "job/task", "true", environment, image="a", container=container, elevated=elevated)
    return Contained(run, paths.up, paths.tmp, paths.data_dir, paths.mounts)


def test_a_container_sees_the_whole_node_unless_mounts_are_requested(paths: NodePaths, data: Path) -> None:
    box = data / "mounts/box"
    assert list(contained(paths, None).binds()) == [(box, str(box), ""), (data / "nodes/n1", INSIDE, "")]
    assert list(contained(paths, ()).binds()) == []


def test_a_container_sees_the_requested_mounts_only(paths: NodePaths, data: Path) -> None:
    node = data / "nodes/n1"
    mounts = (BindMount("Shared", read_only=True), BindMount("Task"), BindMount("Startup"), BindMount("Applications"))
    assert list(contained(paths, mounts).binds()) == [
        (node / "shared", f"{INSIDE}/shared", ",readonly"),
        (node / "job/task", f"{INSIDE}/job/task", ""),
        (node / "applications", f"{INSIDE}/applications", ""),
    ]
    box = data / "mounts/box"
    assert list(contained(paths, (BindMount("VfsMounts"),)).binds()) == [(box, str(box), "")]


def test_a_container_has_the_user_and_the_directory_of_its_task(paths: NodePaths) -> None:
    user = f"--user={os.getuid()}:{os.getgid()}"
    assert list(contained(paths, ()).arguments()) == [f"--workdir={INSIDE}/job/task/wd", user]
    assert list(contained(paths, (), image_directory=True, elevated=True).arguments()) == ["--user=0:0"]
    assert next(iter(contained(paths, (BindMount("Shared", read_only=True),)).arguments())) == (
        f"--mount=type=bind,source={paths.up.root}/shared,target={INSIDE}/shared,readonly"
    )


def test_an_environment_of_a_task_wins_over_that_of_containers(paths: NodePaths) -> None:
    run = contained(paths, None)
    assert "BATCHTRAIN_EMULATED_NODE=container" in run.pairs()
    assert f"AZ_BATCH_TASK_DIR={INSIDE}/job/task" in run.pairs()


@pytest.mark.parametrize(
    ("value", "fits"),
    [("x" * (LONGEST_LINE - 1), True), ("x" * LONGEST_LINE, False), ("a\nb", False), ("a\rb", False), ("", True)],
)
def test_a_value_of_an_env_file_is_one_line(value: str, fits: bool) -> None:
    assert fits_a_line(value) is fits


def test_a_device_is_a_special_file_or_a_directory_of_them(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert [has_device(path) for path in ("/dev/null", "/dev", str(tmp_path / "file"), "/dev/none")] == [
        True, True, False, False,
    ]  # fmt: skip
