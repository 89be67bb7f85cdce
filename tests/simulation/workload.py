"""What users do, by the seed: recipes, and commands on them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import batchtrain as bt
from batchtrain.cli import __main__ as command_line
from batchtrain.config.types import Job, Recipe, Secret, convert
from batchtrain.errors import AlreadyExists, BatchtrainError, NotFound, TaskFailed
from batchtrain.plan.marks import marks_of
from batchtrain.records.attempt import number_of
from batchtrain.records.events import Event, JobAdded, PoolAdded, RunAdopted, RunContinues, TasksAdded
from batchtrain.runs import directory
from batchtrain.runs.directory import FileRecord
from batchtrain.runs.recording import Origin
from batchtrain.service.connect import Account
from tests.simulation import storage
from tests.simulation.invariants import Invariants
from tests.simulation.owned import Process, current
from tests.simulation.service import ACCOUNT, ENDPOINT, KEY, TOKEN, Service
from tests.simulation.storage import md5_of

IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}


MANY = 600
"""Tasks whose results are not fetched: each costs two requests."""
FEATURES = ("auto pool", "autoscale", "controller", "dedicated", "dependencies", "exit conditions", "factory", "gang",
            "job manager", "login", "orphan adopted", "preparation", "release", "required slots", "retries", "run left",
            "source", "spot", "start task")  # fmt: skip
LINK = "store"
"""The storage account of all recipes."""
WALL_CLOCK = "90m"
"""The longest time of a detached run."""
RETRIED = 5
"""The exit code of a run that is retried: that of its task, too, if it ends before."""
PRICE = 3.6
"""Of an hour of each node."""
OVER_TIME = 1800.0
"""Seconds in which a command ends its nodes after a limit: the service may be away, and results are fetched."""
LIMIT = 3600.0
"""Seconds for a wait of a command: a pool whose nodes are broken never runs its tasks."""


class Work(NamedTuple):
    """A recipe, and how its tasks end."""

    recipe: Recipe
    codes: dict[str, int]
    """The last exit code of each task."""
    total: int
    """The number of its tasks."""
    features: tuple[str, ...]
    folder: Path
    """The directory of its files, for the command line."""
    has_all_results: bool = True
    """Whether each of its tasks that succeeds leaves results."""

    @property
    def pool_id(self) -> str:
        return self.recipe.pool.id if self.recipe.pool else ""


def work(rng: random.Random, name: str, directory: Path) -> Work:
    """A pool and a job with some features."""
    features: list[str] = []
    gang = rng.random() < 0.25
    slots = 1 if gang else rng.choice((1, 2, 4))
    nodes = rng.choice((2, 3)) if gang else rng.choice((1, 2, 3))
    spot = not gang and rng.random() < 0.3
    pool: dict[str, Any] = {
        "id": f"pool-{name}", "vm_configuration": {"platform_image": IMAGE}, "vm_size": "STANDARD_D4S_V5",
        "vm_count": {"dedicated": 0 if spot else nodes, "low_priority": nodes if spot else 0},
        "task_slots_per_node": slots, "inter_node_communication_enabled": gang,
    }  # fmt: skip
    if rng.random() < 0.3:
        pool["additional_node_prep"] = {"commands": {"post": ["sim 5 0"]}}
        features.append("start task")
    if rng.random() < 0.1:
        pool["ssh"] = {"username": "user", "generated_file_export_path": str(directory / f"keys-{name}")}
        features.append("login")
    job: dict[str, Any] = {"id": f"job-{name}"}
    codes: dict[str, int] = {}
    tasks: list[dict[str, Any]] = []
    count = rng.choice((1, 1, 2, 5, 12))
    for number in range(count):
        task: dict[str, Any] = {"id": f"task-{number}", "results": {"include": ["*.txt"]}}
        ends = rng.choice(("0", "0", "0", "0", "3", f"{RETRIED},0"))
        if "," in ends:
            task["max_task_retries"] = 2
            features.append("retries")
        if slots > 1 and rng.random() < 0.3:
            task["required_slots"] = rng.choice((1, 2, slots))
            features.append("required slots")
        if gang and number == 0:
            task["multi_instance"] = {"num_instances": nodes}
            features.append("gang")
        codes[task["id"]] = int(ends.rpartition(",")[2])
        previous = f"task-{number - 1}"
        if number and rng.random() < 0.3 and codes[previous] == 0:
            task["depends_on"] = [previous]
            features.append("dependencies")
        task["command"] = f"sim {rng.choice((0, 1, 20, 120, 600))} {ends}"
        task["environment_variables"] = {"SIM": task["command"], "API_TOKEN": TOKEN}  # the text of a gang is packed
        tasks.append(task)
    total = count
    if not gang and rng.random() < 0.3:
        tasks = [{**task, "source": "program"} for task in tasks]
        features.append("source")
    if rng.random() < 0.35:
        total = rng.choice((8, 60, MANY))
        task = (
            {"command": "sim 5 0", "results": {"include": ["*.txt"]}} if total == 8 else {"command": "sim 5 0 silent"}
        )
        is_custom = total == 8 and rng.random() < 0.5
        factory = {"custom": {"module": "factory", "input_args": [total]}} if is_custom else {"repeat": total}
        tasks = [{"task_factory": factory, **task}]
        codes, features = {}, [*features, "factory"]
    elif rng.random() < 0.35:
        action = rng.choice(("none", "terminate"))
        options = {"exit_options": {"job_action": action, "dependency_action": "satisfy"}}
        tasks = [{**task, "exit_conditions": {"default": options}} for task in tasks]
        features.append("exit conditions")
    if not gang and rng.random() < 0.2:
        pool["autoscale"] = "to_zero"
        features.append("autoscale")
    elif not gang and rng.random() < 0.25:
        job["auto_pool"] = {"pool_lifetime": "job"}
        features.append("auto pool")
    if not gang and rng.random() < 0.25:
        job["job_manager"] = {"command": "sim 15 0", "kill_job_on_completion": False}
        features.append("job manager")
    if rng.random() < 0.2:
        job["job_preparation"] = {"command": "sim 4 0"}
        features.append("preparation")
        if rng.random() < 0.7:
            job["job_release"] = {"command": "sim 2 0"}
            features.append("release")
    features.append("spot" if spot else "dedicated")
    jobs = [{**job, "tasks": tasks}]
    folder = directory / f"recipe-{name}"
    (folder / "program").mkdir(parents=True)
    (folder / "factory.py").write_text("def generate(count):\n    yield from zip(range(int(count)))\n")
    os.utime(folder / "factory.py")  # whoever asks for the time of a file gets that of the simulation
    for number in range(2):
        file = folder / "program" / f"{number}.py"
        file.write_text(f"print({number})\n")
        os.utime(file, (0, 0))  # its time travels with it, and is the disk's
    batch = {"account_service_url": ENDPOINT, "account": ACCOUNT, "account_key": KEY}
    account = {"account": storage.ACCOUNT, "account_key": storage.KEY, "endpoint": f"https://{storage.HOST}"}
    prices = dict.fromkeys(("STANDARD_D4S_V5", "STANDARD_D4AS_V5", "STANDARD_D2S_V5"), PRICE)
    files = {
        "source": {"path": "inputs"},
        "destination": {"storage_account_settings": LINK, "data_transfer": {"remote_path": f"in-job-{name}"}},
    }
    for file, content in (
        ("credentials", {"credentials": {"batch": batch, "storage": {LINK: account}}}),
        ("pool", {"pool_specification": pool}),
        ("jobs", {"job_specifications": jobs}),
        ("catalog", {"prices": [{"region": "region", "dedicated": prices, "spot": prices}]}),
        ("config", {"global_resources": {"files": [files]}}),
    ):
        (folder / f"{file}.yaml").write_text(json.dumps(content))
        os.utime(folder / f"{file}.yaml")  # a copy of the source has the times of its files
    recipe = convert({"directory": str(folder), "pool": pool, "jobs": jobs}, Recipe)
    return Work(recipe, codes, total, tuple(sorted(set(features))), folder, total <= 12)


class Told(list[Event]):
    """The events of a command."""

    def __init__(self, invariants: Invariants, process: Process) -> None:
        super().__init__()
        self._invariants, self._process = invariants, process

    def append(self, event: Event) -> None:
        if isinstance(event, (RunAdopted, RunContinues)):
            self._invariants.count(f"feature: {'orphan adopted' if isinstance(event, RunAdopted) else 'run left'}")
        if isinstance(event, (JobAdded, PoolAdded)):
            self._invariants.claimed("job" if isinstance(event, JobAdded) else "pool", event.subject)
        super().append(event)

    @property
    def text(self) -> str:
        return "\n".join((*(event.text for event in self), "".join(self._process.output)))


class Checks:
    """What holds after a command."""

    def __init__(self, service: Service, invariants: Invariants, runs: Path) -> None:
        self.service, self.invariants, self.runs = service, invariants, runs
        self.codes: dict[str, dict[str, int]] = {}
        """By job: the last exit code of each task."""
        self._fetched: dict[Path, set[str]] = {}
        """By run directory: the files that its record has named as fetched."""

    @property
    def elsewhere(self) -> Path:
        """The runs directory of another machine."""
        return self.runs.with_name("elsewhere")

    @property
    def process(self) -> str:
        """The name of the process that runs."""
        fiber = current()
        return fiber.process.name if fiber else ""

    def standing(self, work: Work) -> dict[str, int] | None:
        """The pool and the job of a recipe that exist, with their numbers; None while the service is down."""
        driver = self.service.driver
        if driver is None or work.recipe.pool is None:
            return None
        entries: dict[str, Any] = {
            f"pool del {work.recipe.pool.id}": driver.world.pools.get(work.recipe.pool.id),
            f"jobs del {work.recipe.jobs[0].id}": driver.world.jobs.get(work.recipe.jobs[0].id),
        }
        return {name: entry.record.seq for name, entry in entries.items() if entry and entry.record.state != "deleting"}

    def job(self, work: Work) -> Any:
        """The job of a recipe with its tasks; None while there is none, or the service is down."""
        driver = self.service.driver
        return driver.world.jobs.get(work.recipe.jobs[0].id) if driver is not None else None

    def listed(self, work: Work, job: Any) -> None:
        """A list of the tasks of a job has all that it has before and after."""
        before = self._tasks(work)
        listed = {task.id.lower() for task in job.iter_tasks()}
        if lost := {name for name, _ in before & self._tasks(work)} - listed:
            self.invariants.fail(f"a list has all tasks of a job: not {sorted(lost)}")

    def _tasks(self, work: Work) -> set[tuple[str, int]]:
        """The ids of the tasks of the job of a recipe, in lower case, each with the number of the job."""
        entry = self.job(work)
        return {(name, entry.record.seq) for name in entry.tasks} if entry is not None else set()

    def has_job_of(self, work: Work, run: str) -> bool:
        """Whether the job of a recipe is there, and was added by a run."""
        entry = self.job(work)
        return entry is not None and marks_of(tuple(entry.record.spec.get("metadata", ()))).run == run

    def node(self, work: Work) -> str:
        """The id of a node of the pool of a recipe, or a text that is none."""
        driver = self.service.driver
        entry = driver.world.pools.get(work.pool_id) if driver is not None else None
        return next((node.id for node in entry.nodes.values()), "none") if entry is not None else "none"

    def is_too_small(self, work: Work) -> bool:
        """Whether the pool of a recipe has fewer nodes than the recipe says, such as after a quota."""
        driver, pool = self.service.driver, work.recipe.pool
        entry = driver.world.pools.get(pool.id) if driver is not None and pool is not None else None
        return entry is not None and pool is not None and len(entry.nodes) < pool.vm_count.total

    def nothing_unnamed(
        self, work: Work, told: Told, error: BaseException | None, before: dict[str, int] | None
    ) -> None:
        """After a command nothing is left that it created and did not name with the command that deletes it."""
        after = self.standing(work)
        if before is None or after is None:
            return
        for name, number in after.items():
            if before.get(name) != number and name not in f"{told.text}\n{error}":
                self.invariants.fail(f"after a command nothing is left that was not named: no `{name}` in {error!r}")

    def all_results(self) -> None:
        """The records of all runs tell the truth about the disk, also after a command that failed or died."""
        for root in (self.runs, self.runs.with_name("rival"), self.elsewhere):
            self.results(directory.runs(root))

    def results(self, directories: Iterable[Any]) -> None:
        """Results on disk equal those that were written."""
        for run in directories:
            for file in run.files():
                self._result(run.path, file)
            fetched = {file.fetched for file in run.files() if file.fetched.startswith("outputs/")}
            if lost := self._fetched.get(run.path, set()) - fetched:
                self.invariants.fail(f"no result that was listed is lost: {sorted(lost)[0]} of {run.name}")
            self._fetched[run.path] = fetched
            with contextlib.suppress(NotFound):  # its client died before it wrote the record
                self._record(run, run.record())
                if TOKEN in (run.path / "run.json").read_text():
                    self.invariants.fail(f"no secret is recorded: {run.name} has that of a task")

    def _record(self, run: Any, record: Any) -> None:
        """The record of a run has the truth about its tasks."""
        codes, tasks = self.codes.get(record.job, {}), run.tasks()
        for task in tasks:
            if task.state == "completed" and task.exit_code not in (None, RETRIED, codes.get(task.id, task.exit_code)):
                self.invariants.fail(f"the record of a run is true: {task.id} of {run.name} has {task.exit_code}")
        if record.state == "completed" and (not tasks or any(codes.get(task.id) for task in tasks)):
            self.invariants.fail(f"the record of a run is true: {run.name} is completed, with {len(tasks)} tasks")

    def written(self, process: Process) -> None:
        """After a command that ended well, a run of which it has recorded that all results are here has them."""
        for path in dict.fromkeys(lease.path.parent for lease in process.leases):
            run = directory.RunDirectory(path)
            record = run.record_or_none()
            if record is None or record.results != "complete":
                continue
            codes = self.codes.get(record.job, {})
            successful = {task.id for task in run.tasks() if task.result == "success" and codes.get(task.id) == 0}
            if lost := successful - self._with_result(run):
                self.invariants.fail(f"the record of a run is true: {run.name} has all results, but of {sorted(lost)}")
            ran = {task.id for task in run.tasks() if task.exit_code is not None and task.id in codes}
            if lost := {name for name in ran if not (run.logs(name) / "stdout.txt").is_file()}:
                self.invariants.fail(f"a run that says complete has the stdout of every task: not of {sorted(lost)}")

    def interrupted(self, work: Work, process: Process) -> None:
        """After a command that failed, no run waits for a job that the service does not have."""
        for path in dict.fromkeys(lease.path.parent for lease in process.leases):
            record = directory.RunDirectory(path).record_or_none()
            is_gone = self.service.driver is not None and not self.has_job_of(work, path.name)
            if is_gone and record is not None and record.state == "detached" and not process.has_bad_disk:
                self.invariants.fail(f"the record of a run is true: {path.name} is detached, and its job is gone")

    @staticmethod
    def _with_result(run: Any) -> set[str]:
        """The tasks of a run whose result is here."""
        return {file.task for file in run.files() if file.fetched and file.path.endswith("result.txt")}

    def _result(self, run: Path, file: FileRecord) -> None:
        if not file.fetched:
            return
        target = run / file.fetched
        if not target.exists() or target.stat().st_size != file.size:
            size = target.stat().st_size if target.exists() else None
            text = f"{file.fetched} of {run.name} has {size} bytes, and not {file.size}"
            self.invariants.fail(f"results on disk equal those written: {text}")
        elif file.path.endswith("result.txt"):
            line = target.read_text().splitlines()
            if len(line) != 20 or len(set(line)) != 1:
                self.invariants.fail(f"results on disk equal those written: the content of {file.fetched}")

    def outcome(self, work: Work, tasks: Iterable[Any], failure: TaskFailed | None) -> None:
        """The exit code is that of a failure."""
        for task in tasks:
            expected = work.codes.get(task.id) if task.state == "completed" else None
            if task.failure.code == "TaskEnded" and task.exit_code == RETRIED:  # its job ended before the retry began
                continue
            if expected is not None and task.exit_code not in (None, expected):
                self.invariants.fail(f"exit codes: {task.id} ended with {task.exit_code}, not {expected}")
        failing = {code for code in work.codes.values() if code}
        if failure is None and failing:
            self.invariants.fail(f"exit code and cause are those of the first failure: none, and {failing} failed")
        states = {task.id: task for task in tasks}
        first = states.get(failure.task.rpartition("/")[2]) if failure is not None else None
        if first is not None and first.state == "completed" and first.exit_code == 0:
            self.invariants.fail(f"exit code and cause are those of the first failure: {first.id} succeeded")
        if first is not None and failure is not None and failure.code not in (None, first.exit_code):
            text = f"{failure.code} of {first.id}, which ended with {first.exit_code}"
            self.invariants.fail(f"exit code and cause are those of the first failure: {text}")

    def added(self, work: Work, told: Told) -> None:
        """A repeated `add` gives exactly the tasks of the recipe."""
        count = work.total
        for event in told:
            numbers = re.match(r"added ([\d,]+) tasks?(?:; ([\d,]+) existed)?", event.text)
            if isinstance(event, TasksAdded) and numbers and int(numbers[1]) + int(numbers[2] or 0) != count:
                self.invariants.fail(f"a repeated add gives exactly the wanted tasks: `{event.text}` of {count}")
        entry = self.job(work)
        count += "job manager" in work.features
        if entry is not None and entry.record.state == "active" and len(entry.tasks) != count:
            self.invariants.fail(f"a repeated add gives exactly the wanted tasks: {len(entry.tasks)} of {count}")

    def waited(self, work: Work, began: float) -> None:
        """A wait ends soon after the last task, or after it began itself: the service may be away, and clocks step."""
        entry = self.job(work)
        if entry is not None and (ended := self.invariants.ended_at(entry.record)) is not None:
            late = self.service.sim.loop.now - max(began, ended)
            if late > OVER_TIME:
                self.invariants.fail(f"no wait without a reason: {self.process} waited {late:.0f} s too long")

    def cost(self, work: Work, money: float, limit: float) -> None:
        """The nodes of a run cost at most its limit, and what they cost until its command has ended them."""
        pool = work.recipe.pool
        most = limit + PRICE * OVER_TIME / 3600 * (pool.vm_count.total if pool is not None else 0)
        if money > most:
            self.invariants.fail(f"a run costs at most its limit and its bound: {money:.2f} of {most:.2f}")

    def fetched(self, work: Work, run: Any) -> None:
        """A detached run that has ended well has the results of all tasks."""
        record = run.record()
        if record.state == "completed":
            self.complete(work, run)
            if failing := {code for code in work.codes.values() if code}:
                self.invariants.fail(f"exit code and cause are those of the first failure: none, and {failing} failed")

    def complete(self, work: Work, run: Any) -> None:
        """A command that succeeds has the results of all tasks."""
        successful = {name for name, code in work.codes.items() if not code}
        if work.has_all_results and (lost := successful - self._with_result(run)):
            self.invariants.fail(f"results on disk equal those written, or the exit code says not: {sorted(lost)}")
        if work.has_all_results and (results := run.record().results) != "complete":
            self.invariants.fail(f"the record of a run is true: {run.name} has all results, and says {results!r}")
        attempts = Counter(attempt.task for attempt in run.attempts())
        for task in run.each_task():
            if (number := number_of(task)) > 1 and attempts[task.id] != number:
                self.invariants.fail(
                    f"the record of a run is true: {attempts[task.id]} of {number} attempts of {task.id}"
                )


Verb = Callable[[bt.Client, Work, Told, Checks], None]


def account() -> Account:
    return Account(ENDPOINT, ACCOUNT, Secret(KEY))


def _run(client: bt.Client, work: Work, told: Told, checks: Checks, *, reuse: bool = False) -> None:
    error: BaseException | None = None
    before = checks.standing(work)
    try:
        result = client.run(
            work.recipe, tell=told.append, reuse=reuse, timeout=LIMIT, check=False, runs_dir=checks.runs
        )
        checks.outcome(work, result.tasks, result.failure)
        if result.failure is None:
            for one in result.runs:
                checks.complete(work, one.directory)
    except (BatchtrainError, KeyboardInterrupt) as exception:
        error = exception
        raise
    finally:
        if not reuse:
            checks.nothing_unnamed(work, told, error, before)


def run(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    _run(client, work, told, checks)


def run_by_two(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Two clients run the same recipe at once: one of them is refused."""

    def rival() -> None:
        with contextlib.suppress(BatchtrainError):
            other = Told(checks.invariants, process)
            bt.Client(account()).run(work.recipe, tell=other.append, timeout=LIMIT, check=False, runs_dir=runs)

    runs = checks.runs.with_name("rival")
    process = Process(f"rival of {checks.process}", checks.service.sim)
    process.start(rival)
    with contextlib.suppress(BatchtrainError):
        client.run(work.recipe, tell=told.append, timeout=LIMIT, check=False, runs_dir=checks.runs)


