"""The live block in a real terminal (tmux), and the output of eight ranks, each line once, wherever it is read."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import dashboards
from tests.dashboards import Dashboard
from tests.waiting import GUARD, until

from .conftest import SCRIPT, Shell, pool_file

pytestmark = pytest.mark.process

POOL = pool_file("two", "inter_node_communication_enabled: true", vm_count="{dedicated: 2}")
JOBS = """\
job_specifications:
- id: digits
  auto_complete: true
  tasks:
  - id: train
    multi_instance:
      num_instances: 2
      jax: {processes_per_node: PROCESSES}
    command: COMMAND
"""
COUNT = "for i in $(seq 1000); do echo rank $BATCHTRAIN_RANK line $i; done"
TRAIN = "for i in 1 2 3 4 5 6 7 8; do echo step $i/8 loss 0.$((9 - i)); done; printf '\\\\033]0;evil\\\\007'; sleep 1d"


def recipe(tmp_path: Path, command: str, processes: int) -> str:
    folder = tmp_path / "recipe"
    folder.mkdir()
    (folder / "pool.yaml").write_text(POOL, encoding="utf-8")
    text = JOBS.replace("PROCESSES", str(processes)).replace("COMMAND", f'"{command}"')
    (folder / "jobs.yaml").write_text(text, encoding="utf-8")
    return str(folder)


def in_order(lines: list[str]) -> bool:
    """Whether each of eight ranks has its thousand lines, once and in order."""
    of_rank: dict[str, list[str]] = {}
    for line in lines:
        if "line" in line:
            words = line.rpartition("] ")[2].split()
            of_rank.setdefault(words[1], []).append(words[3])
    wanted = [str(number) for number in range(1, 1001)]
    return sorted(of_rank) == [str(rank) for rank in range(8)] and all(got == wanted for got in of_rank.values())


def test_eight_ranks_of_a_thousand_lines_arrive_once_and_in_order(batchtrain: Shell, tmp_path: Path) -> None:
    ran = batchtrain("run", recipe(tmp_path, COUNT, 4), "--local")
    assert in_order(ran.stdout.splitlines())
    assert "\x1b" not in ran.stdout + ran.stderr
    ranks = batchtrain.cwd / "runs" / "latest" / "logs" / "train" / "ranks"
    for rank in range(8):
        lines = (ranks / f"{rank}.stdout.txt").read_text().splitlines()
        assert lines == [f"rank {rank} line {number}" for number in range(1, 1001)]


@pytest.mark.slow
def test_the_dashboard_has_each_line_of_eight_ranks_once_and_in_order(batchtrain: Shell, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with dashboards.dashboard(batchtrain.environment, "--local", runs=runs) as running:
        training = batchtrain.start("run", recipe(tmp_path, COUNT, 4), "--local", "--keep")
        _, text = running.events("/jobs/digits/tasks/train/logs", lambda text: text.count("line") >= 8000)
        assert in_order(text.splitlines())
        out, err = training.communicate(timeout=GUARD)
        assert training.returncode == 0, err
        assert in_order(parts := list(log(running)))
        assert parts == out.splitlines() == text.splitlines()
        third = running.get("/jobs/digits/tasks/train/logs?rank=3&limit=4000000")["text"].splitlines()
        assert third == [line for line in parts if " rank 3 " in line]


def log(running: Dashboard) -> Iterator[str]:
    """The lines of the log, in parts of 64 KiB."""
    text, at, size = "", 0, 1
    while at < size:
        part = running.get(f"/jobs/digits/tasks/train/logs?start={at}&limit=65536")
        text, at, size = text + part["text"], part["end"], part["size"]
    return iter(text.splitlines())


@pytest.fixture
def terminal(batchtrain: Shell) -> Iterator[Callable[..., str]]:
    """Runs tmux with a server of its own; the first call starts it."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is missing: apt-get install tmux")
    server = f"batchtrain-{uuid.uuid4().hex[:8]}"

    def tmux(*words: str) -> str:
        command = ["tmux", "-L", server, "-f", "/dev/null", *words]
        kept = {name: text for name, text in batchtrain.environment.items() if name not in ("TMUX", "CI")}
        return subprocess.run(command, check=True, capture_output=True, text=True, env=kept, cwd=batchtrain.cwd).stdout

    yield tmux
    subprocess.run(["tmux", "-L", server, "kill-server"], capture_output=True, check=False)


