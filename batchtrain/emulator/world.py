"""Everything the emulated account holds: records with their indices, and the journal of what changed; pure.

The operations on it are in `pools`, `jobs` and `tasks`, what machines report in `reports`. Nothing here knows a clock,
a socket or a file: time is an argument and ids come from a counter that is stored with the rest.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from batchtrain.emulator import states, wire
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.injection import Injections
from batchtrain.emulator.records import Document, Job, Node, Pool, Record, Task

FIRST_HOST = 4
"""Azure keeps the first three addresses of a subnet for itself; nodes start at .4."""


NODE_QUOTA = 256
"""Nodes of all pools together; a resize past it ends with AccountCoreQuotaReached, as on an account."""


SIMULATED = "batchtrain-nodes"
"""Name of the metadata item that, with the value `simulated`, makes a pool's nodes only keep time."""


class Size(NamedTuple):
    """What a VM size gives."""

    cores: int = 0
    gpus: int = 0


class Change(NamedTuple):
    """One row to write or, without a record, to delete. `owner` is the pool's key or the job's number."""

    kind: str
    owner: str
    key: str
    record: Record | None


class Deadline(NamedTuple):
    """A moment at which something is due: `what`, of the record with number `seq` and with this key.

    It may come late or for nothing: whoever handles it looks whether it still holds.
    """

    at: int
    seq: int
    what: str
    key: str
    task: str = ""
    run: int = 0


class PoolBook:
    """A pool, its nodes, and which tasks run on which."""

    __slots__ = ("nodes", "record", "running")

    def __init__(self, record: Pool) -> None:
        self.record = record
        self.nodes: dict[str, Node] = {}
        self.running: dict[str, dict[int, Task]] = {}

    @property
    def key(self) -> str:
        return self.record.id.lower()

    @property
    def simulated(self) -> bool:
        """Whether its nodes only keep time: asked for by the pool's metadata, which every client can write."""
        return {"name": SIMULATED, "value": "simulated"} in self.record.spec.get("metadata", [])

    def used(self, node_id: str) -> int:
        """Slots in use on a node."""
        return sum(task.slots for task in self.running[node_id].values())

    def current(self, *, dedicated: bool) -> int:
        """Nodes of a kind that are not leaving."""
        return sum(node.dedicated == dedicated and node.state != "leavingpool" for node in self.nodes.values())


class JobBook:
    """A job, its tasks in order, those ready to run, and the counts of each state."""

    __slots__ = (
        "counts",
        "dependants",
        "order",
        "range_dependants",
        "ready",
        "record",
        "running",
        "satisfied",
        "slot_counts",
        "tasks",
        "unmet",
    )

    def __init__(self, record: Job) -> None:
        self.record = record
        self.tasks: dict[str, Task] = {}
        self.order: list[Task] = []
        self.ready: OrderedDict[int, Task] = OrderedDict()
        """Active tasks with nothing left to wait for but nodes, in the order in which they get them."""
        self.running: dict[int, Task] = {}
        self.unmet: dict[int, int] = {}
        """Task number -> how many of its dependencies are not met yet."""
        self.dependants: dict[str, list[Task]] = {}
        self.range_dependants: list[tuple[int, int, Task]] = []
        self.satisfied: set[str] = set()
        """Keys of tasks that let their dependants start."""
        self.counts = dict.fromkeys(COUNTED, 0)
        self.slot_counts = dict.fromkeys(COUNTED, 0)

    @property
    def key(self) -> str:
        return self.record.id.lower()

    @property
    def pool_key(self) -> str:
        return str(self.record.spec.get("poolInfo", {}).get("poolId", "")).lower()

    def count(self, task: Task, by: int) -> None:
        """Count a task in (+1) or out (-1) under its present state."""
        for name in count_names(task):
            self.counts[name] += by
            self.slot_counts[name] += by * task.slots

    def live_tasks(self, after: int = 0) -> Iterator[Task]:
        """The tasks added after number `after`, in order; deleted ones are passed over."""
        start = _first_after(self.order, after)
        for index in range(start, len(self.order)):
            task = self.order[index]
            if self.tasks.get(task.id.lower()) is task:
                yield task


COUNTED = ("active", "running", "completed", "succeeded", "failed")


