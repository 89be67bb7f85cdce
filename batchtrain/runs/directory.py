"""The directory of a run: the types of its files, and how they are written and read.

20261122T111502Z-digits-7f3a/
  run.json              RunRecord
  lease.json            which process records the run
  labels.json           Labels, which the user writes and no recording changes
  config/               the files as given, effective.yaml, plan.json (without secrets)
  events.jsonl          EventRecord, one per line
  nodes.json            RunNode, a list
  tasks.jsonl           Task, one per task at its end
  attempts.jsonl        Attempt, one per attempt of the tasks that ran more than once; in a run, what was seen of all
                        attempts, the newest line about an attempt last
  files.jsonl           FileRecord, one per file that was to be fetched
  metrics/TASK.jsonl    one JSON object per line
  metrics/TASK.ranks.json  RanksRecord: the ranks as they were last; of a task that was followed
  logs/TASK/            stdout.txt, stderr.txt, ranks/0.stdout.txt, ranks/0.stderr.txt, ... of the last attempt
  logs/TASK/times.jsonl  when the output came to the client that followed the task
  logs/TASK/attempt-1/  what is known of the output of an earlier attempt
  outputs/TASK/         the fetched results
  fabric.json           FabricCheck, of `check fabric`
  report.html
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import msgspec

from batchtrain import foreign, state_files
from batchtrain.errors import BatchtrainError, Finding, NotFound, UsageError
from batchtrain.metrics.point import COUNTERS, MOST_NAME, metric_name, of_json
from batchtrain.plan.lineage import Commit
from batchtrain.records import Attempt, FabricCheck, Metric, Point, RanksRecord, Task
from batchtrain.records.pools import PoolAttempt
from batchtrain.records.position import Course
from batchtrain.records.rank_end import RankEnd, by_rank
from batchtrain.records.record import Time
from batchtrain.records.stacks import Stack
from batchtrain.runs import lease
from batchtrain.runs.local_names import safe_name, safe_path
from batchtrain.service.local_files import PRIVATE, Folder

SCHEMA = 1
"""The version of the format; a reader ignores fields that it does not know."""
MOST_TASK = 65
"""Characters of a task and a slash before the name of a metric in a summary."""
LOSS = "what it says of the run is lost"
ROOT, ROOT_VARIABLE = "runs", "BATCHTRAIN_RUNS_DIR"
LATEST = "latest"

Line = TypeVar("Line", bound=msgspec.Struct)


class RunFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a run failed."""

    message: str
    task: str = ""
    rank: int | None = None
    node: str = ""
    code: int | None = None
    cause: str = ""
    finding: dict[str, str] = {}
    """What a diagnosis found before the job was deleted: `rule`, `subject`, `cause`, `evidence`, `next_step`."""

    @property
    def found(self) -> Finding | None:
        """The finding; None without one."""
        return Finding(*(self.finding.get(name, "") for name in Finding._fields)) if self.finding else None

    @property
    def card(self) -> list[str]:
        """The finding as lines; empty without one."""
        return self.found.card() if self.found else []


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a run costs, by the prices of its catalogue; a value of None is unknown."""

    currency: str
    region: str
    dedicated: float | None
    """The price of an hour of a dedicated node."""
    spot: float | None
    hour: float | None
    """An hour of all nodes that the pool may have."""
    run: float | None = None
    """The whole run."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """run.json."""

    schema: int = SCHEMA
    id: str
    state: str
    """`running`, `completed`, `failed` or `interrupted`; `fetched` if the results were fetched before the job had
    ended; `detached` if the service ends it without a client; when it is read, `lost` if the process that recorded the
    run ended without finishing it, or `left` if that was wanted."""
    is_stopped: bool = False
    """Whether `runs stop` has ended a detached run whose results were not fetched yet."""
    left_by: str = ""
    """By whom a run was left that continued without its command: `user` after Ctrl-C, `terminal` when that was closed;
    empty for any other."""
    started: Time
    ended: Time | None = None
    account: str = ""
    endpoint: str = ""
    pool: str = ""
    job: str
    vm_size: str = ""
    nodes: int = 0
    node_hours: float | None = None
    is_node_hours_least: bool = False
    """Whether only the times of its tasks tell them, because its pool had lost nodes, or was gone."""
    cost: Cost | None = None
    """None without prices, and on the emulator."""
    candidates: tuple[PoolAttempt, ...] = ()
    """Where the nodes of its pool were looked for, in order; empty for a pool without `candidates`."""
    phases: dict[str, float] = {}
    """Seconds by part of the run: `pool`, `preparation`, `start`, `training`, `fetch`, as far as they are known."""
    user: str = ""
    """Who ran it; empty in a run of an earlier version."""
    command: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    """The values of `--set`."""
    versions: dict[str, str] = {}
    commit: Commit | None = None
    project: str = ""
    """The id of the project below which the checkpoints of the job are; empty for a job without checkpoints."""
    summary: dict[str, Metric] = {}
    is_by_task: bool | None = None
    """Whether the names of `summary` begin with a task, as `TASK/METRIC`; None in a run of an earlier version."""
    parameters: tuple[str, ...] = ()
    """The names of the parameters of its tasks; empty while it runs."""
    failure: RunFailure | None = None
    warnings: tuple[str, ...] = ()
    """What may have made it slow: what the check of the nodes before a launch warned about."""
    results: str = ""
    """`complete` if everything that was to be fetched is here, `partial` if not; empty if that is not known."""

    @property
    def goes_on(self) -> bool:
        """Whether its tasks may still run: followed by its command, or left to the service."""
        return self.state in ("running", "detached", "left")

    @property
    def is_over(self) -> bool:
        """Whether its end was recorded, however it went."""
        return self.state in ("completed", "failed", "interrupted")


class Labels(msgspec.Struct, frozen=True, omit_defaults=True):
    """labels.json: what the user calls a run."""

    tags: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, (", ".join(self.tags), self.note)))


MOST_TAG = 64


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags of a run, each once. Raises UsageError."""
    names = [tag.strip() for tag in tags]
    for tag in names:
        if not tag or "," in tag or len(tag) > MOST_TAG or not tag.isprintable():
            raise UsageError(f"`{tag}` is no tag; write a word without a comma, of at most {MOST_TAG} characters")
    return tuple(dict.fromkeys(names))


