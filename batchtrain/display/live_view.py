"""The live block of a run: what events tell, as lines of a terminal of a given width. Pure: the time is an argument.

Every line fits the width and the number of lines never changes, so that the block is redrawn in place.
"""

from __future__ import annotations

import functools
from collections import Counter as TallyCounter
from collections import deque
from datetime import datetime, timezone
from statistics import median

from batchtrain.catalog.prices import Price, money
from batchtrain.display.terminal import cut_to, plain_text
from batchtrain.errors import width_of
from batchtrain.markup import in_words
from batchtrain.records import Counts, FailedBy, Node, Point, Rank, Rendezvous, events, node_cost, node_hours
from batchtrain.records.gang import LOOKS, QUIET_SECONDS, Condition, RankState, StepTimes, at_end, compared
from batchtrain.records.metric import MAIN
from batchtrain.records.rank_end import RankEnd, by_rank
from batchtrain.records.rates import is_rate, is_total, rate_unit, rates_of
from batchtrain.runs.curves import spark

MOST_RANKS = 12
WORST = 5
"""Rows of ranks of a larger gang: the ones that matter first."""
STEPS_FOR_ETA = 5
"""The remaining time is estimated from the fifth step on, by the median of the recent ones."""
RECENT = 50
"""Metrics that are shown first."""
PHASES: dict[type[events.Event], str] = {
    events.PoolAdding: "adding the pool",
    events.PoolWaits: "waiting for nodes",
    events.PoolResized: "waiting for nodes",
    events.NodeReady: "nodes are ready",
    events.JobAdding: "adding the job",
    events.JobAdded: "adding tasks",
    events.TasksAdded: "starting",
    events.Stdout: "running",
    events.Stderr: "running",
    events.ResultsFetching: "fetching results",
    events.Deleted: "deleting",
}
"""The phase that begins with an event."""
FAILURE_ROWS = 3
"""Rows of causes of failures in a job of many tasks."""
RATE_SECONDS = 60.0
"""The rate of tasks is that of this time."""
READY = ("idle", "running")
USUAL = {"waiting for nodes": "usually 3 to 10 min on Azure", "starting": "a first image pull takes minutes"}
"""What usually takes how long; not said about the emulator."""

Part = tuple[str, str]
Line = tuple[Part, ...]
"""Parts of a line, each with its style in the words of rich."""


