"""The node launcher on two or three nodes: directories of this machine, reached through a stand-in for ssh."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchtrain import runtime
from batchtrain.launchers import steps
from tests import streamed
from tests.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.slow]

SSH = """#!/bin/bash
while [ $# -gt 0 ]; do case $1 in -o | -p) shift 2 ;; -*) shift ;; *) break ;; esac; done
host=$1 root={folder}/$1
shift
[ -d "$root" ] || {{ echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }}
[ ! -e "$root/refused" ] || {{
  echo $$ >>"$root/tried"; sleep "0$(cat "$root/refused")"
  echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255
}}
[ ! -e "$root/hangs" ] || exec sleep 60
cd /
path=$(cat "$root/path" 2>/dev/null || echo "$PATH")
[ ! -e "$root/talks" ] || echo "Welcome to this node."
[ ! -e "$root/limit" ] || ulimit -n "$(cat "$root/limit")"
set -- env -i HOME="$root" USER=somebody SHELL=/bin/bash PATH="$path" SSH_CONNECTION="1.2.3.4 5 $host 22" \\
  BATCHTRAIN_EMULATED_NODE="$(cat "$root/emulated" 2>/dev/null || echo "$root")" /bin/bash -c "$*"
[ -e "$root/late" ] || {{ "$@"; exit; }}
"$@" | {python} -c "$(cat "$root/late")"
exit "${{PIPESTATUS[0]}}"
"""
"""As sshd has it: nothing of the caller's environment, and 255 where nobody answers. What is not there: `host` has no
directory; `refused`, `hangs`, `talks` (a login that prints), `path`, `late`, `limit` (of open files) and
`emulated` (what the node is, by default a directory) are files in it."""
LATE = """
import os, time
while data := os.read(0, 65536):
    time.sleep(0.4)
    os.write(1, data)
"""

RANKS = [{"name": "worker", "gpus": True, "ranked": True, "decides": True}]


class Finished:
    """How a launch ended."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr


class Nodes:
    """The first is the primary, and not the first of AZ_BATCH_HOST_LIST, for the service promises no order."""

    def __init__(self, folder: Path, count: int, python: str = sys.executable) -> None:
        self.folder, self.python = folder, python
        self.addresses = [f"127.0.88.{number + 2}" for number in range(count)]
        self.environments = [self._lay_out(number) for number in range(count)]
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "ssh").write_text(SSH.format(folder=folder, python=sys.executable))
        (self.bin / "ssh").chmod(0o755)
        self.process: subprocess.Popen[str] | None = None

    def root(self, number: int) -> Path:
        return self.folder / self.addresses[number]

    def wd(self, number: int) -> Path:
        return self.root(number) / "task/wd"

    def _lay_out(self, number: int) -> dict[str, str]:
        ours = self.root(number) / "task/.batchtrain"
        ours.mkdir(parents=True)
        self.wd(number).mkdir()
        for framework in ("pytorch", "tensorflow", "horovod"):
            for file in steps.node_launcher(framework):
                path = self.root(number) / "task" / file.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.data)
        (ours / "gang.sh").write_bytes(runtime.read("gang.sh"))
        values = {
            "AZ_BATCH_NODE_ID": f"tvm-{number + 1}",
            "AZ_BATCH_NODE_ROOT_DIR": str(self.root(number)),
            "AZ_BATCH_TASK_SHARED_DIR": str(self.root(number) / "task"),
            "AZ_BATCH_TASK_WORKING_DIR": str(self.wd(number)),
            "AZ_BATCH_MASTER_NODE": f"{self.addresses[0]}:6000",
            "AZ_BATCH_HOST_LIST": ",".join(reversed(self.addresses)),
        }
        (ours / "environment").write_text("".join(f"export {name}='{value}'\n" for name, value in values.items()))
        return values

    def spec(self, command: str, **more: Any) -> dict[str, Any]:
        roles = more.pop("roles", RANKS)
        return {
            "version": 1, "framework": "pytorch", "instances": len(self.addresses), "processes_per_node": 2,
            "barrier_seconds": 60, "roles": [{"command": command, **role} for role in roles], **more,
        }  # fmt: skip

    def start(self, command: str, variables: dict[str, str] | None = None, **more: Any) -> subprocess.Popen[str]:
        (self.root(0) / "task/.batchtrain/gang.json").write_text(json.dumps(self.spec(command, **more)))
        values = {
            **{name: value for name, value in os.environ.items() if not name.startswith("BATCHTRAIN_")},
            **self.environments[0],
            "BATCHTRAIN_EMULATED_NODE": str(self.root(0)),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            **(variables or {}),
        }
        self.process = subprocess.Popen(
            [self.python, "-I", "-S", "-B", str(self.root(0) / "task/.batchtrain/launch"), "primary"],
            env=values, cwd=self.wd(0), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            text=True, errors="surrogateescape",
        )  # fmt: skip
        return self.process

    def finish(self) -> Finished:
        assert self.process is not None
        stdout, stderr = self.process.communicate()
        return Finished(self.process.returncode, stdout, stderr)

    def run(self, command: str, variables: dict[str, str] | None = None, **more: Any) -> Finished:
        self.start(command, variables, **more)
        return self.finish()

    def ends(self) -> list[dict[str, Any]]:
        """The records of the ends of the processes."""
        return [json.loads(line) for line in (self.wd(0) / "ranks/ends.jsonl").read_text().splitlines()]

    def processes(self) -> dict[int, str]:
        """Whatever runs in a directory of the nodes', whoever its parent is; and what has one on its command line."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                inside = (entry / "cwd").readlink().is_relative_to(self.folder)
                if line and int(entry.name) != os.getpid() and (inside or str(self.folder) in line):
                    found[int(entry.name)] = line
        return found

    def supervisor(self, number: int) -> int:
        """The process that is a rank's parent."""
        return int(Path(f"/proc/{(self.wd(number) / 'up').read_text()}/stat").read_text().rpartition(")")[2].split()[1])


