"""The whole story on one page: connect, load, plan, pools, jobs, run. The command line and notebooks both use it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from batchtrain.config.filled import require_credentials
from batchtrain.config.load import Loaded
from batchtrain.config.load import load as load_files
from batchtrain.config.types import Credentials, Recipe
from batchtrain.errors import BatchtrainError, NotFound, PlanError, ServiceError, TaskFailed, UsageError
from batchtrain.placeholders import Placeholders
from batchtrain.plan import diff, plan_jobs, plan_pool, plan_recipe
from batchtrain.plan.diff import Compared
from batchtrain.plan.job import needs_pool
from batchtrain.plan.network import SSH_PORT
from batchtrain.plan.types import Facts, Plan, PoolFacts, Step
from batchtrain.service import connect as signing
from batchtrain.service import files, look, submit, vault, watch
from batchtrain.service.connect import Account
from batchtrain.service.deadlines import GONE_SECONDS, JOB_SECONDS, POOL_SECONDS
from batchtrain.service.seen import Endpoint, JobSeen, NodeSeen, PoolSeen, ScheduleSeen, Table, TaskSeen
from batchtrain.service.submit import Event
from batchtrain.storage.source import read_listings, read_made, read_sources

if TYPE_CHECKING:
    from batchtrain.emulator.server import Status
    from batchtrain.storage.blob import Connect

NEXT_COMMANDS = (
    "nowhere to run: add --local (or BATCHTRAIN_LOCAL=1) for the embedded Azure Batch on this machine,"
    " or set AZURE_BATCH_ACCOUNT, AZURE_BATCH_ACCESS_KEY and AZURE_BATCH_ENDPOINT"
    " (or write a credentials.yaml) for an account"
)

MEANINGS = {
    126: "a command could not be executed",
    127: "a command was not found",
    137: "as by the kernel where memory runs out",
}
"""What shells mean by an exit code, for where nothing else says it."""

Tell = Callable[[Event], None]


def load(
    directory: str | Path,
    *,
    settings: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
) -> Recipe:
    """Read a recipe (or its config directory), typed.

    settings: values that win, by path. ignore: names of checks. files: other files for a part (`jobs`:
    jobs-other.yaml). Raises ConfigError with every problem.
    """
    return load_files(directory, settings=settings, ignore=ignore, files=files).recipe


def connect(
    *,
    local: bool | None = None,
    credentials: Credentials | None = None,
    environment: Mapping[str, str] | None = None,
) -> Client:
    """A client for where to run: the embedded service (`local`, or BATCHTRAIN_LOCAL=1), else the credentials, else
    AZURE_BATCH_*. Raises UsageError, with both next commands, when nothing says where."""
    known = os.environ if environment is None else environment
    return Client(where(local=local, credentials=credentials, environment=known))


def where(*, local: bool | None, credentials: Credentials | None, environment: Mapping[str, str]) -> Account:
    """The account to use; starts the embedded service when it is asked for and not running."""
    if local if local is not None else truth(environment.get("BATCHTRAIN_LOCAL", "")):
        return emulated(environment)
    if credentials is not None:
        credentials = require_credentials(vault.resolved(credentials, ca=environment.get(signing.CA_VARIABLE)))
    found = signing.account_of(credentials, environment)
    if found is None:
        raise UsageError(NEXT_COMMANDS)
    return found


def truth(value: str) -> bool:
    """Whether an environment variable's value means yes."""
    return value.strip().lower() in ("1", "true", "yes", "on")


