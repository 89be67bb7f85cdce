"""Stores the world in SQLite: every change is committed before it is reported, and survives `kill -9`."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from batchtrain.emulator.records import Job, JobNode, JobSchedule, Met, Node, Pool, Record, TaskFacts, Usage
from batchtrain.emulator.world import Change

logger = logging.getLogger("batchtrain.emulator")

SCHEMA_VERSION = 2
INCREMENTAL = 2
"""SQLite's value of `auto_vacuum` for vacuuming on request."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS record (
    kind TEXT NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (kind, owner, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS task (
    job INTEGER NOT NULL, seq INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (job, seq)
) WITHOUT ROWID;
"""
_TYPES: dict[str, type[Record]] = {
    "pool": Pool,
    "node": Node,
    "schedule": JobSchedule,
    "job": Job,
    "jobnode": JobNode,
    "met": Met,
    "usage": Usage,
}
"""In the order of reading: containers of records first. Tasks are in a table of their own."""

_Row = tuple[str, str, str, bytes]
"""Kind, owner, key and data of a record."""
_TaskRow = tuple[int, int, bytes]
"""Job, number and data of a task."""


class UnknownSchema(Exception):
    """The data directory was written by another version of the emulator."""


MOST_TO_REWRITE = 256 * 1024 * 1024
"""Bytes: a larger database of an earlier version is not rewritten (1 s per 100 MB), and cannot shrink."""
SPARE_PAGES = 256
"""Free pages (1 MB) that the file keeps for the next records."""
STEP_PAGES = 512
"""Pages to release per step, which takes some milliseconds."""
LONGEST_WAL = 4 * 1024 * 1024


class Store:
    """One database file with one writer."""

    def __init__(self, path: Path) -> None:
        self.has_deleted = False
        """Whether records were deleted since the last complete `give_back`."""
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # fails for a directory, whose mode is not changed
        path.chmod(0o600)  # SQLite gives its other files the same mode
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._be_able_to_shrink(path)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA journal_size_limit = {LONGEST_WAL}")
        # After a commit, data survives the death of the process, not of the machine.
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_SCHEMA)
        self._check_version(path)

    def _be_able_to_shrink(self, path: Path) -> None:
        """New files can shrink at once; older ones after they are rewritten, if the disk has room for that."""
        if self._number("auto_vacuum") == INCREMENTAL:
            return
        pages = self._number("page_count")  # before the next statement, which gives a new file its first page
        self._database.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        size = (pages - self._number("freelist_count")) * self._number("page_size")
        if pages and size <= MOST_TO_REWRITE:
            with contextlib.suppress(sqlite3.OperationalError):
                self._database.execute("VACUUM")
                logger.info("%s was rewritten, so that it can give space back", path.name)

    def give_back(self) -> bool:
        """Release some unused space to the disk. Returns whether there is more; about SPARE_PAGES are kept."""
        if self._number("auto_vacuum") == INCREMENTAL and self._number("freelist_count") > SPARE_PAGES:
            self._database.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")  # each `execute` releases one page
            return True
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.has_deleted = False
        return False

    def _number(self, pragma: str) -> int:
        return int(self._database.execute(f"PRAGMA {pragma}").fetchone()[0])

    def _check_version(self, path: Path) -> None:
        version = self.meta("schema", str(SCHEMA_VERSION))
        if version == "1":
            self._give_tasks_their_table()
        elif version != str(SCHEMA_VERSION):
            self.close()
            raise UnknownSchema(
                f"{path} has schema {version[:20]}, this version knows {SCHEMA_VERSION}: use another data directory"
            )

    def _give_tasks_their_table(self) -> None:
        """Schema 1 kept tasks among the other records."""
        decode = msgspec.msgpack.Decoder(TaskFacts).decode
        self._database.execute("BEGIN IMMEDIATE")
        former = self._database.execute("SELECT data FROM record WHERE kind = 'task'")
        rows = ((task.job, task.seq, data) for (data,) in former for task in (decode(data),))
        self._database.executemany("INSERT INTO task VALUES (?, ?, ?)", rows)
        self._database.execute("DELETE FROM record WHERE kind = 'task'")
        self.note("schema", str(SCHEMA_VERSION))
        self._database.execute("COMMIT")

    def meta(self, name: str, otherwise: str) -> str:
        """A setting that is kept with the data; a new one gets the value `otherwise`."""
        self._database.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, otherwise))
        value = self._database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0]
        return str(value)

    def note(self, name: str, value: str) -> None:
        """Store a setting."""
        self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def load(self) -> Iterator[Change]:
        """Every record, pools before nodes and jobs before tasks; of tasks only the facts."""
        for kind, type_ in _TYPES.items():
            decoder = msgspec.msgpack.Decoder(type_)
            rows = self._database.execute("SELECT owner, key, data FROM record WHERE kind = ?", (kind,))
            for owner, key, data in rows:
                yield Change(kind, owner, key, decoder.decode(data))
        decode = msgspec.msgpack.Decoder(TaskFacts).decode
        for job, seq, data in self._database.execute("SELECT job, seq, data FROM task"):
            yield Change("task", str(job), str(seq), decode(data))

    def tasks(self, job: int, seqs: Sequence[int]) -> list[bytes]:
        """Tasks of a job by their ascending numbers."""
        marks = ",".join("?" * len(seqs))
        rows = self._database.execute(f"SELECT data FROM task WHERE job = ? AND seq IN ({marks}) ORDER BY seq",
                                      (job, *seqs)).fetchall()  # fmt: skip
        return [data for (data,) in rows]

    def last_seq(self) -> int:
        """The highest number that was used."""
        return int(self.meta("last_seq", "0"))

    def commit(self, changes: Iterable[Change], last_seq: int) -> None:
        """All changes in one transaction."""
        encode = msgspec.msgpack.Encoder().encode
        rows: list[_Row] = []
        tasks: list[_TaskRow] = []
        self._database.execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                if change.record is None:  # in order: what was written before its job was deleted is deleted with it
                    self._write(rows, tasks)
                    rows, tasks = [], []
                    self._delete(change)
                elif change.kind == "task":
                    tasks.append((int(change.owner), int(change.key), encode(change.record)))
                else:
                    rows.append((change.kind, change.owner, change.key, encode(change.record)))
            self._write(rows, tasks)
            self._database.execute("INSERT OR REPLACE INTO meta VALUES ('last_seq', ?)", (str(last_seq),))
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:  # a full disk has already rolled it back
                self._database.execute("ROLLBACK")
            raise

    def _write(self, rows: list[_Row], tasks: list[_TaskRow]) -> None:
        self._database.executemany("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", rows)
        self._database.executemany("INSERT OR REPLACE INTO task VALUES (?, ?, ?)", tasks)

    def _delete(self, change: Change) -> None:
        self.has_deleted = True
        if change.kind == "tasks":
            self._database.execute("DELETE FROM record WHERE kind IN ('jobnode', 'met') AND owner = ?", (change.owner,))
            self._database.execute("DELETE FROM task WHERE job = ?", (int(change.owner),))
        elif change.kind == "task":
            self._database.execute("DELETE FROM task WHERE job = ? AND seq = ?", (int(change.owner), int(change.key)))
        else:
            self._database.execute(
                "DELETE FROM record WHERE kind = ? AND owner = ? AND key = ?", (change.kind, change.owner, change.key)
            )

    def clear(self) -> None:
        """Delete every record (the numbers continue)."""
        self._database.execute("DELETE FROM record")
        self._database.execute("DELETE FROM task")
        self.has_deleted = True

    def close(self) -> None:
        self._database.close()