def run_reuse(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    _run(client, work, told, checks, reuse=True)


def pool_add(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    assert work.recipe.pool is not None
    if client.pools.stands(work.recipe.pool.id):
        client.pools.wait(work.recipe.pool.id, timeout=LIMIT, tell=told.append)
    else:
        client.pools.add(work.recipe, timeout=LIMIT, tell=told.append)


def jobs_add(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    client.jobs.add(work.recipe, timeout=LIMIT, tell=told.append)
    checks.added(work, told)


def wait(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    began = checks.service.sim.loop.now
    job, client.display = client.jobs.handle(work.recipe.jobs[0].id), random.random() < 0.5
    if client.display:
        job.wait(timeout=LIMIT)
    else:
        job.wait(timeout=LIMIT, tell=told.append)
    checks.waited(work, began)
    checks.listed(work, job)


def fetch(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    client.jobs.handle(work.recipe.jobs[0].id).fetch(Origin(checks.runs))


def fetch_from_lost_nodes(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Another client deletes the pool while the results are fetched."""

    def rival() -> None:
        time.sleep(random.random() * 2)
        with contextlib.suppress(BatchtrainError):
            bt.Client(account()).pools.delete(work.pool_id, wait=False, tell=lambda event: None)

    Process(f"rival of {checks.process}", checks.service.sim).start(rival)
    fetch(client, work, told, checks)


def terminate(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    client.jobs.handle(work.recipe.jobs[0].id).terminate()


def requeue(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    client.jobs.handle(work.recipe.jobs[0].id).resubmit_failed(tell=told.append)


def jobs_del(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    client.jobs.handle(work.recipe.jobs[0].id).delete(tell=told.append)


def jobs_del_by_two(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Two clients delete the job at once."""

    def rival() -> None:
        with contextlib.suppress(BatchtrainError):
            bt.Client(account()).jobs.handle(work.recipe.jobs[0].id).delete(tell=lambda event: None)

    Process(f"rival of {checks.process}", checks.service.sim).start(rival)
    jobs_del(client, work, told, checks)


def schedule(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """A job schedule that creates jobs for some hours, and is deleted."""
    recipe = scheduled(work)
    name = recipe.jobs[0].id
    with contextlib.suppress(AlreadyExists):  # by this command before its death
        client.jobs.add_all(recipe, timeout=LIMIT, tell=told.append)
    time.sleep(3 * 3600)
    client.jobs.schedule(name).terminate()
    with contextlib.suppress(NotFound):
        client.jobs.schedule(name).delete()
    driver = checks.service.driver
    if driver is not None and (jobs := [key for key in driver.world.jobs if key.startswith(f"{name}:")]):
        checks.invariants.fail(f"after a command nothing is left: the jobs {jobs} of a deleted schedule")


def scheduled(work: Work) -> Recipe:
    """The same pool with a job schedule of one task."""
    assert work.recipe.pool is not None
    job = {
        "id": f"schedule-{work.recipe.pool.id}", "recurrence": {"schedule": {"recurrence_interval": "01:00:00"}},
        "auto_complete": True, "tasks": [{"id": "only", "command": "sim 60 0"}],
    }  # fmt: skip
    return msgspec.structs.replace(work.recipe, jobs=convert([job], tuple[Job, ...]))


def pool_del(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    assert work.recipe.pool is not None
    client.pools.delete(work.recipe.pool.id, tell=told.append)


def pool_del_by_two(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Two clients delete the pool at once."""

    def rival() -> None:
        with contextlib.suppress(BatchtrainError):
            bt.Client(account()).pools.delete(work.pool_id, tell=lambda event: None)

    Process(f"rival of {checks.process}", checks.service.sim).start(rival)
    pool_del(client, work, told, checks)


# --- the command line ------------------------------------------------------------------------------------------------

CODES = frozenset({0, 3, 4, 5, 6, 7, 8, 10, 130})
"""The exit codes of commands that have no bug and are called as they should be; 2 is also that of a bad disk, and of a
gang that is larger than its pool."""


class Exited(BatchtrainError):
    """A command of the command line failed."""


def cli(work: Work, checks: Checks, *words: str, runs: Path | None = None, allowed: tuple[int, ...] = ()) -> int:
    """The exit code of a command. runs: the runs directory of its machine, if it is another one. allowed: further exit
    codes that are no bug."""
    sys.argv = ["batchtrain", *words, "--configdir", str(work.folder), "--runs-dir", str(runs or checks.runs)]
    try:
        command_line.main()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    fiber = current()
    assert fiber is not None
    last = "".join(fiber.process.output).replace(str(work.folder.parent), "…")[-600:]
    fiber.process.sim.note(f"{fiber.process.name} exits with {code}: {last if code else ''}")
    if code not in (*CODES, *allowed) and not (code == 2 and (fiber.process.has_bad_disk or checks.is_too_small(work))):
        checks.invariants.fail(f"no command ends with a bug: {words} exits with {code}: {last}")
    return code


def _verb(name: str, *words: str) -> Verb:
    """A command of the command line about a job or a pool."""

    def verb(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
        subject = work.pool_id if words[0] == "pool" else work.recipe.jobs[0].id
        before = checks.standing(work)
        code = cli(work, checks, *(word.format(subject) for word in words))
        if code and "add" in words:
            checks.nothing_unnamed(work, told, None, before)
        if code == 3:
            raise NotFound("exit code 3", operation=name)
        if code:
            raise Exited(f"exit code {code}")

    verb.__name__ = f"cli_{name}"
    return verb


def cli_run(client: bt.Client, work: Work, told: Told, checks: Checks, *options: str) -> None:
    before = checks.standing(work)
    code = 130
    try:
        code = cli(work, checks, "run", str(work.folder), "--timeout", str(LIMIT), *options)
    finally:
        if not options:
            checks.nothing_unnamed(work, told, None, before)
    failing = {code for code in work.codes.values() if code}
    if code == 0 and failing:
        checks.invariants.fail(f"exit code and cause are those of the first failure: 0, and {failing} failed")
    if code == 10 and not failing and work.has_all_results:
        checks.invariants.fail("exit code and cause are those of the first failure: 10, and no task fails")
    if code == 0:
        checks.complete(work, directory.find(checks.runs, _RUN.findall(told.text)[-1]))
    elif code != 10:
        raise Exited(f"exit code {code}")


def cli_run_reuse(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    cli_run(client, work, told, checks, "--reuse")


_RUN = re.compile(r"\d{8}T\d{6}Z-[\w.-]+-[0-9a-f]{4}")

cli_pool_add = _verb("pool_add", "pool", "add", "--timeout", str(LIMIT))
cli_jobs_add = _verb("jobs_add", "jobs", "add", "--timeout", str(LIMIT))
cli_jobs_wait = _verb("jobs_wait", "jobs", "wait", "{}", "--timeout", str(LIMIT))
cli_jobs_fetch = _verb("jobs_fetch", "jobs", "fetch", "{}")
cli_jobs_resubmit = _verb("jobs_resubmit", "jobs", "resubmit", "{}", "--failed")
cli_jobs_del = _verb("jobs_del", "jobs", "del", "{}", "-y")
cli_pool_del = _verb("pool_del", "pool", "del", "{}", "-y")


# --- detached runs ---------------------------------------------------------------------------------------------------


def cli_run_detach(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """The service ends the run: `Invariants.settled` says whether it does. A user who finds a part of the job after an
    interrupt begins again, or leaves it."""
    job = work.recipe.jobs[0].id
    checks.invariants.detached.add(job)
    entry = checks.job(work)
    if entry is not None:
        if len(entry.tasks) == work.total + ("job manager" in work.features) or random.random() < 0.3:
            return
        cli(work, checks, "jobs", "del", job, "-y")
    code = cli(work, checks, "run", str(work.folder), "--detach", "--max-duration", WALL_CLOCK)
    if code == 0 and checks.service.driver is not None and checks.job(work) is None:
        checks.invariants.fail(f"no accepted job is lost: {job} is not there after run --detach")
    if code:
        raise Exited(f"exit code {code}")


def find_detached(work: Work, checks: Checks) -> str:
    """The newest run of the job that is detached. Raises NotFound."""
    for run in reversed(list(directory.runs(checks.runs))):
        with contextlib.suppress(NotFound):
            record = run.record()
            if record.job == work.recipe.jobs[0].id and record.state in ("detached", "completed", "failed"):
                return run.name
    raise NotFound("no run is detached", operation="find")


def cli_runs_attach(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Follow the run on another machine."""
    name = find_detached(work, checks)
    code = cli(work, checks, "runs", "attach", name, "--timeout", "9000", runs=checks.elsewhere)
    failing = {code for code in work.codes.values() if code}
    if code == 0 and failing:
        checks.invariants.fail(f"exit code and cause are those of the first failure: 0, and {failing} failed")
    if code == 3 and checks.has_job_of(work, find_detached(work, checks)):
        checks.invariants.fail("a detached run is there for every machine: `runs attach` exits with 3")
    if code not in (0, 10):
        raise Exited(f"exit code {code}")
    checks.fetched(work, directory.find(checks.elsewhere, find_detached(work, checks)))


def cli_runs_fetch(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Fetch, and once more, which changes nothing if the job had ended. A run that failed while it added its tasks has
    ended before its job, which it names as left."""
    name, entry, before = find_detached(work, checks), checks.job(work), dict[str, bytes]()
    had_ended = entry is not None and entry.record.state == "completed" and checks.has_job_of(work, name)
    for is_again in (False, True):
        if code := cli(work, checks, "runs", "fetch", name):
            raise Exited(f"exit code {code}")
        after = _contents(checks.runs / name)
        changed = [path for path in before | after if before.get(path) != after.get(path)]
        if is_again and had_ended and changed:
            checks.invariants.fail(f"a run that has ended is fetched again and changes: {name}, {', '.join(changed)}")
        before = after
    checks.fetched(work, directory.find(checks.runs, name))


def cli_runs_stop(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    if code := cli(work, checks, "runs", "stop", find_detached(work, checks), "-y"):
        raise Exited(f"exit code {code}")


def later(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """No client comes for some time, in which the service may have ended the run."""
    time.sleep(random.choice((60, 600, 1800, 7200)))


# --- storage ---------------------------------------------------------------------------------------------------------


def _contents(folder: Path) -> dict[str, bytes]:
    """The files of a directory, without the locks and unfinished downloads."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lease.json" and not path.name.startswith(".")
    }


def _synced(work: Work, checks: Checks, *words: str) -> None:
    """`data sync`, after which both sides are the same."""
    if code := cli(work, checks, "data", "sync", *words, "--delete", "-y"):
        raise Exited(f"exit code {code}")
    box = f"data-{work.recipe.jobs[0].id}"
    stored = {name: blob.data for name, blob in checks.service.storage.containers[box].items()}
    for name, blob in checks.service.storage.containers[box].items():
        if blob.md5 != md5_of(blob.data):
            checks.invariants.fail(f"a blob is stored with the MD5 of its bytes: not {name}")
    folder = next(word for word in words if word.startswith("/"))
    if _contents(Path(folder)) != stored:
        checks.invariants.fail(f"both sides of a sync are the same: {words}".replace(str(work.folder.parent), "…"))


def cli_data_up(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Upload files, after some were changed, added and deleted."""
    folder = work.folder / "data"
    rng = random.Random(checks.process)
    for number in range(6):
        path = folder / f"part-{number % 2}" / f"{number} & more.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        if rng.random() < 0.5:
            path.write_bytes(rng.randbytes(rng.choice((0, 10, 499, 500, 501, 2600))))
            os.utime(path)
        elif rng.random() < 0.3:
            path.unlink(missing_ok=True)
    if not _contents(folder):
        (folder / "only").write_bytes(b"")
    _synced(work, checks, str(folder), f"{LINK}/data-{work.recipe.jobs[0].id}")


def cli_data_down(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Download files to another directory."""
    _synced(work, checks, f"{LINK}/data-{work.recipe.jobs[0].id}", str(work.folder / "copy"))