def emulator_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where the embedded service of this user keeps everything; BATCHTRAIN_EMULATOR_DIR wins."""
    chosen = (os.environ if environment is None else environment).get("BATCHTRAIN_EMULATOR_DIR")
    if chosen:
        return Path(chosen).absolute()
    from platformdirs import user_data_path  # only the embedded service needs it

    return user_data_path("batchtrain") / "emulator"


def emulated(environment: Mapping[str, str]) -> Account:
    """The embedded service as an account; started when it does not run."""
    status, started = ensure_emulator(emulator_directory(environment))
    return Account(status.endpoint, status.account, status.key, emulated=True, started=started)


def ensure_emulator(directory: Path) -> tuple[Status, bool]:
    """The embedded service's status, and whether it had to be started."""
    from batchtrain.emulator import server  # the CLI and this page alone know the emulator is there

    running = server.status(directory)
    if running is not None:
        return running, False
    try:
        return server.spawn(server.Settings(data_dir=directory, port=0)), True
    except server.StartFailed as error:
        running = server.status(directory)  # somebody else may have started it at the same moment
        if running is not None:
            return running, False
        raise ServiceError(f"the emulator does not start: {error}", operation="start the emulator") from None


class Client:
    """One Batch account: its pools and jobs. Every call that waits has a deadline in seconds."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.batch = signing.connect(account)
        self.pace = watch.NEAR if signing.loopback(account.endpoint) else watch.FAR
        self.pools = Pools(self)
        self.jobs = Jobs(self)

    def __repr__(self) -> str:
        return f"Client({self.account.endpoint!r}, {self.account.name!r})"

    def plan(self, recipe: Recipe) -> Plan:
        """The exact requests for a recipe's pool and jobs, sent to nobody."""
        return plan_recipe(recipe, sources=read_sources(recipe))

    def compare(self, recipe: Recipe) -> tuple[Compared, ...]:
        """A recipe's plan held against what stands: what would be made, is the same, or differs. Changes nothing."""
        pool = look.pool_or_none(self.batch, recipe.pool.id) if recipe.pool else None
        facts = Facts(
            listings=read_listings(recipe, _storage(recipe, self.account.ca)),
            made=read_made(recipe),
        )
        sources = read_sources(recipe)
        try:
            todo = plan_recipe(recipe, facts._replace(pool=look.facts_of(pool) if pool else None), sources)
        except PlanError:  # the pool that stands could not run it; the comparison says what to change
            todo = plan_recipe(recipe, facts, sources)
        return diff.compare(todo, look.living(self.batch, diff.wanted(todo)))

    def run(self, recipe: Recipe, *, tell: Tell = lambda _: None, timeout: float = JOB_SECONDS) -> Table[TaskSeen]:
        """Pool, jobs, wait, and clean up what this made. Raises TaskFailed when a task failed."""
        from batchtrain.run import run  # run uses this page

        outcome = run(self, recipe, tell=tell, timeout=timeout)
        if outcome.failure is not None:
            raise outcome.failure
        return outcome.tasks

    def carry_out(self, todo: Plan, recipe: Recipe, tell: Tell) -> None:
        """Send a plan's requests in order."""
        values = Placeholders(recipe, ca=self.account.ca)
        others: submit.Others = {
            "files.upload": lambda step: _bring(step, recipe, values),
            "pool.identity": lambda step: _identify(step, recipe, self.account),
        }
        for event in submit.submit(self.batch, todo, values.fill, values.upload, others):
            tell(event)


def ssh_line(user: str, key: str, found: Endpoint) -> str:
    """The command that logs in to a node."""
    words = ["ssh", *(("-i", key) if key else ()), "-p", str(found.port), f"{user}@{found.address}"]
    return shlex.join(words)


