"""The texts that run a command in an image, and the parts that stand before a command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from batchtrain.frameworks.base import Fabric, Shape
from batchtrain.launchers import apptainer, checkpoint, plain, preflight, preparation, python, shell, steps
from batchtrain.launchers.apptainer import CALL, Apptainer
from batchtrain.launchers.launch import Step, rendered
from batchtrain.launchers.preparation import Moved, Selected, image_path, path_word
from tests.launching import launched

TWO = Shape(2)
HAS_BASH = pytest.mark.skipif(sys.platform == "win32", reason="a script of Linux")


# --- Apptainer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "command", "text"),
    [
        ("exec", "python train.py", f"{CALL} python train.py"),
        ("exec", "cd a && ./b", f"{CALL} /bin/sh -c 'cd a && ./b'"),
        ("exec", "A=1 ./b", f"{CALL} /bin/sh -c 'A=1 ./b'"),
        ("run", "cd a && ./b", f"{CALL} cd a && ./b"),
        ("run", "", CALL),
        ("exec", "  ", CALL),
    ],
)
def test_a_command_of_more_than_simple_words_needs_a_shell_in_its_image(verb: str, command: str, text: str) -> None:
    assert apptainer.around(command, Apptainer("docker://a", verb)) == text


@pytest.mark.parametrize("image", ["/images/a b.sif", "$AZ_BATCH_NODE_SHARED_DIR/a.sif", "./a.sif"])
def test_an_image_that_is_a_file_is_never_fetched(image: str) -> None:
    lines = apptainer.script(Apptainer(image)).data.decode().splitlines()
    assert [line for line in lines if "image=" in line] == [f"image={path_word(image)}"]


def test_an_image_of_a_registry_is_the_file_of_the_start_task_or_comes_from_there() -> None:
    lines = apptainer.script(Apptainer("docker://a/b:1")).data.decode().splitlines()
    assert [line for line in lines if "image=" in line] == [
        f"image={path_word(image_path('docker://a/b:1'))}",
        '[ -r "$image" ] || image=docker://a/b:1',
    ]


def test_the_line_of_an_image_has_its_options_in_order_and_no_empty_ones() -> None:
    options = Apptainer("./a.sif", "run", "--nv", ("/my d:/d:ro",), ("/scratch",), ("--cleanenv", "-e"), "/opt/m")
    line = apptainer.script(options).data.decode().partition("exec ")[2]
    assert line.split(" \\\n  ") == [
        '"$runtime" run', '--bind "$AZ_BATCH_NODE_ROOT_DIR"', "--nv", "--bind '/my d:/d:ro'",
        '${described:+--bind "$described:$described:ro"}', "--scratch /scratch", "--cleanenv -e", '"$image" "$@"\n',
    ]  # fmt: skip
    plain_line = apptainer.script(Apptainer("./a.sif")).data.decode()
    assert "described" not in plain_line
    assert plain_line.partition("exec ")[2].split(" \\\n  ") == [
        '"$runtime" exec', '--bind "$AZ_BATCH_NODE_ROOT_DIR"', '"$image" "$@"\n',
    ]  # fmt: skip


def test_the_script_of_an_image_can_be_executed() -> None:
    file = apptainer.script(Apptainer("./a.sif"))
    assert (file.name, file.mode) == (".batchtrain/apptainer.sh", 0o755)


def test_the_ranks_of_an_mpi_and_the_search_for_mpi4py_are_inside_the_image() -> None:
    text = launched("mpi", "python t.py", TWO, runtime="openmpi", inside=CALL).application
    assert f"bt_find_mpi4py {CALL} python\n" in text
    assert f'{CALL} python "${{bt_mpi4py[@]}}" t.py' in text
    other = launched("mpi", "./solve", TWO, runtime="openmpi", inside=CALL).application
    assert f"{CALL} ./solve" in other and "bt_find_mpi4py" not in other


# --- checkpoints ----------------------------------------------------------------------------------------------------


FACTS = {"files": {}, "settings": {}, "nodes": 1, "ranks": None, "reshard": True}


@HAS_BASH
def test_the_directory_of_checkpoints_is_made_for_the_job_and_the_task_without_colons(tmp_path: Path) -> None:
    (tmp_path / "my share").mkdir()
    kept = checkpoint.step(checkpoint.Place("my share", "p1", ".r@key", "d1"), FACTS, 3)
    launch = rendered((kept, plain.alone('echo "$BATCHTRAIN_CHECKPOINT_DIR $BATCHTRAIN_CHECKPOINT_KEEP"')))
    for file in launch.files:
        target = tmp_path / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.data)
    environment = {
        **os.environ, "AZ_BATCH_NODE_MOUNTS_DIR": str(tmp_path), "AZ_BATCH_TASK_DIR": str(tmp_path),
        "AZ_BATCH_TASK_SHARED_DIR": str(tmp_path), "AZ_BATCH_NODE_IS_DEDICATED": "true", "AZ_BATCH_TASK_ID": "t",
        "AZ_BATCH_JOB_ID": "s:job-1",
    }  # fmt: skip
    run = lambda: subprocess.run(  # noqa: E731
        ["bash", "-c", launch.application], env=environment, capture_output=True, text=True, check=False
    )
    directory = tmp_path / "my share/checkpoints/p1/s_job-1/t.r@key"
    done = run()
    assert (done.returncode, done.stdout, (directory / "1").is_dir()) == (0, f"{directory}/1 3\n", True)
    (directory / "12").mkdir()
    (directory / "9").mkdir()
    for name in ("bash", "ls", "grep", "sort", "tail", "mkdir", "mv", "rm"):  # a node without Python
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    environment["PATH"] = str(tmp_path / "bin")
    done = run()
    assert (done.returncode, done.stdout) == (0, f"{directory}/12 3\n")
    shutil.rmtree(directory)
    (tmp_path / "my share/checkpoints/s_job-1/t/d1/step-7").mkdir(parents=True)  # of an earlier version
    assert run().stdout == f"{directory}/1 3\n"
    assert (directory / "1/step-7").is_dir()
    assert run().stdout == f"{directory}/1 3\n"  # and where the former directory is gone
    environment["BATCHTRAIN_LINEAGE"] = '{"run": "a", "fresh": true}'
    done = run()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("batchtrain: `checkpoint`: --fresh and --resume need python3")
    environment["AZ_BATCH_NODE_MOUNTS_DIR"] = str(tmp_path / "none")
    done = run()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("batchtrain: `checkpoint`: the volume `my share` is not mounted")


def test_a_spot_node_is_watched_by_who_runs_the_processes() -> None:
    watched = launched("plain", "x", TWO, preemption="SIGUSR1")
    assert "$$ SIGUSR1 </dev/null" in watched.application and steps.PREEMPTION in watched.files
    assert " $$ </dev/null" in launched("plain", "x", TWO, preemption="").application
    ranks = launched("mpi", "x", TWO, runtime="openmpi", preemption="SIGUSR1")
    assert "export BATCHTRAIN_PREEMPTION_SIGNAL=SIGUSR1" in ranks.application and "$$ SIGUSR1" not in ranks.application
    silent = launched("mpi", "x", TWO, runtime="openmpi", preemption="")
    assert "BATCHTRAIN_PREEMPTION_SIGNAL" not in silent.application
    assert all(steps.PREEMPTION in launch.files for launch in (ranks, silent))
    nodes = launched("pytorch", "x", TWO, preemption="SIGUSR1")
    assert steps.PREEMPTION in nodes.files and "SIGUSR1" not in nodes.application
    for launch in (launched("plain", "x", TWO), launched("mpi", "x", TWO, runtime="openmpi")):
        assert steps.PREEMPTION not in launch.files and "PREEMPTION" not in launch.application


# --- parts before a command -----------------------------------------------------------------------------------------


@HAS_BASH
def test_data_is_moved_where_it_belongs_and_may_be_read_by_all(tmp_path: Path) -> None:
    for name in ("a", "b.txt"):
        (tmp_path / "in 1").mkdir(exist_ok=True)
        (tmp_path / "in 1" / name).write_text(name)
        (tmp_path / "in2").mkdir(exist_ok=True)
        (tmp_path / "in2" / name).write_text(name)
        (tmp_path / "in2" / name).chmod(0o600)
    wanted = (
        Moved("in 1", "$TO/x y"), Moved("none", "$TO/n"), Moved("in2", "$TO/z", Selected(include=("*.txt",))),
    )  # fmt: skip
    environment = {**os.environ, "TO": str(tmp_path / "to")}
    subprocess.run(["bash", "-c", preparation.moves(wanted)], cwd=tmp_path, env=environment, check=True)
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"to/x y/a", "to/x y/b.txt", "to/z/b.txt"}
    assert (tmp_path / "to/z/b.txt").stat().st_mode & 0o044 == 0o044


def test_without_data_nothing_is_moved() -> None:
    assert preparation.moves(()) == ""


@pytest.mark.parametrize(
    ("container", "command", "port"),
    [
        (False, None, "22"),
        (False, "./mine", "22"),
        (True, None, "23"),
        (True, " /usr/sbin/sshd -D -p 23 & ", "23"),
        (True, "/usr/sbin/sshd -p 24", ""),
        (True, "./mine", ""),
    ],
)
def test_the_port_of_a_nodes_ssh_server_is_known_if_it_is_batchs_or_ours(
    container: bool, command: str | None, port: str
) -> None:
    shape = Shape(2, container=container)
    assert steps.port_of(shape, command) == port
    assert steps.use_ssh(shape, command) == ("bt_use_ssh 23" if port == "23" else "bt_use_ssh")
    made = rendered(steps.coordination(shape, command))
    assert [row.value for row in made.implicit] == ["/usr/sbin/sshd -p 23"] * (port == "23")
    assert ("bt_start_sshd" in made.coordination) is (port == "23")
    assert ("./mine" in made.coordination) is (command == "./mine")
    assert made.application.strip() == ""


# --- words of a command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("a", True),
        ("a 'b; c' \"d\"", True),
        ("  a b  ", True),
        ("a; b", False),
        ("a > b", False),
        ("A=1 b", False),
        ("b A=1", True),
        ("", False),
        ("&& a", False),
        ("a # b", False),
        ("a\nb", False),
    ],
)
def test_a_command_is_simple_if_a_shell_would_only_split_it(text: str, simple: bool) -> None:
    assert shell.is_simple(text) is simple


def test_each_word_of_a_command_has_the_place_of_its_end() -> None:
    text = "  ab 'c d'\te; f"
    assert [(word, text[:end]) for word, end in shell.first_words(text)] == [
        ("ab", "  ab"), ("'c d'", "  ab 'c d'"), ("e", "  ab 'c d'\te"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "with_text"),
    [
        ("python t.py -c", "python X t.py -c"),
        ("python -W ignore -u t.py", "python -W ignore -u X t.py"),
        ("python -Wcm t.py", "python -Wcm X t.py"),
        ("python -m a.b c", "python X -m a.b c"),
        ("python -uc 'x'", None),
        ("python", None),
        ("python -u", None),
        ("python -", None),
        ("./train", None),
        ("", None),
    ],
)
def test_a_text_goes_before_the_script_if_there_is_a_place(command: str, with_text: str | None) -> None:
    assert python.before_script(command, "X") == with_text


def test_a_note_shows_only_the_beginning_of_a_long_command() -> None:
    note = python.with_mpi4py(f"python -uc {'x' * 500}").note
    assert f" `python -uc {'x' * 189}`: " in note


# --- what nodes are expected to have --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("processes", "gpus", "each"),
    [(None, 0, 1), (3, 0, 3), ("3", 8, 8), (" 9 ", 8, 9), ("auto", 4, 4), ("nproc", 0, 1)],
)
def test_at_least_one_process_for_each_gpu_is_expected(processes: int | str | None, gpus: int, each: int) -> None:
    shape = Shape(2, size="S", gpus=gpus, gpu_vendor="nvidia")
    assert preflight.expected(shape, processes, "", infiniband=False, memlock=False)[0] == f"processes={each}"


def test_only_a_gang_of_several_nodes_knocks_at_a_port_and_only_sr_iov_has_ports_of_infiniband() -> None:
    alone = preflight.expected(Shape(1), 1, "22", infiniband=True, memlock=True)
    assert alone == ("processes=1", "memlock=1")
    two = preflight.expected(Shape(2, Fabric.SR_IOV), 1, "22", infiniband=True, memlock=False)
    assert two == ("processes=1", "infiniband=1", "port=22")
    assert preflight.expected(Shape(2, Fabric.SR_IOV), 1, "", infiniband=False, memlock=False) == ("processes=1",)


def test_the_plan_names_what_is_checked_with_its_values() -> None:
    (row,) = preflight.step(("processes=4", "gpus=4", "vendor=nvidia", "port=23")).implicit
    assert row.value == (
        "4 GPUs without faults, and their driver, a connection to each other node's port 23, shared memory, disk, clock"
    )
    assert preflight.step(()) == Step()
