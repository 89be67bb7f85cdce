"""rank.sh and sweep.sh, under each shell that an image may have for `sh`; a Python process plays the MPI launcher."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from batchtrain import runtime
from batchtrain.frameworks.mpi import MPIS
from batchtrain.launchers import steps
from tests import examples, needs
from tests.waiting import until

pytestmark = pytest.mark.process

SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"]}

APPLETS = [
    "sh", "setsid", "mkfifo", "sleep", "date", "kill", "rm", "mkdir", "tr", "sed", "cut", "uname", "cat", "grep", "tee",
    "tail", "mv",
]  # fmt: skip


class Node:
    """A node's task directory, and a PATH on which `sh` is one shell (with its own small commands, if it has them)."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.task, self.bin = folder / "task", folder / "bin"
        self.ranks = self.task / ".batchtrain/ranks"
        self.bin.mkdir()
        self.ranks.mkdir(parents=True)
        program = needs.program(SHELLS[shell][0])
        for name in APPLETS if shell == "busybox" else ["sh"]:
            (self.bin / name).symlink_to(program)
        for name, data in {"rank.sh": steps.RANK.data, "sweep.sh": runtime.read("sweep.sh")}.items():
            (self.task / ".batchtrain" / name).write_bytes(data)
        self.environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "PMI_RANK": "3",
            "AZ_BATCH_NODE_ID": "tvm-1",
            "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000",
            "AZ_BATCH_IS_CURRENT_NODE_MASTER": "true",
        }
        self.keep(self.environment)

    def keep(self, values: dict[str, str]) -> None:
        """What the coordination command wrote."""
        lines = [f"export {name}='{value}'" for name, value in values.items() if name.startswith("AZ_BATCH_")]
        (self.task / ".batchtrain/environment").write_text("\n".join(lines) + "\n")

    def line(self, *command: str) -> list[str]:
        return ["sh", str(self.task / ".batchtrain/rank.sh"), *command]

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.line(*command), env={**self.environment, **environment}, cwd=self.task, input="input\n",
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """A rank below a launcher's daemon, both of which it may lose; the daemon is what is returned."""
        daemon = f"import subprocess, sys; subprocess.run({self.line(*command)!r}, start_new_session=True)"
        started = subprocess.Popen(
            [sys.executable, "-c", daemon], env=self.environment, cwd=self.task, stderr=subprocess.PIPE
        )
        until((self.task / "up").exists)
        return started

    def pids(self) -> tuple[int, int]:
        """The rank's process and its supervisor."""
        first, second, _ = (self.ranks / "3.pid").read_text().split("\n", 2)
        return int(first), int(second)

    def sweep(self, grace: str = "0.5") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(self.task / ".batchtrain/sweep.sh"), grace], env=self.environment,
            capture_output=True, text=True, check=True,
        )  # fmt: skip

    def processes(self) -> list[str]:
        """Whatever runs below this directory."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (folder / "cwd").readlink().is_relative_to(self.task):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(params=examples.first(SHELLS))
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, request.param)
    yield made
    until(lambda: made.processes() == [])


def test_success_says_nothing_and_leaves_only_its_time(node: Node) -> None:
    done = node.run("sh", "-c", "cat; echo out; echo err >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "input\nout\n", "err\n")
    assert [path.name for path in node.ranks.iterdir()] == ["3.ended"]
    assert node.sweep("look").stdout == ""
    kind, _, *fields = node.sweep().stdout.split()
    assert (kind, fields) == ("ended", ["3", "0", "tvm-1", "10.0.0.4", "-"])
    until(lambda: not node.processes())  # the copies end when they have read the end


def test_a_rank_that_the_kernel_kills_at_the_limit_of_its_container_notes_it(node: Node, memory_cgroup: Path) -> None:
    (node.task / ".batchtrain/node.sh").write_bytes(runtime.read("node.sh"))
    counted = subprocess.run(
        ["bash", node.task / ".batchtrain/node.sh", "memory_kills"], capture_output=True, text=True
    )
    with (node.task / ".batchtrain/environment").open("a") as file:
        file.write(f"export BATCHTRAIN_MEMORY_KILLS='{counted.stdout.strip()}'\n")
    grows = f"exec {sys.executable} -c 'x = bytearray(400_000_000)'"
    line = ["sh", "-c", f'echo $$ >{memory_cgroup}/cgroup.procs; exec "$@"', "-", *node.line("sh", "-c", grows)]
    done = subprocess.run(line, env=node.environment, cwd=node.task, capture_output=True, text=True, check=False)
    noted = (node.ranks / "3.failed").read_text().split()
    assert (done.returncode, noted[1:3], noted[5]) == (137, ["3", "137"], "cgroup")


WORLD = "OMPI_MCA_mpi_show_mca_params_file"
NOTES = f"""echo "by rank 0 (out of a total of 1) on vm" >"${WORLD}"; printf %s "${{I_MPI_TUNING_BIN_DUMP-}}" """
OF_FOUR = {"PMI_SIZE": "4", "BATCHTRAIN_LAUNCHER": "MPICH"}


def test_a_rank_that_is_alone_in_the_world_of_another_mpi_is_noted(node: Node) -> None:
    done = node.run("sh", "-c", NOTES, **OF_FOUR)
    assert (done.returncode, done.stdout, (node.ranks / "3.alone").read_text()) == (0, "", "4 Open MPI\n")
    assert sorted(path.name for path in node.ranks.iterdir()) == ["3.alone", "3.ended"]


@pytest.mark.parametrize(
    ("program", "variables"),
    [
        (NOTES.replace("total of 1", "total of 4"), OF_FOUR),
        (f"test -z ${{{WORLD}+set}}", {}),
        (f"test -z ${{{WORLD}+set}}", OF_FOUR | {"PMI_SIZE": "1"}),
        (f"test ${WORLD} = mine", OF_FOUR | {WORLD: "mine"}),
    ],
    ids=["as one of four", "allowed", "started alone", "with the user's own file"],
)
def test_any_other_rank_is_not_noted(program: str, variables: dict[str, str], node: Node) -> None:
    assert node.run("sh", "-c", program, **variables).returncode == 0
    assert [path.name for path in node.ranks.iterdir()] == ["3.ended"]


def test_a_file_that_is_written_at_the_end_is_asked_of_the_libraries_that_the_launcher_cannot_start(node: Node) -> None:
    done = node.run("sh", "-c", 'echo >"$I_MPI_TUNING_BIN_DUMP"', **OF_FOUR | {"BATCHTRAIN_LAUNCHER": "Open MPI"})
    assert (done.returncode, (node.ranks / "3.alone").read_text()) == (0, "4 Intel(R) MPI\n")


IN_AN_IMAGE = f"""
import mmap, os, time
library = open("/mnt/libmpi.so.40", "w+b")
library.write(b"Open MPI v5")
library.flush()
mapped, world = mmap.mmap(library.fileno(), 0), os.environ["{WORLD}"]
with open(world, "w") as file:
    file.write("(out of a total of 1)")
