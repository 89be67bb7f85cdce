"""Waits: each has a deadline, reports what it waits for, and polls at a pace that suits the service."""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import datetime
from typing import NamedTuple, Protocol

from azure.batch import BatchClient

from batchtrain.errors import CannotRun, Finding, LimitReached, NotFound, ServiceError, TimedOut, UsageError, WaitOver
from batchtrain.life import pools, rules
from batchtrain.life.pools import SeenNodes
from batchtrain.life.rules import Decision
from batchtrain.life.seen import NEVER_READY, Seen
from batchtrain.records import Counts, Failure, Node, Pool
from batchtrain.records.events import (
    Event,
    NodesSeen,
    PoolGone,
    PoolState,
    PoolWaits,
    ServiceUnreachable,
    StillWaiting,
    TasksWait,
)
from batchtrain.records.record import minute
from batchtrain.service import files, observe, read, retry, submit, tasks
from batchtrain.service.downloads import node_tree
from batchtrain.service.faults import LATER, failure
from batchtrain.service.meant_version import REPLACED, replaced
from batchtrain.service.register import Thing
from batchtrain.service.tasks import Glance

Tell = Callable[[Event], None]

START_TASK_LINES = 40
MOST_REBOOTS = 5
WATCHED_SECONDS = 30 * 86400.0
NAMED_FAILED = 3  # of a job with few tasks, in its state
JOB_TURNS = 8  # queries of the tasks per query of their job


class Pace(NamedTuple):
    """Seconds between two turns: from `first`, growing by `factor`, to `most`, and at least `request` for each request
    of the last one. A wait for tasks queries them, and reads their stderr, every so many `turns`."""

    first: float
    most: float
    factor: float = 1.3
    request: float = 0.0
    turns: int = 1

    def steps(self) -> Iterator[float]:
        """The pauses, without end."""
        pause = self.first
        while True:
            yield pause
            pause = min(pause * self.factor, self.most)


NEAR = Pace(0.01, 0.1, 1.1)
FAR = Pace(1.0, 5.0, request=2.5, turns=2)  # on average 24 requests a minute
MINUTE, PER_MINUTE = 60, 25
"""The most requests of a wait in any minute: the service answers 429 to more."""


class _LastMinute:
    def __init__(self, turns: int) -> None:
        self._sent = collections.deque[tuple[float, int]]()
        self._costs = collections.deque[int](maxlen=turns)

    def delay(self, now: float, requests: int, more: int) -> float:
        """Seconds until another turn may begin after one of so many requests. The next takes as many as that `turns`
        before it, and `more`."""
        self._sent.append((now, requests))
        self._costs.append(requests)
        while self._sent[0][0] <= now - MINUTE:
            self._sent.popleft()
        total, delay = sum(count for _, count in self._sent) + self._costs[0] + more, 0.0
        for time, count in self._sent:
            if total <= PER_MINUTE:
                break
            total, delay = total - count, time + MINUTE - now
        return delay


class Limit(Protocol):
    """What ends the waits of a whole command."""

    @property
    def reason(self) -> str:
        """Why a wait ends, in words; empty while it may continue."""

    @property
    def remaining(self) -> float:
        """The seconds until then, as far as it is known."""


LIMIT: ContextVar[Limit | None] = ContextVar("LIMIT", default=None)
"""The limit of the command; a wait that reaches it ends with LimitReached."""


@contextlib.contextmanager
def limited(limit: Limit | None) -> Iterator[None]:
    """The waits of the block end at a limit; at None they do not."""
    token = LIMIT.set(limit)
    try:
        yield
    finally:
        LIMIT.reset(token)