class EventRecord(msgspec.Struct, frozen=True):
    """A line of events.jsonl."""

    t: Time
    kind: str
    subject: str
    text: str


class RunNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node of nodes.json: n0 is the first."""

    name: str
    id: str
    pool: str = ""
    address: str = ""
    size: str = ""
    ranks: dict[str, tuple[int, ...]] = {}
    """The ranks that ran on it, by task."""


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of files.jsonl: a file of a node, with its path in the run directory or the reason why it was not
    fetched."""

    task: str
    path: str
    """The path in the directory of the task, such as `wd/output/model.pt`."""
    node: str = ""
    size: int
    time: Time | None = None
    fetched: str = ""
    """The path in the run directory; empty if it was not fetched."""
    sha256: str = ""
    reason: str = ""
    """Why it was not fetched, or a remark about the copy."""


COUNTED: Mapping[str, set[type]] = {
    "t": {int, float},
    "rank": {int},
    "node": {str},
    "step": {int},
    "epoch": {int, float},
    "attempt": {int},
}
"""The position of a line of metrics/TASK.jsonl, and the types that need no conversion."""
NUMBERS = {float, type(None)}
Block = Mapping[str, Sequence[Any]]
"""Lines of metrics/TASK.jsonl with the same names, as columns."""
MOST_CELLS = 100_000_000
"""Rows times metrics of a table: 800 MB."""
READ_BYTES = 1 << 16  # objects of more text leave the processor's cache: 1 << 20 takes 1.4 times as long