class Pools:
    """The pools of an account."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def add(
        self, recipe: Recipe, *, wait: bool = True, timeout: float = POOL_SECONDS, tell: Tell = lambda _: None
    ) -> PoolSeen:
        """Make the recipe's pool and wait until its nodes take tasks; then make the login of its `ssh` or `rdp`.

        A pool that is not waited for has no nodes yet: `log_in` makes the login later.
        Raises AlreadyExists, QuotaReached, ServiceError (a failed start task with its last lines), TimedOut, and
        UsageError for managed identities that nobody could set, before anything is made.
        """
        if not needs_pool(recipe):
            raise PlanError(f"each job of {recipe.directory} brings a pool of its own (`auto_pool`); add the jobs")
        todo = plan_pool(recipe)
        if any(step.action == "pool.identity" for step in todo.steps):
            _refuse_identities(recipe, self._client.account)
        pool_id = _id(recipe)
        logins = tuple(step for step in todo.steps if step.action == "node.user")
        self._client.carry_out(
            todo._replace(steps=tuple(step for step in todo.steps if step not in logins)), recipe, tell
        )
        if wait:
            self.wait(pool_id, timeout=timeout, tell=tell, recipe=recipe)
            self._log_in(logins, recipe, tell)
        return self.get(pool_id)

    def log_in(self, recipe: Recipe, *, tell: Tell = lambda _: None) -> None:
        """Make the login of `ssh` or `rdp` on every node there is now, or bring it up to date."""
        logins = tuple(step for step in plan_pool(recipe).steps if step.action == "node.user")
        if not logins:
            raise UsageError(f"{recipe.directory} says no login; add `ssh` with a `username` to pool.yaml")
        self._log_in(logins, recipe, tell)

    def _log_in(self, logins: tuple[Step, ...], recipe: Recipe, tell: Tell) -> None:
        if logins and self._client.account.emulated:
            tell(
                Event("node.user", _id(recipe), "no login is made: the nodes of the embedded service are this machine")
            )
        elif logins:
            self._client.carry_out(Plan(logins), recipe, tell)
            self._say_logins(recipe, tell)

    def _say_logins(self, recipe: Recipe, tell: Tell) -> None:
        """How to reach each node that is reached from outside."""
        pool = recipe.pool
        if pool is None or pool.ssh is None:
            return
        own = pool.ssh.ssh_public_key or pool.ssh.ssh_public_key_data
        key = pool.ssh.ssh_private_key or ("" if own else str(Placeholders(recipe).key_pair()))
        for found in look.endpoints(self._client.batch, pool.id, SSH_PORT):
            tell(Event("node.login", found.node, f"{ssh_line(pool.ssh.username, key, found)}  # node {found.node}"))

    def wait(
        self,
        pool_id: str,
        *,
        timeout: float = POOL_SECONDS,
        tell: Tell = lambda _: None,
        recipe: Recipe | None = None,
    ) -> Table[NodeSeen]:
        """Wait until a pool's nodes take tasks; with its recipe, broken nodes are rebooted as that says."""

        def say(state: str) -> None:
            tell(Event("pool.wait", pool_id, f"pool {pool_id}: {state}"))

        def rebooted(text: str) -> None:
            tell(Event("node.reboot", pool_id, text))

        reboots = watch.Reboots(self._client.batch, pool_id, _mended(recipe), rebooted)
        return Table(watch.pool_ready(self._client.batch, pool_id, timeout, self._client.pace, say, reboots.mend))

    def get(self, pool_id: str) -> PoolSeen:
        """One pool. Raises NotFound."""
        return look.pool(self._client.batch, pool_id)

    def list(self) -> Table[PoolSeen]:
        """All pools."""
        return Table(look.pools(self._client.batch))

    def nodes(self, pool_id: str) -> Table[NodeSeen]:
        """A pool's nodes."""
        return Table(look.nodes(self._client.batch, pool_id))

    def resize(
        self,
        pool_id: str,
        *,
        dedicated: int | None = None,
        spot: int | None = None,
        leaving: str = "requeue",
        wait: bool = True,
        timeout: float = POOL_SECONDS,
        tell: Tell = lambda _: None,
    ) -> PoolSeen:
        """Give a pool another number of nodes, and wait until all of them take tasks; None keeps a kind's number.

        leaving: what becomes of the tasks of nodes that go (`requeue`, `terminate`, `taskcompletion`).
        """
        if dedicated is None and spot is None:
            raise UsageError("say how many nodes: dedicated, spot or both")
        submit.resize_pool(self._client.batch, pool_id, dedicated, spot, leaving)
        if wait:
            self.wait(pool_id, timeout=timeout, tell=tell)
        return self.get(pool_id)

    def reboot(self, pool_id: str, node_ids: Iterable[str]) -> None:
        """Boot nodes anew; their tasks go back to the queue, their start task runs again. Does not wait."""
        for node_id in node_ids:
            submit.reboot_node(self._client.batch, pool_id, node_id)

    def delete(self, pool_id: str, *, wait: bool = True, timeout: float = GONE_SECONDS) -> None:
        """End a pool with its nodes. Raises NotFound."""
        submit.delete_pool(self._client.batch, pool_id)
        if wait:
            self.gone(pool_id, timeout=timeout)

    def gone(self, pool_id: str, *, timeout: float = GONE_SECONDS) -> None:
        """Wait until a pool that is being deleted is gone."""
        watch.gone(lambda: self.get(pool_id), timeout, self._client.pace, f"pool {pool_id}")


