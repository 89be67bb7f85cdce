"""The runs of an account, from the marks of its jobs: on any machine, without a run directory."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from batchtrain import state_files
from batchtrain.client import controller, detached_results, orphans
from batchtrain.client.detach import Detached
from batchtrain.client.watching import watch_job
from batchtrain.errors import BatchtrainError, NotFound, UsageError
from batchtrain.life.intents import ATTACH
from batchtrain.life.rules import JOB_ENDED
from batchtrain.plan import addition
from batchtrain.plan.marks import is_controller, marks_of
from batchtrain.records import Table
from batchtrain.records.events import Event, Output, Stderr, Stdout, Waiting
from batchtrain.runs import directory, stored_results
from batchtrain.runs.compare import RunRow
from batchtrain.runs.directory import LATEST
from batchtrain.runs.finished import Run
from batchtrain.service import job_actions, read, retry, submit, watch
from batchtrain.service.deadlines import GONE_SECONDS
from batchtrain.service.meant_version import of_runs
from batchtrain.service.register import Thing, read_marks

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.runs.directory import RunDirectory
    from batchtrain.runs.recording import Recording
    from batchtrain.storage.blob_requests import Storage

INCOMPLETE = (
    "does not have all of its tasks: its command still adds them, or was killed; a job whose command was killed ends"
    f" with its pool within {retry.span(addition.SECONDS)}"
)


class AccountRun(NamedTuple):
    """A run with a job in the account."""

    run: str
    job: str
    state: str
    created: datetime | None
    ended: datetime | None
    reason: str
    """Why its job ended, such as `MaxWallClockTimeExpiry`."""
    user: str
    host: str


NamedRun = str | Run | RunRow | Detached | AccountRun | tuple[Detached, ...]
"""What names a run; of several runs that `detach` returned, one must be taken."""


class AccountRuns(NamedTuple):
    """The runs of an account, and of the run directories below a root."""

    client: Operations
    root: Path
    connect: Callable[[], Storage]
    """To the storage account of a detached run."""

    def listed(self) -> Table[AccountRun]:
        """The runs whose jobs the account has, the oldest first."""
        rows = []
        for job in read.jobs(self.client.batch, f"{read.MARKED},executionInfo"):
            marks = marks_of(job.metadata)
            if marks.run and not is_controller(job.metadata):
                rows.append(
                    AccountRun(marks.run, job.id, job.state, job.created, job.ended, job.reason, marks.user, marks.host)
                )
        return Table(sorted(rows))

    def find(self, name: str) -> tuple[str, str]:
        """The full name and the job of a run: of the directories of this machine, else of the account. `latest` is the
        newest run. Raises NotFound, and UsageError for a name of several runs."""
        try:
            run = directory.find(self.root, name)
            return run.name, run.record().job
        except NotFound:
            rows = self.listed()
        matches = [row for row in rows if name == LATEST or row.run.startswith(name) or row.run.endswith(name)]
        matches = matches[-1:] if name == LATEST else [row for row in matches if row.run == name] or matches
        if len(matches) > 1:
            raise UsageError(f"`{name}` names {len(matches)} runs: {', '.join(row.run for row in matches[:5])}")
        if not matches:
            raise NotFound(
                f"neither {self.root} nor the account has a run `{name}`; `batchtrain runs list --account` lists those"
                " of the account"
            )
        return matches[0].run, matches[0].job

    def stop(self, name: str, job_id: str) -> None:
        """End the tasks and the job of a run. The service uploads what the tasks of a detached run have left, and
        deletes its pool; the command of another run fetches its results, and deletes what it created."""
        if controller.end(self.client, job_id, name):  # it would move the job
            forget_requests(self.client, name)
        run = directory.named(self.root, name)
        with directory.naming_results(run):
            check(self.client, name, job_id)
            if not read.job(self.client.batch, job_id).is_over:
                submit.terminate(self.client.batch, Thing("job", job_id), of_runs({name}))
        if (record := run.record_or_none()) is not None and record.state == detached_results.DETACHED:
            run.write(replace(record, is_stopped=True))

    def fetch(self, name: str, job_id: str, *, tell: watch.Tell, everything: bool = False) -> Recording:
        """Fetch what the tasks of a run have left so far, and write its end once it has ended."""
        orphan = _left(self.client, self.root, name, job_id)
        if orphan is None:
            if self.client.jobs.state(job_id) == "terminating":  # the service still uploads
                with watch.Deadline(GONE_SECONDS, f"the end of job {job_id}", tell) as deadline:
                    self._until_completed(name, job_id, deadline)
            return detached_results.fetch(self.client, self.connect(), self.root, name, everything=everything)
        return orphans.fetch(self.client, orphan, tell, everything=everything)

    def attach(self, name: str, job_id: str, *, tell: watch.Tell, timeout: float) -> Recording:
        """Show the output of a run that continues without its command until its job has ended, and complete its
        directory."""
        if (orphan := _left(self.client, self.root, name, job_id)) is not None:
            watch_job(self.client, self.client.jobs.handle(job_id), tell=tell, timeout=timeout, intent=ATTACH)
            (recording,) = orphans.end(self.client, [orphan], tell)
            return recording
        storage = self.connect()
        run = stored_results.begin(storage, self.root, name)
        check(self.client, name, job_id)
        with contextlib.suppress(NotFound):  # while its controller moves it
            document = read.job_document(self.client.batch, job_id)
            if document.get("state") == "active" and not job_actions.is_whole(document):
                tell(Waiting(job_id, f"job {job_id} {INCOMPLETE}"))
        lines: dict[tuple[str, type[Output]], int] = {}

        def tell_and_count(event: Event) -> None:
            if isinstance(event, Output):
                key = event.subject, type(event)
                lines[key] = lines.get(key, 0) + 1
            tell(event)

        def comes_back() -> bool:
            lines.clear()
            return controller.moves(self.client, job_id, name)

        job = self.client.jobs.handle(job_id)
        watch_job(self.client, job, tell=tell_and_count, timeout=timeout, intent=ATTACH, comes_back=comes_back)
        with watch.Deadline(timeout, f"the end of job {job_id}", tell) as deadline:  # soon after that of its tasks
            if (step := job.reason_to_wait()) is not None and step.act == "end" and step.rule is not JOB_ENDED:
                job.raise_failed()
            self._until_completed(name, job_id, deadline)
        recording = detached_results.fetch(self.client, storage, self.root, name)
        _show_rest(run, lines, tell)
        return recording

    def _until_completed(self, name: str, job_id: str, deadline: watch.Deadline) -> None:
        batch, pace = self.client.batch, self.client.pace
        job_actions.until(batch, job_id, job_actions.COMPLETED, of_runs({name}), deadline, pace)


def named(run: object) -> tuple[str, Path | None]:
    """The name of a run, as `AccountRuns.find` takes it, and the directory with its run directory, if the value has
    one. Raises UsageError for a value that names no run, or several."""
    if isinstance(run, tuple) and not isinstance(run, (AccountRun, Detached, RunRow)) and len(run) == 1:
        (run,) = run  # `detach` of a recipe with one job
    match run:
        case str(text):
            return text, None
        case AccountRun(run=text) | RunRow(run=text):
            return text, None
        case Detached(run=path) | Run(directory=path):
            return path.name, path.path.parent
    got = f"this is a {type(run).__name__}"
    if isinstance(run, tuple) and run and all(isinstance(item, Detached) for item in run):
        got = f"these are {len(run)} runs, one for each job: take one of them, such as `detached[0]`"
    raise UsageError(f"this call takes a run: its name, what `detach` returned, or a row of `account_runs()`; {got}")


def of(client: Operations, root: Path, link: str | None = None) -> AccountRuns:
    """link: the storage account of a detached run; by default the only one of the credentials."""
    return AccountRuns(client, root, partial(detached_results.storage_of, client, link))


def check(client: Operations, name: str, job_id: str) -> None:
    """Raise NotFound if the account's job of this id is not that of the run."""
    if read_marks(client.batch, Thing("job", job_id)).run != name:
        raise NotFound(
            f"job {job_id} of this account is not that of run {name}; `batchtrain runs list --account` lists the runs"
            " of the account"
        )


