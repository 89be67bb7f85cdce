"""python -m tests.simulation.shared_pool [POINTS]: two runs use one pool, and one of them is ended at many requests.

The run that is not ended has its results and exit code 0. After a later run of the same directory nothing is left.
"""

from __future__ import annotations

import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":
    command = [sys.executable, "-m", "tests.simulation.shared_pool", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})

from tests.simulation import owned

owned.install()

import gc  # noqa: E402 - everything that is imported now sees the replaced standard library
import pickle  # noqa: E402
import signal  # noqa: E402
from collections.abc import Callable  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

from batchtrain.config.types import Recipe, convert  # noqa: E402
from batchtrain.plan.marks import marks_of  # noqa: E402
from batchtrain.records.events import Event  # noqa: E402
from tests.simulation.owned import Process  # noqa: E402
from tests.simulation.seed import Outcome, World, new_client, simulate  # noqa: E402
from tests.simulation.workload import IMAGE, LIMIT, Work  # noqa: E402

ENDS: dict[str, Callable[[Process], None]] = {
    "is killed": lambda process: process.die(),
    "is interrupted": lambda process: process.receive(signal.SIGINT),
}
DELAYS = (20, 60, 150, 280, 330, 400)
"""Seconds after which the second run begins: before the first one has nodes, while it runs, and when it ends."""
SECONDS = 300
"""Of each task."""


class Case(NamedTuple):
    """Which run is ended, how, and at which request; 0 for never."""

    victim: str
    end: str
    point: int
    delay: int

    def __str__(self) -> str:
        return f"{self.victim} {self.end} at request {self.point}, the second run begins after {self.delay} s"


class TwoRuns(World):
    """The run `adds` adds the pool, and the run `reuses` uses it, too."""

    case: Case

    def start_users(self) -> None:
        self.fates.over = True
        self.users = 3
        self._later(0, "adds", reuse=False)
        self._later(self.case.delay, "reuses", reuse=True)
        self._later(5 * SECONDS, "later", reuse=True)

    def _later(self, seconds: float, name: str, *, reuse: bool) -> None:
        self.sim.loop.call_later(seconds, partial(self._start, name, reuse=reuse))

    def _start(self, name: str, *, reuse: bool) -> None:
        process = Process(name, self.sim)
        if name == self.case.victim and self.case.point:
            process.plans.append((self.case.point, ENDS[self.case.end]))
        process.on_end, process.on_death = self._ended, self.user_ended
        process.start(lambda: self._run(work_of(name, self.directory), reuse=reuse))

    def _run(self, work: Work, *, reuse: bool) -> None:
        def tell(event: Event) -> None:
            self.sim.note(event.text)

        runs_dir = self.checks.runs
        result = new_client().run(work.recipe, tell=tell, reuse=reuse, timeout=LIMIT, check=False, runs_dir=runs_dir)
        self.checks.outcome(work, result.tasks, result.failure)
        for run in result.runs:
            self.checks.complete(work, run.directory)

    def _ended(self, process: Process, error: BaseException | None) -> None:
        self.sim.note(f"{process.name} ends with {type(error).__name__}: {error}")
        self.counts[f"requests: {process.name}"] = process.requests
        process.alive = False
        if error is not None and (process.name != self.case.victim or not isinstance(error, KeyboardInterrupt)):
            self.invariants.fail(f"the other run ends well: {process.name} ends with {error!r}")
        self.user_ended()

    def _settled(self) -> None:
        assert self.service.driver is not None
        world = self.service.driver.world
        pools = [pool.record.id for pool in world.pools.values() if self._is_temporary(pool.record.spec)]
        if left := [*pools, *(job.record.id for job in world.jobs.values())]:
            self.invariants.fail(f"the pool goes with its last user: {left} is left")
        super()._settled()

    @staticmethod
    def _is_temporary(spec: Any) -> bool:
        return bool(marks_of(tuple(spec.get("metadata", ()))).ends_with)


def work_of(name: str, directory: Any) -> Work:
    """A job of one task; all jobs have the same pool."""
    folder = directory / name
    folder.mkdir()
    pool = {
        "id": "pool", "vm_configuration": {"platform_image": IMAGE}, "vm_size": "STANDARD_D4S_V5",
        "vm_count": {"dedicated": 2},
    }  # fmt: skip
    command = f"sim {SECONDS} 0"
    task = {
        "id": "task-0", "command": command, "environment_variables": {"SIM": command},
        "results": {"include": ["*.txt"]},
    }  # fmt: skip
    recipe = convert({"directory": str(folder), "pool": pool, "jobs": [{"id": name, "tasks": [task]}]}, Recipe)
    return Work(recipe, {"task-0": 0}, 1, (), folder)


def outcome_of(case: Case) -> Outcome:
    """What happens in a process of its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        TwoRuns.case = case
        outcome = simulate(1, make=TwoRuns)
        with os.fdopen(writer, "wb") as file:
            file.write(pickle.dumps(outcome if outcome.violations else outcome._replace(trace=())))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    outcome: Outcome = pickle.loads(data)
    return outcome


def main(points: int) -> int:
    owned.own_datetime()
    for name in set(os.environ) - {"PATH", "HOME"}:
        del os.environ[name]
    gc.freeze()
    failed = 0
    totals = outcome_of(Case("", "", 0, DELAYS[2])).counts
    cases = [Case("", "", 0, delay) for delay in DELAYS]
    for victim in ("adds", "reuses"):
        spread = [1 + number * (totals[f"requests: {victim}"] - 1) // max(points - 1, 1) for number in range(points)]
        delayed = [(point, DELAYS[number % len(DELAYS)]) for number, point in enumerate(spread)]
        cases += [Case(victim, end, *point) for end in ENDS for point in delayed]
    for case in cases:
        outcome = outcome_of(case)

        if outcome.violations:
            failed += 1
            print(f"VIOLATION {case}: {outcome.violations[0]}")
            print("\n".join(f"    {line}" for line in outcome.trace[-60:]) if failed == 1 else "")
    print(f"{len(cases)} cases, {failed} violations; {totals['requests: adds']} requests")
    sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