while os.path.exists(world):
    time.sleep(0.05)
"""


def test_the_mpi_of_a_running_rank_is_read_in_its_own_mounts(node: Node) -> None:
    mounts = [needs.program("unshare"), "-Urm", "sh", "-c", 'mount -t tmpfs none /mnt && exec "$@"', "sh"]
    if subprocess.run([*mounts, "true"]).returncode != 0:
        pytest.skip("this user may not mount in a namespace of its own")
    done = node.run(*mounts, sys.executable, "-c", IN_AN_IMAGE, **OF_FOUR)
    assert (done.returncode, (node.ranks / "3.alone").read_text()) == (0, "4 Open MPI\n")


def test_a_rank_has_a_file_for_its_metrics(node: Node) -> None:
    metrics = node.task / "wd/ranks/rank-3.metrics.jsonl"
    node.keep({"AZ_BATCH_TASK_WORKING_DIR": str(node.task / "wd")})
    for _ in range(2):  # a second try begins with an empty file
        done = node.run("sh", "-c", """echo '{"loss": 0.5}' >>"$BATCHTRAIN_METRICS" """)
        assert (done.returncode, metrics.read_text()) == (0, '{"loss": 0.5}\n')


@pytest.mark.parametrize("node", ["dash"], indirect=True)
def test_the_node_of_a_rank_is_sampled_until_the_rank_ends(node: Node) -> None:
    (node.task / ".batchtrain/node.sh").write_bytes(runtime.read("node.sh"))
    node.keep({"AZ_BATCH_TASK_WORKING_DIR": str(node.task / "wd")})
    samples = "wd/ranks/node.metrics.jsonl"
    done = node.run("sh", "-c", f"until [ -s {samples} ]; do sleep 0.1; done", BATCHTRAIN_SAMPLE_SECONDS="1")
    assert done.returncode == 0
    assert '"cpu_percent"' in (node.task / samples).read_text()


HEARS = """
import os, signal, sys, time
path, heard = os.environ["BATCHTRAIN_PREEMPTION"], []
signal.signal(signal.SIGUSR1, lambda *_: heard.append("heard"))
print(os.path.exists(path), flush=True)
with open("volatile/scheduledevents.json", "w") as file:
    file.write('{"Events": [{"EventType": "Preempt", "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT"}]}')