class Deadline:
    """One wait: its purpose, its deadline, and its progress messages. Inside `with`, transient faults are retried until
    its end, and outages are reported.
    """

    def __init__(
        self, seconds: float, waits_for: str, tell: Tell | None = None, *, clock: retry.Clock = retry.CLOCK
    ) -> None:
        if not seconds >= 0 or seconds == float("inf"):
            raise UsageError(f"{seconds} is no number of seconds to wait")
        self._clock, self._tell = clock, tell
        self._began = self._said = clock.now()
        self._seconds, self._waits_for = seconds, waits_for
        self._inside = contextlib.ExitStack()
        self.progress: Callable[[], str] = str
        """How far what it waits for is, in a sentence."""
        self._told_step = ""

    def __enter__(self) -> Deadline:
        outage = None if self._tell is None else lambda text: self.tell(ServiceUnreachable("", text))
        self._inside.enter_context(retry.until(self._began + self._seconds, outage))
        return self

    def __exit__(self, *_: object) -> None:
        self._inside.close()

    def tell(self, event: Event) -> None:
        """Pass an event on; one with a text postpones the next message about the wait by a minute."""
        if event.text:
            self.news()
        if self._tell is not None:
            self._tell(event)

    def now(self) -> float:
        """The time of its clock."""
        return self._clock.now()

    def news(self) -> None:
        """A message was just printed."""
        self._said = self.now()

    def pause(self, seconds: float, state: str = "", next_step: str = "") -> None:
        """Sleep, but not longer than until a limit of the command. After a minute without an event, report what the
        wait is for. next_step: what the user can do, which is reported once. Raises TimedOut after the deadline, and
        LimitReached."""
        now, limit = self._clock.now(), LIMIT.get()
        seconds_left = self._began + self._seconds - now
        if seconds_left <= 0:
            last_state = "; last seen: " * bool(state) + self._in_words(state, next_step)
            raise TimedOut(f"waiting for {self._waits_for} took longer than {self._seconds:g} s{last_state}")
        if now - self._said >= retry.EVERY:
            text = f"waiting for {self._waits_for} for {retry.span(now - self._began)}"
            new_step, self._told_step = next_step if next_step != self._told_step else "", next_step
            self.tell(StillWaiting("", ": ".join(filter(None, (text, self._in_words(state, new_step))))))
        self._clock.sleep(min(seconds, seconds_left, math.inf if limit is None else limit.remaining))
        if limit is not None and (reason := limit.reason):
            raise LimitReached(reason)

    def _in_words(self, state: str, next_step: str) -> str:
        return "; ".join(filter(None, (state, self.progress(), next_step)))


class Reboots:
    """Reboots broken nodes of a pool, each at most MOST_REBOOTS times; `states` are those in which it may."""

    def __init__(self, client: BatchClient, states: frozenset[str], tell: Callable[[str], None]) -> None:
        self._client, self._states, self._tell = client, states, tell
        self._done: dict[str, int] = {}

    def mend(self, pool: Pool, node: Node) -> bool:
        """Whether a reboot of the node was requested, or is running. Raises NotFound if another pool has the id of the
        pool."""
        count = self._done.get(node.id, 0) + 1
        if node.state not in self._states or count > MOST_REBOOTS:
            return False
        try:
            submit.reboot_node(self._client, pool.id, node.id, pool.created)
        except ServiceError as error:
            if error.code == REPLACED:
                raise
            return error.code == "NodeBeingRebooted"
        self._done[node.id] = count
        self._tell(f"node {node.id} is {node.state}; reboot {count} of {MOST_REBOOTS}")
        return True


