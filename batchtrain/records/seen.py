"""Objects of the service as frozen values that print as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from batchtrain import markup
from batchtrain.catalog.prices import Price
from batchtrain.errors import printable, shortened

Row = TypeVar("Row")
MOST_ROWS = 100
"""Rows of a table that a notebook shows."""


def nodes_called(name: str, ids: Iterable[str]) -> list[str]:
    """The ids that a name matches: itself, or those that it abbreviates."""
    return [full for full in ids if name in (full, shortened(full))]


class PoolSeen(NamedTuple):
    """A pool at the time of the query."""

    id: str
    state: str
    allocation: str
    vm_size: str
    dedicated: int
    target_dedicated: int
    spot: int
    target_spot: int
    inter_node: bool = False
    slots: int = 1
    resize_errors: tuple[str, ...] = ()
    node_hours: float | None = None
    """The total hours of its current nodes; None if they were not queried."""

    def _repr_html_(self) -> str:
        return row_card("pool", self)


class NodeSeen(NamedTuple):
    """A node at the time of the query."""

    id: str
    state: str
    address: str
    start_task: str = ""
    errors: tuple[str, ...] = ()
    allocated: datetime | None = None
    prepared: float | None = None
    """Seconds that its start task took; None if it has none or has not ended."""
    dedicated: bool = True
    """Whether it is no spot node."""

    def _repr_html_(self) -> str:
        return row_card("node", self)


class Endpoint(NamedTuple):
    """The outside address of a port of a node."""

    node: str
    address: str
    port: int


class ImageSeen(NamedTuple):
    """An image from which the account can start nodes."""

    publisher: str
    offer: str
    sku: str
    node_agent: str
    capabilities: tuple[str, ...] = ()
    """In the service's words (`service_words` of the catalogue)."""
    ends: datetime | None = None
    """The end of Batch's support."""


class JobSeen(NamedTuple):
    """A job at the time of the query."""

    id: str
    state: str
    pool: str
    created: datetime | None = None
    ended: datetime | None = None
    reason: str = ""
    active: int | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None

    def _repr_html_(self) -> str:
        return row_card("job", self)


class ScheduleSeen(NamedTuple):
    """A job schedule at the time of the query; `job` is the last one that it created."""

    id: str
    state: str
    next_run: datetime | None = None
    ended: datetime | None = None
    job: str = ""

    def _repr_html_(self) -> str:
        return row_card("job schedule", self)


class TaskSeen(NamedTuple):
    """A task at the time of the query; `seconds` is the duration of its last run."""

    id: str
    state: str
    result: str = ""
    exit_code: int | None = None
    node: str = ""
    seconds: float | None = None
    failure: str = ""
    retries: int = 0
    requeues: int = 0
    started: datetime | None = None

    @property
    def failed(self) -> bool:
        """Whether its last run failed."""
        return self.result == "failure" or bool(self.exit_code)

    def _repr_html_(self) -> str:
        return row_card("task", self)


class Counts(NamedTuple):
    """The numbers of tasks by state; the service updates them some seconds late."""

    active: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def open(self) -> int:
        """The tasks that have not ended."""
        return self.active + self.running

    @property
    def total(self) -> int:
        return sum(self)

    def __str__(self) -> str:
        named = ((number, name) for name, number in self._asdict().items() if number)
        return ", ".join(f"{number:,} {name}" for number, name in named)


class PlaceSeen(NamedTuple):
    """A node that a task ran on, and the directory of the task there."""

    node: str
    pool: str
    directory: str


def node_hours(nodes: Iterable[NodeSeen], now: datetime, *, since: datetime | None = None) -> float:
    """The hours for which the nodes have existed (since a time), which are billed whether tasks run or not."""
    lived = (now - (max(node.allocated, since) if since else node.allocated) for node in nodes if node.allocated)
    return sum((max(span.total_seconds(), 0.0) for span in lived), 0.0) / 3600


def node_cost(nodes: Sequence[NodeSeen], price: Price, now: datetime, *, since: datetime | None = None) -> float | None:
    """What the nodes have cost (since a time). Returns None if a price that it needs is unknown."""
    hours = [node_hours((node for node in nodes if node.dedicated is kind), now, since=since) for kind in (True, False)]
    return price.of(*hours)


class Table(tuple[Row, ...], Generic[Row]):
    """Rows of one kind: a tuple that prints as text and displays as HTML in a notebook."""

    def _repr_html_(self) -> str:
        if not self:
            return "<i>nothing</i>"
        more = f"<i>and {len(self) - MOST_ROWS:,} more rows</i>" if len(self) > MOST_ROWS else ""
        return markup.table(columns(self), map(cells, self[:MOST_ROWS])) + more

    def __str__(self) -> str:
        if not self:
            return "nothing"
        return "\n".join(aligned(self, []))

    __repr__ = __str__


def row_card(kind: str, row: Any) -> str:
    """One row in a frame: its id and state, and each other field that has a value."""
    shown = {name: cell for name, cell in zip(columns([row]), cells(row), strict=True) if cell}
    title, state = f"{kind} {shown.pop('id', '')}", shown.pop("state", "")
    return markup.card(markup.head(title, state), markup.table((), shown.items()))


def aligned(rows: Sequence[Any], widths: list[int], *, head: bool = True) -> list[str]:
    """The lines of a table. widths: those of the rows before; they grow to those of these rows."""
    lines = [cells(row) for row in rows]
    named = [columns(rows), *lines]
    widths[:] = [
        max(width, *(len(line[index]) for line in named)) for index, width in enumerate(widths or [0] * len(named[0]))
    ]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (named if head else lines)
    ]


def columns(rows: Iterable[Any]) -> tuple[str, ...]:
    """The names of the rows' fields."""
    first = next(iter(rows))
    return tuple(map(printable, first)) if isinstance(first, dict) else tuple(first._fields)


def cells(row: Any) -> tuple[str, ...]:
    """A row's values as text in one line that does not control a terminal: a file name may have any character."""
    return tuple(printable(_cell(value)) for value in (row.values() if isinstance(row, dict) else row))


def _cell(value: Any) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, tuple):
        return shortened("; ".join(str(item) for item in value))
    return shortened(str(value))