class Columns(NamedTuple):
    """The metrics of a run as columns of equal length: one row for each line of metrics/TASK.jsonl."""

    task: list[str]
    t: list[float | None]
    rank: list[int | None]
    node: list[str]
    step: list[int | None]
    epoch: list[float | None]
    attempt: list[int]
    values: dict[str, list[float | None]]
    """By metric; None in rows without it, and for a value that was NaN or infinite."""

    def add(self, task: str, block: Block) -> None:
        """Add lines of a task; a metric that they lack may become shorter than the other columns."""
        before, count = len(self.task), len(next(iter(block.values())))
        self.task.extend([task] * count)
        for name in COUNTED:
            getattr(self, name).extend(block.get(name, [Point._field_defaults[name]] * count))
        for name in block.keys() - COUNTED.keys():
            column = self.values.setdefault(name, [])
            column.extend([None] * (before - len(column)))
            column.extend(block[name])
        if len(self.task) * len(self.values) > MOST_CELLS:
            raise UsageError(
                f"the metrics are too many for a table: {len(self.values):,} names, and more than {before:,} rows;"
                " `batchtrain runs export` writes one line per value"
            )

    def table(self) -> dict[str, list[Any]]:
        """All columns by name, as `pandas.DataFrame` takes them."""
        return {**{name: getattr(self, name) for name in self._fields[:-1]}, **self.values}