class View:
    """Everything that the block shows. `note` takes the events as they come."""

    def __init__(
        self,
        title: str,
        target: str,
        began: float,
        *,
        ranks: int = 0,
        many: bool = False,
        emulated: bool = False,
        recent: int = RECENT,
        price: Price | None = None,
        joins: bool = False,
    ) -> None:
        """many: whether there are several tasks, whose failures are shown by cause. recent: the number of values of a
        metric that are kept for its curve. joins: whether the view may begin after its first task, whose start counts.
        """
        self._joins = self._counts_first = joins
        self._planned = 0 if joins else ranks
        self.price = price
        self.title, self.target, self.began, self.emulated = title, target, began, emulated
        self.expected, self._many, self._recent = ranks, many, recent
        self.phase, self.since = "starting", began
        self.nodes: tuple[Node, ...] = ()
        self.wanted = 0
        self.jobs: dict[str, tuple[str, Counts]] = {}
        """The pool and the counts of the tasks of each job."""
        self.added: dict[str, tuple[int, int]] = {}
        """The tasks of each job that were added, and the number of all, while they are added."""
        self.failures: dict[str, tuple[FailedBy, ...]] = {}
        self._ended: deque[tuple[float, int]] = deque()
        """How many tasks had ended at which time, of the last RATE_SECONDS."""
        self.ranks: dict[int, Rank] = {}
        self._steps = StepTimes()
        self.rendezvous = Rendezvous()
        self.failed: dict[int, RankEnd] | None = None
        """How the ranks ended, after the failure of their gang."""
        self.step: tuple[str, int, int] | None = None
        self.values: dict[str, dict[str, float | None]] = {}
        """The last value of each metric, by task; None for one that is NaN or infinite."""
        self.history: dict[str, dict[str, deque[tuple[float, float]]]] = {}
        """The last values of each metric with their places, by task; without places, with their numbers."""
        self._sources: dict[tuple[str, str], int] = {}
        """The rank of each metric of a task; -1 for the task."""
        self._rated = began
        self._read_to: float | None = None
        self._paces: deque[float] = deque(maxlen=RECENT)
        self._stepped: tuple[int, float] | None = None
        self.seen: float | None = None
        """The seconds since the service answered last."""

    # --- what happens -----------------------------------------------------------------------------------------------

    def note(self, event: events.Event, now: float) -> None:
        """Take an event."""
        phase = PHASES.get(type(event))
        if isinstance(event, events.TasksSeen) and self.phase == "starting" and event.counts.begun:
            phase = "running"
        if phase and phase != self.phase:
            self.phase, self.since = phase, now
        if isinstance(event, events.NodesSeen):
            self.wanted, self.nodes = event.target, event.nodes
        elif isinstance(event, events.TasksSeen):
            self.jobs[event.subject] = event.pool, event.counts
            self.added.pop(event.subject, None)
            self._count(self.counts.ended, now)
        elif isinstance(event, events.TaskProgress) and event.total:
            self.added[event.subject] = event.added, event.total
            self._count(event.added, now)
        elif isinstance(event, events.FailuresSeen):
            self.failures[event.subject] = event.failed_by
        elif isinstance(event, events.AttemptSeen) and self._joins and event.attempt.started:
            self.began, self._joins = event.attempt.started.timestamp(), False
        elif isinstance(event, events.AttemptEnded):
            self.ranks, self.failed, self.rendezvous = {}, None, Rendezvous()
            self._steps = StepTimes()
        elif isinstance(event, events.RanksFailed):
            self.failed = by_rank(event.ends)
        elif isinstance(event, events.MetricsSeen):
            self._measured(event, now)

    @property
    def outcome(self) -> str:
        """How a call ended that raised nothing: `done`, with `diverged` if a value is not finite, or `failed`."""
        if self.counts.failed or self.failed:
            return "failed"
        return in_words("done", has_diverged=any(None in by_task.values() for by_task in self.values.values()))

    @property
    def counts(self) -> Counts:
        """The tasks of all jobs by state."""
        each = [counts for _, counts in self.jobs.values()]
        return Counts(*map(sum, zip(*each, strict=True))) if each else Counts()

    def _count(self, number: int, now: float) -> None:
        """Note how many tasks have ended, or were added."""
        if self._ended and self._ended[-1][1] > number:  # they were added before, and end now
            self._ended.clear()
        self._ended.append((now, number))
        while len(self._ended) > 2 and self._ended[1][0] <= now - RATE_SECONDS:
            self._ended.popleft()

    @property
    def task_rate(self) -> float | None:
        """Tasks in a second; None as long as it is not known."""
        if len(self._ended) < 2:
            return None
        (began, first_count), (end, last_count) = self._ended[0], self._ended[-1]
        return (last_count - first_count) / (end - began) if end > began and last_count > first_count else None

    def _measured(self, event: events.MetricsSeen, now: float) -> None:
        for name in tuple(self.values) if event.again else event.hidden:
            self.values.get(name, {}).pop(event.subject, None)
            self.history.get(name, {}).pop(event.subject, None)
            self._sources.pop((event.subject, name), None)
        self._read_to = event.read_to
        self.rendezvous = event.rendezvous if event.rendezvous.nodes else self.rendezvous
        for rank in event.ranks:
            self.ranks[rank.number] = rank
            self._steps.add(rank.number, rank.heard, rank.position.global_step)
        for point in event.points:
            for name, value in point.values.items() if not point.node else ():
                self._value(event.subject, name, value, point)
                self._rated = now if is_rate(name) else self._rated
        if event.progress:
            self._step(event.progress.unit, event.progress.at, event.progress.of, now)

    def _value(self, task: str, name: str, value: float | None, point: Point) -> None:
        """Takes the values of the lowest rank that has the metric, as the summary of a run does."""
        rank = -1 if point.rank is None else point.rank
        lowest = self._sources.setdefault((task, name), rank)
        if rank > lowest:
            return
        if rank < lowest:
            self._sources[task, name] = rank
            self.history.get(name, {}).pop(task, None)
        self.values.setdefault(name, {})[task] = value
        if value is None:
            return
        curve = self.history.setdefault(name, {}).setdefault(task, deque(maxlen=self._recent))
        following = curve[-1][0] + 1 if curve else 0.0
        curve.append((following if point.global_step is None else point.global_step, value))

    def _step(self, unit: str, at: int, of: int, now: float) -> None:
        if self.step is None or (unit, of) != (self.step[0], self.step[2]):
            self._paces.clear()
            self._stepped = (at, now)
        elif self._stepped and at > self._stepped[0]:
            self._paces.append((now - self._stepped[1]) / (at - self._stepped[0]))
            self._stepped = (at, now)
        self.step = (unit, at, of)

    # --- what is shown ----------------------------------------------------------------------------------------------

    @property
    def height(self) -> int:
        """The number of lines, the same from start to end."""
        ranks = self.expected if self.expected <= MOST_RANKS else WORST
        return 5 + 1 + ranks if self.expected > 1 else 5 + FAILURE_ROWS * self._many

    def lines(self, width: int, now: float) -> list[Line]:
        """The block: `height` lines of at most `width` columns."""
        states = self._states(now)
        lines = [self._head(width, now), self._nodes(width, now, states), self._progress(width, states)]
        lines.append(self._tasks(width) if self._is_job else self._numbers(width, now))
        if self.height > 5:
            rows = self._failures(width) if self._is_job or self.expected <= 1 else self._table(width, now, states)
            lines += rows[: self.height - 5] + [()] * (self.height - 5 - len(rows))
        lines.append(self._last(width, states))
        return [_cut(line, width) for line in lines]

    @property
    def _is_job(self) -> bool:
        """Whether the progress is that of several tasks, and not that of the only one that trains. Without a recipe,
        the counts of the tasks tell."""
        if self._counts_first and not self.jobs:
            return True
        trained = {task for by_task in self.values.values() for task in by_task}
        return self.counts.total > 1 and (len(trained) != 1 or self._many)

    def _head(self, width: int, now: float) -> Line:
        title = f"{self.title} · {self.target}" if width >= 60 else self.title
        usual = "" if self.emulated or width < 60 else USUAL.get(self.phase, "")
        wait = f" {span(now - self.since)} ({usual})" if usual else ""
        return _apart(((title, "bold"),), ((f"{self.phase}{wait}", "cyan"), (f" {span(now - self.began)}", "")), width)

    def _states(self, now: float) -> list[RankState]:
        """The ranks beside each other; after a failure all have ended, and none is quiet."""
        at = now if self._read_to is None else min(now, self._read_to)
        states = compared(tuple(self.ranks.values()), self._steps.times, at)
        is_over = self.counts.total > 0 and not self.counts.open
        return at_end(states, self.failed or {}) if is_over or self.failed is not None else states

    def _nodes(self, width: int, now: float, states: list[RankState]) -> Line:
        if not self.nodes and not self.wanted:
            return ()
        ready = sum(node.state in READY for node in self.nodes)
        total = max(self.wanted, len(self.nodes))
        if width < 60:
            count = (f"{ready}/{total} nodes", "green" if ready == total else "yellow")
            return (count, (self._spent(now), ""), *_named(states))
        hours = node_hours(self.nodes, _moment(now), since=_moment(self.began))
        right = f"{ready} of {total}" + (f"   {hours:.2f} node hours{self._spent(now)}" if hours else "")
        by_state: dict[str, list[str]] = {}
        for number, node in enumerate(self.nodes):
            # the nodes are listed while the pool starts, and not while tasks run: idle may be out of date, ready is not
            by_state.setdefault("ready" if node.state in READY else node.state, []).append(f"n{number}")
        parts: list[Part] = [("nodes  ", "dim")]
        for state, names in by_state.items():
            nodes = " ".join(names) if len(names) <= 4 else f"{len(names)}"
            parts.append((f"{nodes} {state}  ", "green" if state == "ready" else "yellow"))
        return _apart(tuple(parts), ((right, ""),), width)

    def _spent(self, now: float) -> str:
        """What the nodes have cost since it began; empty without prices."""
        cost = node_cost(self.nodes, self.price, _moment(now), since=_moment(self.began)) if self.price else None
        return f"   {money(cost, self.price.currency)}" if cost and self.price else ""

    def _progress(self, width: int, states: list[RankState]) -> Line:
        if self.rendezvous.missing:
            return (("waiting for the others: " if width >= 60 else "", "dim"), (_joined(self.rendezvous), "yellow"))
        if self.step is not None and not self._is_job:
            unit, at, of = self.step
            stands = any(state.condition == "stands" for state in states)
            seconds = median(self._paces) * (of - at) if len(self._paces) >= STEPS_FOR_ETA and not stands else None
            eta = f"  ETA {span(seconds)}" if seconds is not None else ""
            name = f"{unit:<6} " if width >= 60 else ""
            text = f" {at}/{of}  {100 * at // of} %{eta}" if width >= 60 else f" {100 * at // of} %{eta}"
            return ((name, "dim"), *_bar(at, of, _room(width, name + text)), (text, ""))
        if self.added:
            added, total = map(sum, zip(*self.added.values(), strict=True))
            return self._task_bar("added", added, total, width)
        if self.counts.total > 1:
            return self._task_bar("tasks", self.counts.ended, self.counts.total, width)
        return ()

    def _task_bar(self, name: str, at: int, of: int, width: int) -> Line:
        rate = self.task_rate if at < of else None
        name = f"{name:<6} " if width >= 60 else ""
        per_second = f"  {_number(rate)}/s" if rate and width >= 60 else ""
        eta = f"  ETA {span((of - at) / rate)}" if rate else ""
        text = f" {at:,}/{of:,}  {100 * at // of} %{per_second}{eta}" if width >= 60 else f" {100 * at // of} %{eta}"
        return ((name, "dim"), *_bar(at, of, _room(width, name + text)), (text, ""))

    def _tasks(self, width: int) -> Line:
        """How many tasks run, by pool, wait and failed."""
        if not self.jobs:
            return ()
        counts, by_pool = self.counts, TallyCounter[str]()
        for pool, of_job in self.jobs.values():
            by_pool[pool] += of_job.running
        pools = ", ".join(f"{pool} {number:,}" for pool, number in by_pool.most_common(3) if pool and number)
        running_tasks = f"{counts.running:,} running" + (f" ({pools})" if pools and width >= 60 else "")
        causes = len({row.cause for rows in self.failures.values() for row in rows})
        by_cause = f" by {causes} cause{'s' * (causes > 1)}" if causes and width >= 60 else ""
        failed = f"  {counts.failed:,} failed{by_cause}" if counts.failed else ""
        waiting_tasks = f"  {counts.active:,} waiting" if width >= 60 or not counts.failed else ""
        rate = f"  {_number(self.task_rate)}/s" if self.task_rate and width < 60 else ""
        return ((running_tasks, "cyan"), (waiting_tasks, "dim"), (failed, "red"), (rate, ""))

    def _failures(self, width: int) -> list[Line]:
        """The failed tasks by cause, each with an example."""
        rows = sorted((row for rows in self.failures.values() for row in rows), key=lambda row: -row.tasks)
        if width < 60:
            return [((f"{row.tasks:>6,}  ", "red"), (f"{row.cause}: {row.example}", "")) for row in rows]
        return [
            ((f"{row.tasks:>6,}  ", "red"), (row.cause, ""), (f"  as {row.example}: {row.message}", "dim"))
            for row in rows
        ]

    def _numbers(self, width: int, now: float) -> Line:
        names, rate = self.names, next((name for name in rates_of(self.values) if self.values[name]), "")
        total = self._rate(rate, now) if rate else None
        right: Line = () if total is None else ((f"{_number(total)} {rate_unit(rate)}", ""),)
        parts: list[Part] = []
        for name in names[: 2 if width >= 60 else 1]:
            parts += [
                (f"{name} ", "dim"),
                number(next(iter(self.values[name].values()))),
                (spark((y for curve in self.history.get(name, {}).values() for _, y in curve), 12), "cyan"),
                ("  ", ""),
            ]
        return _apart(tuple(parts), right, width)

    @property
    def names(self) -> list[str]:
        """The metrics that are shown, the usual ones first."""
        names = [name for name in MAIN if self.values.get(name)]
        others = (name for name in self.values if self.values[name] and "_percent" not in name)
        return names + [name for name in others if name not in names and not is_rate(name)]

    def _rate(self, name: str, now: float) -> float | None:
        """The rate of all ranks: the sum, if each of them prints its own. None while they are silent."""
        rates = [state.rate for state in self._states(now) if state.rate is not None]
        if len(rates) > 1 and not is_total(name):
            return sum(rates)
        return None if now - self._rated > QUIET_SECONDS else next(iter(self.values[name].values()), None)

    def _table(self, width: int, now: float, states: list[RankState]) -> list[Line]:
        """A row for each rank, also for one that has not started; of a large gang, those that matter first."""
        by_number = {state.rank.number: state for state in states}
        are_many = max(self.expected, len(states)) > MOST_RANKS
        numbers = list(by_number)[:WORST] if are_many else sorted({*range(self._planned), *by_number})
        words = 6 * any(LOOKS[state.condition].row for state in states)
        head = f"rank node    step      /s  quiet  {'state':{words}.{words}}last line"
        row = functools.partial(_row, now=now, width=width, words=words)
        rows = [row(by_number[n]) if n in by_number else ((f"{n:4}", "dim"),) for n in numbers]
        return [((head if width >= 60 else "rank  quiet  last line", "dim"),), *rows]

    def _last(self, width: int, states: list[RankState]) -> Line:
        """Which ranks have a problem, how many are fine, and how old what is shown is, if it is old."""
        parts = self._summary(width, states)
        if self.seen is None or self.seen < QUIET_SECONDS:
            return parts
        return _apart(parts, ((f"seen {span(self.seen)} ago", "yellow"),), width)

    def _summary(self, width: int, states: list[RankState]) -> Line:
        if not self.ranks:
            if self.jobs or self.added:
                return ()
            return ((f"no rank of {self._planned} has started", "dim"),) if self._planned > 1 and width >= 60 else ()
        counts: TallyCounter[str] = TallyCounter(state.condition for state in states)
        fine = ", ".join(f"{counts[name]} {look.counted}" for name, look in LOOKS.items() if counts[name])
        of = f" of {self._planned}" if len(self.ranks) < self._planned else ""
        name = f"{len(self.ranks)}{of} rank{'s' if len(self.ranks) != 1 or of else ''}: " if width >= 60 else ""
        worst: Condition = states[0].condition if states else ""
        return ((f"{name}{fine}", LOOKS[worst].style or "dim"),)


