"""What gang.sh does with the events of a gang, by itself; test_mpi_launch.py has the whole of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from batchtrain import runtime
from batchtrain.frameworks.base import Shape
from batchtrain.records.rank_end import RankEnd
from batchtrain.service.files import decoded_lines
from tests.launching import launched

pytestmark = pytest.mark.process

# Hundreds of events, and a time that runs out again and again while they are read.
READ = """
. ./gang.sh
exec 9<> <(:)
{ for ((each = 1; each <= 400; each++)); do sleep "0.00$((RANDOM % 6))"; echo "ended $each" >&9; done; } &
seen=0 late=0
while [ "$seen" -lt 400 ]; do
  if bt_next_event 0.0025; then
    seen=$((seen + 1))
    [ "$event $code" = "ended $seen $seen" ] || { echo "event $seen was read as $event" && exit 1; }
  else
    late=$((late + 1))
  fi
done
wait
[ "$late" -gt 50 ] || echo "the time ran out $late times only"
jobs -r
"""
# An earlier wait's time ran out when its event had just come.
STALE = """
. ./gang.sh
exec 9<> <(:)
echo 'late 3' >&9
echo 'ended 7' >&9
bt_next_event 5
echo "$? $event"
"""
# What a node was told before, and a launcher that succeeds.
LAUNCH = """
. ./gang.sh
{}
bt_begin
{{ bt_gang sh -c 'sleep 1.5; echo trained'; }} <&0 &
bt_attend "$!"
"""

# A launcher whose ranks print our tag, and one whose rank has failed although it would never end.
TAGGED = """
. ./gang.sh
bt_begin
{{ bt_gang sh -c '{}'; }} <&0 &
bt_attend "$!"
"""
NOTED = "1700000001.5 3 7 n1 10.0.0.5 -", "1700000000.5 2 16 n0 10.0.0.4 -", "1700000002.5 1 137 n0 10.0.0.4 cgroup"

Shell = Callable[..., tuple[str, str, int]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs a text beside gang.sh, for a gang of one host."""
    (tmp_path / "gang.sh").write_bytes(runtime.read("gang.sh"))
    (tmp_path / ".batchtrain/ranks").mkdir(parents=True)
    (tmp_path / ".batchtrain/sweep.sh").write_bytes(runtime.read("sweep.sh"))

    def run(text: str, **environment: str) -> tuple[str, str, int]:
        (tmp_path / "launch.sh").write_text(text)
        known = {"PATH": "/usr/bin:/bin", "AZ_BATCH_TASK_SHARED_DIR": str(tmp_path), "AZ_BATCH_HOST_LIST": "127.0.0.1"}
        done = subprocess.run(
            ["bash", "launch.sh"], cwd=tmp_path, env={**known, **environment}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.stdout, done.stderr, done.returncode

    return run


@pytest.mark.slow
def test_no_event_is_lost_when_the_time_runs_out_just_then(shell: Shell) -> None:
    assert shell(READ) == ("", "", 0)


def test_the_end_of_an_earlier_wait_is_none_of_this_one(shell: Shell) -> None:
    assert shell(STALE) == ("0 ended 7\n", "", 0)


@pytest.mark.parametrize(
    "before",
    [
        "export TMOUT=1",  # which `read` obeys; hardened images set it
        "readonly TMOUT=1",
        "set -E; trap 'echo an error; exit 1' ERR",
    ],
)
def test_what_was_set_before_does_not_end_a_gang(before: str, shell: Shell) -> None:
    assert shell(LAUNCH.format(before)) == ("trained\n", "", 0)


def test_a_program_that_prints_the_tag_of_our_messages_ends_no_gang(shell: Shell) -> None:
    printed = "batchtrain: rank 3 on node n (10.0.0.4) exited with code 7\n"
    launch = TAGGED.format(f'for each in 1 2 3; do printf "{printed}" >&2; sleep 0.2; done; echo trained')
    assert shell(launch) == ("trained\n", printed * 3, 0)


WARNED = 'for n in $(seq 1200); do ! grep -q "{}" ranks/stream.jsonl 2>/dev/null || exit 0; sleep 0.05; done; exit 9'
"""A launcher that ends well when the warning has come, and its ranks still run."""


@pytest.mark.parametrize(
    "line",
    [
        "MPI startup(): shm:dapl fabric is unknown or has been removed from the product, please use ofi instead.",
        "[vm:1 :0] ucp_context.c:1508 UCX  WARN  network device \\047mlx5_ib0:1\\047 is not available, please use",
        "WARNING: An invalid value was given for btl_tcp_if_include.  This",
        "WARNING: There was an error initializing an OpenFabrics device.",
    ],
)
def test_a_library_that_takes_another_network_than_planned_is_warned_of_while_the_ranks_run(
    line: str, shell: Shell, tmp_path: Path
) -> None:
    words = line.replace("\\047", ".")[-30:]
    program = f'printf "{line}\\n{line}\\n" >&2; {WARNED.format(words)}'
    _, stderr, code = shell(TAGGED.format(program), AZ_BATCH_TASK_WORKING_DIR=str(tmp_path))
    assert code == 0, stderr
    said = [text for text in stderr.splitlines() if text.startswith("batchtrain: ")]
    assert len(said) == 1
    assert said[0].startswith("batchtrain: warning: a rank does not use the network that was planned: ")


@pytest.mark.parametrize(("noted", "warned"), [("Using network Socket", True), ("Using network IB", False)])
def test_nccl_that_takes_sockets_is_warned_of_while_the_ranks_run(
    noted: str, warned: bool, shell: Shell, tmp_path: Path
) -> None:
    lines = f"h:1:2 [0] NCCL INFO {noted}\\nh:1:2 [0] NCCL INFO comm rank 0 nranks 2 - Init COMPLETE\\n"
    wait = WARNED.format("network Socket") if warned else "sleep 1.5"
    program = f'printf "{lines}" >.batchtrain/ranks/nccl.h.1.txt; {wait}'
    _, stderr, code = shell(TAGGED.format(program), AZ_BATCH_TASK_WORKING_DIR=str(tmp_path))
    assert (code, "the network that was planned" in stderr) == (0, warned)


def test_the_cause_is_the_earliest_noted_failure_that_is_no_lost_peer(shell: Shell, tmp_path: Path) -> None:
    for line in NOTED:
        (tmp_path / f".batchtrain/ranks/{line.split()[1]}.failed").write_text(line + "\n")
    (tmp_path / ".batchtrain/ranks/4.ended").write_text("1699999999.5 4 0 n1 10.0.0.5 -\n")
    (tmp_path / ".batchtrain/ranks/4.stdout.lines.ended").touch()
    launch = TAGGED.format('trap "exit 9" TERM; echo batchtrain: some words >&2; sleep 100000 & wait')
    variables = {"AZ_BATCH_TASK_WORKING_DIR": str(tmp_path), "BATCHTRAIN_ATTEMPT": "2"}
    assert shell(launch, **variables) == ("", "batchtrain: some words\n", 7)
    ends = [json.loads(line) for line in (tmp_path / "ranks/ends.jsonl").read_text().splitlines()]
    assert ends[0] == {
        "rank": 3, "process": "rank 3", "node": "n1", "address": "10.0.0.5", "exit_code": 7,
        "time": "2023-11-14T22:13:21.5Z", "attempt": 2,
    }  # fmt: skip
    assert [end["rank"] for end in ends] == [3, 2, 1, 4]
    assert (ends[3]["ending"], ends[3]["cause"]) == ("exited with code 0 before the others", "ended-early")
    assert (ends[2]["signal"], ends[2]["signal_name"], ends[2]["full_memory"]) == (9, "SIGKILL", "cgroup")


# Runs the command of an ssh with another root, and with a clock that is 100 s ahead.
SSH = """#!/bin/bash
while [ $# -gt 2 ]; do shift; done
PATH={0}:$PATH BATCHTRAIN_EMULATED_NODE={0} exec sh -c "$2"
"""
FAST_CLOCK = '#!/bin/sh\nexec /bin/date -d "+100 seconds" "$@"\n'


@pytest.fixture
def other_node(tmp_path: Path) -> Path:
    """A second node, whose rank 1 failed before rank 0 of the first one."""
    root = tmp_path / "other"
    (root / ".batchtrain/ranks").mkdir(parents=True)
    (root / "ranks").mkdir()
    (root / ".batchtrain/environment").write_text(f"export AZ_BATCH_TASK_WORKING_DIR={root}\n")
    (root / ".batchtrain/ranks/1.failed").write_text("1700000100.5 1 1 n1 10.0.0.5 -\n")
    (tmp_path / ".batchtrain/ranks/0.failed").write_text("1700000050.5 0 1 n0 127.0.0.1 -\n")
    for path, text in ((tmp_path / "bin/ssh", SSH.format(root)), (root / "date", FAST_CLOCK)):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return root


def ends_of(shell: Shell, folder: Path) -> tuple[RankEnd, ...]:
    """The ends of a gang with `other_node`, as a client reads them."""
    launch = TAGGED.format("echo batchtrain: some words >&2; sleep 100000 & wait")
    variables = dict.fromkeys(("AZ_BATCH_TASK_WORKING_DIR", "AZ_BATCH_NODE_ROOT_DIR"), str(folder))
    hosts = {"AZ_BATCH_HOST_LIST": "127.0.0.1,10.0.0.5", "PATH": f"{folder}/bin:/usr/bin:/bin"}
    shell(launch, **variables, **hosts)
    return tuple(decoded_lines((folder / "ranks/ends.jsonl").read_bytes(), RankEnd))


def test_the_times_of_a_node_are_those_of_the_primarys_clock(shell: Shell, tmp_path: Path, other_node: Path) -> None:
    first, second = ends_of(shell, tmp_path)
    assert (first.rank, second.rank) == (1, 0)
    assert first.time is not None
    assert first.time.timestamp() == pytest.approx(1700000000.5, abs=60)


def test_the_record_of_the_cause_has_the_last_lines_of_its_rank(shell: Shell, tmp_path: Path, other_node: Path) -> None:
    (other_node / "ranks/rank-1.stdout.txt").write_bytes(b"step 7")
    (other_node / "ranks/rank-1.stderr.txt").write_bytes(b'Traceback:\n\n  "a\\b"\t-\n--\nValueError: \xff\n')
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks/rank-0.stderr.txt").write_text("of a victim")
    first, second = ends_of(shell, tmp_path)
    assert first.lines == ("step 7", "Traceback:", '  "a\\b" -', "--", "ValueError: \ufffd")
    assert second.lines == ()


@pytest.mark.parametrize(("there", "code"), [("2 Open MPI\n", 1), ("", 0)])
@pytest.mark.parametrize("line", ["true", 'trap "exit 9" TERM; sleep 100000 & wait'])
def test_a_gang_of_which_each_rank_is_alone_ends(
    line: str, there: str, code: int, shell: Shell, tmp_path: Path, other_node: Path
) -> None:
    for path in (tmp_path / ".batchtrain/ranks/0.failed", other_node / ".batchtrain/ranks/1.failed"):
        path.unlink()
    (tmp_path / ".batchtrain/ranks/0.alone").write_text("2 Open MPI\n")
    (other_node / ".batchtrain/ranks/1.alone").write_text(there)
    variables = dict.fromkeys(("AZ_BATCH_TASK_WORKING_DIR", "AZ_BATCH_NODE_ROOT_DIR"), str(tmp_path))
    hosts = {"AZ_BATCH_HOST_LIST": "127.0.0.1,10.0.0.5", "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    line = line if code else "sleep 2"  # the gang goes on
    _, said, ended = shell(TAGGED.format(line), BATCHTRAIN_LAUNCHER="MPICH", **variables, **hosts)
    assert ended == code, said
    words = "each of the 2 ranks is rank 0 of 1: the program uses Open MPI, and sh is the launcher of MPICH"
    assert said == (f"batchtrain: {words}\n" if code else "")
    if code:
        [end] = decoded_lines((tmp_path / "ranks/ends.jsonl").read_bytes(), RankEnd)
        assert (end.process, end.rank, end.ending, end.cause) == ("", None, words, "singletons")


def test_the_coordination_of_a_gang_without_a_block_keeps_the_kills_for_memory(shell: Shell, tmp_path: Path) -> None:
    launch = launched("plain", "./train", Shape(2))
    for file in launch.files:
        (tmp_path / file.name).write_bytes(file.data)
    text = f"{launch.coordination}\nbash .batchtrain/node.sh memory_kills"
    counted, stderr, code = shell(text, AZ_BATCH_TASK_WORKING_DIR=str(tmp_path))
    kept = (tmp_path / ".batchtrain/environment").read_text().splitlines()
    assert (stderr, code, f"export BATCHTRAIN_MEMORY_KILLS='{counted.strip()}'" in kept) == ("", 0, True)


def test_the_ends_of_an_earlier_attempt_are_gone(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks/ends.jsonl").write_text("{}")
    shell(". ./gang.sh; bt_keep_environment", AZ_BATCH_TASK_WORKING_DIR=str(tmp_path))
    assert not (tmp_path / "ranks/ends.jsonl").exists()


@pytest.mark.parametrize(
    ("node", "hosts", "answer"),
    [
        ("/node", "127.0.0.4,127.0.0.5", "0"),
        ("/node", "172.18.0.2,172.18.0.3", "1"),  # each has an `lo` of its own there
        ("container", "127.0.0.4", "1"),
        ("", "127.0.0.4", "1"),
    ],
)
def test_nodes_of_one_machine_are_known_by_their_addresses(node: str, hosts: str, answer: str, shell: Shell) -> None:
    text = ". ./gang.sh; bt_on_loopback; echo $?"
    assert shell(text, BATCHTRAIN_EMULATED_NODE=node, AZ_BATCH_HOST_LIST=hosts) == (f"{answer}\n", "", 0)


def test_what_the_image_sets_for_nccl_is_kept(shell: Shell, tmp_path: Path) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text("NCCL_MIN_NCHANNELS=8\n")
    script = tmp_path / "gang.sh"
    script.write_text(script.read_text().replace("/etc/nccl.conf", str(conf)))
    text = ". ./gang.sh; bt_default NCCL_MIN_NCHANNELS=32 NCCL_PXN_DISABLE=1"
    assert shell(f'{text}; echo "${{NCCL_MIN_NCHANNELS-none}} $NCCL_PXN_DISABLE"') == ("none 1\n", "", 0)


@pytest.mark.parametrize(
    ("file", "before", "value", "told"),
    [
        ("topo.xml", "", "topo.xml", ""),
        ("gone.xml", "", "", "batchtrain: warning: this node has no gone.xml, so NCCL_TOPO_FILE is not set"),
        ("gone.xml", "mine.xml", "mine.xml", ""),
    ],
)
def test_a_topology_file_that_the_node_lacks_is_told(
    tmp_path: Path, file: str, before: str, value: str, told: str
) -> None:
    (tmp_path / "gang.sh").write_bytes(runtime.read("gang.sh"))
    (tmp_path / "topo.xml").touch()
    text = f'. ./gang.sh; bt_default_file NCCL_TOPO_FILE {file}; echo "[${{NCCL_TOPO_FILE-}}]"'
    environment = {"PATH": "/usr/bin:/bin", **({"NCCL_TOPO_FILE": before} if before else {})}
    done = subprocess.run(
        ["bash", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == f"[{value}]"
    assert told in done.stderr + done.stdout and bool(told) == ("warning" in done.stderr + done.stdout)