def pool_ready(
    client: BatchClient,
    pool_id: str,
    seconds: float,
    pace: Pace,
    tell: Tell | None = None,
    mend: Callable[[Pool, Node], bool] = lambda pool, node: False,
    before: datetime | None = None,
    patience: float | None = None,
) -> tuple[Node, ...]:
    """Wait until a pool has its target number of nodes and all accept tasks; returns them. `mend` may reboot a broken
    node. before: as for `pools.resize_error`. patience: the seconds to allocate all nodes, which are requested again
    if the region has none; only time in which the service answers counts. `seconds` are those after it.

    Raises QuotaReached or ServiceError for resize errors, failed start tasks (with their last lines) and unusable
    nodes, and TimedOut at the deadline.
    """
    seconds_waited, request_time, error, last_state = 0.0, 0.0, Failure(), ""
    with Deadline(seconds + (patience or 0.0), f"pool {pool_id} to be ready", tell) as deadline:
        for pause, pool in _looks(client, pool_id, pace):
            nodes = read.nodes(client, pool_id)
            error = pools.resize_error(pool, before) or error
            seen = SeenNodes(pool, nodes, error, error.code in LATER)
            if patience is not None and seen.is_allocated:
                patience, seen, error = None, seen._replace(error=Failure()), Failure()
            if patience is not None:
                seen = seen._replace(patience=max(patience - seconds_waited, 0.0))
            elif not error:
                broken = (node for node in nodes if node.state in NEVER_READY)
                seen = seen._replace(rebooted=frozenset(node.id for node in broken if mend(pool, node)))
            rule = pools.decide(seen)
            if rule is not None and rule.act == "end":
                raise _pool_end(client, seen, since=pool.allocation_since if before is None else None)
            _show_nodes(tell, pool, nodes)
            if rule is None:
                return nodes
            state = _pool_state(pool, nodes)
            if state != last_state:
                deadline.tell(PoolWaits(pool_id, f"pool {pool_id}: {state}{f' ({error.code})' if error else ''}"))
                last_state = state
            if rule.act == "request" and seconds_waited - request_time >= AGAIN * pace.most:
                submit.request_again(client, pool)
                request_time = seconds_waited
            left = pause if seen.patience is None else max(seen.patience, pace.first)
            deadline.pause(min(pause, left), f"{state} [{rule.name}]")
            seconds_waited += pause
    raise AssertionError("unreachable")


AGAIN = 12
"""Nodes that the region did not have are requested again after so many pauses: a minute on Azure."""


def _pool_end(client: BatchClient, seen: SeenNodes, since: datetime | None) -> ServiceError:
    """The error with which a wait for a pool ends. since: when its last resize ended, if the wait requested none."""
    pool, error = seen.pool, seen.error
    if seen.broken is not None and not error:
        return _broken(client, pool.id, seen.broken)
    text = error.message if error else f"it has {len(seen.nodes)} of {pool.target} nodes"
    text = f"{text} (its last resize ended at {minute(since)})" if since else text
    return failure(f"allocate the nodes of pool {pool.id}", error.code or "AllocationTimedOut", text)


def _looks(client: BatchClient, pool_id: str, pace: Pace) -> Iterator[tuple[float, Pool]]:
    """The pauses of a wait for a pool, without end, each with the pool before it. Raises NotFound, also once another
    pool has its id."""
    created: datetime | None = None
    for pause in pace.steps():
        pool = read.pool(client, pool_id)
        created = created or pool.created
        if pool.created != created:
            raise replaced(Thing("pool", pool_id), "wait for")
        yield pause, pool


def pool_steady(client: BatchClient, pool_id: str, seconds: float, pace: Pace, tell: Tell) -> Pool:
    """Wait until a pool has stopped growing, so that its node counts can be planned with."""
    with Deadline(seconds, f"pool {pool_id} to stop growing", tell) as deadline:
        for pause, pool in _looks(client, pool_id, pace):
            if pool.allocation == "steady":
                return pool
            deadline.pause(pause, f"allocation {pool.allocation}, {pool.dedicated}+{pool.spot} nodes")
    raise AssertionError("unreachable")


def show_nodes(client: BatchClient, pool_id: str, tell: Tell) -> None:
    """Report the nodes of a pool to a view that draws them. Raises NotFound."""
    _show_nodes(tell, read.pool(client, pool_id), read.nodes(client, pool_id))


