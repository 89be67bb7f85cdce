"""The emulated account: records with their indices, and the journal of changes; pure.

The operations are in `pools`, `jobs` and `tasks`, the machine's reports in `reports`. This module uses no clock, socket
or file: time is an argument, and ids come from a counter that is stored with the rest.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from batchtrain.catalog import vm_images
from batchtrain.catalog.vm_images import Image
from batchtrain.emulator import records, states, wire
from batchtrain.emulator.autoscale_samples import Load, Numbers
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.indexes import JobEntry, PoolEntry, ScheduleEntry
from batchtrain.emulator.injection import Injections
from batchtrain.emulator.interface import PackageFiles, Size
from batchtrain.emulator.pace import PACES, Pace
from batchtrain.emulator.task_table import Shelf

FIRST_HOST = 4
"""Azure reserves the first addresses of a subnet; nodes start at .4."""


BATCH_SERVICE, USER_SUBSCRIPTION = "BatchService", "UserSubscription"
"""Whose subscription has the nodes of the account. In the user's own, the account accepts tokens only."""


class Quotas(NamedTuple):
    """Quotas of the account; None for no limit."""

    pools: int | None = None
    dedicated_cores: int | None = None
    low_priority_cores: int | None = None
    active_jobs: int | None = None
    """Uncompleted jobs and active job schedules, together."""
    nodes: int = 256
    """Nodes of all pools. A resize beyond it ends with AccountCoreQuotaReached, as on an account."""


class Application(NamedTuple):
    """An application with packages in the data directory."""

    id: str
    versions: tuple[str, ...]
    default: str = ""
    """The version of a reference without one; empty if there is none."""


class LogUpload(NamedTuple):
    """A node's logs that must be uploaded to a container, below `directory`."""

    node: str
    container_url: str
    directory: str


KEPT = 1024
"""Stored tasks that stay in memory although nothing acts on them."""


class Change(NamedTuple):
    """One row to write, or to delete if it has no record. `owner` is the pool's key or the job's number; `key` is a
    task's number, and the id of other records."""

    kind: str
    owner: str
    key: str
    record: records.Record | None


class Deadline(NamedTuple):
    """A time at which something is due: `what`, for the record with number `seq` and this key. It may be late or
    obsolete: its handler checks whether it still applies."""

    at: int
    seq: int
    what: str
    key: str
    task: str = ""
    run: int = 0


class Touched(NamedTuple):
    """What to check after a change."""

    pools: tuple[str, ...]
    jobs: tuple[str, ...]
    tasks: tuple[records.Task, ...]
    expired: tuple[Deadline, ...]
    schedules: tuple[str, ...] = ()
    job_nodes: tuple[records.JobNode, ...] = ()
    now: int = 0