class Jobs:
    """The jobs of an account."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def add(self, recipe: Recipe, *, tell: Tell = lambda _: None, timeout: float = POOL_SECONDS) -> Job:
        """Add the recipe's one job. Raises UsageError when it has several, or a job schedule: use add_all."""
        if len(recipe.jobs) != 1:
            raise UsageError(f"{recipe.directory} has {len(recipe.jobs)} jobs; use jobs.add_all")
        if recipe.jobs[0].recurrence is not None:
            raise UsageError(f"job {recipe.jobs[0].id} has a recurrence, so a job schedule is made; use jobs.add_all")
        self.add_all(recipe, tell=tell, timeout=timeout)
        return self.get(recipe.jobs[0].id)

    def add_all(
        self, recipe: Recipe, *, tell: Tell = lambda _: None, timeout: float = POOL_SECONDS
    ) -> tuple[Job | JobSchedule, ...]:
        """Add every job of the recipe with its tasks, or its job schedule; a gang is held against the living pool,
        which is given `timeout` seconds to stop growing, and `pool_current_*` is its count.

        Raises PlanError for what could never run, ServiceError for a refused task.
        """
        todo = plan_jobs(recipe, self._facts(recipe, timeout), read_sources(recipe))
        self._client.carry_out(todo, recipe, tell)
        return tuple(self.schedule(job.id) if job.recurrence else self.get(job.id) for job in recipe.jobs)

    def _facts(self, recipe: Recipe, timeout: float) -> Facts:
        return Facts(
            pool=self._pool_facts(recipe, timeout) if needs_pool(recipe) else None,
            listings=read_listings(recipe, _storage(recipe, self._client.account.ca)),
            made=read_made(recipe),
        )

    def _pool_facts(self, recipe: Recipe, timeout: float) -> PoolFacts:
        pool_id = _id(recipe)
        if not _has_gang(recipe):
            return look.facts_of(look.pool(self._client.batch, pool_id))
        return look.facts_of(watch.pool_steady(self._client.batch, pool_id, timeout, self._client.pace))

    def get(self, job_id: str) -> Job:
        """A handle on a job; nothing is asked until it is used."""
        return Job(self._client, job_id)

    def list(self) -> Table[JobSeen]:
        """All jobs."""
        return Table(look.jobs(self._client.batch))

    def schedule(self, schedule_id: str) -> JobSchedule:
        """A handle on a job schedule; nothing is asked until it is used."""
        return JobSchedule(self._client, schedule_id)

    def schedules(self) -> Table[ScheduleSeen]:
        """All job schedules."""
        return Table(look.schedules(self._client.batch))