def forget_requests(client: Operations, name: str) -> None:
    """Delete the requests of the controller of a run, as far as this machine has its storage account. `runs fetch` does
    it, too."""
    with contextlib.suppress(BatchtrainError):
        controller.forget(detached_results.storage_of(client), name)


def _left(client: Operations, root: Path, name: str, job_id: str) -> orphans.Orphan | None:
    """A run that was left on this host while its job continues; its results are on the nodes."""
    orphan = orphans.orphan_of(client, root, job_id)
    return orphan if orphan is not None and orphan.run.name == name else None


def _show_rest(run: RunDirectory, lines: dict[tuple[str, type[Output]], int], tell: watch.Tell) -> None:
    """Show what the tasks printed last: their nodes leave with the job, and the rest came from storage."""
    tasks = run.tasks()
    for task in tasks:
        for kind, file in ((Stdout, "stdout.txt"), (Stderr, "stderr.txt")):
            path, prefix = run.logs(task.id) / file, f"{task.id}: " if len(tasks) > 1 else ""
            if path.is_file():
                with path.open(encoding="utf-8", errors="replace", newline="\n") as output:  # a bar is one line
                    for line in itertools.islice(state_files.pieces(output), lines.get((task.id, kind), 0), None):
                        tell(kind(task.id, prefix + line.removesuffix("\n")))