class World:
    """One account. `network` is the second octet of its nodes' addresses; `seed` makes its node ids unique."""

    def __init__(
        self,
        account: str = "batchtrain",
        endpoint: str = "http://127.0.0.1:10010",
        seed: str = "",
        network: int = 1,
        find_size: Callable[[str], Size | None] = lambda vm_size: Size(),
        images: Callable[[], tuple[Image, ...]] = lambda: vm_images.EVERY,
        quotas: Quotas | None = None,
        applications: Callable[[], tuple[Application, ...]] = tuple,
        load: Callable[[], Load] = Load,
        pace: Pace = PACES["instant"],
        allocation: str = BATCH_SERVICE,
        package_files: PackageFiles | None = None,
    ) -> None:
        self.package_files = package_files
        self.identity_authority: Callable[[str], str] | None = None
        """The address at which the nodes of a pool get tokens of the pool's identities."""
        self.allocation = allocation
        self.pace = pace
        self.quotas, self.applications, self.load = quotas or Quotas(), applications, load
        self.capacity: dict[str, int] = {}
        """How many nodes the region has of a VM size, by its normalized name; of others there is no limit."""
        self.account, self.endpoint, self.seed, self.network = account, endpoint, seed, network
        self.find_size = find_size
        self.images = images
        self.shelf = Shelf()
        """The tasks in memory, and where the others are read."""
        self.rubbish: list[tuple[str, str]] = []
        """Directories to delete: a node's root and a path below it."""
        self._on_disk: set[str] = set()
        """Pools whose nodes keep files."""
        self.injections = Injections()
        """Injected faults."""
        self.last_seq = 0
        self._last_tag = 0
        self.forget_all()

    # Finding -------------------------------------------------------------------------------------------------------

    def size_of(self, vm_size: str) -> Size:
        """The size of a pool; without cores if the pool is older than this check of sizes."""
        return self.find_size(vm_size) or Size()

    def pool(self, pool_id: str) -> PoolEntry:
        """The pool, or Fault 404."""
        if entry := self.pools.get(pool_id.lower()):
            return entry
        raise Fault("PoolNotFound")

    def node(self, pool_id: str, node_id: str) -> tuple[PoolEntry, records.Node]:
        """The pool and its node, or Fault 404."""
        entry = self.pool(pool_id)
        if node := entry.nodes.get(node_id.lower()):
            return entry, node
        raise Fault("NodeNotFound")

    def find_node(self, node_id: str, *phases: str) -> records.Node | None:
        """A node, if it is in one of these phases; without phases in any."""
        entry = self.pool_of_node.get(node_id)
        node = entry.nodes[node_id] if entry else None
        return node if node is None or not phases or node.phase in phases else None

    def job(self, job_id: str) -> JobEntry:
        """The job, or Fault 404."""
        if entry := self.jobs.get(job_id.lower()):
            return entry
        raise Fault("JobNotFound")

    def schedule(self, schedule_id: str) -> ScheduleEntry:
        """The job schedule, or Fault 404."""
        if entry := self.schedules.get(schedule_id.lower()):
            return entry
        raise Fault("JobScheduleNotFound")

    def task(self, job_id: str, task_id: str) -> tuple[JobEntry, records.Task]:
        """The job and its task, or Fault 404."""
        entry = self.job(job_id)
        if task := entry.tasks.get(task_id.lower()):
            return entry, task
        raise Fault("TaskNotFound")

    def waiting_jobs(self, pool_key: str) -> list[JobEntry]:
        """The active jobs of a pool with tasks that wait only for nodes, the highest priority first."""
        entries = self.jobs_of_pool.get(pool_key, {}).values()
        waiting = [entry for entry in entries if entry.ready and entry.record.state == "active"]
        return sorted(waiting, key=lambda entry: (-entry.record.spec.get("priority", 0), entry.record.seq))

    # Adding and dropping -------------------------------------------------------------------------------------------

    def new_seq(self) -> int:
        """The next number; never given twice."""
        self.last_seq += 1
        return self.last_seq

    def new_node_id(self, seq: int, *, dedicated: bool) -> str:
        """`tvmps_` + 64 hexadecimal digits + `_d` or `_p`, as the service names nodes."""
        digest = hashlib.sha256(f"{self.seed}/{seq}".encode()).hexdigest()
        return f"tvmps_{digest}_{'d' if dedicated else 'p'}"

    def free_addresses(self) -> Iterator[str]:
        """The free addresses; a node on a container network keeps the last two bytes of its own."""
        addresses = {node.address.split(".", 2)[2] for entry in self.pools.values() for node in entry.nodes.values()}
        for number in range(FIRST_HOST, 1 << 16):
            high, low = divmod(number, 256)
            if low not in (0, 255) and f"{high}.{low}" not in addresses:
                yield f"127.{self.network}.{high}.{low}"

    def add_pool(self, pool: records.Pool) -> PoolEntry:
        entry = self._index_pool(pool)
        self.save_pool(entry)
        return entry

    def drop_pool(self, entry: PoolEntry) -> None:
        del self.pools[entry.key]
        self._change("pool", "", entry.key, None)

    def add_node(self, entry: PoolEntry, node: records.Node) -> None:
        self._index_node(entry, node)
        self.save_node(node)

    def drop_node(self, entry: PoolEntry, node: records.Node) -> None:
        self.forget_preparations(node.id)
        del entry.nodes[node.id], entry.running[node.id], self.pool_of_node[node.id]
        self._change("node", entry.key, node.id, None)
        self.touch_pool(entry.key)

    def add_job(self, job: records.Job) -> JobEntry:
        entry = self._index_job(job)
        self.save_job(entry)
        return entry

    def drop_job(self, entry: JobEntry) -> None:
        """Delete a job and all its tasks. If its end was forced, runs may still be ending (see `endings.conclude`)."""
        self.jobs.pop(entry.key)
        self.jobs_of_pool.get(entry.pool_key, {}).pop(entry.key, None)
        for seq in entry.ready if self.hints else ():
            self.hints.pop(seq, None)
        entry.tasks.clear()
        if not entry.running:
            self.job_of.pop(entry.record.seq)
        for node_id in entry.nodes:
            self.jobs_of_node.get(node_id, {}).pop(entry.record.seq, None)
        if schedule := self.schedule_of.get(entry.record.schedule):
            schedule.jobs.pop(entry.key, None)
            self.touch_schedule(schedule.key)
        self._change("job", "", entry.key, None)
        self._change("tasks", str(entry.record.seq), "", None)

    def add_schedule(self, schedule: records.JobSchedule) -> ScheduleEntry:
        entry = self._index_schedule(schedule)
        self.save_schedule(entry)
        return entry

    def drop_schedule(self, entry: ScheduleEntry) -> None:
        del self.schedules[entry.key], self.schedule_of[entry.record.seq]
        self._change("schedule", "", entry.key, None)

    def add_job_node(self, entry: JobEntry, job_node: records.JobNode) -> None:
        self._index_job_node(entry, job_node)
        self.save_job_node(job_node)

    def forget_preparations(self, node_id: str) -> None:
        """A node or its disk is lost: no job is prepared there any more."""
        for seq, job_node in self.jobs_of_node.pop(node_id, {}).items():
            entry = self.job_of[seq]
            entry.nodes.pop(node_id, None)
            self._change("jobnode", str(seq), job_node.id, None)
            self.touch_job(entry.key)

    def move_job(self, entry: JobEntry, spec: records.Document) -> None:
        """Give a job another specification, possibly with another pool."""
        self.jobs_of_pool.get(entry.pool_key, {}).pop(entry.key, None)
        entry.record.spec = spec
        self.jobs_of_pool.setdefault(entry.pool_key, {})[entry.key] = entry

    def add_task(self, entry: JobEntry, task: records.Task) -> None:
        _index_task(entry, task)
        self._change("task", str(task.job), str(task.seq), task)

    def drop_task(self, entry: JobEntry, task: records.Task) -> None:
        self._tasks[task] = None
        entry.tasks.drop(task)
        if task.satisfies and entry.record.spec.get("usesTaskDependencies"):  # it stays so, also after a restart
            met = records.Met(id=dependency_key(task.id), seq=task.seq, state="", state_time=0, job=task.job)
            entry.met.append(met.id)
            self._change("met", str(task.job), met.id, met)
        entry.count(task, -1)
        entry.unmet.pop(task.seq, None)
        entry.ready.pop(task.seq, None)
        self.hints.pop(task.seq, None)
        self._change("task", str(entry.record.seq), str(task.seq), None)
        self.touch_job(entry.key)

    def forget_all(self) -> None:
        """Empty the account. Numbers continue, so that late reports match no record."""
        self.pools: dict[str, PoolEntry] = {}
        self.jobs: dict[str, JobEntry] = {}
        self.schedules: dict[str, ScheduleEntry] = {}
        self.schedule_of: dict[int, ScheduleEntry] = {}
        self.jobs_of_node: dict[str, dict[int, records.JobNode]] = {}
        """By node id and job number: the preparation and release tasks there."""
        self.jobs_of_pool: dict[str, dict[str, JobEntry]] = {}
        self.pool_of_node: dict[str, PoolEntry] = {}
        self.job_of: dict[int, JobEntry] = {}
        self.hints: dict[int, str] = {}
        """Why an active task (by number) cannot start, which the service does not report."""
        self.log_uploads: list[LogUpload] = []
        self.usage: dict[tuple[str, str], records.Usage] = {}
        """By pool id and VM size: the hours of deleted nodes."""
        self._changes: dict[tuple[str, str, str], Change] = {}
        self._deadlines: list[Deadline] = []
        self._pools: dict[str, None] = {}
        self._jobs: dict[str, None] = {}
        self._tasks: dict[records.Task, None] = {}
        self._schedules: dict[str, None] = {}
        self._job_nodes: dict[records.JobNode, None] = {}
        self.shelf.tasks.clear()

    # Changing ------------------------------------------------------------------------------------------------------

    def move(self, record: records.Record, table: states.Table, event: str, now: int) -> None:
        """One transition of a life cycle."""
        previous, record.state = record.state, states.after(table, record.state, event)
        if record.state != previous:
            record.previous, record.previous_time = previous, record.state_time
            record.state_time = now

    def stamp(self, record: records.Record, now: int) -> None:
        """A change by the user: it gets a new ETag, unlike the service's own transitions."""
        self._last_tag = max(now, self._last_tag + 1)
        record.modified, record.etag = now, wire.etag(self._last_tag)

    def set_task_state(self, entry: JobEntry, task: records.Task, event: str, now: int, result: str = "") -> None:
        """One transition of a task; updates the job's counts."""
        entry.count(task, -1)
        self.move(task, states.TASK, event, now)
        task.result = result
        entry.count(task, +1)

    def save_pool(self, entry: PoolEntry) -> None:
        self._change("pool", "", entry.key, entry.record)
        self.touch_pool(entry.key)

    def save_node(self, node: records.Node) -> None:
        self._change("node", node.pool, node.id, node)
        self.touch_pool(node.pool)
        for seq in self.jobs_of_node.get(node.id, ()):
            self.touch_job(self.job_of[seq].key)

    def save_usage(self, usage: records.Usage) -> None:
        self.usage[usage.id, usage.vm_size] = usage
        self._change("usage", usage.id, usage.vm_size, usage)

    def save_job(self, entry: JobEntry) -> None:
        self._change("job", "", entry.key, entry.record)
        self.touch_job(entry.key)

    def save_schedule(self, entry: ScheduleEntry) -> None:
        self._change("schedule", "", entry.key, entry.record)
        self.touch_schedule(entry.key)

    def save_job_node(self, job_node: records.JobNode) -> None:
        """Store it, unless its node or job is deleted."""
        if self.jobs_of_node.get(job_node.id, {}).get(job_node.job) is job_node:
            self._change("jobnode", str(job_node.job), job_node.id, job_node)
            self._job_nodes[job_node] = None

    def save_task(self, task: records.Task) -> None:
        """Store a task, unless it was deleted while its run was ending."""
        entry = self.job_of.get(task.job)
        if entry is None or not entry.tasks.has(task):
            return
        entry.tasks.change(task)
        self._change("task", str(task.job), str(task.seq), task)
        self._tasks[task] = None

    def _change(self, kind: str, owner: str, key: str, record: records.Record | None) -> None:
        where = (kind, owner, key)
        self._changes.pop(where, None)
        self._changes[where] = Change(kind, owner, key, record)

    def take_changes(self) -> list[Change]:
        """The changes to store since the last call, in order."""
        changes, self._changes = list(self._changes.values()), {}
        return changes

    def put_back(self, changes: list[Change]) -> None:
        """Changes that could not be stored go with the next ones."""
        newer, self._changes = self._changes, {change[:3]: change for change in changes}
        for where, change in newer.items():
            self._changes.pop(where, None)
            self._changes[where] = change

    def rest(self, most: int = KEPT) -> None:
        """Drop stored tasks that nothing acts on from memory, down to this number."""
        tasks = self.shelf.tasks
        for seq in list(islice(tasks, max(len(tasks) - most, 0))):
            task = tasks.pop(seq)
            if (task.state == "active" and not task.instances) or task.state == "completed":
                if task in self._tasks or ("task", str(task.job), str(seq)) in self._changes:
                    tasks[seq] = task
                elif entry := self.job_of.get(task.job):
                    entry.tasks.let_go(task)

    # What to look at -----------------------------------------------------------------------------------------------

    def touch_pool(self, key: str) -> None:
        self._pools[key] = None

    def touch_job(self, key: str) -> None:
        self._jobs[key] = None
        if entry := self.jobs.get(key):
            self.touch_pool(entry.pool_key)

    def touch_schedule(self, key: str) -> None:
        self._schedules[key] = None

    def add_deadline(self, deadline: Deadline) -> None:
        heapq.heappush(self._deadlines, deadline)

    def next_deadline(self) -> int | None:
        return self._deadlines[0].at if self._deadlines else None

    def take_touched(self, now: int) -> Touched:
        """What changed since the last call, and the deadlines that have passed."""
        deadlines = []
        while self._deadlines and self._deadlines[0].at <= now:
            deadlines.append(heapq.heappop(self._deadlines))
        changes = Touched(
            tuple(self._pools),
            tuple(self._jobs),
            tuple(self._tasks),
            tuple(deadlines),
            tuple(self._schedules),
            tuple(self._job_nodes),
            now,
        )
        for pool in (self.pools.get(key) for key in changes.pools):
            if pool is not None and pool.history is not None:
                pool.history.note(now, self.numbers(pool))
        self._pools, self._jobs, self._tasks, self._schedules, self._job_nodes = {}, {}, {}, {}, {}
        return changes

    def numbers(self, entry: PoolEntry) -> Numbers:
        """What an autoscale formula of the pool would read now, in the order of samples.NUMBERS. A task that waits for
        other tasks does not count as active; each instance of a multi-instance task counts."""
        slots = int(entry.record.spec["taskSlotsPerNode"])
        usable = [node.id for node in entry.nodes.values() if node.state in USABLE]
        used_slots = sum(entry.used(node) for node in usable)
        active = running = succeeded = failed = 0
        for job in self.jobs_of_pool.get(entry.key, {}).values():
            running += job.counts["running"]
            succeeded += job.counts["succeeded"]
            failed += job.counts["failed"]
            if job.record.state == "active":
                active += sum(job.ready.values()) if job.gangs else len(job.ready)
        return (
            100 * used_slots / (slots * len(usable)) if usable else 0.0,
            30.0 * len(usable),
            *self.load(),
            len(usable),
            active,
            running,
            active + running,
            succeeded,
            failed,
            entry.current(dedicated=True),
            entry.current(dedicated=False),
            sum(node.state == "preempted" for node in entry.nodes.values()),
            len(usable),
            slots,
        )

    # Recovery ------------------------------------------------------------------------------------------------------

    def restore(self, changes: Iterator[Change]) -> list[Change]:
        """Restore stored records (pools before nodes, jobs before tasks) and rebuild every index. Returns the orphans,
        which are not restored: nodes without a pool and tasks without a job."""
        orphans = []
        for change in changes:
            record = change.record
            if isinstance(record, records.TaskFacts) and record.job in self.job_of:  # most of all records
                self._restore_task(self.job_of[record.job], record)
            elif self._is_orphan(record):
                orphans.append(change)
                continue
            else:
                self._restore_other(record)
            if record is not None:
                self.last_seq = max(self.last_seq, record.seq)
                self._last_tag = max(self._last_tag, int(record.etag or "0", 16))
        for schedule in self.schedules.values():
            schedule.jobs = dict(sorted(schedule.jobs.items(), key=lambda entry: entry[1].record.seq))
            self.touch_schedule(schedule.key)
        for key in self.pools:
            self.touch_pool(key)
        for key in self.jobs:
            self.touch_job(key)
        return orphans

    def _restore_other(self, record: records.Record | None) -> None:
        match record:
            case records.Pool():
                if not self._index_pool(record).simulated:
                    self._on_disk.add(record.id.lower())
            case records.Usage():
                self.usage[record.id, record.vm_size] = record
            case records.Node():
                self._index_node(self.pools[record.pool], record)
            case records.JobSchedule():
                self._index_schedule(record)
            case records.Job():
                self._index_job(record)
            case records.JobNode():
                self._index_job_node(self.job_of[record.job], record)
            case records.Met():
                self.job_of[record.job].met.append(record.id)

    def _is_orphan(self, record: records.Record | None) -> bool:
        match record:
            case records.Node():
                return record.pool not in self.pools
            case records.JobNode():
                return record.job not in self.job_of or record.id not in self.pool_of_node
            case records.TaskFacts() | records.Met():
                return record.job not in self.job_of
        return False

    def _index_pool(self, pool: records.Pool) -> PoolEntry:
        entry = self.pools[pool.id.lower()] = PoolEntry(pool)
        if pool.autoscale_next:
            self.add_deadline(Deadline(pool.autoscale_next, pool.seq, "autoscale", entry.key))
        if pool.allocation == "resizing":
            self.add_deadline(Deadline(resize_end(pool), pool.seq, "resize", entry.key))
        return entry

    def _index_node(self, entry: PoolEntry, node: records.Node) -> None:
        entry.nodes[node.id], entry.running[node.id] = node, {}
        self.pool_of_node[node.id] = entry
        if 0 < node.not_before < wire.FOREVER:
            self.add_deadline(Deadline(node.not_before, entry.record.seq, "boot", entry.key))
        for expiry in node.users.values():
            self.add_deadline(Deadline(expiry, node.seq, "user", node.id))

    def _index_job(self, job: records.Job) -> JobEntry:
        entry = self.jobs[job.id.lower()] = self.job_of[job.seq] = JobEntry(job, self.shelf)
        self.jobs_of_pool.setdefault(entry.pool_key, {})[entry.key] = entry
        if schedule := self.schedule_of.get(job.schedule):
            schedule.jobs[entry.key] = entry
        if wall := job_wall_clock(job):
            self.add_deadline(Deadline(job.created + wall, job.seq, "job", entry.key))
        return entry

    def _index_schedule(self, schedule: records.JobSchedule) -> ScheduleEntry:
        entry = self.schedules[schedule.id.lower()] = self.schedule_of[schedule.seq] = ScheduleEntry(schedule)
        return entry

    def _index_job_node(self, entry: JobEntry, job_node: records.JobNode) -> None:
        entry.nodes[job_node.id] = job_node
        self.jobs_of_node.setdefault(job_node.id, {})[job_node.job] = job_node

    def _restore_task(self, entry: JobEntry, task: records.TaskFacts) -> None:
        _index_task(entry, task)
        dependent = entry.record.spec.get("usesTaskDependencies", False)
        if task.satisfies and dependent:
            entry.satisfied.add(dependency_key(task.id))
        if task.state == "active" and not dependent:
            entry.ready[task.seq] = max(task.gang, 1)
        elif task.state != "completed" or (task.node_pool.lower() in self._on_disk and not task.cleaned):
            entry.to_recover.append(task.seq)


def _index_task(entry: JobEntry, task: records.TaskFacts) -> None:
    entry.gangs = entry.gangs or task.gang > 0
    entry.tasks.add(task)
    entry.count(task, +1)


USABLE = ("idle", "running")


def resize_end(pool: records.Pool) -> int:
    """When a running resize exceeds its timeout."""
    return pool.allocation_time + wire.parse_duration(pool.spec["resizeTimeout"])


def job_wall_clock(job: records.Job) -> int:
    """The job's maximum wall clock time in ticks; 0 for no limit."""
    return wire.limit(job.spec.get("constraints", {}).get("maxWallClockTime", wire.INFINITE))


def dependency_key(task_id: str) -> str:
    """Ids are case-insensitive, and `01` is the number 1."""
    return str(int(task_id)) if task_id.isascii() and task_id.isdigit() else task_id.lower()


def task_document(task: records.Task) -> records.Document:
    """The client's document of a task."""
    document: records.Document = msgspec.json.decode(task.spec)
    return document
