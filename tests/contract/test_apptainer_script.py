"""The script that runs a command inside an image, and the lines that move input data, run by a real shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from batchtrain.launchers.apptainer import Apptainer, around, script
from batchtrain.launchers.preparation import Moved, image_path, moves

URI = "docker://a/b:1"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's directory with an `apptainer` that prints its arguments, a line each."""
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / "apptainer"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    return tmp_path


def run(node: Path, command: str, options: Apptainer, shell: str = "/bin/sh") -> subprocess.CompletedProcess[str]:
    """A task's command on the node, inside the image."""
    file = script(options)
    path = node / file.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(file.data)
    environment = {
        "PATH": f"{node / 'bin'}:{os.defpath}",
        "AZ_BATCH_TASK_SHARED_DIR": str(node),
        "AZ_BATCH_NODE_ROOT_DIR": str(node),
        "AZ_BATCH_NODE_SHARED_DIR": str(node / "shared"),
        "AZ_BATCH_NODE_MOUNTS_DIR": "/mnt/a b",
    }
    line = [shell, "-c", around(command, options)]
    return subprocess.run(line, env=environment, cwd=node, capture_output=True, text=True, check=False)


def words(node: Path, command: str, options: Apptainer) -> list[str]:
    return run(node, command, options).stdout.splitlines()


def test_the_commands_words_reach_the_image_as_they_are(node: Path) -> None:
    assert words(node, "python train.py --name 'a b'", Apptainer(URI)) == [
        "exec", "--bind", str(node), URI, "python", "train.py", "--name", "a b",
    ]  # fmt: skip


def test_a_folder_of_descriptions_is_bound_where_the_node_has_it(node: Path) -> None:
    folder = node / "microsoft"
    assert words(node, "true", Apptainer(URI, descriptions=str(folder)))[3:] == [URI, "true"]
    folder.mkdir()
    found = words(node, "true", Apptainer(URI, descriptions=str(folder)))
    assert found[3:] == ["--bind", f"{folder}:{folder}:ro", URI, "true"]


def test_an_image_that_the_start_task_fetched_is_used(node: Path) -> None:
    file = Path(image_path(URI).replace("$AZ_BATCH_NODE_SHARED_DIR", str(node / "shared")))
    file.parent.mkdir(parents=True)
    file.touch()
    assert str(file) in words(node, "true", Apptainer(URI))


def test_binds_expand_the_nodes_variables_and_hold_blanks(node: Path) -> None:
    options = Apptainer(URI, gpus="--nv", binds=("$AZ_BATCH_NODE_MOUNTS_DIR/x:/x:ro",), scratch=("/tmp/s",))
    found = words(node, "true", options)
    assert "/mnt/a b/x:/x:ro" in found
    assert found[found.index("--scratch") + 1] == "/tmp/s"
    assert "--nv" in found


def test_a_command_of_several_parts_stays_whole(node: Path) -> None:
    command = "cd 'a b' && echo \"$HOME\" | cat"
    assert words(node, command, Apptainer(URI))[-3:] == ["/bin/sh", "-c", command]


def test_a_node_without_apptainer_says_what_to_do(node: Path) -> None:
    (node / "bin" / "apptainer").unlink()
    ended = run(node, "true", Apptainer(URI))
    assert ended.returncode == 127
    assert "global_resources.singularity_images" in ended.stderr


def move(node: Path, *wanted: Moved) -> subprocess.CompletedProcess[str]:
    line = ["/bin/bash", "-c", f"{moves(wanted)}\necho then"]
    environment = {"PATH": os.defpath, "AZ_BATCH_NODE_SHARED_DIR": str(node / "shared dir")}
    return subprocess.run(line, env=environment, cwd=node, capture_output=True, text=True, check=False)


def test_input_data_is_moved_to_where_it_belongs(node: Path) -> None:
    (node / "in" / "a").mkdir(parents=True)
    (node / "in" / "a" / "f").write_text("x")
    ended = move(node, Moved("in", "$AZ_BATCH_NODE_SHARED_DIR/data"))
    assert (ended.stdout, ended.stderr) == ("then\n", "")
    assert (node / "shared dir" / "data" / "a" / "f").read_text() == "x"
    assert not (node / "in").exists()


def test_a_prefix_without_blobs_moves_nothing_and_stops_nothing(node: Path) -> None:
    assert move(node, Moved("in", "/nowhere")).stdout == "then\n"


def test_data_that_cannot_be_moved_stops_the_task(node: Path) -> None:
    (node / "in").mkdir()
    ended = move(node, Moved("in", "/proc/nowhere"))
    assert ended.returncode == 1
    assert "then" not in ended.stdout
