"""Files of tasks that do not fit into a request.

They are kept per job, given to nodes by signed links, and deleted with the job. On Azure they go through storage; on
the emulator a training needs no storage. Only the account's own client can add files.
"""

from __future__ import annotations

import hmac
import math
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path

from batchtrain.emulator import tokens
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.reply import Slice
from batchtrain.emulator.wire import BLOB_STORE

FOLDER = "blob_store"
MOST_BYTES = 1024**4
LIFE_SECONDS = 30 * 86_400
"""The lifetime of a link: a task may wait long for its nodes, and be retried."""
_PATH = re.compile(r"(?P<job>[A-Za-z0-9_-]{1,64})/(?P<name>[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99})")


class BlobStore:
    """The files of all jobs, by `JOB/NAME`. The jobs of a job schedule share its files."""

    def __init__(self, data_dir: Path, key: str) -> None:
        self._home, self._key = data_dir / FOLDER, key
        self._awaited: set[str] = set()
        """Jobs whose files arrived before the job."""

    def link(self, endpoint: str, path: str, now: float) -> str:
        """The URL from which nodes download a file."""
        end = str(int(now) + LIFE_SECONDS)
        return f"{endpoint}{BLOB_STORE}{path}?se={end}&sig={self._signature(path, end)}"

    def _signature(self, path: str, end: str) -> str:
        return tokens.derived(self._key, f"GET\n{path}\n{end}".encode()).hex()

    async def keep(self, path: str, parts: AsyncIterator[bytes], job_ids: Collection[str]) -> None:
        """Store a file completely or not at all; `job_ids` as for `sweep`. Raises Fault for an invalid name or a file
        that is too large."""
        target, job = self._place(path)
        if job not in job_ids:
            self._awaited.add(job)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await store(target, parts, MOST_BYTES)

    def give(self, path: str, query: Mapping[str, str], now: float) -> Slice:
        """The file of a link. Raises Fault if the link has no valid signature, is expired, or leads to no file."""
        end, target = query.get("se", ""), self._place(path)[0]
        valid = hmac.compare_digest(self._signature(path, end).encode(), query.get("sig", "").encode())
        if not valid or float(end) < now:
            raise Fault("AuthorizationFailure")
        try:
            file = target.open("rb")
        except FileNotFoundError:
            raise Fault("ResourceNotFound") from None
        return Slice(file, 0, os.fstat(file.fileno()).st_size)

    def sweep(self, job_ids: Collection[str]) -> None:
        """Delete the files of deleted jobs. job_ids: the ids of all jobs and job schedules, in lower case."""
        self._awaited -= set(job_ids)
        if self._home.is_dir():
            for folder in self._home.iterdir():
                if folder.name not in job_ids and folder.name not in self._awaited:
                    shutil.rmtree(folder, ignore_errors=True)

    def _place(self, path: str) -> tuple[Path, str]:
        match = _PATH.fullmatch(path)
        if match is None:
            raise Fault("InvalidUri")
        job = match["job"].lower()
        return self._home / job / match["name"], job


async def store(target: Path, parts: AsyncIterator[bytes], most: float = math.inf) -> None:
    """Write a file as it comes; it has its name only when it is complete. Raises Fault if it is too large."""
    descriptor, aside = tempfile.mkstemp(dir=target.parent, prefix=".coming-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            async for part in parts:
                file.write(part)
                if file.tell() > most:
                    raise Fault("RequestBodyTooLarge", MaxLimit=str(most))
        Path(aside).rename(target)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
