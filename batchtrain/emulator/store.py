"""The world in SQLite: every change is committed before anyone hears of it, and survives `kill -9`."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from batchtrain.emulator.records import Job, JobNode, JobSchedule, Met, Node, Pool, Record, Task, Usage
from batchtrain.emulator.world import Change

logger = logging.getLogger("batchtrain.emulator")

SCHEMA_VERSION = 1
INCREMENTAL = 2
"""SQLite's number of the `auto_vacuum` that waits to be asked."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS record (
    kind TEXT NOT NULL, owner TEXT NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (kind, owner, key)
) WITHOUT ROWID;
"""
_TYPES: dict[str, type[Record]] = {
    "pool": Pool,
    "node": Node,
    "schedule": JobSchedule,
    "job": Job,
    "jobnode": JobNode,
    "met": Met,
    "task": Task,
    "usage": Usage,
}
"""In the order in which they are read back: what holds others comes before them."""

_Row = tuple[str, str, str, bytes]
"""Kind, owner, key and data of a record."""


class UnknownSchema(Exception):
    """The data directory was written by another version of the emulator."""


MOST_TO_REWRITE = 256 * 1024 * 1024
"""Bytes in use. A database of an earlier version gives nothing back before it is rewritten, which takes a second for
100 MB; a larger one is left as it is."""
SPARE_PAGES = 256
"""Free pages (1 MB) that the file keeps, because the next records need them."""
STEP_PAGES = 512
"""Pages that one step gives back: some milliseconds."""
LONGEST_WAL = 4 * 1024 * 1024


class Store:
    """One database file, one writer."""

    def __init__(self, path: Path) -> None:
        self.has_deleted = False
        """Since the last call of `give_back` that found nothing to do."""
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._be_able_to_shrink(path)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA journal_size_limit = {LONGEST_WAL}")
        # A commit reaches the operating system before it returns: a dead process loses nothing, a dead machine may.
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_SCHEMA)
        self._check_version(path)

    def _be_able_to_shrink(self, path: Path) -> None:
        """New files can from the beginning; others once they are rewritten, if there is room for that."""
        if self._number("auto_vacuum") == INCREMENTAL:
            return
        self._database.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        pages = self._number("page_count")
        used = (pages - self._number("freelist_count")) * self._number("page_size")
        if pages and used <= MOST_TO_REWRITE:
            with contextlib.suppress(sqlite3.OperationalError):
                self._database.execute("VACUUM")
                logger.info("%s was rewritten, so that it can give space back", path.name)

    def give_back(self) -> bool:
        """Give some unused space back to the disk; whether there is more. What is left is about SPARE_PAGES."""
        if self._number("auto_vacuum") == INCREMENTAL and self._number("freelist_count") > SPARE_PAGES:
            self._database.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")  # `execute` takes one page of them
            return True
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.has_deleted = False
        return False

    def _number(self, pragma: str) -> int:
        return int(self._database.execute(f"PRAGMA {pragma}").fetchone()[0])

    def _check_version(self, path: Path) -> None:
        found = int(self.meta("schema", str(SCHEMA_VERSION)))
        if found != SCHEMA_VERSION:
            self.close()
            raise UnknownSchema(
                f"{path} has schema {found}, this version knows {SCHEMA_VERSION}: use another data directory"
            )

    def meta(self, name: str, otherwise: str) -> str:
        """A setting that lives as long as the data; `otherwise` is written down when it is new."""
        self._database.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, otherwise))
        value = self._database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0]
        return str(value)

    def note(self, name: str, value: str) -> None:
        """Write a setting down."""
        self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def load(self) -> Iterator[Change]:
        """Every record, pools before nodes and jobs before tasks."""
        for kind, type_ in _TYPES.items():
            decoder = msgspec.msgpack.Decoder(type_)
            rows = self._database.execute("SELECT owner, key, data FROM record WHERE kind = ?", (kind,))
            for owner, key, data in rows:
                yield Change(kind, owner, key, decoder.decode(data))

    def last_seq(self) -> int:
        """The highest number ever given."""
        return int(self.meta("last_seq", "0"))

    def commit(self, changes: Iterable[Change], last_seq: int) -> None:
        """All changes in one transaction."""
        encode = msgspec.msgpack.Encoder().encode
        written: list[_Row] = []
        self._database.execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                if change.record is not None:
                    written.append((change.kind, change.owner, change.key, encode(change.record)))
                else:  # in order: what was written before its job was deleted goes with it
                    self._write(written)
                    written = []
                    self._delete(change)
            self._write(written)
            self._database.execute("INSERT OR REPLACE INTO meta VALUES ('last_seq', ?)", (str(last_seq),))
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:  # a full disk has rolled it back already
                self._database.execute("ROLLBACK")
            raise

    def _write(self, rows: list[_Row]) -> None:
        self._database.executemany("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", rows)

    def _delete(self, change: Change) -> None:
        self.has_deleted = True
        if change.kind == "tasks":
            of_jobs = "DELETE FROM record WHERE kind IN ('task', 'jobnode', 'met') AND owner = ?"
            self._database.execute(of_jobs, (change.owner,))
        else:
            self._database.execute(
                "DELETE FROM record WHERE kind = ? AND owner = ? AND key = ?",
                (change.kind, change.owner, change.key),
            )

    def clear(self) -> None:
        """Delete every record (the numbers continue)."""
        self._database.execute("DELETE FROM record")
        self.has_deleted = True

    def close(self) -> None:
        self._database.close()