class RunDirectory(NamedTuple):
    """The directory of one run."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "config"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def metrics_file(self, task: str) -> Path:
        """The numbers of a task, a JSON object per line."""
        return self.path / "metrics" / f"{safe_path(task)}.jsonl"

    def ranks_file(self, task: str) -> Path:
        """The ranks of a task."""
        return self.path / "metrics" / f"{safe_path(task)}.ranks.json"

    def logs(self, task: str, attempt: int | None = None) -> Path:
        """The directory of a task's stdout.txt, stderr.txt and ranks/: of the last attempt, or of an earlier one."""
        return self.path / "logs" / safe_path(task) / (f"attempt-{attempt}" if attempt else "")

    def outputs(self, task: str) -> Path:
        """The directory of the fetched results of a task."""
        return self.path / "outputs" / safe_path(task)

    # --- written ----------------------------------------------------------------------------------------------------

    def open(self, path: Path, how: str) -> BinaryIO:
        """Open a file of the run for writing. No link in its directory is followed."""
        return open_private(path, how, self.path)

    def replace(self, path: Path, content: bytes) -> None:
        """Write a file of the run by rename. No link in its directory is followed."""
        self.replace_lines(path, (content,))

    def replace_lines(self, path: Path, lines: Iterable[bytes]) -> None:
        """The same with lines that are made as they are written."""
        replace_lines(path, lines, self.path)

    def write(self, record: RunRecord) -> None:
        """Replace run.json."""
        self.replace(self.path / "run.json", _pretty(record))

    def write_labels(self, labels: Labels) -> None:
        """Replace labels.json."""
        self.replace(self.path / "labels.json", _pretty(labels))

    def write_nodes(self, nodes: Iterable[RunNode]) -> None:
        """Replace nodes.json."""
        self.replace(self.path / "nodes.json", _pretty(list(nodes)))

    def write_tasks(self, tasks: Iterable[Task]) -> None:
        """Replace tasks.jsonl."""
        self.replace_lines(self.path / "tasks.jsonl", map(line_of, tasks))

    def write_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Replace attempts.jsonl; without attempts there is none."""
        if attempts:
            self.replace_lines(self.path / "attempts.jsonl", map(line_of, attempts))
        else:
            (self.path / "attempts.jsonl").unlink(missing_ok=True)

    def write_fabric(self, check: FabricCheck) -> None:
        """Replace fabric.json."""
        self.replace(self.path / "fabric.json", _pretty(check))

    def add_attempt(self, attempt: Attempt) -> None:
        """Append a line to attempts.jsonl."""
        with self.open(self.path / "attempts.jsonl", "ab") as file:
            file.write(line_of(attempt))

    def write_files(self, files: Iterable[FileRecord]) -> None:
        """Replace files.jsonl."""
        self.replace_lines(self.path / "files.jsonl", map(line_of, files))

    def add_event(self, event: EventRecord) -> None:
        """Append a line to events.jsonl."""
        with self.open(self.path / "events.jsonl", "ab") as file:
            file.write(line_of(event))

    def move(self, path: Path, target: Path) -> None:
        """Give a file of the run another name. No link in its directory is followed."""
        with Folder(self.path, path.parent) as folder, Folder(self.path, target.parent, PRIVATE) as target_folder:
            folder.replace(path.name, target.name, target_folder)

    # --- read -------------------------------------------------------------------------------------------------------

    def record(self) -> RunRecord:
        """run.json. Raises NotFound if there is none, DamagedState if it cannot be read."""
        record = self._record()
        if record.state == "running" and lease.holder(self.path) in ("lost", "none"):
            record = self._record()  # it may have ended just now
            if record.state == "running":
                return msgspec.structs.replace(record, state="left" if record.left_by else "lost")
        return record

    def _record(self) -> RunRecord:
        loss = "the run leaves the lists, and its other files stay"
        record = state_files.read(self.path / "run.json", RunRecord, loss)
        if record is None:
            raise NotFound(f"{self.path} is not a run directory: it has no run.json")
        summary = {metric_name(name, MOST_NAME + MOST_TASK): metric for name, metric in record.summary.items()}
        return msgspec.structs.replace(record, summary=summary)

    def record_or_none(self) -> RunRecord | None:
        """The same; None if it is not here, or cannot be read."""
        with contextlib.suppress(BatchtrainError):
            return self.record()
        return None

    def labels(self) -> Labels:
        """labels.json; empty without one. Raises DamagedState."""
        return state_files.read(self.path / "labels.json", Labels, "the run has no tags and no note") or Labels()

    def labels_or_none(self) -> Labels | None:
        """The same; None if it cannot be read, so that damaged labels hide no run."""
        with contextlib.suppress(BatchtrainError):
            return self.labels()
        return None

    def points(self) -> Iterator[tuple[str, Point]]:
        """The lines of metrics/TASK.jsonl of all tasks."""
        for path in sorted((self.path / "metrics").glob("*.jsonl")):
            for point in points_of(path):
                yield path.stem, point

    def metrics(self) -> Columns:
        """All values of all metrics."""
        columns = Columns([], [], [], [], [], [], [], {})
        for path in sorted((self.path / "metrics").glob("*.jsonl")):
            for block in _blocks_of(path):
                columns.add(path.stem, block)
        for column in columns.values.values():
            column.extend([None] * (len(columns.task) - len(column)))
        return columns

    def ranks(self, task: str) -> RanksRecord:
        """The ranks of a task; empty if none were recorded."""
        return state_files.cached(self.ranks_file(task), RanksRecord) or RanksRecord()

    def rank_ends(self, task: str, record: RunRecord) -> dict[int, RankEnd] | None:
        """How the ranks of a task ended, as its gang recorded it; None if no rank is known to have failed."""
        ends = by_rank(_lines(self.logs(task) / "ranks" / "ends.jsonl", RankEnd))
        failure = record.failure
        if not ends and failure is not None and failure.rank is not None and failure.task in ("", task):
            ends = {failure.rank: RankEnd(exit_code=failure.code)}
        return ends or None

    def stacks(self, task: str) -> tuple[Stack, ...]:
        """What the processes of a task did when a stall stopped it; empty without one."""
        return tuple(_lines(self.logs(task) / "ranks" / "stacks.jsonl", Stack))

    def fabric(self) -> FabricCheck | None:
        """fabric.json; None if the run is no fabric check."""
        return state_files.read(self.path / "fabric.json", FabricCheck, LOSS)

    def nodes(self) -> tuple[RunNode, ...]:
        """nodes.json; empty if there is none yet."""
        return state_files.read(self.path / "nodes.json", tuple[RunNode, ...], LOSS) or ()

    def tasks(self) -> tuple[Task, ...]:
        """The lines of tasks.jsonl."""
        return tuple(self.each_task())

    def each_task(self) -> Iterator[Task]:
        """The same, one by one. In a lost run, a task without an end is lost. The failure of an earlier version is a
        text."""
        record = self.record_or_none()
        is_lost = record is not None and record.state == "lost"
        for task in _lines(
            self.path / "tasks.jsonl", Task, lambda line: {**line, "failure": {"message": line.get("failure")}}
        ):
            yield task if task.state == "completed" or not is_lost else msgspec.structs.replace(task, state="lost")

    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts of attempts.jsonl by task and number; of several lines about one, the last."""
        newest = {(attempt.task, attempt.number): attempt for attempt in _lines(self.path / "attempts.jsonl", Attempt)}
        return tuple(newest[key] for key in sorted(newest))

    def files(self) -> tuple[FileRecord, ...]:
        """The lines of files.jsonl."""
        return tuple(_lines(self.path / "files.jsonl", FileRecord))

    def events(self) -> tuple[EventRecord, ...]:
        """The lines of events.jsonl."""
        return tuple(_lines(self.path / "events.jsonl", EventRecord))