UP = "echo -n $$ >up.new; mv up.new up; "


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path, 2)
    yield made
    end(made)


def end(nodes: Nodes) -> None:
    """Of a test that failed; for all others there is nothing to do."""
    for pid in nodes.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if nodes.process is not None:
        nodes.process.kill()
        nodes.process.communicate()


def other_pythons() -> list[str]:
    """The oldest Python that may run it, where this machine has it."""
    found = [shutil.which("python3.6"), *map(str, Path.home().glob(".pyenv/versions/3.6.*/bin/python3.6"))]
    return [sys.executable, *[path for path in found if path and works(path)][:1]]


def works(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


# --- a gang that does well ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", other_pythons())
def test_rank_0_is_on_the_primary_and_every_rank_has_its_own_nodes_values(python: str, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 2, python)
    done = nodes.run("echo $RANK/$WORLD_SIZE $LOCAL_RANK $AZ_BATCH_NODE_ID $MASTER_ADDR; pwd")
    assert (done.code, sorted(done.stdout.splitlines())) == (
        0,
        sorted(
            f"[{rank // 2}:{rank}] {line}"
            for rank in range(4)
            for line in (f"{rank}/4 {rank % 2} tvm-{rank // 2 + 1} 127.0.88.2", str(nodes.wd(rank // 2)))
        ),
    )


@pytest.mark.smoke
def test_a_rank_has_the_primarys_environment_and_the_persons_words_win_over_defaults(nodes: Nodes) -> None:
    done = nodes.run(
        "echo $COLOUR $FIRST $SECOND $HOME",
        {"COLOUR": "a 'b' $c", "FIRST": "mine"},
        processes_per_node=None, environment={"FIRST": "default", "SECOND": "default"},
    )  # fmt: skip
    assert f"[1:1] a 'b' $c mine default {nodes.root(1)}" in done.stdout


def test_pre_execution_runs_before_each_rank_in_its_shell(nodes: Nodes) -> None:
    done = nodes.run("echo $HERE", pre_execution="HERE=on-$AZ_BATCH_NODE_ID")
    assert sorted(set(done.stdout.split())) == ["[0:0]", "[0:1]", "[1:2]", "[1:3]", "on-tvm-1", "on-tvm-2"]


def test_a_file_that_pre_execution_sources_must_be_on_every_node(nodes: Nodes) -> None:
    (nodes.wd(0) / "prepare").touch()
    done = nodes.run("true", pre_execution=". ./prepare")
    assert done.code == 1
    assert "on node tvm-2 (127.0.88.3) exited with code 1" in done.stderr
    assert "pre_execution_command: ./prepare is not there" in done.stderr


@pytest.mark.smoke
def test_output_is_also_kept_in_a_file_a_rank_byte_for_byte(nodes: Nodes) -> None:
    nodes.run(r"printf '\377 \200 %s\nno end' $RANK; echo problem >&2")
    assert (nodes.wd(1) / "ranks/rank-3.stdout.txt").read_bytes() == b"\xff \x80 3\nno end"
    assert (nodes.wd(1) / "ranks/rank-3.stderr.txt").read_bytes() == b"problem\n"


def test_a_rank_has_a_file_for_its_metrics_that_a_new_try_empties(nodes: Nodes) -> None:
    (nodes.wd(1) / "ranks").mkdir()
    (nodes.wd(1) / "ranks/rank-3.metrics.jsonl").write_text("older")
    nodes.run("""[ $RANK = 2 ] || echo "{\\"loss\\": $RANK}" >>"$BATCHTRAIN_METRICS" """)
    found = {path.name: path.read_text() for path in (nodes.wd(1) / "ranks").glob("*.jsonl")}
    assert found == {"rank-3.metrics.jsonl": '{"loss": 3}\n'}


@pytest.mark.smoke
def test_the_stream_has_what_every_rank_measures(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "streamed.py").write_text(streamed.PROGRAM)
    done = nodes.run(f"{sys.executable} -u {tmp_path}/streamed.py", {"BATCHTRAIN_ATTEMPT": "2"})
    assert done.code == 0, done.stderr
    printed = lambda rank, file: (nodes.wd(rank // 2) / f"ranks/rank-{rank}.{file}.txt").read_text()  # noqa: E731
    streamed.check((nodes.wd(0) / "ranks/stream.jsonl").read_text(), printed)


def test_the_last_line_of_a_silent_rank_is_in_the_stream_while_it_runs(nodes: Nodes) -> None:
    launch = nodes.start("echo hello; echo is ready; sleep 60")
    stream = nodes.wd(0) / "ranks/stream.jsonl"
    until(lambda: stream.exists() and stream.read_text().count("is ready") == 4)
    assert any("rank" not in json.loads(line) for line in stream.read_text().splitlines())  # a sign of life
    launch.terminate()
    launch.wait()


def test_a_node_is_sampled_while_its_ranks_run(nodes: Nodes) -> None:
    done = nodes.run(
        "until grep -q cpu_percent ${BATCHTRAIN_METRICS%/*}/node.metrics.jsonl; do sleep 0.1; done 2>/dev/null",
        {"BATCHTRAIN_SAMPLE_SECONDS": "1"},
    )
    assert done.code == 0


def test_output_that_is_not_utf8_comes_through_unchanged(nodes: Nodes) -> None:
    done = nodes.run(r"printf '\377\376 %s\n' $RANK")
    assert "[1:3] \udcff\udcfe 3\n" in done.stdout


def test_a_shell_that_greets_does_not_disturb_the_launch(nodes: Nodes) -> None:
    (nodes.root(1) / "talks").touch()
    done = nodes.run("echo fine")
    assert (done.code, done.stdout.count("fine"), "Welcome" in done.stdout) == (0, 4, False)


def test_a_line_is_shown_while_its_rank_runs_and_so_is_one_without_an_end(nodes: Nodes) -> None:
    """The rank goes on only when the reader has seen what it printed."""
    process = nodes.start(
        "[ $RANK = 3 ] || exit 0; echo whole; until [ -e seen-1 ]; do sleep 0.02; done;"
        " printf part; until [ -e seen-2 ]; do sleep 0.02; done"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "[1:3] whole\n"
    (nodes.wd(1) / "seen-1").touch()
    shown = ""
    while "part" not in shown:
        shown += os.read(process.stdout.fileno(), 100).decode()
    (nodes.wd(1) / "seen-2").touch()
    assert nodes.finish().code == 0


@pytest.mark.smoke
def test_processes_that_do_not_decide_end_with_those_that_do(nodes: Nodes) -> None:
    roles = [
        {"name": "ps", "total": 1, "placement": "spread", "command": "touch ps; exec sleep 100000"},
        {**RANKS[0], "command": "while [ ! -e ../../../127.0.88.2/task/wd/ps ]; do sleep 0.02; done; echo $TF_CONFIG"},
    ]
    done = nodes.run("", framework="tensorflow", roles=roles, processes_per_node=1)
    config = json.loads(done.stdout.splitlines()[0].split(" ", 1)[1])
    assert (done.code, list(config["cluster"]), len(config["cluster"]["worker"])) == (0, ["ps", "worker"], 2)
    assert nodes.processes() == {}


def test_a_daemon_in_a_session_of_its_own_without_our_environment_does_not_outlive_the_gang(nodes: Nodes) -> None:
    done = nodes.run("(setsid env -i bash -c 'trap \"\" TERM; sleep 61; sleep 62' >/dev/null 2>&1 &); sleep 0.2")
    assert (done.code, nodes.processes()) == (0, {})


def test_an_orphan_that_holds_the_output_open_is_not_waited_for(nodes: Nodes) -> None:
    assert nodes.run("sleep 100000 & echo done").code == 0


def test_an_elastic_gang_goes_on_without_a_node_that_it_lost(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3)
    line = UP + "while [ ! -e end ]; do sleep 0.05; done"
    process = nodes.start(line, options={"min_instances": 2}, processes_per_node=1)
    until(lambda: all((nodes.wd(number) / "up").exists() for number in range(3)))
    os.kill(nodes.supervisor(1), signal.SIGKILL)
    assert process.stderr is not None
    next(line for line in process.stderr if "node tvm-2 (127.0.88.3) is lost" in line)
    for number in (0, 2):
        (nodes.wd(number) / "end").touch()
    assert (nodes.finish().code, nodes.processes()) == (0, {})


@pytest.mark.parametrize("python", other_pythons())
def test_words_that_are_not_ascii_reach_every_rank_whatever_the_locale(python: str, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 2, python)
    done = nodes.run("echo h\u00e9 $WORD", {"WORD": "\u65e5", "LC_ALL": "C"}, processes_per_node=1)
    assert sorted(done.stdout.splitlines()) == ["[0:0] h\u00e9 \u65e5", "[1:1] h\u00e9 \u65e5"], done.stderr


def test_a_process_that_has_long_to_end_by_itself_and_has_ended_keeps_nobody_waiting(nodes: Nodes) -> None:
    roles = [
        RANKS[0],
        {"name": "ps", "total": 2, "placement": "spread", "command": "exec sleep 100000"},
        {"name": "evaluator", "total": 1, "placement": "primary", "command": "sleep 0.5", "linger": 100000},
    ]
    roles = [{"command": "true", **role} for role in roles]
    assert nodes.run("", framework="tensorflow", roles=roles, processes_per_node=1).code == 0


# --- a rank that fails ----------------------------------------------------------------------------------------------

DEATHS = {
    "exit": ("exit 7", "exited with code 7", 7),
    "kill": ("kill -9 $$", "was killed by signal 9", 137),
}


@pytest.fixture
def limited_python(memory_cgroup: Path, tmp_path: Path) -> str:
    """A Python that has 128 MB together with all that it starts."""
    python = tmp_path / "limited-python"
    python.write_text(f'#!/bin/sh\necho $$ >{memory_cgroup}/cgroup.procs\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_a_rank_that_the_kernel_kills_at_the_limit_of_its_container_says_so(
    limited_python: str, tmp_path: Path
) -> None:
    nodes = Nodes(tmp_path, 2, limited_python)
    (nodes.root(1) / "emulated").write_text("container")
    done = nodes.run(f"[ $RANK = 3 ] || exec sleep 100000; exec {sys.executable} -c 'x = bytearray(400_000_000)'")
    end = nodes.ends()[0]
    assert (done.code, end["rank"], end["signal"], end["full_memory"]) == (137, 3, 9, "cgroup")
    assert "was killed by signal 9, because the memory limit of its container was reached" in done.stderr


@pytest.mark.smoke
@pytest.mark.parametrize("death", DEATHS)
def test_the_first_failure_is_named_and_the_gang_is_gone(death: str, nodes: Nodes) -> None:
    how, said, code = DEATHS[death]
    done = nodes.run(
        f"trap '' TERM; if [ $RANK = 3 ]; then sleep 0.3; echo last words; {how}; fi; sleep 100000; sleep 9"
    )
    assert (done.code, nodes.processes()) == (code, {})
    lines = [line for line in done.stderr.splitlines() if line.startswith("batchtrain: ")]
    assert lines[2] == f"batchtrain: rank 3 on node tvm-2 (127.0.88.3) {said}"
    assert "batchtrain:     last words" not in lines
    end = nodes.ends()[0]
    assert (end["rank"], end["process"], end["node"], end["address"]) == (3, "rank 3", "tvm-2", "127.0.88.3")
    assert end.get("exit_code", 128 + end.get("signal", 0)) == code
    assert end.get("signal_name") == ("SIGKILL" if code == 137 else None)
    assert "last words" in end["lines"]


def test_the_end_of_a_rank_has_its_time_and_attempt_and_whether_the_launcher_ended_it(nodes: Nodes) -> None:
    begin = datetime.now(timezone.utc)
    nodes.run("[ $RANK != 3 ] || exit 7; sleep 60", {"BATCHTRAIN_ATTEMPT": "2"})
    end, *others = nodes.ends()
    assert begin <= datetime.fromisoformat(end["time"].replace("Z", "+00:00")) <= datetime.now(timezone.utc)
    assert end["attempt"] == 2
    of_others = {(other["rank"], other["signal_name"], other["by_launcher"]) for other in others}
    assert of_others == {(rank, "SIGTERM", True) for rank in (0, 1, 2)}


def test_a_rank_that_exits_with_0_before_a_failure_is_recorded(nodes: Nodes) -> None:
    pid = nodes.wd(0) / "pid"
    waits = f"until [ -s {pid} ] && ! [ -e /proc/$(cat {pid}) ]; do sleep 0.05; done"
    done = nodes.run(f"case $RANK in 3) echo $$ >{pid};; 0) {waits}; exit 7;; *) sleep 100000;; esac")
    assert nodes.ends()[0]["rank"] == 0
    [early] = [end for end in nodes.ends() if "by_launcher" not in end and end["rank"] != 0]
    assert (early["rank"], early["node"], early["exit_code"], early["cause"]) == (3, "tvm-2", 0, "ended-early")
    assert early["ending"] == "exited with code 0 before the others"
    assert "batchtrain: rank 3 on node tvm-2 (127.0.88.3) exited with code 0 before the others" in done.stderr


def test_the_end_of_the_gang_is_the_end_of_the_attempt(nodes: Nodes, tmp_path: Path) -> None:
    (nodes.root(0) / "task/.batchtrain/attempt.sh").write_bytes(runtime.read("attempt.sh"))
    store = tmp_path / "store/attempt-1"
    store.mkdir(parents=True)
    variables = {"BATCHTRAIN_ATTEMPT": "1", "BATCHTRAIN_ATTEMPT_DIR": str(store)}
    nodes.run('echo "[$BATCHTRAIN_ATTEMPT]"; [ $RANK != 3 ] || exit 7; sleep 60', variables)
    [ended] = [json.loads(line) for line in (nodes.wd(0) / "ranks/attempts.jsonl").read_text().splitlines()]
    assert (ended["event"], ended["attempt"], ended["exit_code"]) == ("ended", 1, 7)


@pytest.mark.parametrize("python", other_pythons())
def test_what_a_program_tells_torchelastic_is_part_of_its_end(python: str, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 2, python)
    text = '{"message": {"message": "OSError: no luck", "extraInfo": {"timestamp": "1700000000"}}}'
    nodes.run(f"[ $RANK != 3 ] || {{ echo '{text}' >$TORCHELASTIC_ERROR_FILE; exit 1; }}; sleep 60")
    path = str(nodes.wd(1) / "ranks/rank-3.error.json")
    error = {"file": path, "message": "OSError: no luck", "time": "2023-11-14T22:13:20.000000Z"}
    assert nodes.ends()[0]["error"] == error
    nodes.run("[ $RANK != 3 ] || exit 1; sleep 60")  # that of an earlier attempt is gone
    assert "error" not in nodes.ends()[0]


def test_the_errors_of_the_ranks_of_a_torchrun_are_in_its_log_directory(nodes: Nodes) -> None:
    """It tells of a failure long before it ends, and its own error would be that it was ended."""
    fails = (
        "d=$AZ_BATCH_TASK_WORKING_DIR/ranks/torchelastic/none_x/attempt_0/1; mkdir -p $d;"
        ' echo \'{"message": "no luck"}\' >$d/error.json;'
        ' echo "failed (exitcode: 7) local_rank: 1 (pid: 117) of binary" >&2; sleep 60'
    )
    role = {"name": "torchrun", "per_node": 1, "decides": True}
    done = nodes.run(f"[ $BATCHTRAIN_NODE_RANK = 0 ] || {{ {fails}; }}; sleep 60", roles=[role],
                     options={"launcher": "torchrun"})  # fmt: skip
    end = nodes.ends()[0]
    assert (done.code, end["rank"], end["exit_code"], end["error"]["message"]) == (7, 3, 7, "no luck")


@pytest.mark.smoke
def test_ranks_that_fail_because_another_did_are_not_blamed(nodes: Nodes) -> None:
    """Rank 0 dies after rank 3, but is heard of first."""
    (nodes.root(1) / "late").write_text(LATE)
    done = nodes.run(
        "if [ $RANK = 3 ]; then sleep 0.6; touch ../../../127.0.88.2/task/wd/gone; exit 5; fi;"
        " if [ $RANK = 0 ]; then while [ ! -e gone ]; do sleep 0.01; done; sleep 0.15; exit 6; fi; sleep 60"
    )
    assert "rank 3 on node tvm-2 (127.0.88.3) exited with code 5" in done.stderr
    assert done.code == 5


@pytest.mark.smoke
@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_rank_may_save_its_work_when_the_task_is_ended(all_of_them: bool, nodes: Nodes) -> None:
    """As Batch may end one: by telling its first process, or every one."""
    process = nodes.start(
        f"exec {sys.executable} -c 'import pathlib, signal, time\n"
        'def save(*_):\n    time.sleep(0.3)\n    pathlib.Path("saved").touch()\n    raise SystemExit\n'
        'signal.signal(signal.SIGTERM, save)\npathlib.Path("up").touch()\ntime.sleep(60)\'',
        processes_per_node=1,
    )
    until(lambda: all((nodes.wd(number) / "up").exists() for number in range(2)))
    for pid in sorted(nodes.processes()) if all_of_them else [process.pid]:
        os.kill(pid, signal.SIGTERM)
    done = nodes.finish()
    assert (done.code, nodes.processes()) == (143, {})
    assert done.stderr.splitlines()[-1] == "batchtrain: ended by SIGTERM"
    assert all((nodes.wd(number) / "saved").exists() for number in range(2))


def test_a_rank_that_does_not_end_when_the_task_is_ended_is_killed_after_the_grace(nodes: Nodes) -> None:
    process = nodes.start("trap 'touch told' TERM; touch up; while :; do sleep 0.1; done", grace_seconds=0.7)
    until(lambda: all((nodes.wd(number) / "up").exists() for number in range(2)))
    process.send_signal(signal.SIGTERM)
    assert (nodes.finish().code, nodes.processes()) == (143, {})
    assert all((nodes.wd(number) / "told").exists() for number in range(2))


@pytest.mark.smoke
def test_a_stopped_rank_is_noticed(nodes: Nodes) -> None:
    done = nodes.run("[ $RANK != 3 ] || kill -STOP $$; sleep 60", heartbeat_seconds=3)
    assert (done.code, nodes.processes()) == (147, {})
    assert "rank 3 on node tvm-2 (127.0.88.3) has been stopped" in done.stderr
    assert (nodes.ends()[0]["signal_name"], nodes.ends()[0]["ending"][:16]) == ("SIGSTOP", "has been stopped")


STALLS = "echo step $RANK; [ $RANK = 2 ] || for i in 1 2 3 4 5; do sleep 0.1; echo step $i; done; sleep 86400"


def test_a_silent_gang_ends_and_names_the_rank_that_was_silent_first(nodes: Nodes) -> None:
    done = nodes.run(STALLS, stop_when={"silent": 2})
    assert (done.code, nodes.processes()) == (124, {})
    assert "rank 2 on node tvm-2 (127.0.88.3) stalled first" in done.stderr
    [end, *_] = nodes.ends()
    assert (end["rank"], end["cause"]) == (2, "stalled")
    assert end["ending"].endswith("no process printed anything for 2 s")


HANGS = "def wait_for_data(): time.sleep(86400)\n\nprint('step 1', flush=True)\nwait_for_data()"


def test_the_record_of_a_gang_that_stalled_has_the_stacks_of_its_ranks(nodes: Nodes) -> None:
    (nodes.folder / "train.py").write_text(f"import time\n{HANGS}\n")
    done = nodes.run(f"{sys.executable} {nodes.folder}/train.py", stop_when={"silent": 2})
    assert (done.code, nodes.processes()) == (124, {})
    stacks = [json.loads(line) for line in (nodes.wd(0) / "ranks/stacks.jsonl").read_text().splitlines()]
    assert sorted((stack["rank"], stack["node"]) for stack in stacks) == [
        ("0", "tvm-1"), ("1", "tvm-1"), ("2", "tvm-2"), ("3", "tvm-2"),
    ]  # fmt: skip
    assert all(stack["threads"][0][0].startswith("wait_for_data (") for stack in stacks)
    [end, *_] = nodes.ends()
    assert end["calls"][0].startswith("wait_for_data (") and end["lines"][1] == f"in {end['calls'][0]}"


def test_a_gang_whose_gpus_idle_ends(nodes: Nodes) -> None:
    (nodes.bin / "nvidia-smi").write_text("#!/bin/sh\necho 3, 1000\n")
    (nodes.bin / "nvidia-smi").chmod(0o755)
    for number in (0, 1):
        (nodes.root(number) / "path").write_text(f"{nodes.bin}:{os.environ['PATH']}")
    busy = "while sleep 0.2; do echo step; done"
    done = nodes.run(busy, {"BATCHTRAIN_SAMPLE_SECONDS": "1"}, stop_when={"below": 5, "idle": 1})
    assert (done.code, nodes.processes()) == (124, {})
    assert nodes.ends()[0]["ending"].endswith("the GPUs of all nodes were below 5 % for 1 s")


def test_the_primary_keeps_what_the_ranks_of_other_nodes_print_and_measure(nodes: Nodes) -> None:
    command = "echo out $RANK; echo err $RANK >&2; echo '{\"loss\": 1}' >>$BATCHTRAIN_METRICS; sleep 2"
    (nodes.wd(0) / "ranks").mkdir()
    (nodes.wd(0) / "ranks/rank-3.stdout.txt").write_text("of an earlier attempt")
    assert nodes.run(command, collects=True).code == 0
    for rank in range(4):
        kept = {"stdout.txt": f"out {rank}\n", "stderr.txt": f"err {rank}\n", "metrics.jsonl": '{"loss": 1}\n'}
        for kind, text in kept.items():
            assert (nodes.wd(0) / f"ranks/rank-{rank}.{kind}").read_text() == text


@pytest.mark.smoke
def test_a_command_that_one_node_has_not_got_is_named_with_that_node(nodes: Nodes) -> None:
    (nodes.root(0) / "tool").write_text("#!/bin/sh\nsleep 60\n")
    (nodes.root(0) / "tool").chmod(0o755)
    done = nodes.run("$AZ_BATCH_NODE_ROOT_DIR/tool", processes_per_node=1)
    assert done.code == 127
    assert "rank 1 on node tvm-2 (127.0.88.3) exited with code 127" in done.stderr
    assert f"{nodes.root(1)}/tool: No such file or directory" in done.stderr


def test_a_flood_is_passed_on_whole_with_little_memory_and_delays_no_other_rank(nodes: Nodes) -> None:
    process = nodes.start(FLOOD)
    assert process.stdout is not None
    seen = peak = 0
    for line in process.stdout:
        seen += line.startswith("[0:1] 0123")
        if line == "[1:2] beside\n":
            (nodes.wd(0) / "seen").touch()
        if line.startswith("[0:1] all="):
            assert seen == int(line.partition("=")[2])
            peak = memory(process.pid)
            (nodes.wd(0) / "counted").touch()
    assert nodes.finish().code == 0
    assert 0 < peak < 60_000


FLOOD = """
case $RANK in
1)
  all=0
  until [ -e seen ] && [ $all -ge 400000 ]; do
    yes 0123456789012345678901234567890123456789 | head -n 100000
    all=$((all + 100000))
  done
  echo all=$all
  until [ -e counted ]; do sleep 0.02; done ;;
2) sleep 0.2; echo beside ;;
esac
"""
"""Rank 1 does not stop before the line of rank 2 was read."""


def memory(pid: int) -> int:
    """Most KiB that were resident at any time."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0])


def test_a_reader_that_stopped_reading_does_not_hide_a_failure(nodes: Nodes) -> None:
    """The primary's output is full; yet the gang ends, and nothing waits for the reader for long."""
    nodes.start("[ $RANK != 3 ] || { sleep 1; touch died; exit 7; }; yes")
    until((nodes.wd(1) / "died").exists)
    until(lambda: not [line for line in nodes.processes().values() if line.startswith("yes")])
    assert nodes.process is not None
    assert nodes.process.wait() == 7


# --- a supervisor or a primary that fails ---------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("number", [0, 1])
def test_nothing_outlives_a_supervisor_that_was_killed_and_its_node_is_named(number: int, nodes: Nodes) -> None:
    nodes.start(UP + "trap '' TERM; (setsid env -i sleep 61 &); sleep 60; sleep 9", processes_per_node=1)
    until(lambda: all((nodes.wd(one) / "up").exists() for one in range(2)))
    time.sleep(0.1)
    os.kill(nodes.supervisor(number), signal.SIGKILL)
    done = nodes.finish()
    assert (done.code, nodes.processes()) == (1, {})
    text = f"node tvm-{number + 1} (127.0.88.{number + 2}) was lost"
    assert text in done.stderr
    assert (nodes.ends()[0]["process"], nodes.ends()[0]["ending"][: len(text)]) == ("", text)


@pytest.mark.smoke
@pytest.mark.parametrize("number", [0, 1])
def test_a_supervisor_that_is_told_to_end_ends_the_gang(number: int, nodes: Nodes) -> None:
    nodes.start(UP + "sleep 60", processes_per_node=1)
    until(lambda: all((nodes.wd(one) / "up").exists() for one in range(2)))
    os.kill(nodes.supervisor(number), signal.SIGTERM)
    done = nodes.finish()
    assert (done.code, nodes.processes()) == (1, {})
    assert f"node tvm-{number + 1} (127.0.88.{number + 2}) was lost: its supervisor was ended by SIGTERM" in done.stderr


def test_a_primary_that_was_stopped_for_long_finds_its_gang_ended_and_says_why(nodes: Nodes) -> None:
    process = nodes.start(UP + "sleep 60", processes_per_node=1, heartbeat_seconds=1.5)
    until(lambda: all((nodes.wd(one) / "up").exists() for one in range(2)))
    process.send_signal(signal.SIGSTOP)
    until(lambda: not [line for line in nodes.processes().values() if line.startswith("sleep")])
    process.send_signal(signal.SIGCONT)
    done = nodes.finish()
    assert (done.code, nodes.processes()) == (1, {})
    assert "was lost: nothing was heard of the primary for 1.5 s" in done.stderr


def test_a_supervisor_that_cannot_start_a_process_says_why(nodes: Nodes) -> None:
    (nodes.root(1) / "limit").write_text("64")
    done = nodes.run("true", processes_per_node=40)
    assert done.code == 1
    assert "its supervisor failed: OSError(24, 'Too many open files')" in done.stderr
    assert nodes.processes() == {}


def test_nothing_outlives_a_primary_that_was_killed(nodes: Nodes) -> None:
    process = nodes.start(UP + "trap '' TERM; sleep 60; sleep 9")
    until(lambda: all((nodes.wd(one) / "up").exists() for one in range(2)))
    process.kill()
    process.communicate()
    until(lambda: nodes.processes() == {})


@pytest.mark.parametrize("after", [0.02, 0.08, 0.2])
def test_nothing_is_left_of_a_launch_that_was_killed_at_its_start(after: float, nodes: Nodes) -> None:
    process = nodes.start("(setsid env -i sleep 61 &); sleep 60")
    time.sleep(after)
    process.kill()
    process.communicate()
    until(lambda: nodes.processes() == {})


def test_a_node_that_falls_silent_is_lost(nodes: Nodes) -> None:
    nodes.start(UP + "sleep 60", processes_per_node=1, heartbeat_seconds=2.5)
    until(lambda: all((nodes.wd(one) / "up").exists() for one in range(2)))
    supervisor = nodes.supervisor(1)
    os.kill(supervisor, signal.SIGSTOP)
    done = nodes.finish()
    assert done.code == 1
    assert "node tvm-2 (127.0.88.3) was lost: nothing was heard of it for 2.5 s" in done.stderr
    until(lambda: nodes.processes() == {})  # its guard gives it time to end by itself


# --- a gang that does not come to be --------------------------------------------------------------------------------


def refused(nodes: Nodes, *said: str, code: int = 1, **more: Any) -> None:
    """Each sentence on stderr, nothing run, nothing left."""
    done = nodes.run("touch ran", **more)
    assert [text for text in said if text not in done.stderr] == [], done.stderr
    assert done.code == code
    assert "Traceback" not in done.stderr
    until(lambda: nodes.processes() == {})  # one that was just starting sees that its ssh is gone
    assert not list(nodes.folder.glob("*/task/wd/ran"))


def test_each_node_that_does_not_join_is_named_with_its_reason(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 5)
    shutil.rmtree(nodes.root(1))
    (nodes.root(2) / "refused").touch()
    (nodes.root(3) / "hangs").touch()
    refused(
        nodes,
        "127.0.88.3: ssh: connect to host 127.0.88.3 port 22: No route to host",
        "127.0.88.4: ssh: connect to host 127.0.88.4 port 22: Connection refused",
        "127.0.88.5: no answer",
        "127.0.88.6: it answered ssh, but has not reported its hardware yet (does `processes_per_node` end there?)",
        "nodes 127.0.88.6, 127.0.88.5, 127.0.88.4 and 127.0.88.3 of 5 were not ready in 4 s",
        processes_per_node='[ "$AZ_BATCH_NODE_ID" != tvm-5 ] || sleep 61; echo 2',
        barrier_seconds=4,
    )


def test_a_node_that_answers_late_is_waited_for(nodes: Nodes) -> None:
    """Also where an ssh ends and its output with it before the primary looks: it may be busy, or stopped."""
    (nodes.root(1) / "refused").write_text("0.3")
    process = nodes.start("echo here")
    tried = nodes.root(1) / "tried"
    ssh = int(until(lambda: tried.exists() and tried.read_text()))
    process.send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(ssh).status() == psutil.STATUS_ZOMBIE)
    process.send_signal(signal.SIGCONT)
    until(lambda: process.poll() is not None or tried.read_text().count("\n") > TRIES)
    (nodes.root(1) / "refused").unlink()
    done = nodes.finish()
    assert (done.code, done.stdout.count("here")) == (0, 4), done.stderr


TRIES = 8
"""More than fit into the 2 s that an ssh has to end after its output."""


def test_a_node_without_the_tasks_files_is_named_at_once(nodes: Nodes) -> None:
    shutil.rmtree(nodes.root(1) / "task/.batchtrain/launch")
    refused(nodes, "node 127.0.88.3 did not join", "launch is not on this node")


@pytest.mark.smoke
def test_a_node_without_python_is_named_at_once(nodes: Nodes) -> None:
    (nodes.root(1) / "path").write_text("/nowhere")
    bare = nodes.folder / "python"
    bare.symlink_to(sys.executable)
    nodes.python = str(bare)
    nodes.start("touch ran")
    bare.unlink()
    done = nodes.finish()
    assert done.code == 1
    assert "node 127.0.88.3 did not join: there is no Python 3.6 or later on this node" in done.stderr


def test_a_port_that_is_taken_is_named(nodes: Nodes) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        port = taken.getsockname()[1]
        refused(nodes, f"node tvm-1 (127.0.88.2): port {port} cannot be listened on", options={"port": port})


def test_a_port_whose_last_connections_are_still_being_forgotten_is_free(nodes: Nodes) -> None:
    """TIME_WAIT: an earlier task met there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server.accept()[0].close()
            client.recv(1)
    assert nodes.run("true", framework="horovod", options={"port": port}).code == 0


def test_what_a_processes_per_node_said_when_it_failed_is_told(nodes: Nodes) -> None:
    command = '[ "$AZ_BATCH_NODE_ID" = tvm-1 ] || { echo no such device >&2; exit 3; }; echo 2'
    refused(nodes, "ended with code 3, not a number of at least 1 (no such device)", processes_per_node=command)


def test_a_processes_per_node_that_is_no_number_on_one_node_is_named_with_it(nodes: Nodes) -> None:
    command = 'if [ "$AZ_BATCH_NODE_ID" = tvm-1 ]; then echo 2; else echo none; fi'
    refused(nodes, "node tvm-2 (127.0.88.3): processes_per_node: `", "printed 'none'", processes_per_node=command)


# --- Horovod's meeting place ----------------------------------------------------------------------------------------

MEET = """
import http.client, os, time
def ask(verb, path, body=None):
    address, port = (os.environ["HOROVOD_GLOO_RENDEZVOUS_" + name] for name in ("ADDR", "PORT"))
    there = http.client.HTTPConnection(address, int(port))
    there.request(verb, path, body)
    answer = there.getresponse()
    return answer.status, answer.read()
rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
assert ask("PUT", "/global/%d" % rank, b"\\0" * 70000 + b"%d" % rank) == (200, b"")
for other in range(size):
    while ask("GET", "/global/%d" % other)[0] == 404:
        time.sleep(0.01)
    assert ask("GET", "/global/%d" % other) == (200, b"\\0" * 70000 + b"%d" % other)
print("met")
"""


def test_horovods_ranks_meet_at_the_primary(nodes: Nodes) -> None:
    for number in range(2):
        (nodes.wd(number) / "meet.py").write_text(MEET)
    done = nodes.run(f"{sys.executable} meet.py", framework="horovod")
    assert (done.code, done.stdout.count("met")) == (0, 4), done.stderr