while not os.path.exists(path) or len(heard) < len(sys.argv) - 1:
    time.sleep(0.05)
print(*heard, open(path).read(), end="")
"""


@pytest.mark.parametrize(("node", "name"), [("dash", ""), *((shell, "SIGUSR1") for shell in SHELLS)], indirect=["node"])
def test_an_announced_preemption_of_the_node_reaches_its_ranks(name: str, node: Node) -> None:
    (node.bin / "python3").symlink_to(sys.executable)
    (node.task / ".batchtrain/preemption.py").write_bytes(runtime.read("preemption.py"))
    (node.task / "volatile").mkdir()
    (node.task / ".batchtrain-preemption.json").write_text("of an earlier try")
    own = dict.fromkeys(("AZ_BATCH_TASK_DIR", "AZ_BATCH_NODE_ROOT_DIR"), str(node.task))
    node.keep({"AZ_BATCH_NODE_IS_DEDICATED": "false", "AZ_BATCH_NODE_ID": "tvm-1", **own})
    given = {"BATCHTRAIN_PREEMPTION": "/of/the/primary", "BATCHTRAIN_PREEMPTION_SIGNAL": name}
    hears = (sys.executable, "-c", HEARS, *filter(None, [name]))
    done = node.run(*hears, BATCHTRAIN_EMULATED_NODE=str(node.task), **given)
    line = '{"node": "tvm-1", "not_before": 1474309787.0}\n'
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"False\n{'heard ' if name else ''}{line}"


def test_a_variable_that_limits_what_shells_read_ends_no_rank(node: Node) -> None:
    """Hardened images set TMOUT, and bash's `read` obeys it."""
    done = node.run("sh", "-c", "sleep 1.5; echo $TMOUT", TMOUT="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@pytest.mark.parametrize(
    ("program", "code", "ending"),
    [
        ("exit 7", 7, "exited with code 7"),
        ("exit 255", 255, "exited with code 255"),  # Python's sys.exit(-1) is no signal
        ("kill -9 $$", 137, "was killed by signal 9"),  # without the shell's own remark
    ],
)
def test_a_failure_is_one_line_and_the_code(program: str, code: int, ending: str, node: Node) -> None:
    done = node.run("sh", "-c", f"echo err >&2; {program}")
    assert done.returncode == code
    assert done.stderr == f"err\nbatchtrain: rank 3 on node tvm-1 (10.0.0.4) {ending}\n"


def test_what_a_sweep_prints_has_the_fields_of_a_failure(node: Node) -> None:
    del node.environment["PMI_RANK"], node.environment["AZ_BATCH_MASTER_NODE"]
    node.keep({"AZ_BATCH_NODE_ID": "tvm-1"})
    node.run("sh", "-c", "exit 7", AZ_BATCH_IS_CURRENT_NODE_MASTER="false")
    assert node.sweep("look").stdout.split()[2:] == ["-", "7", "tvm-1", "-", "-"]