# --- all runs -------------------------------------------------------------------------------------------------------


def named(root: Path, name: str) -> RunDirectory:
    """The directory of a run by its whole name, which may come from the metadata of a job."""
    return RunDirectory(root / safe_name(name))


@contextlib.contextmanager
def naming_results(run: RunDirectory) -> Iterator[None]:
    """Of a run that has ended, its job and its storage may be gone: then the error names its results."""
    try:
        yield
    except NotFound as error:
        if (record := run.record_or_none()) is not None and record.is_over:
            raise NotFound(f"run {run.name} has ended; its results are in {run.path}") from error
        raise


def root_of(runs_dir: str | Path | None, environment: Mapping[str, str]) -> Path:
    """The directory of all runs: --runs-dir, else BATCHTRAIN_RUNS_DIR, else `runs`."""
    return Path(runs_dir or environment.get(ROOT_VARIABLE) or ROOT)


def check(root: Path) -> None:
    """Raise UsageError if no run directory can be made in `root`. Makes `root`, which git then ignores."""
    try:
        if not root.exists():
            root.mkdir(PRIVATE, parents=True)
            replace(root / ".gitignore", b"*\n")
    except OSError as error:
        raise _no_room(root, error) from None
    if not root.is_dir() or not os.access(root, os.W_OK | os.X_OK):
        raise UsageError(
            f"results cannot be written to {root}: it is not a directory that this user can write to; choose another"
            f" (`--runs-dir DIR`, in Python `runs_dir`, or {ROOT_VARIABLE})"
        )


def new_name(job: str, now: datetime) -> str:
    """A name for a run of a job."""
    return f"{now:%Y%m%dT%H%M%SZ}-{safe_name(job)}-{secrets.token_hex(2)}"


def make(root: Path, job: str, now: datetime, name: str = "") -> RunDirectory:
    """Make the directory of a run exclusively, and point `latest` to it. name: by default a new one."""
    check(root)
    while True:
        path = root / (name or new_name(job, now))
        try:
            path.mkdir(mode=PRIVATE)
            break
        except FileExistsError:
            name = ""
        except OSError as error:
            raise _no_room(root, error) from None
    fresh_link = root / f".{LATEST}-{secrets.token_hex(4)}"
    with contextlib.suppress(OSError):  # a file system without links
        fresh_link.symlink_to(path.name, target_is_directory=True)
        try:
            fresh_link.replace(root / LATEST)
        except OSError:  # a directory of that name
            fresh_link.unlink()
    return RunDirectory(path)


def _no_room(root: Path, error: OSError) -> UsageError:
    return UsageError(
        f"results cannot be written to {root}: {error.strerror}; choose another directory (`--runs-dir DIR`, in"
        f" Python `runs_dir`, or {ROOT_VARIABLE})"
    )


def runs(root: Path) -> Iterator[RunDirectory]:
    """All runs, the oldest first."""
    if root.is_dir():
        for path in sorted(root.iterdir()):
            if path.name != LATEST and os.path.exists(path / "run.json"):  # noqa: PTH110 - no error without permission
                yield RunDirectory(path)


def of_job(root: Path, job: str) -> list[RunDirectory]:
    """The runs of a job, the oldest first. One that cannot be read is left out."""

    def is_of_job(run: RunDirectory) -> bool:
        with contextlib.suppress(BatchtrainError, OSError):
            return run.record().job == job
        return False

    return list(filter(is_of_job, runs(root)))