def number(value: float | None) -> Part:
    """The last value of a metric."""
    return ("NaN ", "red") if value is None else (f"{value:.4g} ", "bold")


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def _joined(rendezvous: Rendezvous) -> str:
    """Which nodes a gang waits for."""
    missing = rendezvous.missing
    names = ", ".join(missing[:4]) + (f" and {len(missing) - 4} others" if len(missing) > 4 else "")
    verb = "is" if len(missing) == 1 else "are"
    return f"{len(rendezvous.joined)} of {rendezvous.nodes} have joined; {names} {verb} missing"


def _named(states: list[RankState]) -> Line:
    """The ranks that have a problem, by the number of the rank."""
    condition = states[0].condition if states else ""
    numbers = [state.rank.number for state in states if state.condition == condition]
    if condition in ("", "waits", "ended"):
        return ()
    names = ", ".join(f"r{number}" for number in numbers[:3])
    more = ", …" if len(numbers) > 3 else ""
    return ((f"  {len(numbers)} {LOOKS[condition].counted}: {names}{more}", LOOKS[condition].style),)


def _row(state: RankState, *, now: float, width: int, words: int) -> Line:
    """A rank. words: the columns for the word of its condition; 0 if all are fine."""
    rank, style = state.rank, LOOKS[state.condition].style
    rate = "" if state.rate is None else _number(state.rate)
    quiet = span(now - rank.heard)
    last = f"{state.end}: {rank.last}" if state.end else rank.last
    if width < 60:
        return ((f"{rank.number:4} {quiet:>6}  {last}", style),)
    label = f"{rank.number:4} {rank.node:<4} {rank.position!s:>7}"
    return (f"{label} {rate:>7} {quiet:>6}  {LOOKS[state.condition].row:{words}}", style), (last, style or "dim")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def span(seconds: float) -> str:
    """A time as `48s`, `7m40s` or `2h05m`."""
    total = max(int(seconds), 0)
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02}s"
    return f"{total // 3600}h{total % 3600 // 60:02}m"


def _bar(at: int, of: int, width: int) -> Line:
    full = max(min(width * at // of, width), 0)
    return ("█" * full, "green"), ("░" * (width - full), "dim")


def _room(width: int, others: str) -> int:
    return max(min(width - len(others), 30), 5)


def _apart(line: Line, right: Line, width: int) -> Line:
    """One part at the left edge and one at the right; the left one is cut where both do not fit."""
    right_width = sum(width_of(text) for text, _ in right)
    cut_line = _cut(line, max(width - right_width - 1, 0)) if right else line
    gap = width - right_width - sum(width_of(text) for text, _ in cut_line)
    return (*cut_line, (" " * max(gap, 1), ""), *right) if right else line


def _cut(line: Line, width: int) -> Line:
    """The line in at most `width` columns."""
    parts: list[Part] = []
    for part, style in line:
        text = plain_text(part)
        if width_of(text) > width:
            parts.append((cut_to(text, width - 1) + "…" * (width > 0), style))
            break
        parts.append((text, style))
        width -= width_of(text)
    return tuple(parts)