def test_a_rank_ends_also_below_nohup(node: Node) -> None:
    below = ["sh", "-c", "trap '' HUP; exec \"$@\"", "-", *node.line("true")]
    assert subprocess.run(below, env=node.environment, cwd=node.task, check=False).returncode == 0


def test_a_command_that_is_not_there_is_127(node: Node) -> None:
    done = node.run("no-such-command")
    assert done.returncode == 127
    assert done.stderr.endswith("exited with code 127\n")


@pytest.mark.parametrize("name", sorted({name for mpi in MPIS.values() for name in mpi.rank} - {"PMI_RANK"}))
def test_the_rank_is_known_under_each_mpis_name(node: Node, name: str) -> None:
    del node.environment["PMI_RANK"]
    assert "rank 12 on" in node.run("false", **{name: "12"}).stderr


def test_arguments_reach_the_command_as_they_are(node: Node) -> None:
    words = ["a  b", "", "'", '"', "$x", "*", "\\", "-n", "line\nbreak"]
    assert node.run("printf", "%s|", *words).stdout == "|".join(words) + "|"


def test_the_nodes_own_values_replace_the_primarys(node: Node) -> None:
    node.keep({"AZ_BATCH_NODE_ID": "it'\\''s", "AZ_BATCH_HOST_LIST": "b,a"})
    done = node.run("sh", "-c", 'echo "$AZ_BATCH_NODE_ID $AZ_BATCH_HOST_LIST"', BATCHTRAIN_HOST_LIST="a,b")
    assert done.stdout == "it's a,b\n"


