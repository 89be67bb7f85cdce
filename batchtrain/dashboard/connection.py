"""What the dashboard reads from: an account, which may be none, and a directory of runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path

from azure.batch import BatchClient

from batchtrain.catalog.prices import Price
from batchtrain.client.client import Client
from batchtrain.client.local import running
from batchtrain.config import catalog_file
from batchtrain.config.types import Recipe
from batchtrain.dashboard.tasks import TaskOutputs
from batchtrain.errors import BatchtrainError, UsageError
from batchtrain.hints import pasted
from batchtrain.records import Task
from batchtrain.records.stacks import Stack
from batchtrain.service.connect import Account, loopback
from batchtrain.service.failed import explained

MOST_TASKS = 16
"""Tasks whose output is kept for viewers."""
MOST_REASONS = 1000
"""Failed tasks of lists whose causes are kept."""


class Connection:
    """An account, and the directory of runs. A restarted emulator is found again at its new address.

    target: the options with which a command reaches the account; by default those of the account. login_files: gives
    the files with the login of the pool.
    """

    def __init__(
        self,
        account: Account | None,
        runs: Path,
        login_files: Callable[[Account], Recipe | None] = lambda _: None,
        *,
        changes: bool = False,
        target: str = "",
    ) -> None:
        self._client = Client(account) if account else None
        self._target, self._login_files = target, login_files
        self.runs, self.changes = runs, changes
        self._outputs: dict[tuple[str, str], TaskOutputs] = {}
        self._reasons: dict[tuple[str, str, datetime | None], str] = {}
        self._lock = threading.Lock()

    @property
    def client(self) -> Client:
        """The client of the account. Raises UsageError if there is no account."""
        if self._client is None:
            raise UsageError("this dashboard has no account; `batchtrain dashboard --local` shows that of the emulator")
        return self._client

    @property
    def batch(self) -> BatchClient:
        """The SDK's client. Raises UsageError if there is no account."""
        return self.client.batch

    @property
    def account(self) -> Account | None:
        """The account; None if there is none."""
        return self._client.account if self._client else None

    @property
    def near(self) -> bool:
        """Whether the account is on this machine, or there is none."""
        return self.account is None or loopback(self.account.endpoint)

    @property
    def target(self) -> str:
        """The options with which a command reaches the account; those of the emulator if there is none."""
        return self._target or (self.account.option if self.account else " --local")

    def completed(self, text: str) -> str:
        """A message whose commands reach the account."""
        return pasted(text, self.target, "")

    def price(self, size: str) -> Price | None:
        """The price of a node, by the user's catalogue; None if it is unknown, and on the emulator."""
        if self.account is None or self.account.region is None:
            return None
        try:
            return catalog_file.load().price(size, self.account.region)
        except BatchtrainError:  # a broken catalogue; every command reports it
            return None

    def renew(self) -> None:
        """Connect to the emulator again if it has another address."""
        account = self.account
        if account is None or not account.home:
            return
        try:
            now = running(account.home)
        except BatchtrainError:
            return
        if now is not None and now.endpoint != account.endpoint:
            self._client = Client(now)

    def outputs(self, job_id: str, task_id: str) -> TaskOutputs:
        """The output of a task, shared by its viewers."""
        with self._lock:
            outputs = self._outputs.pop((job_id, task_id), None) or TaskOutputs(
                lambda: self.batch, job_id, task_id, self.near
            )
            self._outputs[job_id, task_id] = outputs
            while len(self._outputs) > MOST_TASKS:
                self._outputs.pop(next(iter(self._outputs)))
        return outputs

    def stacks(self, job_id: str, task_id: str) -> tuple[list[Stack], list[str]]:
        """What the processes of a running task do now. Raises UsageError without the login of its pool."""
        recipe = self._login_files(self.client.account)
        return self.client.jobs.handle(job_id).stacks(task_id, recipe=recipe)

    def explained(self, job_id: str, tasks: Iterable[Task]) -> Iterator[Task]:
        """Tasks for a list, with the causes of failures, each read once."""

        def reason(task: Task) -> str:
            key = job_id, task.id, task.started
            if key not in self._reasons:
                self._reasons[key] = self.client.jobs.handle(job_id).reason_of(task)
                while len(self._reasons) > MOST_REASONS:
                    self._reasons.pop(next(iter(self._reasons)))
            return self._reasons[key]

        return explained(tasks, reason)