def find(root: Path, name: str) -> RunDirectory:
    """A run by its path, its name, the beginning or the end of its name, or `latest`. Raises NotFound."""
    for path in (root / name, Path(name)):
        if name and os.path.exists(path / "run.json"):  # noqa: PTH110 - as above
            return RunDirectory(path.resolve())
    if name == LATEST and (every := tuple(runs(root))):  # a file system without links
        return every[-1]
    matching = [run for run in runs(root) if run.name.startswith(name) or run.name.endswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(
            f"`{name}` names {len(matching)} runs of {root}: {', '.join(run.name for run in matching[:5])}"
        )
    raise NotFound(f"{root} has no run `{name}`; `batchtrain runs list` lists them")


# --- bytes ----------------------------------------------------------------------------------------------------------


def open_private(path: Path, how: str, root: Path | None = None) -> BinaryIO:
    """Open a file for writing. Only the user can read it, and the directories that are made for it. root: the directory
    below which no link is followed; by default that of the file."""
    with Folder(root or path.parent, path.parent, PRIVATE) as folder:
        file = open(path.name, how, opener=lambda name, flags: folder.open(name, flags, 0o600))  # noqa: SIM115
    return cast(BinaryIO, file)


def replace(path: Path, content: bytes) -> None:
    """Write a file by rename: a reader sees the old one or the new one. Only the user can read it."""
    replace_lines(path, (content,))


def replace_lines(path: Path, lines: Iterable[bytes], root: Path | None = None) -> None:
    """The same with lines that are made as they are written. root: as for `open_private`."""
    with Folder(root or path.parent, path.parent, PRIVATE) as folder:
        folder.write(path.name, lines)


def line_of(record: Any) -> bytes:
    """A record as a line of JSON."""
    return msgspec.json.encode(record) + b"\n"


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


def points_of(path: Path) -> Iterator[Point]:
    """The points of a metrics file, each at its place; an incomplete line is skipped."""
    course = Course()
    with state_files.stream(path, LOSS) as file:
        for point in points_in(file):
            at = None if point.node else course.advance(point.rank, point.attempt, point.epoch, point.step)
            yield point if at is None else point._replace(global_step=at.global_step)


def points_in(lines: Iterable[bytes]) -> Iterator[Point]:
    """The points of lines of a metrics file; an incomplete line is skipped."""
    for line in lines:
        try:
            point = of_json(line, recorded=True)
        except foreign.UNREADABLE:
            continue
        if point is not None:
            yield point


def _blocks_of(path: Path) -> Iterator[Block]:
    """The points of a metrics file as blocks of columns. Lines that need no conversion are read without points, which
    takes a fifth of the time."""
    with state_files.stream(path, LOSS) as file:
        while lines := file.readlines(READ_BYTES):
            with contextlib.suppress(*foreign.UNREADABLE):
                blocks = list(_blocks(_OBJECTS.decode_lines(b"".join(lines))))
                if all(map(_is_plain, blocks)):
                    yield from blocks
                    continue
            rows = ({**{name: getattr(point, name) for name in COUNTED}, **point.values} for point in points_in(lines))
            yield from _blocks(rows)


_OBJECTS = msgspec.json.Decoder(dict[str, Any])


def _blocks(rows: Iterable[dict[str, Any]]) -> Iterator[Block]:
    for names, alike in itertools.groupby(rows, key=tuple):
        yield dict(zip(names, zip(*map(dict.values, alike), strict=True), strict=True))


def _is_plain(block: Block) -> bool:
    """Whether a block has metrics, and every value has the type that it has in a point."""
    names = block.keys() - COUNTED.keys()
    return (
        bool(names)
        and names.isdisjoint(COUNTERS)
        and max(map(len, names)) <= MOST_NAME
        and all(set(map(type, column)) <= COUNTED.get(name, NUMBERS) for name, column in block.items())
    )


def _lines(
    path: Path, kind: type[Line], renew: Callable[[dict[str, Any]], dict[str, Any]] = lambda line: line
) -> Iterator[Line]:
    """The records of a file; a line that a kill left incomplete is skipped. renew: converts an earlier version."""
    with state_files.stream(path, LOSS) as file:
        for line in file:
            with contextlib.suppress(*foreign.UNREADABLE):
                try:
                    record = msgspec.json.decode(line, type=kind)
                except msgspec.ValidationError:
                    record = msgspec.convert(renew(_OBJECTS.decode(line)), kind)
                yield record