def test_open_files_of_the_launcher_stay_open_and_where_they_were(node: Node) -> None:
    """Hydra leaves every number of one digit taken; PMI_FD names one of them."""
    take = " ".join(f"exec {fd}>>fd{fd};" for fd in range(3, 16))
    say = " ".join(f"echo {fd} >&{fd};" for fd in range(3, 16))
    done = subprocess.run(
        ["bash", "-c", f'{take} exec "$@"', "x", *node.line("bash", "-c", f"{say} exit 7")],
        env=node.environment, cwd=node.task, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [(node.task / f"fd{fd}").read_text() for fd in range(3, 16)] == [f"{fd}\n" for fd in range(3, 16)]
    assert done.returncode == 7
    assert done.stderr == "batchtrain: rank 3 on node tvm-1 (10.0.0.4) exited with code 7\n"


def test_sigint_is_not_ignored_by_the_command(node: Node) -> None:
    done = node.run("bash", "-c", "grep SigIgn /proc/self/status")
    assert int(done.stdout.split()[1], 16) & (1 << (signal.SIGINT - 1)) == 0


def test_a_launchers_sigterm_reaches_the_command_and_is_no_failure(node: Node) -> None:
    daemon = node.start("bash", "-c", "trap 'touch told; exit 5' TERM; touch up; while :; do sleep 0.05; done")
    process, _ = node.pids()
    group = os.getpgid(int((Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children")).read_text().split()[0]))
    os.killpg(group, signal.SIGTERM)
    until(lambda: not alive(process))
    daemon.wait()
    assert (node.task / "told").exists()
    assert b"batchtrain:" not in (daemon.stderr.read() if daemon.stderr else b"")


def catches_sigterm(pid: int) -> bool:
    caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) & (1 << (signal.SIGTERM - 1)))


def test_a_sigterm_that_comes_before_the_supervisor_reaches_the_command(node: Node) -> None:
    real = needs.program("setsid")
    (node.bin / "setsid").unlink(missing_ok=True)
    waits = "touch early; until [ -e go ]; do sleep 0.02; done"
    (node.bin / "setsid").write_text(f'#!/bin/sh\n{waits}\nexec {real} "$@"\n')
    (node.bin / "setsid").chmod(0o755)
    line = node.line("bash", "-c", "trap 'touch told; exit 5' TERM; until [ -e none ]; do sleep 0.02; done")
    with subprocess.Popen(line, env=node.environment, cwd=node.task) as rank:
        until((node.task / "early").exists)
        children = Path(f"/proc/{rank.pid}/task/{rank.pid}/children").read_text().split()
        (guard,) = (int(pid) for pid in children if b"setsid" not in Path(f"/proc/{pid}/cmdline").read_bytes())
        until(lambda: catches_sigterm(guard))
        os.kill(guard, signal.SIGTERM)
        (node.task / "go").touch()
        assert rank.wait() == 0
    assert (node.task / "told").exists()


def test_a_rank_does_not_outlive_its_launchers_daemon(node: Node) -> None:
    daemon = node.start("bash", "-c", "trap '' TERM; touch up; exec sleep 100000")
    process, _ = node.pids()
    daemon.kill()
    daemon.wait()
    until(lambda: not alive(process))


def test_a_rank_that_ends_itself_while_its_launcher_kills_is_noted(node: Node) -> None:
    """MPI_Abort: the launcher kills all that it started while the aborting rank is on its way out."""
    daemon = node.start("bash", "-c", "touch up; sleep 0.3; exit 7")
    waiter = int((Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children")).read_text().split()[0])
    time.sleep(0.2)
    os.killpg(os.getpgid(waiter), signal.SIGKILL)
    daemon.wait()
    until((node.ranks / "3.failed").exists)
    lines = node.sweep().stdout.splitlines()
    assert lines[0] == "here - 3 - tvm-1 10.0.0.4"
    kind, moment, *fields = lines[1].split()
    assert (kind, fields) == ("lost", ["3", "7", "tvm-1", "10.0.0.4", "-"])
    assert moment[0].isdigit()


def test_a_sweep_ends_a_rank_its_children_and_nothing_is_reported(node: Node) -> None:
    daemon = node.start("bash", "-c", "trap '' TERM; sleep 100000 & touch up; wait; wait")
    process, supervisor = node.pids()
    done = node.sweep("0.2")
    assert done.stdout == "here - 3 - tvm-1 10.0.0.4\n"
    until(lambda: not alive(process) and not alive(supervisor))
    daemon.wait()
    assert b"batchtrain:" not in (daemon.stderr.read() if daemon.stderr else b"")


def test_a_sweep_lets_a_rank_save_what_it_has(node: Node) -> None:
    node.start("bash", "-c", "trap 'sleep 0.3; touch saved; exit' TERM; touch up; while :; do sleep 0.05; done")
    node.sweep("2")
    assert (node.task / "saved").exists()


def test_a_sweep_of_a_node_without_ranks_is_quiet(node: Node) -> None:
    assert node.sweep().stdout == ""


def test_on_a_plain_process_node_the_paths_are_the_nodes_own(node: Node, tmp_path: Path) -> None:
    """The primary's path of rank.sh is used on a node of another root on the same file system."""
    roots = {name: tmp_path / name for name in ("primary", "other")}
    for name, root in roots.items():
        shutil.copytree(node.task, root / "work/task")
        values = {"AZ_BATCH_NODE_ID": name, "AZ_BATCH_NODE_ROOT_DIR": str(root)}
        text = "".join(f"export {key}='{value}'\n" for key, value in values.items())
        (root / "work/task/.batchtrain/environment").write_text(text)
    line = [
        "sh",
        f"{roots['primary']}/work/task/.batchtrain/rank.sh",
        "sh",
        "-c",
        "echo $AZ_BATCH_NODE_ID; pwd; exit 7",
    ]
    inherited = {**node.environment, "BATCHTRAIN_EMULATED_NODE": str(roots["primary"])}
    daemon = (
        f"import subprocess; subprocess.run({line!r}, env={inherited!r}, cwd={str(roots['primary'] / 'work/task')!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", daemon],
        env={
            "PATH": os.environ["PATH"],
            "BATCHTRAIN_EMULATED_NODE": str(roots["other"]),
            "SSH_CONNECTION": "10.0.0.4 40000 10.0.0.5 22",
        },
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["other", f"{roots['other']}/work/task"]
    assert (roots["other"] / "work/task/.batchtrain/ranks/3.failed").exists()


def test_a_rank_knows_where_processes_meet_and_the_user_may_choose_another_place(node: Node) -> None:
    command = ["sh", "-c", "echo $AZ_BATCHAI_MPI_MASTER_NODE $MASTER_ADDR:$MASTER_PORT"]
    hosts = {"BATCHTRAIN_HOST_LIST": "10.0.0.4,10.0.0.5"}
    assert node.run(*command, **hosts).stdout == "10.0.0.4 10.0.0.4:6105\n"
    assert node.run(*command, **hosts, MASTER_ADDR="a", MASTER_PORT="1").stdout == "10.0.0.4 a:1\n"


def test_what_a_rank_prints_is_kept_in_files_of_its_own(node: Node) -> None:
    done = node.run("sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    kept = node.task / "ranks"
    until(lambda: (kept / "rank-3.stderr.txt").read_text() == "err\n")
    assert (kept / "rank-3.stdout.txt").read_text() == "out\n"


def test_a_rank_without_logs_keeps_no_files(node: Node) -> None:
    assert node.run("--plain", "echo", "out").stdout == "out\n"
    assert not (node.task / "ranks").exists()


def test_the_last_errors_of_a_rank_without_logs_do_not_depend_on_its_launcher(node: Node) -> None:
    line = node.line("--plain", "sh", "-c", "echo out; echo the cause >&2; exit 7")
    lost = subprocess.DEVNULL  # a launcher that ends its ranks may drop what they print
    assert (
        subprocess.run(line, env=node.environment, cwd=node.task, stdout=lost, stderr=lost, check=False).returncode == 7
    )
    sweep = ["sh", str(node.task / ".batchtrain/sweep.sh"), "printed", "", "3"]
    printed = subprocess.run(sweep, env=node.environment, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[0] == "the cause"


def test_a_process_that_a_rank_leaves_does_not_hold_up_its_end(node: Node) -> None:
    """The launcher would otherwise wait for the copies as long as for that process."""
    with subprocess.Popen(
        node.line("sh", "-c", "sleep 1000 & echo $! >left; exit 7"),
        env=node.environment,
        cwd=node.task,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as rank:
        try:
            assert rank.wait(timeout=60) == 7
        finally:
            os.kill(int((node.task / "left").read_text()), signal.SIGKILL)
            rank.communicate()


@pytest.mark.parametrize("node", ["dash"], indirect=True)
def test_a_line_without_an_end_does_not_hold_up_its_rank(node: Node) -> None:
    # Without a limit, mawk would need minutes for it.
    node.keep({**node.environment, "AZ_BATCH_TASK_WORKING_DIR": str(node.task / "wd")})
    (node.task / ".batchtrain/lines.awk").write_bytes(runtime.read("lines.awk"))
    node.environment["BATCHTRAIN_AWK"] = "awk -W interactive"
    done = node.run("sh", "-c", "head -c 30000000 /dev/zero | tr '\\0' x; echo; echo the end")
    assert done.stdout.endswith("x\nthe end\n")


def test_each_state_of_a_bar_is_a_line_of_mawk(node: Node) -> None:
    node.keep({**node.environment, "AZ_BATCH_TASK_WORKING_DIR": str(node.task / "wd")})
    (node.task / ".batchtrain/lines.awk").write_bytes(runtime.read("lines.awk"))
    node.environment["BATCHTRAIN_AWK"] = f"{needs.program('mawk')} -W interactive"
    bar = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); printf '\\r%s of 3000, loss 0.123456789' $i >&2; done"
    node.run("sh", "-c", f"{bar}; echo >&2; echo done 1 >&2")
    lines = node.task / ".batchtrain/ranks/3.stderr.lines"
    until(lines.with_suffix(".lines.ended").exists)
    texts = [json.loads(line)["line"] for line in lines.read_text().splitlines()]
    assert texts == [*(f"{n} of 3000, loss 0.123456789" for n in range(1, 3001)), "done 1"]


def test_a_copy_ends_at_its_limit_and_the_output_goes_on(node: Node) -> None:
    script = node.task / ".batchtrain/rank.sh"
    script.write_bytes(steps.RANK.data.replace(b"ulimit -f 131072", b"ulimit -f 1"))
    done = node.run("sh", "-c", "i=0; while [ $i -lt 300 ]; do echo 0123456789; i=$((i+1)); done")
    assert len(done.stdout) == 3300
    assert 0 < (node.task / "ranks/rank-3.stdout.txt").stat().st_size <= 1024