def count_names(task: Task) -> tuple[str, ...]:
    """The counters of taskcounts in which a task stands."""
    if task.state != "completed":
        return (task.state,)
    return ("completed", "succeeded" if task.result == "success" else "failed")


def _first_after(tasks: list[Task], seq: int) -> int:
    low, high = 0, len(tasks)
    while low < high:
        middle = (low + high) // 2
        if tasks[middle].seq <= seq:
            low = middle + 1
        else:
            high = middle
    return low


class Touched(NamedTuple):
    """What to look at after a change."""

    pools: tuple[str, ...]
    jobs: tuple[str, ...]
    tasks: tuple[Task, ...]
    expired: tuple[Deadline, ...]


class World:
    """One account. `network` is the second octet of its nodes' addresses, `seed` makes its node ids its own."""

    def __init__(
        self,
        account: str = "batchtrain",
        endpoint: str = "http://127.0.0.1:10010",
        seed: str = "",
        network: int = 1,
        size_of: Callable[[str], Size] = lambda vm_size: Size(),
        node_quota: int = NODE_QUOTA,
    ) -> None:
        self.node_quota = node_quota
        self.account, self.endpoint, self.seed, self.network, self.size_of = account, endpoint, seed, network, size_of
        self.pools: dict[str, PoolBook] = {}
        self.jobs: dict[str, JobBook] = {}
        self.jobs_of_pool: dict[str, dict[str, JobBook]] = {}
        self.pool_of_node: dict[str, PoolBook] = {}
        self.job_of: dict[int, JobBook] = {}
        self.hints: dict[int, str] = {}
        """Why an active task (by number) cannot start: what the service keeps to itself."""
        self.rubbish: list[tuple[str, str]] = []
        """Directories to delete: a node's root and a path below it."""
        self.injections = Injections()
        """Faults that tests ask for."""
        self.last_seq = 0
        self._last_tag = 0
        self._changes: dict[tuple[str, str, str], Change] = {}
        self._deadlines: list[Deadline] = []
        self._pools: dict[str, None] = {}
        self._jobs: dict[str, None] = {}
        self._tasks: dict[Task, None] = {}

    # Finding -------------------------------------------------------------------------------------------------------

    def pool(self, pool_id: str) -> PoolBook:
        """The pool, or Fault 404."""
        if book := self.pools.get(pool_id.lower()):
            return book
        raise Fault("PoolNotFound")

    def node(self, pool_id: str, node_id: str) -> tuple[PoolBook, Node]:
        """The pool and its node, or Fault 404."""
        book = self.pool(pool_id)
        if node := book.nodes.get(node_id.lower()):
            return book, node
        raise Fault("NodeNotFound")

    def job(self, job_id: str) -> JobBook:
        """The job, or Fault 404."""
        if book := self.jobs.get(job_id.lower()):
            return book
        raise Fault("JobNotFound")

    def task(self, job_id: str, task_id: str) -> tuple[JobBook, Task]:
        """The job and its task, or Fault 404."""
        book = self.job(job_id)
        if task := book.tasks.get(task_id.lower()):
            return book, task
        raise Fault("TaskNotFound")

    def jobs_on(self, pool_key: str) -> tuple[JobBook, ...]:
        """The jobs of a pool, the most urgent first."""
        books = self.jobs_of_pool.get(pool_key, {}).values()
        return tuple(sorted(books, key=lambda book: (-book.record.spec.get("priority", 0), book.record.seq)))

    # Adding and dropping -------------------------------------------------------------------------------------------

    def new_seq(self) -> int:
        """The next number; never given twice."""
        self.last_seq += 1
        return self.last_seq

    def new_node_id(self, seq: int, *, dedicated: bool) -> str:
        """`tvmps_` + 64 hexadecimal digits + `_d` or `_p`, as the service names nodes."""
        digest = hashlib.sha256(f"{self.seed}/{seq}".encode()).hexdigest()
        return f"tvmps_{digest}_{'d' if dedicated else 'p'}"

    def new_address(self) -> str:
        """The lowest address no node has."""
        taken = {node.address for book in self.pools.values() for node in book.nodes.values()}
        return next(address for address in self._addresses() if address not in taken)

    def _addresses(self) -> Iterator[str]:
        for number in range(FIRST_HOST, 1 << 16):
            high, low = divmod(number, 256)
            if low not in (0, 255):
                yield f"127.{self.network}.{high}.{low}"

    def add_pool(self, pool: Pool) -> PoolBook:
        book = self.pools[pool.id.lower()] = PoolBook(pool)
        self.save_pool(book)
        return book

    def drop_pool(self, book: PoolBook) -> None:
        del self.pools[book.key]
        self._change("pool", "", book.key, None)

    def add_node(self, book: PoolBook, node: Node) -> None:
        self._index_node(book, node)
        self.save_node(node)

    def drop_node(self, book: PoolBook, node: Node) -> None:
        del book.nodes[node.id], book.running[node.id], self.pool_of_node[node.id]
        self._change("node", book.key, node.id, None)
        self.touch_pool(book.key)

    def add_job(self, job: Job) -> JobBook:
        book = self._index_job(job)
        self.save_job(book)
        return book

    def drop_job(self, book: JobBook) -> None:
        """The job and all its tasks."""
        self.jobs.pop(book.key)
        self.job_of.pop(book.record.seq)
        self.jobs_of_pool.get(book.pool_key, {}).pop(book.key, None)
        for task in book.tasks.values():
            self.hints.pop(task.seq, None)
        self._change("job", "", book.key, None)
        self._change("tasks", str(book.record.seq), "", None)

    def move_job(self, book: JobBook, spec: Document) -> None:
        """Give a job another specification, perhaps on another pool."""
        self.jobs_of_pool.get(book.pool_key, {}).pop(book.key, None)
        book.record.spec = spec
        self.jobs_of_pool.setdefault(book.pool_key, {})[book.key] = book

    def add_task(self, book: JobBook, task: Task) -> None:
        self._index_task(book, task)
        self.save_task(task)

    def drop_task(self, book: JobBook, task: Task) -> None:
        self._tasks[task] = None
        del book.tasks[task.id.lower()]
        book.count(task, -1)
        book.unmet.pop(task.seq, None)
        book.ready.pop(task.seq, None)
        self.hints.pop(task.seq, None)
        self._change("task", str(book.record.seq), task.id.lower(), None)
        self.touch_job(book.key)
        if len(book.order) > 64 and len(book.order) > 2 * len(book.tasks):
            book.order = list(book.live_tasks())

    def forget_all(self) -> None:
        """An empty account; numbers go on, so that late reports name nothing."""
        self.pools, self.jobs, self.jobs_of_pool, self.pool_of_node, self.job_of = {}, {}, {}, {}, {}
        self.hints, self._changes, self._deadlines = {}, {}, []
        self._pools, self._jobs, self._tasks = {}, {}, {}

    # Changing ------------------------------------------------------------------------------------------------------

    def move(self, record: Record, table: states.Table, event: str, now: int) -> None:
        """One step of a life cycle."""
        previous, record.state = record.state, states.after(table, record.state, event)
        if record.state != previous:
            record.previous, record.previous_time = previous, record.state_time
            record.state_time = now

    def stamp(self, record: Record, now: int) -> None:
        """A change a user made: a new ETag (the service's own transitions leave it alone)."""
        self._last_tag = max(now, self._last_tag + 1)
        record.modified, record.etag = now, wire.etag(self._last_tag)

    def set_task_state(self, book: JobBook, task: Task, event: str, now: int, result: str = "") -> None:
        """One step of a task, with the job's counts kept."""
        book.count(task, -1)
        self.move(task, states.TASK, event, now)
        task.result = result
        book.count(task, +1)

    def save_pool(self, book: PoolBook) -> None:
        self._change("pool", "", book.key, book.record)
        self.touch_pool(book.key)

    def save_node(self, node: Node) -> None:
        self._change("node", node.pool, node.id, node)
        self.touch_pool(node.pool)

    def save_job(self, book: JobBook) -> None:
        self._change("job", "", book.key, book.record)
        self.touch_job(book.key)

    def save_task(self, task: Task) -> None:
        """Store a task, unless it was deleted while its run was ending."""
        book = self.job_of.get(task.job)
        if book is None or book.tasks.get(task.id.lower()) is not task:
            return
        self._change("task", str(task.job), task.id.lower(), task)
        self._tasks[task] = None

    def _change(self, kind: str, owner: str, key: str, record: Record | None) -> None:
        where = (kind, owner, key)
        self._changes.pop(where, None)
        self._changes[where] = Change(kind, owner, key, record)

    def take_changes(self) -> list[Change]:
        """What to store since the last call, in order."""
        changes, self._changes = list(self._changes.values()), {}
        return changes

    def put_back(self, changes: list[Change]) -> None:
        """Changes that could not be stored: they go with the next ones."""
        newer, self._changes = self._changes, {change[:3]: change for change in changes}
        for where, change in newer.items():
            self._changes.pop(where, None)
            self._changes[where] = change

    # What to look at -----------------------------------------------------------------------------------------------

    def touch_pool(self, key: str) -> None:
        self._pools[key] = None

    def touch_job(self, key: str) -> None:
        self._jobs[key] = None
        if book := self.jobs.get(key):
            self.touch_pool(book.pool_key)

    def touch_task(self, task: Task) -> None:
        self._tasks[task] = None

    def add_deadline(self, deadline: Deadline) -> None:
        heapq.heappush(self._deadlines, deadline)

    def next_deadline(self) -> int | None:
        return self._deadlines[0].at if self._deadlines else None

    def take_touched(self, now: int) -> Touched:
        """What changed since the last look, and the deadlines that have passed."""
        expired = []
        while self._deadlines and self._deadlines[0].at <= now:
            expired.append(heapq.heappop(self._deadlines))
        touched = Touched(tuple(self._pools), tuple(self._jobs), tuple(self._tasks), tuple(expired))
        self._pools, self._jobs, self._tasks = {}, {}, {}
        return touched

    # Waking up -----------------------------------------------------------------------------------------------------

    def restore(self, changes: Iterator[Change]) -> list[Change]:
        """Take in stored records (pools before nodes, jobs before tasks) and rebuild every index.

        Returns the orphans, which were passed over: nodes without a pool and tasks without a job.
        """
        orphans = []
        for change in changes:
            record = change.record
            if self._is_orphan(record):
                orphans.append(change)
                continue
            match record:
                case Pool():
                    self.pools[change.key] = PoolBook(record)
                case Node():
                    self._index_node(self.pools[record.pool], record)
                case Job():
                    self._index_job(record)
                case Task():
                    self._index_task(self.job_of[record.job], record)
            if record is not None:
                self.last_seq = max(self.last_seq, record.seq)
                self._last_tag = max(self._last_tag, int(record.etag or "0", 16))
        for job in self.jobs.values():
            job.order.sort(key=lambda task: task.seq)
        for key in self.pools:
            self.touch_pool(key)
        for key in self.jobs:
            self.touch_job(key)
        return orphans

    def _is_orphan(self, record: Record | None) -> bool:
        match record:
            case Node():
                return record.pool not in self.pools
            case Task():
                return record.job not in self.job_of
        return False

    def _index_node(self, book: PoolBook, node: Node) -> None:
        book.nodes[node.id], book.running[node.id] = node, {}
        self.pool_of_node[node.id] = book

    def _index_job(self, job: Job) -> JobBook:
        book = self.jobs[job.id.lower()] = self.job_of[job.seq] = JobBook(job)
        self.jobs_of_pool.setdefault(book.pool_key, {})[book.key] = book
        if wall := job_wall_clock(job):
            self.add_deadline(Deadline(job.created + wall, job.seq, "job", book.key))
        return book

    def _index_task(self, book: JobBook, task: Task) -> None:
        book.tasks[task.id.lower()] = task
        book.order.append(task)
        book.count(task, +1)


def job_wall_clock(job: Job) -> int:
    """The job's longest life in ticks; 0 is no limit."""
    text = job.spec.get("constraints", {}).get("maxWallClockTime", wire.INFINITE)
    ticks = wire.parse_duration(text)
    return 0 if ticks >= wire.parse_duration(wire.INFINITE) else ticks


def task_document(task: Task) -> Document:
    """The document a client gave for a task."""
    document: Document = msgspec.json.decode(task.spec)
    return document