class JobSchedule:
    """A job that comes again and again: its state, and the last job it made."""

    def __init__(self, client: Client, schedule_id: str) -> None:
        self._client, self.id = client, schedule_id

    def __repr__(self) -> str:
        return f"JobSchedule({self.id!r})"

    @property
    def seen(self) -> ScheduleSeen:
        """The schedule now. Raises NotFound."""
        return look.schedule(self._client.batch, self.id)

    @property
    def job(self) -> Job | None:
        """The last job it made; None before the first."""
        name = self.seen.job
        return Job(self._client, name) if name else None

    def terminate(self) -> None:
        """Let it make no more jobs, and end the one that runs."""
        submit.terminate_schedule(self._client.batch, self.id)

    def delete(self, *, wait: bool = True, timeout: float = GONE_SECONDS) -> None:
        """End and forget the schedule with its jobs. Raises NotFound."""
        submit.delete_schedule(self._client.batch, self.id)
        if wait:
            watch.gone(lambda: self.seen, timeout, self._client.pace, f"job schedule {self.id}")


class Job:
    """One job: its state, tasks and logs."""

    def __init__(self, client: Client, job_id: str) -> None:
        self._client, self.id = client, job_id

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def _repr_html_(self) -> str:
        return self.tasks._repr_html_()

    @property
    def seen(self) -> JobSeen:
        """The job now, with the counts of its tasks. Raises NotFound."""
        return look.job(self._client.batch, self.id)

    @property
    def tasks(self) -> Table[TaskSeen]:
        """Its tasks now."""
        return Table(look.tasks(self._client.batch, self.id))

    def wait(self, *, timeout: float = JOB_SECONDS, check: bool = True) -> Job:
        """Wait until every task has ended. Raises TaskFailed for the first that failed (unless `check` is off)."""
        ended = watch.tasks_ended(self._client.batch, self.id, timeout, self._client.pace)
        if check:
            self.raise_failed(ended)
        return self

    def raise_failed(self, tasks: tuple[TaskSeen, ...]) -> None:
        """Raise TaskFailed, with its last lines, for the first task that failed."""
        for task in tasks:
            if task.state != "completed":
                raise TaskFailed(
                    f"task {self.id}/{task.id} never came to its end: it is {task.state}, and its job was ended",
                    task=f"{self.id}/{task.id}",
                )
            if task.result == "failure" or (task.exit_code or 0) != 0:
                raise self._failure(task)

    def _failure(self, task: TaskSeen) -> TaskFailed:
        lines = self._last_lines(task.id)
        how = f"exit code {task.exit_code}" if task.exit_code is not None else task.failure or "no exit code"
        ours = [line.removeprefix("batchtrain: ") for line in lines if line.startswith("batchtrain: ")]
        ranks = [line for line in ours if line.startswith("rank ")]
        reported = ranks or ours[-1:]
        said = f": {reported[0]}" if reported else ""
        if (ranks or not reported) and task.exit_code in MEANINGS:
            said += f" ({MEANINGS[task.exit_code]})"
        message = f"task {self.id}/{task.id} failed on node {task.node or '(none)'} with {how}{said}"
        if task.exit_code is None or not lines:
            message += f" ({task.failure})" if task.failure and task.failure != how else ""
        return TaskFailed(message, task=f"{self.id}/{task.id}", node=task.node, code=task.exit_code, lines=lines)

    def _last_lines(self, task_id: str, count: int = 20) -> tuple[str, ...]:
        try:
            return files.last_lines(files.task_file(self._client.batch, self.id, task_id, "stderr.txt"), count)
        except BatchtrainError:
            return ()  # a task that never ran has no files; its failure says why

    def logs(
        self,
        task_id: str | None = None,
        *,
        file: str = "stdout.txt",
        follow: bool = False,
        timeout: float = JOB_SECONDS,
    ) -> Iterator[str]:
        """Lines of a task's output (by default its first task's stdout); with `follow` until the task has ended.

        Raises NotFound for a task that is not there, TimedOut when following outlasts `timeout`.
        """
        name = task_id or self._first_task()
        if not follow:
            yield from files.task_file(self._client.batch, self.id, name, file).decode("utf-8", "replace").splitlines()
            return
        follower = files.Follower(self._client.batch, self.id, name, file)
        deadline = watch.Deadline(timeout, f"following {file} of task {self.id}/{name}")
        while True:
            ended = self._task(name).state == "completed"
            yield from follower.new_lines(last=ended)
            if ended and follower.missing:
                raise follower.missing
            if ended:
                return
            deadline.pause(self._client.pace.first * 2)

    def _first_task(self) -> str:
        tasks = self.tasks
        if not tasks:
            raise NotFound(f"job {self.id} has no tasks")
        return tasks[0].id

    def _task(self, task_id: str) -> TaskSeen:
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise NotFound(f"job {self.id} has no task {task_id}")

    def disable(self, *, running: str = "requeue") -> None:
        """Start nothing more. running: what becomes of tasks that run (`requeue`, `terminate`, `wait`)."""
        submit.disable_job(self._client.batch, self.id, running)

    def enable(self) -> None:
        """Let it go on after `disable`."""
        submit.enable_job(self._client.batch, self.id)

    def terminate(self) -> None:
        """End its tasks; the job stays to be looked at."""
        submit.terminate_job(self._client.batch, self.id)

    def delete(self, *, wait: bool = True, timeout: float = GONE_SECONDS) -> None:
        """End and forget the job with its tasks. Raises NotFound."""
        submit.delete_job(self._client.batch, self.id)
        if wait:
            self.gone(timeout=timeout)

    def gone(self, *, timeout: float = GONE_SECONDS) -> None:
        """Wait until the job, which is being deleted, is gone."""
        watch.gone(lambda: look.job_state(self._client.batch, self.id), timeout, self._client.pace, f"job {self.id}")


