"""The whole story on one page: connect, load, plan, pools, jobs, run. The command line and notebooks both use it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from batchtrain.config.load import Loaded
from batchtrain.config.load import load as load_files
from batchtrain.config.types import Credentials, Recipe
from batchtrain.errors import BatchtrainError, NotFound, ServiceError, TaskFailed, UsageError
from batchtrain.plan import plan_jobs, plan_pool, plan_recipe
from batchtrain.plan.types import Facts, Plan, PoolFacts
from batchtrain.service import connect as signing
from batchtrain.service import files, look, submit, watch
from batchtrain.service.connect import Account
from batchtrain.service.deadlines import GONE_SECONDS, JOB_SECONDS, POOL_SECONDS
from batchtrain.service.seen import JobSeen, NodeSeen, PoolSeen, Table, TaskSeen
from batchtrain.service.submit import Event
from batchtrain.storage.source import read_sources

if TYPE_CHECKING:
    from batchtrain.emulator.server import Status

NEXT_COMMANDS = (
    "nowhere to run: add --local (or BATCHTRAIN_LOCAL=1) for the embedded Azure Batch on this machine,"
    " or set AZURE_BATCH_ACCOUNT, AZURE_BATCH_ACCESS_KEY and AZURE_BATCH_ENDPOINT"
    " (or write a credentials.yaml) for an account"
)

Tell = Callable[[Event], None]


def load(directory: str | Path, *, settings: Mapping[str, str] | None = None) -> Recipe:
    """Read a recipe (or its config directory), typed. Raises ConfigError with every problem."""
    return load_files(directory, settings=settings).recipe


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
    if credentials is not None and credentials.batch is not None:
        batch = credentials.batch
        return signing.account(batch.account_service_url, batch.account, batch.account_key)
    endpoint = environment.get("AZURE_BATCH_ENDPOINT")
    if not endpoint:
        raise UsageError(NEXT_COMMANDS)
    return signing.account(endpoint, environment.get("AZURE_BATCH_ACCOUNT"), environment.get("AZURE_BATCH_ACCESS_KEY"))


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

    def run(self, recipe: Recipe, *, tell: Tell = lambda _: None, timeout: float = JOB_SECONDS) -> Table[TaskSeen]:
        """Pool, jobs, wait, and clean up what this made. Raises TaskFailed when a task failed."""
        from batchtrain.run import run  # run uses this page

        outcome = run(self, recipe, tell=tell, timeout=timeout)
        if outcome.failure is not None:
            raise outcome.failure
        return outcome.tasks

    def carry_out(self, todo: Plan, recipe: Recipe, tell: Tell) -> None:
        """Send a plan's requests in order."""
        secrets = _Secrets(recipe)
        for event in submit.submit(self.batch, todo, secrets.fill, secrets.upload):
            tell(event)


class Pools:
    """The pools of an account."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def add(
        self, recipe: Recipe, *, wait: bool = True, timeout: float = POOL_SECONDS, tell: Tell = lambda _: None
    ) -> PoolSeen:
        """Make the recipe's pool and wait until its nodes take tasks.

        Raises AlreadyExists, QuotaReached, ServiceError (a failed start task with its last lines), TimedOut.
        """
        todo = plan_pool(recipe)
        self._client.carry_out(todo, recipe, tell)
        pool_id = _id(recipe)
        if wait:
            self.wait(pool_id, timeout=timeout, tell=tell)
        return self.get(pool_id)

    def wait(self, pool_id: str, *, timeout: float = POOL_SECONDS, tell: Tell = lambda _: None) -> Table[NodeSeen]:
        """Wait until a pool's nodes take tasks."""

        def say(state: str) -> None:
            tell(Event("pool.wait", pool_id, f"pool {pool_id}: {state}"))

        return Table(watch.pool_ready(self._client.batch, pool_id, timeout, self._client.pace, say))

    def get(self, pool_id: str) -> PoolSeen:
        """One pool. Raises NotFound."""
        return look.pool(self._client.batch, pool_id)

    def list(self) -> Table[PoolSeen]:
        """All pools."""
        return Table(look.pools(self._client.batch))

    def nodes(self, pool_id: str) -> Table[NodeSeen]:
        """A pool's nodes."""
        return Table(look.nodes(self._client.batch, pool_id))

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
        """Add the recipe's one job. Raises UsageError when it has several: use add_all."""
        if len(recipe.jobs) != 1:
            raise UsageError(f"{recipe.directory} has {len(recipe.jobs)} jobs; use jobs.add_all")
        return self.add_all(recipe, tell=tell, timeout=timeout)[0]

    def add_all(self, recipe: Recipe, *, tell: Tell = lambda _: None, timeout: float = POOL_SECONDS) -> tuple[Job, ...]:
        """Add every job of the recipe with its tasks; a gang is held against the living pool, which is given
        `timeout` seconds to stop growing, and `pool_current_*` is its count.

        Raises PlanError for what could never run, ServiceError for a refused task.
        """
        facts = Facts(pool=self._pool_facts(recipe, timeout))
        todo = plan_jobs(recipe, facts, read_sources(recipe))
        self._client.carry_out(todo, recipe, tell)
        return tuple(self.get(job.id) for job in recipe.jobs)

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
        reported = [line for line in ours if line.startswith("rank ")] or ours[-1:]
        said = f": {reported[0]}" if reported else ""
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


class _Secrets:
    """The values of a plan's placeholders, made when they are needed."""

    def __init__(self, recipe: Recipe) -> None:
        self._credentials = recipe.credentials

    def fill(self, name: str) -> str:
        kind, _, rest = name.partition(":")
        return self._registry(rest) if kind == "registry" else self._link(rest)

    def _registry(self, server: str) -> str:
        password = self._credentials.docker_registry[server].password
        if not password:
            raise UsageError(f"the registry `{server}` has no password in credentials.yaml")
        return password

    def _link(self, path: str) -> str:
        from batchtrain.storage import blob  # 0.28 s, and only where files travel through storage

        link, container, name = path.split("/", 2)
        account = self._credentials.storage[link]
        return blob.link(blob.connect(link, account), account, container, name)

    def upload(self, path: str, data: bytes) -> None:
        from batchtrain.storage import blob  # see above

        link, container, name = path.split("/", 2)
        blob.upload(blob.connect(link, self._credentials.storage[link]), container, name, data)


def _id(recipe: Recipe) -> str:
    if recipe.pool is None:
        raise UsageError(f"{recipe.directory} has no pool.yaml")
    return recipe.pool.id


def _has_gang(recipe: Recipe) -> bool:
    gangs = (task.multi_instance for job in recipe.jobs for task in job.tasks)
    return any(gangs)


__all__ = ["Client", "Job", "Jobs", "Loaded", "Pools", "connect", "load"]
