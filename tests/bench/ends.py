"""Print how soon things end and how soon a line is seen: `python tests/bench/ends.py [WORD ...]`. Not a test.

Each figure is the median of some runs on this machine now, beside what it is held to. Words choose figures by their
names. Figures of Open MPI and Intel MPI install these below `.cache/` first.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402
from azure.batch import models  # noqa: E402

from batchtrain.emulator import mapped_images, server, steering  # noqa: E402
from batchtrain.emulator.server import Settings  # noqa: E402
from batchtrain.emulator.serving import Emulator  # noqa: E402
from batchtrain.testing import emulated_batch  # noqa: E402
from tests import environments  # noqa: E402
from tests.contract import test_mpi_launch as mpis  # noqa: E402
from tests.contract.conftest import connect, pool  # noqa: E402
from tests.contract.gang_of_nodes import TASK, gang_of  # noqa: E402
from tests.contract.test_node_launcher import Nodes  # noqa: E402
from tests.e2e.conftest import Shell, left_running  # noqa: E402
from tests.e2e.test_recipes import copied  # noqa: E402
from tests.emulation import FakeMachine  # noqa: E402
from tests.waiting import until  # noqa: E402

Measure = Callable[[Path], float]
"""Takes an empty folder; returns seconds."""


class Figure(NamedTuple):
    held: float
    measure: Measure
    times: int = 5


def rank_death(how: str) -> Measure:
    """node launcher: from a rank's death to the end of the gang, though the other ranks ignore SIGTERM."""

    def measure(folder: Path) -> float:
        nodes = Nodes(folder, 2)
        dying = f"sleep 0.3; date +%s.%N >died; {how}"
        nodes.run(f"trap '' TERM; if [ $RANK = 3 ]; then {dying}; fi; sleep 60; sleep 9")
        ended = time.time()
        return ended - float((nodes.wd(1) / "died").read_text())

    return measure


def line_shown(folder: Path) -> float:
    """node launcher: from a line on a rank to the primary's output."""
    nodes = Nodes(folder, 2)
    process = nodes.start("[ $RANK != 3 ] || { sleep 0.3; date +%s.%N; sleep 0.5; }")
    assert process.stdout is not None
    line = process.stdout.readline()
    seen = time.time()
    nodes.finish()
    return seen - float(line.split()[1])


def grace(folder: Path) -> float:
    """node launcher: from SIGTERM to the end of a gang that ignores it and has 0.7 s of grace."""
    nodes = Nodes(folder, 2)
    process = nodes.start("trap '' TERM; touch up; while :; do sleep 0.1; done", grace_seconds=0.7)
    until(lambda: all((nodes.wd(number) / "up").exists() for number in range(2)))
    process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    nodes.finish()
    return time.monotonic() - begin


def mpi_death(name: str, how: str) -> Measure:
    """A real MPI: from a rank's death to the end of the launch."""

    def measure(folder: Path) -> float:
        note = b"    open('died', 'w').write(str(time.time()))\n"
        dying = mpis.PROGRAM.replace(b"    match how:", note + b"    match how:")
        launch = mpis.program(name, how)
        files = tuple(file._replace(data=dying) if file.name == "program.py" else file for file in launch.files)
        with gang_of(folder, environments.prefix(name)) as gang:
            done = mpis.run(gang, name, launch._replace(files=files))
            (died,) = [path for root in gang.roots if (path := root / TASK / "wd/died").exists()]
            return done.ended - float(died.read_text())

    return measure


def run_line(folder: Path) -> float:
    """`run`: from a line on a rank to the screen."""
    with recipe_run(folder, "sh -c 'date +now=%s.%N; sleep 1'") as (_, process):
        assert process.stdout is not None
        delays = [time.time() - float(line[4:]) for line in process.stdout if line.startswith("now=")]
    return max(delays)


def run_death(folder: Path) -> float:
    """`run`: from a rank's death to the end of the other ranks' programs."""
    line = "sh -c 'case $PMI_RANK in 3) sleep 1; date +died=%s.%N; exit 7;; *) sleep 60;; esac'"
    with recipe_run(folder, line) as (shell, process):
        assert process.stdout is not None
        died = next(float(line[5:]) for line in process.stdout if line.startswith("died="))
        until(lambda: "sleep" not in map(program, left_running(shell.home)))
        return time.time() - died


def program(pid: int) -> str:
    """What a process runs; empty when it has ended meanwhile."""
    with suppress(psutil.Error):
        return psutil.Process(pid).name()
    return ""


@contextmanager
def recipe_run(folder: Path, command: str) -> Iterator[tuple[Shell, subprocess.Popen[str]]]:
    """The MPICH recipe with another command, started by `run --local`."""
    shell = Shell(folder / "emulator", folder)
    mapped_images.map_image(shell.home, "example/mpich:digits", environments.prefix("mpich"))
    with shell.start("run", str(copied(shell, "MPICH", command)), "--local") as process:
        try:
            yield shell, process
            process.communicate()
        finally:
            server.stop(shell.home)


def reset(folder: Path) -> float:
    """`batchtrain.testing`: the reset of an empty account."""
    with emulated_batch(folder / "account") as service:
        service.reset()
        begin = time.perf_counter()
        for _ in range(20):
            service.reset()
        return (time.perf_counter() - begin) / 20


SIMULATED = [models.BatchMetadataItem(name="batchtrain-nodes", value="simulated")]


def autoscale(folder: Path) -> float:
    """Processor time of a week of autoscale evaluations."""
    with Emulator(Settings(folder / "data", port=0), FakeMachine.open) as emulator, connect(emulator) as client:
        steering.turn(emulator.status, "stepped")
        formula = "$TargetDedicatedNodes = min(8, $PendingTasks.GetSample(1));"
        scaling = {"enable_auto_scale": True, "auto_scale_evaluation_interval": timedelta(minutes=5)}
        client.create_pool(pool(target_dedicated_nodes=None, auto_scale_formula=formula, metadata=SIMULATED, **scaling))
        began = time.process_time()
        steering.advance(emulator.status, timedelta(days=7))
        return time.process_time() - began


FIGURES: Mapping[str, Figure] = {
    "node launcher: a rank exits, gang gone": Figure(1.0, rank_death("exit 7")),
    "node launcher: a rank is killed, gang gone": Figure(1.0, rank_death("kill -9 $$")),
    "node launcher: a line shown": Figure(0.25, line_shown),
    "node launcher: killed after 0.7 s of grace": Figure(1.7, grace),
    **{
        f"{name}: a rank's {how}, gang gone": Figure(1.0, mpi_death(name, how))
        for name, how in itertools.product(mpis.RUNTIMES, ("_exit", "abort", "kill"))
    },
    "run: a line shown": Figure(0.25, run_line, 3),
    "run: a rank exits, other ranks gone": Figure(1.25, run_death, 3),
    "testing: reset of an empty account": Figure(0.05, reset, 1),
    "autoscale: a week of evaluations, cpu": Figure(20, autoscale, 1),
}


def main(words: list[str]) -> None:
    for name, figure in FIGURES.items():
        if words and not any(word in name for word in words):
            continue
        taken = []
        for _ in range(figure.times):
            with tempfile.TemporaryDirectory() as folder:
                taken.append(figure.measure(Path(folder)))
        middle = statistics.median(taken)
        verdict = "ok" if middle <= figure.held else "OVER"
        print(f"{name:42} {middle:8.3f} s  held to {figure.held:6.2f}  {verdict}", flush=True)
    print(f"at a load of {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main(sys.argv[1:])
