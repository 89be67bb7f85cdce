"""What a client does with the pools and jobs of one account."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec import structs

from batchtrain import markup, records
from batchtrain.client import logins
from batchtrain.client.late_values import Placeholders
from batchtrain.client.local import Kept, add_sizes, refuse, storage
from batchtrain.client.log_follower import Follow, together
from batchtrain.client.planning import Foreseen, foresee, gathered
from batchtrain.client.task_files import FileRow, GotRow, Service, TaskFiles, get_node_files, node_files
from batchtrain.config.types import Job as JobSettings
from batchtrain.config.types import Recipe, StorageCredentials
from batchtrain.config.unfilled import require_filled
from batchtrain.display.progress import KEPT_VALUES, Card, line, shown, wanted
from batchtrain.display.subject import view_of
from batchtrain.errors import (
    BatchtrainError,
    Differs,
    Finding,
    NotAllowed,
    NotFound,
    PlanError,
    ServiceError,
    TaskFailed,
    Unreachable,
    UsageError,
)
from batchtrain.plan import diff, plan_jobs, plan_pool
from batchtrain.plan.job import needs_pool
from batchtrain.plan.network import SSH_PORT
from batchtrain.plan.step import Step
from batchtrain.plan.types import Plan, PoolFacts
from batchtrain.records import (
    MOST_ROWS,
    Attempt,
    Failure,
    Node,
    Pool,
    Table,
    Task,
    nodes_called,
)
from batchtrain.records.events import (
    Deleted,
    Event,
    FilesUploaded,
    JobKept,
    NodeLogin,
    NodeReady,
    NodeRebooted,
    NodeUserAdded,
    PoolIdentified,
    PoolReused,
    RecipeCopied,
    TasksChanged,
)
from batchtrain.records.failure import EXIT_CODE
from batchtrain.records.rank_end import RankEnd
from batchtrain.runs.beginnings import Beginning, copied_from, lineage_of
from batchtrain.runs.directory import RunDirectory, new_name, root_of
from batchtrain.runs.finished import Run, Runs
from batchtrain.runs.lease import marks_here
from batchtrain.runs.recording import QUIET, Origin, Progress, Recording, adopt, now, recorded_job
from batchtrain.service import connect as signing
from batchtrain.service import files, job_actions, read, statistics, submit, task_actions, tasks, watch
from batchtrain.service.connect import Account
from batchtrain.service.deadlines import GONE_SECONDS, JOB_SECONDS, POOL_SECONDS
from batchtrain.service.downloads import task_tree
from batchtrain.service.failed import failed, summary
from batchtrain.service.job_addition import ONCE, AddOptions
from batchtrain.service.register import Register, Thing
from batchtrain.service.statistics import Stats
from batchtrain.service.task_actions import Action, Changed
from batchtrain.service.tasks import FEW, Glance

if TYPE_CHECKING:
    from batchtrain.diagnosis.finding import Diagnosis
    from batchtrain.display.live_view import View
    from batchtrain.runs.sweep import SweepRow
    from batchtrain.storage.blob import Connect

NAMED_NODES = 8
"""The number of nodes of a ready pool to name; the others are counted."""

EXPLAINED = 5
"""The causes of failures for which the stderr of an example is read."""
EXPLAINED_TASKS = 20
"""The failed tasks of a list whose stderr is read."""

Tell = Callable[[Event], None]
P = ParamSpec("P")
R = TypeVar("R")


def SHOW(event: Event) -> None:
    """The default of `tell`: progress is shown as `connect(display=…)` says."""


def displayed(interrupted: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Shows the progress of a method, unless the caller gives `tell`. interrupted: what Ctrl-C leaves."""

    def decorated(method: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(method)
        def call(*args: P.args, **options: P.kwargs) -> R:
            owner: Any = args[0]
            client: Any = getattr(owner, "_client", owner)
            if options.get("tell", SHOW) is not SHOW or not wanted(getattr(client, "display", False)):
                return method(*args, **options)
            subject = args[1] if len(args) > 1 else getattr(owner, "id", None) or options.get("recipe")
            with shown(functools.partial(_view, client.account, subject), interrupted) as tell:
                options["tell"] = tell
                return method(*args, **options)

        return call

    return decorated


def _view(account: Account, subject: object) -> View:
    recipe = subject if isinstance(subject, Recipe) else None
    return view_of(account, recipe, "" if recipe else str(subject), recent=KEPT_VALUES)


class Operations:
    """The pools and jobs of one Batch account."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.batch = signing.connect(account)
        self.pace = watch.NEAR if signing.loopback(account.endpoint) else watch.FAR
        self.display: bool | None = False
        """Whether the progress of calls is shown; None: in a notebook, on a terminal, and in an interactive Python."""
        self.say: Callable[[str], None] = lambda _: None
        """Receives messages about slow one-time work, such as an installation."""
        self._own_storage: StorageCredentials | None = None
        self.files = Service(self.batch, signing.patience(account.endpoint))
        self.pools = Pools(self)
        self.jobs = Jobs(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.account.endpoint!r}, {self.account.name!r})"

    @property
    def runs(self) -> Runs:
        """The runs in BATCHTRAIN_RUNS_DIR or `runs`."""
        return Runs(root_of(None, os.environ))

    def foresee(self, recipe: Recipe, *, listed: bool = True) -> Foreseen:
        """The whole plan of a recipe, with its pool as it will be. Creates nothing; raises what `run` would refuse."""
        return foresee(recipe, self.account, self.storage(recipe), listed=listed)

    def storage(self, recipe: Recipe) -> Connect:
        """Clients of the recipe's storage accounts by link; batchtrain signs in when the first one is needed."""
        values = self._values(recipe)
        return lambda link: values.connect(link)

    def _values(self, recipe: Recipe) -> Placeholders:
        return Placeholders(recipe, ca=self.account.ca, own=self.own_storage if self.account.home else None)

    def own_storage(self) -> StorageCredentials:
        """The storage account of the emulator, which stands for storage links without an account."""
        if self._own_storage is None:
            self._own_storage = storage(self.account, self.say)
        return self._own_storage

    def register(
        self, recipe: Recipe, runs: Mapping[str, str] | None = None, beginning: Beginning | None = None
    ) -> Register:
        """A register for what one command creates. runs: the names of its runs by job; by default a new name.
        beginning: where its tasks with checkpoints begin."""
        names = runs or {}
        name = next(iter(names.values()), "") or new_name(recipe.jobs[0].id if recipe.jobs else _id(recipe), now())
        return Register(marks_here(recipe.settings, name, lineage_of(recipe, beginning)), names)

    def carry_out(
        self,
        todo: Plan,
        recipe: Recipe,
        tell: Tell,
        options: AddOptions = ONCE,
        register: Register | None = None,
    ) -> None:
        """Send a plan's requests in order. register: receives what they create."""
        add_sizes(recipe, self.account)
        register = register or self.register(recipe)
        values = self._values(recipe)
        others: submit.Others = {
            "files.upload": lambda step: _bring(step, recipe, values),
            "pool.identity": lambda step: _identify(step, recipe, self.account),
        }
        kept = Kept(values, self.account)
        for event in submit.submit(self.batch, todo, kept.fill, kept.upload, others, options, register=register):
            tell(event)


class Pools:
    """The pools of an account."""

    def __init__(self, client: Operations) -> None:
        self._client = client

    @displayed("interrupted; what was created stays: `client.pools.delete(id)` deletes it")
    def add(
        self,
        recipe: Recipe,
        *,
        wait: bool = True,
        timeout: float = POOL_SECONDS,
        tell: Tell = SHOW,
        foreseen: Foreseen | None = None,
        register: Register | None = None,
    ) -> Pool:
        """Create the pool of the recipe and wait until its nodes are ready; then create the login of its `ssh` or
        `rdp`.

        The jobs of the recipe are planned first: what can never work is refused before anything is created. Without
        waiting the pool has no nodes yet: `log_in` creates the login later. Raises AlreadyExists, QuotaReached,
        ServiceError (a failed start task with its last lines), TimedOut, and UsageError, before anything is created,
        for managed identities that cannot be set.
        """
        if not needs_pool(recipe):
            raise PlanError(f"each job of {recipe.directory} creates its own pool (`auto_pool`); add the jobs")
        todo = (foreseen or self._client.foresee(recipe, listed=False)).pool
        if any(step.action == "pool.identity" for step in todo.steps):
            _refuse_identities(recipe, self._client.account)
        pool_id = _id(recipe)
        logins = _logins(todo)
        steps = tuple(step for step in todo.steps if step not in logins)
        self._client.carry_out(todo._replace(steps=steps), recipe, tell, register=register)
        if wait:
            self.wait(pool_id, timeout=timeout, tell=tell, recipe=recipe)
            self._log_in(logins, recipe, tell)
        return self.get(pool_id)

    def ready(
        self,
        recipe: Recipe,
        *,
        foreseen: Foreseen,
        register: Register,
        timeout: float = POOL_SECONDS,
        tell: Tell = SHOW,
    ) -> Pool:
        """The pool of the recipe with ready nodes: created if it does not exist, used if it matches the plan.

        The number of its nodes is not compared. Raises Differs if the pool differs from the plan, and the errors of
        `add`.
        """
        pool_id = _id(recipe)
        standing = read.pool_or_none(self._client.batch, pool_id)
        if standing is not None and standing.state == "deleting":
            self.gone(pool_id, tell=tell)
            standing = None
        if standing is None:
            return self.add(recipe, timeout=timeout, tell=tell, foreseen=foreseen, register=register)
        self._refuse_other(standing, foreseen)
        register.note(Thing("pool", pool_id), "existing")
        tell(PoolReused(pool_id, f"pool {pool_id} exists, matches the plan, and is used"))
        self.wait(pool_id, timeout=timeout, tell=tell, recipe=recipe)
        return self.get(pool_id)

    def _refuse_other(self, standing: Pool, foreseen: Foreseen) -> None:
        pool_id, living = standing.id, read.living(self._client.batch, diff.wanted(foreseen.pool))
        compared = [diff.but_for_counts(step) for step in diff.compare(foreseen.pool, living) if step.kind == "pool"]
        if any(step.state == "differs" for step in compared):
            raise Differs(
                f"pool {pool_id} exists and differs from the plan:\n{diff.as_text(compared)}\n"
                f"To create it as planned, delete it with `batchtrain pool del {pool_id}` and run again."
            )
        planned = foreseen.facts.pool
        if planned is not None and standing.target_dedicated + standing.target_spot == 0:
            count = f"--dedicated {planned.dedicated} --spot {planned.low_priority}"
            raise PlanError(f"pool {pool_id} has no nodes; `batchtrain pool resize {pool_id} {count}` gives it some")

    def log_in(self, recipe: Recipe, *, tell: Tell = SHOW) -> None:
        """Create or update the login of `ssh` or `rdp` on every current node."""
        logins = _logins(plan_pool(recipe))
        if not logins:
            raise UsageError(f"{recipe.directory} has no login; add `ssh` with a `username` to pool.yaml")
        self._log_in(logins, recipe, tell)

    def _log_in(self, logins: tuple[Step, ...], recipe: Recipe, tell: Tell) -> None:
        if logins and self._client.account.emulated:
            tell(NodeUserAdded(_id(recipe), "no login is created: the nodes of the emulator are this machine"))
        elif logins:
            self._client.carry_out(Plan(logins), recipe, tell)
            self._say_logins(recipe, tell)

    def _say_logins(self, recipe: Recipe, tell: Tell) -> None:
        """How to reach each node that is reachable from outside."""
        pool = recipe.pool
        if pool is None or pool.ssh is None:
            return
        key = logins.key_of(recipe)
        for endpoint in read.endpoints(self._client.batch, pool.id, SSH_PORT):
            tell(
                NodeLogin(
                    endpoint.node,
                    f"{shlex.join(logins.words(pool.ssh.username, key, endpoint))}  # node {endpoint.node}",
                )
            )

    @displayed("interrupted; the pool stays, and its nodes still start")
    def wait(
        self,
        pool_id: str,
        *,
        timeout: float = POOL_SECONDS,
        tell: Tell = SHOW,
        recipe: Recipe | None = None,
    ) -> Table[Node]:
        """Wait until the nodes of a pool are ready; with its recipe, unusable nodes are rebooted as configured."""

        def rebooted(text: str) -> None:
            tell(NodeRebooted(pool_id, text))

        reboots = watch.Reboots(self._client.batch, pool_id, _mended(recipe), rebooted)
        try:
            nodes = watch.pool_ready(self._client.batch, pool_id, timeout, self._client.pace, tell, reboots.mend)
        except ServiceError as error:
            if not isinstance(error, (NotFound, NotAllowed, Unreachable)):
                with contextlib.suppress(BatchtrainError):  # the failure itself matters more
                    error.finding = self.diagnose(pool_id).first
            raise
        for number, node in enumerate(nodes[:NAMED_NODES], 1):
            tell(NodeReady(node.id, f"node {node.id} is ready ({number} of {len(nodes)})"))
        if len(nodes) > NAMED_NODES:
            tell(NodeReady(pool_id, f"and {len(nodes) - NAMED_NODES} more nodes are ready"))
        return Table(nodes)

    def get(self, pool_id: str) -> Pool:
        """One pool. Raises NotFound."""
        return read.pool(self._client.batch, pool_id)

    def stands(self, pool_id: str) -> bool:
        """Whether the pool exists."""
        return read.pool_or_none(self._client.batch, pool_id) is not None

    def list(self) -> Table[Pool]:
        """All pools."""
        return Table(read.pools(self._client.batch))

    def nodes(self, pool_id: str) -> Table[Node]:
        """A pool's nodes."""
        return Table(read.nodes(self._client.batch, pool_id))

    def files(self, pool_id: str, node: str) -> Table[FileRow]:
        """The files of a node, by its id or its short id. Raises NotFound."""
        return node_files(self._client.files, pool_id, self._node(pool_id, node))

    def get_files(
        self, pool_id: str, node: str, *patterns: str, directory: str | Path = ".", progress: Progress = QUIET
    ) -> Table[GotRow]:
        """Fetch the files of a node that the patterns mean to a directory."""
        node_id = self._node(pool_id, node)
        return get_node_files(self._client.files, pool_id, node_id, patterns, Path(directory), progress)

    def ssh(self, pool_id: str, node: str, command: str = "", *, recipe: Recipe | None = None) -> int:
        """Run a shell command on a node, or a shell, with the stdin and stdout of this process; returns its exit code.

        recipe: the files with the login of the pool (`ssh`), which a node of Azure needs. Raises NotFound, UsageError.
        """
        return logins.run(self._login(pool_id, node, recipe), command)

    def forward(
        self,
        pool_id: str,
        node: str,
        port: int,
        *,
        local_port: int | None = None,
        recipe: Recipe | None = None,
        ready: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Forward a port of 127.0.0.1 (by default the same number; 0: a free one) to a port of a node until Ctrl-C.

        ready: receives the port of this machine.
        """
        logins.forward(self._login(pool_id, node, recipe), port, port if local_port is None else local_port, ready)

    def _login(self, pool_id: str, node: str, recipe: Recipe | None) -> logins.Login:
        client = self._client
        return logins.login(client.account, client.batch, pool_id, self._node(pool_id, node), recipe)

    def _node(self, pool_id: str, name: str) -> str:
        """The id of a node of a pool. Raises NotFound."""
        matching = nodes_called(name, (node.id for node in self.nodes(pool_id)))
        if len(matching) == 1:
            return matching[0]
        raise NotFound(f"pool {pool_id} has no node `{name}`; `batchtrain pool show {pool_id}` lists its nodes")

    def diagnose(self, pool_id: str) -> Diagnosis:
        """Why the pool has no usable nodes. Raises NotFound. Changes nothing."""
        from batchtrain.client import diagnose  # compiles the pattern of every rule, and only here

        return diagnose.pool(self._client.batch, pool_id)

    @displayed("interrupted; the resize continues")
    def resize(
        self,
        pool_id: str,
        *,
        dedicated: int | None = None,
        spot: int | None = None,
        leaving: str = "requeue",
        wait: bool = True,
        timeout: float = POOL_SECONDS,
        tell: Tell = SHOW,
        recipe: Recipe | None = None,
    ) -> Pool:
        """Change the number of nodes of a pool and wait until all are ready; None keeps the number of a kind.

        leaving: what happens to the tasks of removed nodes (`requeue`, `terminate`, `taskcompletion`). recipe: the
        recipe of the pool, which decides whether new nodes get a login (`ssh`, `rdp`) and whether unusable nodes are
        rebooted.
        """
        if dedicated is None and spot is None:
            raise UsageError("give the number of nodes: dedicated, spot or both")
        submit.resize_pool(self._client.batch, pool_id, dedicated, spot, leaving)
        if wait:
            self.wait(pool_id, timeout=timeout, tell=tell, recipe=recipe)
            if recipe is not None:
                self._log_in(_logins(plan_pool(recipe)), recipe, tell)
        return self.get(pool_id)

    def reboot(self, pool_id: str, node_ids: Iterable[str]) -> None:
        """Reboot nodes: their tasks are requeued and their start task runs again. Does not wait."""
        for node_id in node_ids:
            submit.reboot_node(self._client.batch, pool_id, node_id)

    @displayed("interrupted; the deletion continues")
    def delete(self, pool_id: str, *, wait: bool = True, timeout: float = GONE_SECONDS, tell: Tell = SHOW) -> None:
        """Delete a pool with its nodes. Raises NotFound."""
        with watch.Deadline(timeout, f"the deletion of pool {pool_id}", tell):
            submit.delete_pool(self._client.batch, pool_id)
        if wait:
            self.gone(pool_id, timeout=timeout, tell=tell)

    @displayed("interrupted; the deletion continues")
    def gone(self, pool_id: str, *, timeout: float = GONE_SECONDS, tell: Tell = SHOW) -> None:
        """Wait until the deletion of a pool has finished."""
        watch.gone(lambda: self.get(pool_id), timeout, self._client.pace, f"pool {pool_id}", tell)


class Jobs:
    """The jobs of an account."""

    def __init__(self, client: Operations) -> None:
        self._client = client

    @displayed("interrupted; a job that was added stays; `client.jobs.add` continues")
    def add(
        self,
        recipe: Recipe,
        *,
        tell: Tell = SHOW,
        timeout: float = POOL_SECONDS,
        resume: bool = True,
        fail_fast: bool = False,
    ) -> Job:
        """Add the recipe's one job, as `add_all` does. Raises UsageError when it has several, or a job schedule."""
        if len(recipe.jobs) != 1:
            raise UsageError(f"{recipe.directory} has {len(recipe.jobs)} jobs; use jobs.add_all")
        if recipe.jobs[0].recurrence is not None:
            raise UsageError(f"job {recipe.jobs[0].id} has a recurrence and becomes a job schedule; use jobs.add_all")
        self.add_all(recipe, tell=tell, timeout=timeout, resume=resume, fail_fast=fail_fast)
        return self.handle(recipe.jobs[0].id)

    @displayed("interrupted; a job that was added stays; `client.jobs.add_all` continues")
    def add_all(
        self,
        recipe: Recipe,
        *,
        tell: Tell = SHOW,
        timeout: float = POOL_SECONDS,
        foreseen: Foreseen | None = None,
        resume: bool = True,
        fail_fast: bool = False,
        recreate: bool = False,
        register: Register | None = None,
    ) -> tuple[Job | JobSchedule, ...]:
        """Add every job of the recipe with its tasks, or its job schedule. A job that exists already with the same plan
        gets the tasks that it lacks.

        A gang is checked against the existing pool after waiting up to `timeout` seconds for it to stop growing;
        `pool_current_*` is its count. As long is the wait for the account's quota of active jobs. Raises PlanError for
        tasks that can never run, TasksRefused for refused tasks after the others were added (with `fail_fast` at
        once), Differs for a job or tasks that differ from the plan, AlreadyExists for a job that has completed, and
        without `resume` for any that exists. recreate: delete the jobs that exist first, once everything is planned.
        """
        todo = self._planned(recipe, foreseen, timeout, tell)
        if copied := copied_from(recipe):
            tell(
                RecipeCopied(
                    copied.id,
                    f"this recipe was copied from {copied.path}, so its checkpoints are not continued;"
                    " `--resume RUN` continues those of a run",
                )
            )
        if recreate:
            self.remove_all(recipe, tell=tell)
        self._client.carry_out(todo, recipe, tell, AddOptions(resume, fail_fast, timeout), register)
        return tuple(self.schedule(job.id) if job.recurrence else self.handle(job.id) for job in recipe.jobs)

    def _planned(self, recipe: Recipe, foreseen: Foreseen | None, timeout: float, tell: Tell) -> Plan:
        """The plan of the jobs for the existing pool; the precomputed plan if the pool is as assumed."""
        if foreseen is None:
            require_filled(recipe)
            refuse(recipe, self._client.account)
        pool = self._pool_facts(recipe, timeout, tell) if needs_pool(recipe) else None
        if foreseen is None:
            account = self._client.account
            return plan_jobs(recipe, *gathered(recipe, account, self._client.storage(recipe), pool=pool))
        if pool == foreseen.facts.pool:
            return foreseen.jobs
        return plan_jobs(recipe, foreseen.facts._replace(pool=pool), foreseen.sources)

    def _pool_facts(self, recipe: Recipe, timeout: float, tell: Tell) -> PoolFacts:
        pool_id = _id(recipe)
        if not _has_gang(recipe):
            return read.facts_of(read.pool(self._client.batch, pool_id))
        return read.facts_of(watch.pool_steady(self._client.batch, pool_id, timeout, self._client.pace, tell))

    def remove_all(self, recipe: Recipe, *, tell: Tell = SHOW) -> None:
        """Delete the jobs and job schedules of the recipe that exist, and wait until they are gone."""
        for settings in recipe.jobs:
            existing = self.schedule(settings.id) if settings.recurrence else self.handle(settings.id)
            with contextlib.suppress(NotFound):
                existing.delete()
                tell(Deleted(settings.id, f"deleted job {settings.id}"))

    def get(self, job_id: str) -> Job:
        """An existing job. Raises NotFound."""
        read.job(self._client.batch, job_id)
        return self.handle(job_id)

    def state(self, job_id: str) -> str:
        """The state of a job; empty if the job does not exist."""
        job = read.job_or_none(self._client.batch, job_id)
        return job.state if job else ""

    def handle(self, job_id: str) -> Job:
        """A handle on a job; sends no request until it is used."""
        return Job(self._client, job_id)

    def list(self) -> Table[records.Job]:
        """All jobs."""
        return Table(read.jobs(self._client.batch))

    def ended_before(self, time: datetime) -> Table[records.Job]:
        """The jobs that completed before a time, which `delete` may tidy up."""
        return Table(read.jobs_ended_before(self._client.batch, time))

    def delete_seen(self, jobs: Iterable[records.Job], *, tell: Tell = lambda _: None) -> Table[records.Job]:
        """Delete jobs without waiting, and return those that this deletes. A job that was deleted and added again since
        it was seen is kept."""
        deleted = []
        for job in jobs:
            with contextlib.suppress(NotFound):
                if read.job(self._client.batch, job.id).created != job.created:
                    tell(JobKept(job.id, f"job {job.id} was added again meanwhile, and is kept"))
                    continue
                self.handle(job.id).delete(wait=False, tell=tell)
                deleted.append(job)
        return Table(deleted)

    def schedule(self, schedule_id: str) -> JobSchedule:
        """A handle on a job schedule; sends no request until it is used."""
        return JobSchedule(self._client, schedule_id)

    def schedules(self) -> Table[records.JobSchedule]:
        """All job schedules."""
        return Table(read.schedules(self._client.batch))


class JobSchedule:
    """A job schedule: its state, and the last job it created."""

    def __init__(self, client: Operations, schedule_id: str) -> None:
        self._client, self.id = client, schedule_id

    def __repr__(self) -> str:
        return f"JobSchedule({self.id!r})"

    @property
    def seen(self) -> records.JobSchedule:
        """The schedule now. Raises NotFound."""
        return read.schedule(self._client.batch, self.id)

    @property
    def job(self) -> Job | None:
        """The last job it created; None before the first."""
        name = self.seen.job
        return Job(self._client, name) if name else None

    def terminate(self) -> None:
        """Terminate the schedule: it creates no more jobs, and its running job is terminated."""
        submit.terminate_schedule(self._client.batch, self.id)

    def delete(self, *, wait: bool = True, timeout: float = GONE_SECONDS) -> None:
        """Delete the schedule with its jobs. Raises NotFound."""
        with watch.Deadline(timeout, f"the deletion of job schedule {self.id}"):
            submit.delete_schedule(self._client.batch, self.id)
        if wait:
            watch.gone(lambda: self.seen, timeout, self._client.pace, f"job schedule {self.id}")


class Job:
    """One job: its state, tasks and logs."""

    def __init__(self, client: Operations, job_id: str) -> None:
        self._client, self.id = client, job_id

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def _repr_html_(self) -> str:
        try:
            seen, rows = self.seen, Table(self.iter_tasks(limit=MOST_ROWS))
        except ServiceError as error:  # a job that is gone is still a value
            return markup.card(markup.head(f"job {self.id}", note=str(error)))
        counts = f"{seen.active} active, {seen.running} running, {seen.succeeded} succeeded, {seen.failed} failed"
        return markup.card(markup.head(f"job {self.id}", seen.state, f"pool {seen.pool}: {counts}"), rows._repr_html_())

    @property
    def seen(self) -> records.Job:
        """The job now, with the counts of its tasks. Raises NotFound."""
        return read.counted_job(self._client.batch, self.id)

    @property
    def tasks(self) -> Table[Task]:
        """All its tasks now. Of a large job, `iter_tasks` gives a part."""
        return Table(self.iter_tasks())

    @property
    def open(self) -> bool:
        """Whether a task waits or runs."""
        return any(itertools.chain(self.iter_tasks("running", limit=1), self.iter_tasks("active", limit=1)))

    def iter_tasks(self, state: str = "", *, limit: int | None = None) -> Iterator[Task]:
        """Its tasks, page by page.

        state: only those that are `active`, `running`, `completed`, `succeeded` or `failed`. limit: the maximum number.
        """
        return read.tasks(self._client.batch, self.id, where=tasks.filter_of(state), limit=limit)

    def last_tasks(self, count: int, state: str = "") -> Table[Task]:
        """The tasks whose state changed last, in the order of the changes. state: as for `iter_tasks`."""
        return Table(tasks.last(self._client.batch, self.id, count, tasks.filter_of(state)))

    def glance(self, most: int = FEW) -> Glance:
        """Its first tasks and the counts of all: one request for a job of up to `most` tasks, otherwise two."""
        return tasks.glance(self._client.batch, self.id, most)

    @displayed("interrupted; only the waiting ends, the job continues")
    def wait(self, *, timeout: float = JOB_SECONDS, check: bool = True, tell: Tell = SHOW) -> Job:
        """Wait until every task has ended. Raises TaskFailed for the first failed task (unless `check` is off)."""
        deadline = watch.Deadline(timeout, watch.tasks_of(self.id), tell)
        shows = tell is line or isinstance(tell, Card)
        follow = Follow(self._client.batch, self, deadline.tell, turns=self._client.pace.turns)
        look = follow.look if shows else lambda _: 0
        watch.tasks_ended(self._client.batch, self.id, deadline, self._client.pace, look)
        if check:
            self.raise_failed()
        return self

    def raise_failed(self, known: Iterable[Task] | None = None, *, logs: str = "") -> None:
        """Raise TaskFailed, with its last lines and its cause, for the first task that failed. known: all its tasks, if
        they are listed already. logs: the directory of this machine that keeps their output."""
        for task in self._first_not_succeeded() if known is None else known:
            if task.state != "completed" or task.failed:
                error = self.failure_of(task)
                with contextlib.suppress(BatchtrainError):  # the failure itself matters more
                    error.finding = self._examined(task.id, logs=logs).first
                raise error

    def _first_not_succeeded(self) -> Iterator[Task]:
        yield from self.iter_tasks("failed", limit=1)
        yield from read.tasks(self._client.batch, self.id, where=tasks.OPEN, limit=1)

    def failure_of(self, task: Task) -> TaskFailed:
        """Why a task failed or did not finish, with the last lines of its stderr."""
        if task.state != "completed":
            return TaskFailed(
                f"task {self.id}/{task.id} did not finish: it is {task.state}, and its job was terminated",
                task=f"{self.id}/{task.id}",
            )
        return failed(self.id, task, *self._end_of(task.id))

    def _end_of(self, task_id: str) -> tuple[tuple[str, ...], RankEnd]:
        where = self._client.batch, self.id, task_id
        return files.stderr_end(*where), files.first_end(*where)

    def explained(self, rows: Iterable[Task]) -> Iterator[Task]:
        """Tasks for a list. Of the first EXPLAINED_TASKS that failed by an exit code, the cause replaces the general
        reason of the service, at two or three requests each; of the others only its code is left."""
        explainable = EXPLAINED_TASKS
        for task in rows:
            if task.failure.code == EXIT_CODE:
                reason = summary(task, *self._end_of(task.id)) if explainable else ""
                explainable -= bool(explainable)
                task = structs.replace(task, failure=Failure(message=reason) if reason else Failure(code=EXIT_CODE))
            yield task

    def read(self, task_id: str | None = None, *, file: str = "stdout.txt") -> bytes:
        """The bytes of a file of a task (by default stdout of the first task). Raises NotFound."""
        return b"".join(self.blocks(task_id, file=file))

    def blocks(self, task_id: str | None = None, *, file: str = "stdout.txt") -> Iterator[bytes]:
        """The bytes of a file of a task as `read` returns them, but 8 MiB at a time. Raises NotFound."""
        return files.blocks(self._client.batch, task_tree(self.id, task_id or self._first_task()), file)

    def logs(
        self,
        task_id: str | None = None,
        *,
        file: str = "stdout.txt",
        follow: bool = False,
        timeout: float = JOB_SECONDS,
        tell: Tell = SHOW,
    ) -> Iterator[str]:
        """Lines of the output of a task (by default stdout of the first task); with `follow` until the task has ended.

        Raises NotFound if the task does not exist, TimedOut if following takes longer than `timeout`.
        """
        if not follow:
            yield from files.lines_of(self.blocks(task_id, file=file))
            return
        deadline = watch.Deadline(timeout, f"the end of {file} of {task_id or 'the first task'} of job {self.id}", tell)
        with deadline:
            name = task_id or self._first_task()
        follower = files.Follower(self._client.batch, self.id, name, file)
        while True:
            with deadline:
                task = self.seen_task(name)
                state = task.state
                new = follower.new_lines(task.node, last=state == "completed")
            for lines in _read(new, deadline):
                yield from lines
                deadline.news()
            if state == "completed" and follower.missing:
                raise follower.missing
            if state == "completed":
                return
            deadline.pause(self._client.pace.first * 2, f"the task is {state}")

    def _first_task(self) -> str:
        for task in self.iter_tasks(limit=1):
            return task.id
        raise NotFound(f"job {self.id} has no tasks")

    def seen_task(self, task_id: str | None = None) -> Task:
        """A task now (by default the first task). Raises NotFound."""
        return read.task(self._client.batch, self.id, task_id or self._first_task())

    def task(self, task_id: str | None = None) -> TaskFiles:
        """The files of a task (by default the first task): `files`, `get` and `open`."""
        return TaskFiles(self._client.files, self.id, task_id or self._first_task())

    def files(self, task_id: str | None = None, *, node: str | None = None, all_nodes: bool = False) -> Table[FileRow]:
        """The files of a task (by default the first task). node: another node of its gang."""
        return self.task(task_id).files(node=node, all_nodes=all_nodes)

    def get(
        self,
        *patterns: str,
        task_id: str | None = None,
        directory: str | Path = ".",
        node: str | None = None,
        all_nodes: bool = False,
        progress: Progress = QUIET,
    ) -> Table[GotRow]:
        """Fetch files of a task (by default the first task) to a directory."""
        return self.task(task_id).get(*patterns, directory=directory, node=node, all_nodes=all_nodes, progress=progress)

    def fetch(
        self,
        origin: Origin,
        *,
        settings: JobSettings | None = None,
        everything: bool = False,
        progress: Progress = QUIET,
    ) -> tuple[Recording, tuple[str, ...]]:
        """Fetch logs and results into the run directory of the job, and say why some files are missing.

        settings: the job as its recipe has it, for the `results` of its tasks. everything: without a limit of size.
        """
        recording = adopt(self._client.batch, self._client.account, self.id, origin, settings)
        known = self.tasks
        recording.fetch(known, all_tasks=True, everything=everything, progress=progress)
        failed = next((task for task in known if task.failed), None)
        open_tasks = any(task.state != "completed" for task in known)
        if failed is None or open_tasks:
            recording.end("fetched" if open_tasks else "completed")
        else:
            try:
                self.raise_failed((failed,), logs=str(recording.run.path / "logs"))
            except TaskFailed as failure:
                recording.end("failed", failure)
        return recording, (*recording.unsaved, *recording.lost)

    def result(self, *, runs_dir: str | Path | None = None) -> Run:
        """Fetch the logs and results of the tasks that have run into the run directory of the job, and read it.

        runs_dir: where run directories are; by default BATCHTRAIN_RUNS_DIR or `runs`.
        """
        recording, _ = self.fetch(Origin(root_of(runs_dir, os.environ)))
        return Run(recording.run)

    def exec(self, command: str, task_id: str | None = None, *, recipe: Recipe | None = None) -> int:
        """Run a shell command in the working directory and with the environment of a running task (by default the first
        task), on the node of its primary; in its container, if it has one. Returns the exit code of the command.

        recipe: the files with the login of the pool (`ssh`), which a node of Azure needs. Raises NotFound, UsageError.
        """
        task = self.seen_task(task_id)
        if task.state != "running":
            raise UsageError(
                f"task {self.id}/{task.id} is {task.state}, not running; `batchtrain jobs files {self.id} {task.id}`"
                " lists the files that it has left"
            )
        primary = read.task_nodes(self._client.batch, self.id, task.id)[0]
        target = logins.login(self._client.account, self._client.batch, primary.pool, primary.node, recipe)
        return logins.run(target, logins.inside(primary.directory, command))

    def terminate_tasks(self, *task_ids: str, tell: Tell = SHOW) -> Changed:
        """Terminate tasks. Raises ServiceError at the end if some were refused."""
        return self._change("term", task_ids, tell)

    def delete_tasks(self, *task_ids: str, tell: Tell = SHOW) -> Changed:
        """Delete tasks with their files. Raises NotFound or ServiceError at the end if some were refused."""
        return self._change("del", task_ids, tell)

    def reactivate_tasks(self, *task_ids: str, tell: Tell = SHOW) -> Changed:
        """Run failed tasks again. Raises ServiceError at the end if some were refused, and for a job that is over."""
        return self._change("reactivate", task_ids, tell)

    def _change(self, name: str, task_ids: Sequence[str], tell: Tell | None) -> Changed:
        action = task_actions.ACTIONS[name]
        progress = self._progress(action.past, len(task_ids), tell)
        return self._checked(action, task_actions.change(self._client.batch, self.id, action, task_ids, progress))

    def _checked(self, action: Action, changed: Changed) -> Changed:
        if changed.refused:
            raise task_actions.refusal(self.id, action, changed)
        return changed

    def _progress(self, past: str, count: int | None, tell: Tell | None) -> Callable[[int], None]:
        def report(number: int) -> None:
            of = f" of {count:,}" if count is not None else ""
            if tell is not None:
                tell(TasksChanged(self.id, f"{past} {number:,}{of} tasks"))

        return report

    def resubmit_failed(self, *, tell: Tell = SHOW) -> Changed:
        """Run the failed tasks again. Raises ServiceError for a job that is over, and if some were refused."""
        action = task_actions.ACTIONS["reactivate"]
        progress = self._progress(action.past, None, tell)
        return self._checked(action, job_actions.resubmit_failed(self._client.batch, self.id, progress))

    def migrate(
        self, pool_id: str, *, running: str = "requeue", timeout: float = GONE_SECONDS, tell: Tell = SHOW
    ) -> None:
        """Move the job to another pool: disable it, change its pool, enable it.

        running: what happens to running tasks (`requeue`, `terminate`, `wait`). Raises NotFound, PlanError for a job
        with an auto pool, ServiceError for a job that is over, TimedOut if the job is not disabled in time.
        """
        deadline = watch.Deadline(timeout, f"job {self.id} to be disabled", tell)
        job_actions.migrate(self._client.batch, self.id, pool_id, running, deadline, self._client.pace, tell)

    def stats(self) -> Stats:
        """Its tasks in numbers: times, node hours, the slowest, and the failed ones by cause. Lists every task once."""
        pool_id = read.job(self._client.batch, self.id).pool
        pool = read.pool_or_none(self._client.batch, pool_id) if pool_id else None
        collector = statistics.Collector(pool.slots if pool else 1)
        for item in read.tasks(self._client.batch, self.id, select=read.COUNTED_TASK):
            collector.add(item)
        examples = itertools.islice(collector.examples().items(), EXPLAINED)
        return collector.stats({cause: str(self.failure_of(task)) for cause, task in examples})

    def sweep(
        self,
        metric: str,
        *,
        highest: bool | None = None,
        runs_dir: str | Path | None = None,
        tell: Tell = SHOW,
    ) -> Table[SweepRow]:
        """The tasks of the job with their named parameters and the last value of a metric, best first.

        highest: whether the highest value is the best; by default the name of the metric decides. runs_dir: where the
        run directory of the job is; by default BATCHTRAIN_RUNS_DIR or `runs`. Raises NotFound.
        """
        from batchtrain.runs.sweep import sweep  # compiles the patterns of all programs

        root = root_of(runs_dir, os.environ)
        return sweep(self._client.batch, self._client.account, root, self.id, metric, tell, highest=highest)

    def diagnose(
        self, task_id: str | None = None, *, hints: tuple[str, ...] = (), runs_dir: str | Path | None = None
    ) -> Diagnosis:
        """Why the job, or one task of it, fails or waits. Of a job that is gone, what its newest run directory says.

        hints: why its tasks wait, as far as the emulator knows it. runs_dir: by default BATCHTRAIN_RUNS_DIR or `runs`.
        """
        try:
            run = self.recorded(runs_dir)
            return self._examined(task_id, hints=hints, seen=run.attempts() if run else ())
        except NotFound as error:
            run = self.recorded(runs_dir) if error.code == "JobNotFound" else None
            if run is None:
                raise
            return _kept_diagnosis(run, task_id)

    def recorded(self, runs_dir: str | Path | None = None) -> RunDirectory | None:
        """Its newest run directory, also of a job that is gone; None if there is none. runs_dir: as for `diagnose`."""
        root = root_of(runs_dir, os.environ)
        return recorded_job(root, self._client.account, self.id, None)

    def _examined(
        self,
        task_id: str | None,
        *,
        hints: tuple[str, ...] = (),
        logs: str = "",
        seen: tuple[Attempt, ...] = (),
    ) -> Diagnosis:
        from batchtrain.client import diagnose  # compiles the pattern of every rule, and only here

        return diagnose.job(self._client.batch, self.id, task_id, hints, logs, seen)

    def disable(self, *, running: str = "requeue") -> None:
        """Disable the job: it starts no more tasks. running: what happens to running tasks (`requeue`, `terminate`,
        `wait`)."""
        submit.disable_job(self._client.batch, self.id, running)

    def enable(self) -> None:
        """Enable the job after `disable`."""
        submit.enable_job(self._client.batch, self.id)

    def terminate(self) -> None:
        """Terminate the tasks of the job. The job is not deleted."""
        submit.terminate_job(self._client.batch, self.id)

    @displayed("interrupted; the deletion continues")
    def delete(self, *, wait: bool = True, timeout: float = GONE_SECONDS, tell: Tell = SHOW) -> None:
        """Delete the job with its tasks. Raises NotFound."""
        with watch.Deadline(timeout, f"the deletion of job {self.id}", tell):
            submit.delete_job(self._client.batch, self.id)
        if wait:
            self.gone(timeout=timeout, tell=tell)

    @displayed("interrupted; the deletion continues")
    def gone(self, *, timeout: float = GONE_SECONDS, tell: Tell = SHOW) -> None:
        """Wait until the deletion of the job has finished."""
        pace, what = self._client.pace, f"job {self.id}"
        watch.gone(lambda: read.job(self._client.batch, self.id), timeout, pace, what, tell)


# --- what is not asked of Batch -------------------------------------------------------------------------------------


def _kept_diagnosis(run: RunDirectory, task_id: str | None) -> Diagnosis:
    """What a run directory says about a job that is gone, or about one task of it."""
    from batchtrain.diagnosis.evidence import Evidence
    from batchtrain.diagnosis.finding import Diagnosis

    record, failure = run.record(), run.record().failure
    if failure and task_id and failure.task != f"{record.job}/{task_id}":
        failure = None  # of another task
    finding = failure.found if failure else None
    if failure and not finding:
        finding = Finding(
            "unknown", f"job {record.job}", failure.message, "", f"read its output in {run.path / 'logs'}"
        )
    state = f"{record.state}; the job is gone, and this is from {run.path}"
    return Diagnosis(f"job {record.job}", state, "", (finding,) if finding else (), (), Evidence())


def _read(lines: Iterator[str], deadline: watch.Deadline) -> Iterator[list[str]]:
    """Lines, many at a time. The deadline covers only the reading: who takes the lines may make requests too."""
    parts = together(lines)
    while True:
        with deadline:
            part = next(parts, None)
        if part is None:
            return
        yield part


def _bring(step: Step, recipe: Recipe, values: Placeholders) -> Event:
    """Uploads files of this machine to a storage container."""
    from batchtrain.storage import ingress  # only where files travel through storage

    (tally,) = ingress.carry_out(Plan((step,)), recipe, values.connect)
    tally.check()
    total = tally.total
    return FilesUploaded(total.place, f"{total.files} files to {total.place}: {total.copied} copied")


def _refuse_identities(recipe: Recipe, account: Account) -> None:
    """Raise UsageError where a pool's managed identities could not be set."""
    if account.emulated or account.key is None or recipe.credentials.aad or _arm_sign_in(recipe):
        return
    raise UsageError(
        "the pool's `identities` are set through Azure Resource Manager, which takes no account key: sign in with"
        " Microsoft Entra ID (`credentials.aad`, or `az login` and no `account_key`), or remove `identities`"
    )


def _arm_sign_in(recipe: Recipe) -> bool:
    management = recipe.credentials.management
    return management is not None and management.aad is not None


def _identify(step: Step, recipe: Recipe, account: Account) -> Event:
    """Sets the managed identities of a pool through Azure Resource Manager; the emulator has none."""
    pool_id = _id(recipe)
    identities = step.body["identities"] if isinstance(step.body, dict) else ()
    if account.emulated:
        return PoolIdentified(pool_id, f"pool {pool_id} is created without managed identities: the emulator has none")
    from batchtrain.service import arm  # only for pools with identities

    rest = arm.reach(recipe.credentials, os.environ, account.endpoint)
    management = recipe.credentials.management
    seen = arm.account(rest, account.endpoint, management.subscription_id if management else None)
    if seen is None:
        raise NotFound(f"the signed-in identity sees no Batch account at {account.endpoint}; it needs the role Reader")
    arm.set_pool_identity(rest, seen, pool_id, identities)
    return PoolIdentified(pool_id, f"pool {pool_id} has {len(identities)} managed identities")


def _mended(recipe: Recipe | None) -> frozenset[str]:
    """The node states in which the pool file requests a reboot."""
    pool = recipe.pool if recipe else None
    if pool is None:
        return frozenset()
    reboots = {"starttaskfailed": pool.reboot_on_start_task_failed, "unusable": pool.attempt_recovery_on_unusable}
    return frozenset(state for state, wanted in reboots.items() if wanted)


def _id(recipe: Recipe) -> str:
    if recipe.pool is None:
        raise UsageError(f"{recipe.directory} has no pool.yaml")
    return recipe.pool.id


def _logins(todo: Plan) -> tuple[Step, ...]:
    """The steps that create logins on nodes; nodes added later need them again."""
    return tuple(step for step in todo.steps if step.action == "node.user")


def _has_gang(recipe: Recipe) -> bool:
    gangs = (task.multi_instance for job in recipe.jobs if job.auto_pool is None for task in job.tasks)
    return any(gangs)