# --- what is not asked of Batch -------------------------------------------------------------------------------------


def _bring(step: Step, recipe: Recipe, values: Placeholders) -> Event:
    """Files of this machine to a storage container."""
    from batchtrain.storage import ingress  # 0.28 s, and only where files travel through storage

    (total,) = ingress.carry_out(Plan((step,)), recipe, values.connect)
    return Event(step.action, total.place, f"{total.files} files to {total.place}: {total.sent} sent")


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
    """A pool's managed identities, through Azure Resource Manager; the embedded service has none to give."""
    pool_id = _id(recipe)
    identities = step.body["identities"] if isinstance(step.body, dict) else ()
    if account.emulated:
        return Event(step.action, pool_id, f"pool {pool_id} goes without managed identities: there are none here")
    from batchtrain.service import arm  # only for pools with identities

    rest = arm.reach(recipe.credentials, os.environ, account.endpoint)
    management = recipe.credentials.management
    seen = arm.account(rest, account.endpoint, management.subscription_id if management else None)
    if seen is None:
        raise NotFound(f"whoever is signed in sees no Batch account at {account.endpoint}; it needs the role Reader")
    arm.set_pool_identity(rest, seen, pool_id, identities)
    return Event(step.action, pool_id, f"pool {pool_id} has {len(identities)} managed identities")


def _mended(recipe: Recipe | None) -> frozenset[str]:
    """The states of a node that a reboot may mend, as the pool file says."""
    pool = recipe.pool if recipe else None
    if pool is None:
        return frozenset()
    said = {"starttaskfailed": pool.reboot_on_start_task_failed, "unusable": pool.attempt_recovery_on_unusable}
    return frozenset(state for state, wanted in said.items() if wanted)


def _id(recipe: Recipe) -> str:
    if recipe.pool is None:
        raise UsageError(f"{recipe.directory} has no pool.yaml")
    return recipe.pool.id


def _has_gang(recipe: Recipe) -> bool:
    gangs = (task.multi_instance for job in recipe.jobs if job.auto_pool is None for task in job.tasks)
    return any(gangs)


def _storage(recipe: Recipe, ca: str | None) -> Connect:
    """Clients of the recipe's storage accounts by link; nobody signs in before one is asked for."""
    values = Placeholders(recipe, ca=ca)
    return lambda link: values.connect(link)


__all__ = ["Client", "Job", "JobSchedule", "Jobs", "Loaded", "Pools", "connect", "load"]