def pool_states(client: BatchClient, pool_id: str, pace: Pace, tell: Tell) -> None:
    """Report the states of a pool's nodes as they change, until the pool is gone or the user interrupts it."""
    last_state, seconds = "", max(pace.most, 2 * pace.request)
    with contextlib.suppress(NotFound), Deadline(WATCHED_SECONDS, f"pool {pool_id}", tell) as deadline:
        for pause, pool in _looks(client, pool_id, Pace(seconds, seconds)):
            nodes = read.nodes(client, pool_id)
            _show_nodes(tell, pool, nodes)
            state = _pool_state(pool, nodes)
            if state != last_state:
                deadline.tell(PoolState(pool_id, f"pool {pool_id}: {state}"))
                last_state = state
            deadline.pause(pause, state)
    if not last_state:
        raise NotFound(f"there is no pool {pool_id}", operation=f"watch pool {pool_id}", code="PoolNotFound")
    tell(PoolGone(pool_id, f"pool {pool_id} is gone"))


def _show_nodes(tell: Tell | None, pool: Pool, nodes: tuple[Node, ...]) -> None:
    if tell is not None:
        tell(NodesSeen(pool.id, target=pool.target, nodes=nodes))


def _pool_state(pool: Pool, nodes: tuple[Node, ...]) -> str:
    states: dict[str, int] = {}
    for node in nodes:
        states[node.state] = states.get(node.state, 0) + 1
    summary = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no nodes yet"
    return f"{pool.allocation}, {summary} of {pool.target}"


def _broken(client: BatchClient, pool_id: str, node: Node) -> ServiceError:
    if node.state == "unusable":
        reasons = "; ".join(map(str, node.errors)) or "no reason given"
        text = f"node {node.id} of pool {pool_id} is unusable: {reasons}"
        return ServiceError(text, operation="start node", code="NodeStateUnusable")
    try:
        content = files.end_of(client, node_tree(pool_id, node.id), "startup/stderr.txt")
        lines = files.last_lines(content, START_TASK_LINES) or ("(its stderr is empty)",)
    except ServiceError as error:
        lines = (f"(its stderr cannot be read: {error})",)
    text = f"the start task failed on node {node.id} of pool {pool_id} ({node.start_task}); its last lines:"
    return ServiceError("\n  ".join((text, *lines)), operation="start task", code="StartTaskFailed")


def tasks_ended(
    client: BatchClient,
    job_id: str,
    deadline: Deadline,
    pace: Pace,
    show: Callable[[Glance], int] = lambda _: 0,
    *,
    moves: bool = False,
) -> None:
    """Wait until every task of a job has ended, or never starts because a task that it depends on failed. `show`
    receives every glance, including the last, and returns the number of its requests. moves: `show` moves the job to
    another pool, so that the patience with this one never ends.

    The counts of a large job are some seconds old, so its end is confirmed by a list of the tasks that have not ended.
    Raises NotFound if its pool is deleted, CannotRun if its tasks can never start, and WaitOver.
    """
    last_minute, wait, is_due = _LastMinute(pace.turns), _Wait(client, job_id, deadline, moves=moves), False
    with deadline:
        for turn, pause in enumerate(pace.steps(), 1):
            requests = 0
            if (turn - 1) % pace.turns == 0:
                glance = tasks.glance(client, job_id)
                requests = glance.requests
            requests += show(glance)
            if glance.whole and not glance.counts.open:
                return
            if not glance.counts.open:
                requests += 1
                if not tasks.any_open(client, job_id):
                    show(tasks.glance(client, job_id))
                    return
            if turn % JOB_TURNS == 0 or is_due:
                requests += wait.look(glance.counts)
                if wait.is_over:
                    show(tasks.glance(client, job_id))
                    return
            is_due = wait.is_due(glance.counts)  # at the next turn, so that its requests are allowed for
            more = wait.cost(glance.counts) if is_due or (turn + 1) % JOB_TURNS == 0 else 0
            least = last_minute.delay(deadline.now(), requests, more) if pace.request else 0.0
            seconds = max(pause, requests * pace.request, least)
            deadline.pause(seconds, _task_state(glance, wait), wait.finding.next_step if wait.finding else "")