def opened(terminal: Callable[..., str], width: int, *arguments: str) -> None:
    command = shlex.join([str(SCRIPT), *arguments])
    terminal("set-option", "-g", "history-limit", "20000", ";", "new-session", "-d", "-x", str(width), "-y", "30",
             f"{command}; echo ended with $?; sleep 1d")  # fmt: skip


def test_the_block_stands_below_the_log_and_its_last_picture_stays_after_ctrl_c(
    batchtrain: Shell, terminal: Callable[..., str], tmp_path: Path
) -> None:
    opened(terminal, 80, "run", recipe(tmp_path, TRAIN, 2), "--local")
    until(lambda: all(f"   {rank} n{rank // 2} " in terminal("capture-pane", "-p") for rank in range(4)))
    until(lambda: "100 %" in terminal("capture-pane", "-p"))
    rows = [row for row in terminal("capture-pane", "-p").splitlines() if row.strip()]
    head = next(number for number, row in enumerate(rows) if row.startswith("digits · pool two · emulator"))
    block = rows[head:]
    assert block[1].startswith("nodes  n0 n1 ")
    assert block[2].startswith("step   █")
    assert [row.split()[:2] for row in block[-5:-1]] == [["0", "n0"], ["1", "n0"], ["2", "n1"], ["3", "n1"]]
    assert block[-1].startswith("4 ranks: "), block[-1]
    for width in (70, 55, 40):  # as a window is dragged
        terminal("resize-window", "-x", str(width))
    until(lambda: "2/2 nodes" in terminal("capture-pane", "-p"))
    until(lambda: re.search(r"^4 fine$", terminal("capture-pane", "-p"), re.M))
    assert terminal("capture-pane", "-p", "-S", "-").count("2/2 nodes") == 1
    terminal("send-keys", "C-c")
    until(lambda: "Stop it, or let it continue?" in terminal("capture-pane", "-p", "-J").replace("\n", ""))
    terminal("send-keys", "Enter")
    until(lambda: "ended with 130" in terminal("capture-pane", "-p"))
    assert terminal("capture-pane", "-p", "-S", "-").count("2/2 nodes") == 1
    assert "evil" not in terminal("display-message", "-p", "#{pane_title}")


SWEEP = """\
job_specifications:
- id: sweep
  tasks:
  - id: failing
    task_factory: {repeat: 3}
    command: "sleep 2; exit 3"
  - task_factory: {repeat: 20}
    command: "sleep 1"
  - id: last
    command: "sleep 1d"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "rows"),
    [
        (80, [r"tasks  █+░+ 23/24  95 %.*", r"1 running \(two 1\)  0 waiting  3 failed by 1 cause",
              r" +3  exit code 3  as failing\S*: .+"]),
        (40, [r"█+░+ 95 %.*", r"1 running  3 failed.*", r" +3  exit code 3: failing\S*"]),
    ],
)  # fmt: skip
def test_a_wait_for_a_job_shows_its_progress_and_its_failures_by_cause(
    width: int, rows: list[str], batchtrain: Shell, terminal: Callable[..., str], tmp_path: Path
) -> None:
    folder = Path(recipe(tmp_path, "", 1))
    (folder / "pool.yaml").write_text(f"{POOL}  task_slots_per_node: 8\n", encoding="utf-8")
    (folder / "jobs.yaml").write_text(SWEEP, encoding="utf-8")
    batchtrain("pool", "add", str(folder), "--local")
    batchtrain("jobs", "add", str(folder), "--local")
    opened(terminal, width, "jobs", "wait", "sweep", "--local")
    block = re.compile("^" + r"\s*\n".join(rows), re.M)
    until(lambda: block.search(terminal("capture-pane", "-p")))


@pytest.mark.slow
def test_a_terminal_shows_each_line_of_eight_ranks_once(
    batchtrain: Shell, terminal: Callable[..., str], tmp_path: Path
) -> None:
    opened(terminal, 80, "run", recipe(tmp_path, COUNT, 4), "--local")
    until(lambda: "ended with 0" in terminal("capture-pane", "-p"))
    history = terminal("capture-pane", "-p", "-S", "-").splitlines()
    assert in_order([row for row in history if "] rank" in row])
