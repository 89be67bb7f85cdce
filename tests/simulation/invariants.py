"""What must hold: checked at every commit of the service, at every command, and at the end."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from batchtrain.emulator import states, wire
from batchtrain.emulator.interface import Exit, Run
from batchtrain.emulator.records import Job, Node, Pool, Task
from batchtrain.emulator.world import Change, World, job_wall_clock, task_document
from batchtrain.life import intents
from batchtrain.life.intents import Effect, Intent
from batchtrain.plan.marks import marks_of
from batchtrain.runs.lease import Lease
from tests.simulation import owned
from tests.simulation.owned import Process, Simulation


class Violation(BaseException):
    """An invariant does not hold. Nothing of the product catches it."""


def _reachable(table: states.Table) -> dict[str, set[str]]:
    """The states that follow each state, over any number of steps."""
    after: dict[str, set[str]] = {}
    for (state, _), following in table.items():
        after.setdefault(state, set()).add(following)
    for _ in after:  # no path is longer
        for nexts in after.values():
            nexts |= set[str]().union(*(after.get(state, set()) for state in nexts))
    return after


PASSWORD = "no-word-of-a-book"
"""Of all that the nodes of a pool sign in to."""
CORES = 4
"""The cores of each node."""
LATE = 600 * wire.SECOND
"""How long after its wall clock a job may end: clocks step."""
LATEST = 1200 * wire.SECOND
"""How long after its last task a detached run may end: its client may have died before it had added all tasks."""
TABLES = {"node": _reachable({**states.NODE, ("idle", "restart"): "unknown"}), "job": _reachable(states.JOB),
          "pool": _reachable(states.POOL), "schedule": _reachable(states.SCHEDULE)}  # fmt: skip


INTENTS: Mapping[str, Intent] = {
    **dict.fromkeys(
        ("run", "cli_run", "run_by_two", "run_left", "cli_run_max_price", "cli_run_max_duration"), intents.RUN
    ),
    **dict.fromkeys(("run_reuse", "cli_run_reuse"), intents.REUSE),
    **dict.fromkeys(("cli_run_detach", "detach_controller"), intents.DETACH),
    **dict.fromkeys(("pool_add", "pool_add_candidates", "cli_pool_add", "jobs_add", "cli_jobs_add"), intents.ADD),
    **dict.fromkeys(("fetch", "fetch_left", "cli_jobs_fetch", "cli_runs_fetch", "wait_detached"), intents.FETCH),
    "cli_run_keep": intents.KEEP, "cli_jobs_follow": intents.FOLLOW, "wait": intents.WAIT_QUIETLY,
    "cli_jobs_wait": intents.WAIT, "cli_runs_attach": intents.ATTACH, "cli_runs_stop": intents.STOP,
    "cli_runs_clean": intents.CLEAN, "cli_looks": intents.LOOK, "mistakes": intents.LOOK,
}  # fmt: skip
"""Of the verbs of users."""
ADDED = ("pools", "jobs", "jobschedules", "tasks", "addtaskcollection")


def _effect(verb: str, path: str) -> Effect:
    """What a request does."""
    last = path.lower().rstrip("/").rpartition("/")[2]
    if verb == "DELETE":
        return "delete"
    return "stop" if last in ("terminate", "disable") else "add" if last in ADDED else "change"


def _passwords(document: Any) -> Iterator[str]:
    """The secrets in what a client sends."""
    if isinstance(document, dict):
        yield from (str(document[name]) for name in ("password", "sshPrivateKey") if name in document)
    for value in document.values() if isinstance(document, dict) else document if isinstance(document, list) else ():
        yield from _passwords(value)


class Owner(NamedTuple):
    """Who has added a thing, and uses it until it has ended: the process, and its run with its lease, if it has one."""

    process: Process
    run: str
    lease: Lease | None

    @property
    def uses_it(self) -> bool:
        is_released = self.lease is not None and self.lease._descriptor is None
        return self.process.alive and not self.process.has_ended and not is_released


class Invariants:
    """Observes the service from its store and its machine."""

    def __init__(self, sim: Simulation, counts: Counter[str]) -> None:
        self._sim, self._counts = sim, counts
        self._states: dict[tuple[str, str], tuple[int, str]] = {}
        """The number and the state of each node, pool and job, as they are stored."""
        self._runs: dict[tuple[str, str], tuple[int, int, str]] = {}
        """By job and task number: runs, recorded reasons and state."""
        self._tasks: dict[str, dict[str, tuple[str, str]]] = {}
        """By job number: the ids and states of tasks by their numbers, as they are stored."""
        self._listed: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By job number: how many tasks are in each state, as they are stored."""
        self._last_ends: Counter[str] = Counter()
        """By job number: when its last task ended."""
        self._last_moves: dict[str, float] = {}
        """The same in seconds since the start of the simulation, whatever clocks say."""
        self._ended: set[tuple[str, str]] = set()
        """The tasks that had ended when the service died, by job and task number."""
        self._prepared: set[str] = set()
        """The numbers of the jobs with a preparation task."""
        self._job_numbers: dict[str, str] = {}
        self._running: dict[int, tuple[str, Run]] = {}
        self._number = 0
        self._scopes: set[tuple[str, bool, str]] = set()
        self._attempts: Counter[str] = Counter()
        self.accepted: dict[str, set[str]] = {}
        """The tasks that the service has accepted, by the id of their job."""
        self._reactivations: Counter[tuple[str, str]] = Counter()
        """By job and task: how often a client asks for it, without the times that a task did so."""
        self.detached: set[str] = set()
        """The jobs that `run --detach` adds."""
        self._auto_pools: set[str] = set()
        """The ids of the pools that the service made for jobs."""
        self._created: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        self._claims: Counter[tuple[str, str]] = Counter()
        self._accepted: set[tuple[str, str]] = set()
        """The pools and jobs that the service has accepted, by their kind and id."""
        self._owners: dict[tuple[str, str], Owner] = {}
        """By the collection and the id of each pool and job."""
        self._controlled: dict[Process, str] = {}
        """By controller: the run whose job it moves."""
        self._node_times: dict[str, tuple[str, float, float | None]] = {}
        """By node: its pool, and from when to when it is there."""
        self.violations: list[str] = []

    def count(self, name: str) -> None:
        """Something that is to occur has occurred."""
        self._counts[name] += 1

    def fail(self, text: str) -> None:
        """Note a violation; the simulation ends."""
        self._sim.note(f"VIOLATION {text}")
        self.violations.append(text)
        self._sim.loop.stop()

    # --- the store ---------------------------------------------------------------------------------------------------

    def committed(self, changes: Iterable[Change], world: World | None) -> None:
        nodes: set[str] = set()
        kinds: set[str] = set()
        for change in changes:
            kinds.add(change.kind)
            if change.kind == "node":
                self._billed(change)
            if change.record is None:
                self._sim.note(f"{change.kind} {change.owner} {change.key} dropped")
                self._dropped(change)
                continue
            record: Any = change.record
            self._counts["state changes"] += 1
            self._sim.note(f"{change.kind} {change.owner} {change.key} {record.state}")
            if change.kind in TABLES:
                self._moved(change.kind, f"{change.owner}/{change.key}", record)
            if isinstance(record, (Job, Pool)):
                self._created[change.kind, change.key].add(record.seq)
            if isinstance(record, Job):
                self._auto_pools |= {record.auto_pool} - {""}
                if self._job_numbers.get(change.key) != str(record.seq):  # another one of the same id
                    self.accepted.pop(change.key, None)
                self._job_numbers[change.key] = str(record.seq)
                self._bounded(record)
                self._ended_in_time(record)
                if "jobPreparationTask" in record.spec:
                    self._prepared.add(str(record.seq))
            if isinstance(record, Task):
                self._task(change, record)
                nodes |= {instance.node for instance in record.instances}
        if world is not None:
            for node_id in nodes:
                self._slots(world, node_id)
            if "node" in kinds:
                self._quotas(world)
            if "task" in kinds:
                self._counters(world)

    def _billed(self, change: Change) -> None:
        key, now = f"{change.owner}/{change.key}", self._sim.loop.now
        if isinstance(change.record, Node):
            self._node_times.setdefault(key, (change.record.pool, now, None))
        elif key in self._node_times:
            self._node_times[key] = (*self._node_times[key][:2], now)

    def node_seconds(self, pool_id: str) -> float:
        """How long the nodes of a pool of this id were there, in all."""
        now = self._sim.loop.now
        times = (row[1:] for row in self._node_times.values() if row[0] == pool_id)
        return sum((now if end is None else end) - begin for begin, end in times)

    def touched(self, process: Process, verb: str, path: str) -> None:
        """The service has done what a process asked for: to nothing that another process has added and still uses. A
        run whose end is recorded has named what it leaves, and others may delete that."""
        if verb in ("GET", "HEAD"):
            return
        intent = INTENTS.get(process.name.partition("-")[2].partition("-")[2])
        if intent is not None and _effect(verb, path) not in intent.sends:
            self.fail(f"a command sends only what its intent says: {process.name} did {verb} {path}")
        match path.lower().strip("/").split("/"):
            case [("jobs" | "pools") as kind, name, *rest]:
                owner = self._owners.get((kind, name))
                is_task = rest[:1] in (["tasks"], ["addtaskcollection"])
                is_own = owner is None or owner.process == process or self._controlled.get(process) == owner.run
                if owner is not None and owner.uses_it and not is_own and not is_task:
                    self.fail(f"a thing of another run is never touched: {process.name} did {verb} {path},"
                              f" which {owner.process.name} has added")  # fmt: skip

    def created(self, process: Process, path: str, body: bytes) -> None:
        """The service has added what a process asked for. A user may end what a controller has added."""
        kind = path.lower().strip("/")
        if kind in ("jobs", "pools") and "user" in process.name:
            document = json.loads(body)
            if other := set(_passwords(document)) - {PASSWORD}:
                self.fail(f"the service receives the secrets of the credentials: not {other}")
            run = marks_of(document.get("metadata", ())).run
            lease = next((lease for lease in process.leases if lease.path.parent.name == run), None)
            self._owners[kind, document["id"].lower()] = Owner(process, run, lease)

    def controls(self, process: Process, run: str) -> None:
        """A process moves the job of a run, which may still be about to end its command."""
        self.count("feature: controller")
        self._controlled[process] = run

    def _bounded(self, job: Job) -> None:
        """Its tasks may never end, and no client would end it then."""
        if job.id in self.detached and not job_wall_clock(job):
            self.fail(f"a detached run has a wall clock at any time: {job.id} has none, and is {job.state}")

    def _ended_in_time(self, job: Job) -> None:
        """Nodes cost money until their job ends."""
        listed, late = self._listed[str(job.seq)], job.ended - self._last_ends[str(job.seq)]
        is_idle = listed["completed"] == listed.total() > 0
        if job.id in self.detached and job.reason == "MaxWallClockTimeExpiry" and is_idle and late > LATEST:
            self.fail(
                f"a detached run ends with its tasks: {job.id} ended {late / wire.SECOND:.0f} s after the last one"
            )

    def ended_at(self, job: Job) -> float | None:
        """When the last task of a job ended; None if one has not, or it has none."""
        listed = self._listed[str(job.seq)]
        return self._last_moves.get(str(job.seq)) if listed["completed"] == listed.total() > 0 else None

    def claimed(self, kind: str, name: str) -> None:
        """A command says that it added something: never more commands than things."""
        self._claims[kind, name] += 1
        if self._claims[kind, name] > len(self._created[kind, name]):
            self.fail(f"a thing belongs to one command: {self._claims[kind, name]} say that they added {kind} {name}")

    def _dropped(self, change: Change) -> None:
        if change.kind == "tasks":
            self._listed.pop(change.owner, None)
            for number in self._tasks.pop(change.owner, {}):
                self._runs.pop((change.owner, number), None)
        elif change.kind == "task" and (task := self._tasks.get(change.owner, {}).pop(change.key, None)):
            self._listed[change.owner][task[1]] -= 1
            for job, number in self._job_numbers.items():
                if number == change.owner:
                    self.accepted.get(job, set()).discard(task[0].lower())
        elif change.kind == "job":
            self.accepted.pop(change.key, None)
        self._accepted.discard((change.kind, change.key))
        self._states.pop((change.kind, f"{change.owner}/{change.key}"), None)

    def _moved(self, kind: str, name: str, record: Job | Node | Pool) -> None:
        number, before = self._states.get((kind, name), (0, None))
        before = before if number == record.seq else None  # another one of the same id
        restarts = kind == "node" and record.state == "unknown"
        if before not in (None, record.state) and record.state not in TABLES[kind].get(before, ()) and not restarts:
            self.fail(f"states change along the tables: {kind} {name} went from {before} to {record.state}")
        self._states[kind, name] = record.seq, record.state

    def _task(self, change: Change, task: Task) -> None:
        key, reasons = (change.owner, change.key), task.retries + task.requeues
        before = self._runs.get(key)
        again = before is not None and 0 < before[0] < task.run and before[2] != "completed"
        unexplained = before is not None and task.run - before[0] > reasons - before[1]
        if again and unexplained and change.owner not in self._prepared:
            self.fail(
                f"no task is started again without a recorded reason: task {task.id} of job {change.owner} has"
                f" {task.run} runs, {task.retries} retries and {task.requeues} requeues"
            )
        if before is None or task.run != before[0] or task.state == "completed":
            is_next = task.state == "active" and task.run > 0 and reasons > 0  # the last reason is that of the next run
            self._runs[key] = task.run, reasons - is_next, task.state
        tasks = self._tasks.setdefault(change.owner, {})
        if tasks.get(change.key, ("", ""))[1] == "completed" != task.state:
            self._reactivated(change.owner, task)
        listed = self._listed[change.owner]
        if change.key in tasks:
            listed[tasks[change.key][1]] -= 1
        listed[task.state] += 1
        tasks[change.key] = task.id, task.state
        if task.state == "completed":
            self._last_ends[change.owner] = max(self._last_ends[change.owner], task.state_time)
            self._last_moves[change.owner] = self._sim.loop.now
        if task.state == "running" and task.instances:
            if task.gang and len(task.instances) != task.gang:
                self.fail(f"a gang starts whole: task {task.id} has {len(task.instances)} of {task.gang} nodes")
            needed = task_document(task).get("dependsOn", {}).get("taskIds", [])
            for task_id, state in tasks.values() if needed and task.run <= 1 else ():
                if task_id in needed and state != "completed":
                    self.fail(f"a task waits for those that it depends on: {task.id} runs, {task_id} is {state}")

    def _reactivated(self, job_number: str, task: Task) -> None:
        job = next((name for name, number in self._job_numbers.items() if number == job_number), "").lower()
        self._reactivations[job, task.id.lower()] -= 1
        if self._reactivations[job, task.id.lower()] < 0:
            self.fail(f"states change along the tables: task {task.id} of {job} has ended, and is {task.state}")

    def _slots(self, world: World, node_id: str) -> None:
        pool = world.pool_of_node.get(node_id)
        if pool is None:
            return
        slots = int(pool.record.spec["taskSlotsPerNode"])
        used = sum(slots if task.exclusive else task.slots for task in pool.running[node_id].values())
        if used > slots:
            self.fail(f"slots are never exceeded: node {node_id[:14]} has {used} of {slots} in use")

    def _quotas(self, world: World) -> None:
        """A node counts until it is gone."""
        nodes = [node for pool in world.pools.values() for node in pool.nodes.values()]
        for kind, most in ((True, world.quotas.dedicated_cores), (False, world.quotas.low_priority_cores)):
            cores = CORES * sum(node.dedicated == kind for node in nodes)
            if most is not None and cores > most:
                name = "dedicated" if kind else "low-priority"
                self.fail(f"quotas are never exceeded: {cores} of {most} {name} cores")

    def _counters(self, world: World) -> None:
        for entry in world.jobs.values():
            listed = self._listed[str(entry.record.seq)]
            running = listed["running"] + listed["preparing"]
            counted = {state: entry.counts[state] for state in ("active", "running", "completed")}
            if counted != {"active": listed["active"], "running": running, "completed": listed["completed"]}:
                self.fail(f"counters equal lists: job {entry.record.id} counts {counted}, and has {dict(listed)}")

    def requested(self, path: str) -> None:
        """A client asks the service to change something: only then may a task that has ended start again."""
        match path.lower().strip("/").split("/"):
            case ["jobs", job, "tasks", task, "reactivate"]:
                self._reactivations[job, task] += 1

    def answered(self, path: str, status: int, body: bytes, content: bytes) -> None:
        """The service has accepted what it answers with success; a client may know it from now on."""
        match path.lower().strip("/").split("/"), status:
            case ["pools"], 201:
                self._accepted.add(("pool", json.loads(body)["id"].lower()))
            case ["jobs"], 201:
                self._accepted.add(("job", json.loads(body)["id"].lower()))
            case ["jobs", job, "tasks"], 201:
                self.accepted.setdefault(job, set()).add(json.loads(body)["id"].lower())
            case ["jobs", job, "addtaskcollection"], 200:
                results = json.loads(content)["value"]
                added = {result["taskId"].lower() for result in results if result["status"].lower() == "success"}
                self.accepted.setdefault(job, set()).update(added)

    # --- the process of the service ----------------------------------------------------------------------------------

    def died(self) -> None:
        self._running = {}
        self._ended = {(job, number) for job, tasks in self._tasks.items()
                       for number, (_, state) in tasks.items() if state == "completed"}  # fmt: skip

    def loaded(self, changes: Iterable[Change]) -> None:
        """What the service finds when it starts: nothing of what was deleted."""
        changes = tuple(changes)
        jobs = {str(change.record.seq) for change in changes if isinstance(change.record, Job)}
        for change in changes:
            if change.kind in ("task", "met", "jobnode") and change.owner not in jobs:
                self.fail(f"nothing of a deleted job stays in the store: a {change.kind} of job {change.owner}")

    def restarted(self, world: World) -> None:
        """A restart gives the same world."""
        for kind, name in self._accepted:
            if name not in (world.pools if kind == "pool" else world.jobs):
                self.fail(f"nothing accepted is lost: {kind} {name} is gone after a restart")
        stored = {kind: {name.strip("/") for k, name in self._states if k == kind} for kind in ("pool", "job")}
        for kind, names in (("pool", set(world.pools)), ("job", set(world.jobs))):
            if names != stored[kind]:
                self.fail(f"a restart gives the same world: it has the {kind}s {names}, and stored {stored[kind]}")
        for entry in world.jobs.values():
            numbers = self._tasks.get(str(entry.record.seq), {})
            if set(entry.tasks) != {task_id.lower() for task_id, _ in numbers.values()}:
                self.fail(f"a restart gives the same world: other tasks in job {entry.record.id}")
        self._counters(world)
        for job, number in self._ended:
            if self._tasks.get(job, {}).get(number, ("", "completed"))[1] != "completed":
                self.fail(f"a restart gives the same world: task {number} of job {job} has ended no more")
        for job_id, tasks in self.accepted.items():
            job_entry = world.jobs.get(job_id)
            if job_entry is not None and job_entry.record.state == "active":
                for task_id in tasks:
                    if job_entry.tasks.get(task_id) is None:
                        self.fail(f"no accepted task is lost: {job_id}/{task_id} is gone after a restart")

    # --- the machine -------------------------------------------------------------------------------------------------

    def begun(self, node_id: str, run: Run) -> int:
        for other_node, other in self._running.values():
            if other.directory == run.directory and other.scope != run.scope and other_node == node_id:
                self.fail(f"two attempts never run at once: {run.directory} as {other.scope} and {run.scope}")
        scope = run.scope, run.stays, node_id
        if scope in self._scopes:
            self.fail(f"no task is started again without a recorded reason: {run.scope} of {run.directory} ran twice")
        self._scopes.add(scope)
        self._counts["runs of commands"] += 1
        self._number += 1
        self._running[self._number] = node_id, run
        return self._number

    def attempt(self, run: Run) -> int:
        """How many runs of the task have ended."""
        return self._attempts[run.directory]

    def exited(self, run: Run, outcome: Exit) -> None:
        if outcome.code is not None and outcome.code != 143:
            self._attempts[run.directory] += 1

    def ended(self, number: int) -> None:
        self._running.pop(number, None)

    def lost(self, node_id: str) -> None:
        """A node is gone, and with it what runs there, also an upload."""
        self._running = {number: row for number, row in self._running.items() if row[0] != node_id}

    # --- the end -----------------------------------------------------------------------------------------------------

    def settled(self, world: World) -> None:
        """After the last fault everything settles."""
        self._counters(world)
        now = wire.from_unix_ns(owned.now_ns())
        for entry in world.jobs.values():
            if entry.record.state in ("terminating", "deleting", "disabling", "enabling"):
                self.fail(f"everything settles: job {entry.record.id} is still {entry.record.state}")
            limit = entry.record.created + job_wall_clock(entry.record)
            if limit > entry.record.created and entry.record.state != "completed" and now > limit + LATE:
                self.fail(f"the service ends a job at its wall clock: {entry.record.id} is {entry.record.state}")
            if entry.record.id in self.detached and entry.record.state != "completed":
                self.fail(f"the service ends a detached run: {entry.record.id} is {entry.record.state}")
        alive = {entry.record.auto_pool for entry in world.jobs.values() if entry.record.state != "completed"}
        alive |= {entry.record.auto_pool for entry in world.schedules.values()}
        for pool in world.pools.values():
            if pool.record.id in self._auto_pools - alive:
                self.fail(f"an automatic pool ends with its job: {pool.record.id} is {pool.record.state}")
            if pool.record.state == "deleting" or pool.record.allocation != "steady":
                self.fail(f"everything settles: pool {pool.record.id} is {pool.record.state}, {pool.record.allocation}")