class _Wait:
    """What a wait for the tasks of a job knows beside their counts: why they wait, and since when."""

    def __init__(self, client: BatchClient, job_id: str, deadline: Deadline, *, moves: bool) -> None:
        self._client, self._job_id, self._deadline, self._moves = client, job_id, deadline, moves
        self._counts: Counts | None = None
        self._seen: Seen | None = None
        self._step: Decision | None = None
        self._began = deadline.now()
        self.is_over = False
        """Whether no task of the job will start or end any more."""

    def is_due(self, counts: Counts) -> bool:
        """Whether the end of a task may have left only tasks that never start, or some of them were not read yet."""
        if counts == self._counts:
            return self._step is not None and self._step.act == "look"
        return bool(counts.active and counts.ended and not counts.running)

    def cost(self, counts: Counts) -> int:
        """The most requests of a look."""
        if counts.running:
            return observe.RUNNING
        return observe.IDLE + (observe.extra(self._seen) if self._seen is not None else 0)

    def look(self, counts: Counts) -> int:
        """Find out why the tasks wait; returns the number of requests."""
        if self._seen is not None and self._step is not None and self._step.act == "look" and counts == self._counts:
            seen, requests = observe.more(self._client, self._seen)
        else:
            seen, requests = observe.look(self._client, self._job_id, counts)
        if self._seen is not None and self._seen.job.created != seen.job.created:
            raise replaced(Thing("job", self._job_id), "wait for")
        self._seen, self._counts = seen, counts
        step = rules.decide(seen)
        if step is None or self._step is None or step.rule is not self._step.rule:
            self._began = self._deadline.now()
        before, self._step = self.finding, step
        if self.finding != before:
            self._deadline.tell(TasksWait(self._job_id, finding=self.finding))
        self.is_over = seen.job.state == "completed" or (step is not None and self._ends(step))
        return requests

    def _ends(self, step: Decision) -> bool:
        """Whether the wait ends because a task failed. Raises its other ends."""
        job_id, text = self._job_id, step.text
        if step.rule is rules.POOL_GONE:
            raise NotFound(step.reason.text, operation=f"wait for job {job_id}", code="PoolNotFound")
        if step.act == "end" and step.rule.exit_code == rules.REFUSED:
            raise CannotRun(f"the tasks of job {job_id} can never start: {text}", code=step.rule.name)
        if self.patience == 0:
            raise WaitOver(f"the tasks of job {job_id} have waited too long: {text}; {step.reason.next_step}")
        return step.act == "end"

    @property
    def finding(self) -> Finding | None:
        """Why no task starts before a user or another client acts, and the next step."""
        return self._step.finding if self._step is not None and self._step.rule.by_hand else None

    @property
    def patience(self) -> float | None:
        """The seconds that are left for what the tasks wait for; None without a limit."""
        if self._step is None or self._step.rule.patience is None or self._moves:
            return None
        return max(self._step.rule.patience - (self._deadline.now() - self._began), 0.0)

    @property
    def has_progress(self) -> bool:
        """Whether the wait says by itself how far the running tasks are."""
        return bool(self._deadline.progress())

    def __str__(self) -> str:
        """Why the tasks wait, and for how long; empty while one runs."""
        if self._step is None:
            return ""
        left = f"; the wait ends in {retry.span(self.patience)}" if self.patience is not None else ""
        return f"{self._step.text}{left}"


def tasks_of(job_id: str) -> str:
    """The purpose of a wait for a job's tasks, as text."""
    return f"the tasks of job {job_id}"


def _task_state(glance: Glance, wait: _Wait) -> str:
    counts = glance.counts
    state = f"{counts.open:,} of {counts.total:,} tasks open"
    first = next((task for task in glance.first if task.state != "completed"), None)
    failed = [task.id for task in glance.first if task.failed and task.state == "completed"]
    if not glance.whole:
        state = f"{state} ({counts})"
    elif failed:
        state = f"{state}, {', '.join(failed[:NAMED_FAILED])}{' and others' * bool(failed[NAMED_FAILED:])} failed"
    is_in_progress = first is not None and first.state == "running" and wait.has_progress
    why = str(wait) or (f"{first.id} is {first.state}" if glance.whole and first and not is_in_progress else "")
    return f"{state}, {why}" if why else state
