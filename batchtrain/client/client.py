"""The public API on one page: connect, load, plan, compare, run. The command line and notebooks both use it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from batchtrain.client.limits import limits_of
from batchtrain.client.operations import Operations
from batchtrain.client.planning import gathered
from batchtrain.client.shown_progress import SHOW, Tell, displayed
from batchtrain.client.target_account import where
from batchtrain.config.override import seconds, setting_texts
from batchtrain.config.projects import has_former, project_of
from batchtrain.config.source_directory import read_sources
from batchtrain.config.types import Credentials, Recipe
from batchtrain.config.user_settings import is_for_emulator, is_storage_real
from batchtrain.errors import PlanError
from batchtrain.life.intents import of_run
from batchtrain.plan import diff, plan_recipe
from batchtrain.plan.diff import PlanComparison
from batchtrain.plan.marks import SHOWN, marked_plan
from batchtrain.plan.types import Facts, Plan
from batchtrain.records import Table
from batchtrain.runs.beginnings import Beginning, lineage_of
from batchtrain.runs.directory import LATEST, find, root_of
from batchtrain.runs.finished import Result, Run
from batchtrain.runs.lease import marks_here
from batchtrain.runs.recording import Origin
from batchtrain.service import read
from batchtrain.service.deadlines import JOB_SECONDS

if TYPE_CHECKING:
    from batchtrain.client.account_runs import AccountRun, AccountRuns, NamedRun
    from batchtrain.client.detach import Detached


def load(
    directory: str | Path,
    *,
    settings: Mapping[str, object] | None = None,
    ignore: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
    local: bool | None = None,
) -> Recipe:
    """Read a recipe (or its config directory), typed.

    settings: overriding values, by path (`{"pool_specification.vm_count.dedicated": 4}`). ignore: names of checks.
    files: other files for a part (`jobs`: jobs-other.yaml). local: the recipe is for the emulator (or
    BATCHTRAIN_LOCAL=1), which accepts a larger `source`.
    Raises ConfigError with every problem.
    """
    from batchtrain.config.load import load as load_files  # with the schema and every rule, and only here

    texts = setting_texts(settings)
    local, real_storage = is_for_emulator(local), is_storage_real(None)
    return load_files(
        directory, settings=texts, ignore=ignore, files=files, local=local, real_storage=real_storage
    ).recipe


def connect(
    *,
    local: bool | None = None,
    credentials: Credentials | None = None,
    environment: Mapping[str, str] | None = None,
    display: bool | None = None,
    account: str = "",
    real_storage: bool | None = None,
) -> Client:
    """A client for where to run: the embedded service (`local`, or BATCHTRAIN_LOCAL=1), else the credentials, else
    AZURE_BATCH_*. Raises NoAccount, with both next commands, when nothing says where.

    display: whether calls that wait show their progress: a card in a notebook, lines elsewhere. By default they do in
    a notebook, on a terminal, and in an interactive Python. account: the name of one of `batch_accounts`.
    real_storage: whether the embedded service uses the storage accounts of the credentials (BATCHTRAIN_REAL_STORAGE=1);
    by default its own storage replaces them.
    """
    variables = os.environ if environment is None else environment
    client = Client(where(local=local, credentials=credentials, environment=variables, label=account))
    client.display = display
    client.real_storage = is_storage_real(real_storage, variables)
    recipe = Recipe(directory=".", credentials=credentials or Credentials())
    client.credentials = client.with_storage(recipe).credentials
    return client


class Client(Operations):
    """One Batch account: its pools and jobs. Every call that waits has a deadline in seconds."""

    def plan(self, recipe: Recipe) -> Plan:
        """The exact requests for a recipe's pool and jobs. Sends nothing."""
        recipe = self.recipe_here(recipe, makes=False)
        facts = Facts(project=project_of(recipe.directory).id, former=has_former(recipe.directory))
        plan = plan_recipe(recipe, facts, read_sources(recipe))
        return marked_plan(plan, marks_here(recipe.settings, SHOWN, lineage_of(recipe)))

    def compare(self, recipe: Recipe) -> PlanComparison:
        """Compares the plan of a recipe with the existing objects: to be created, equal, or different. Changes
        nothing."""
        recipe = self.recipe_here(recipe, makes=False)
        pool = read.pool_or_none(self.batch, recipe.pool.id) if recipe.pool else None
        recipe = self.with_storage(recipe)
        facts, sources = gathered(recipe, self.account, self.storage(recipe))
        try:
            todo = plan_recipe(recipe, facts._replace(pool=read.facts_of(pool) if pool else None), sources)
        except PlanError:  # the pool that stands could not run it; the comparison says what to change
            todo = plan_recipe(recipe, facts, sources)
        return diff.compare(todo, read.living(self.batch, diff.wanted(todo)))

    @displayed("interrupted; what this call created is deleted, and the results so far are in `client.runs.get()`")
    def run(
        self,
        recipe: Recipe,
        *,
        tell: Tell = SHOW,
        timeout: float | str | None = None,
        reuse: bool = False,
        check: bool = True,
        runs_dir: str | Path | None = None,
        max_price: float | None = None,
        max_duration: float | str | None = None,
        fresh: bool = False,
        resume: str | Run | None = None,
    ) -> Result:
        """Creates the pool and the jobs, waits, fetches the results, and deletes what this call created. Returns the
        result: tasks, metrics, curves, logs and files. Raises TaskFailed if a task failed, and LimitReached at a limit
        (both unless `check` is off); otherwise ResultsLeft, or the error of a failed deletion, else the `__cause__`.

        tell: receives each event in place of the display; None shows nothing. timeout: seconds for each wait; by
        default what the wall-clock limits need, otherwise 24 hours. A longer wait raises TimedOut: what was created
        stays, and the last event names it with the commands that delete it. reuse: use the existing pool, or create
        it, and keep it; raises Differs if it differs from the plan. runs_dir: where the run directory is made; by
        default BATCHTRAIN_RUNS_DIR or `runs`. max_price, max_duration: the most that the nodes may cost, in the
        currency of the catalogue, and the longest time: seconds, or a text such as 2h. The results are fetched then.
        Tasks with `checkpoint` continue the last run of the same project. fresh: they start anew. resume: they continue
        this run, which may be of another project.
        """
        from batchtrain.client.run import run  # a run needs more than all other calls together

        origin, limits = Origin(root_of(runs_dir, os.environ)), limits_of(max_price, max_duration)
        wait_seconds = seconds("timeout", timeout)
        recipe = self.recipe_here(recipe, tell)
        earlier = resume.directory if isinstance(resume, Run) else find(origin.root, resume) if resume else None
        outcome = run(
            self, recipe, tell=tell or SHOW, timeout=wait_seconds, intent=of_run(keep=False, reuse=reuse),
            origin=origin, limits=limits, beginning=Beginning(fresh, earlier),
        )  # fmt: skip
        if check and outcome.failure:
            raise outcome.failure from outcome.problem
        if outcome.problem:
            raise outcome.problem
        return Result(outcome.tasks, outcome.runs, outcome.failure)

    @displayed("interrupted; the service ends a job that was added")
    def detach(
        self,
        recipe: Recipe,
        *,
        tell: Tell = SHOW,
        runs_dir: str | Path | None = None,
        max_price: float | None = None,
        max_duration: float | str | None = None,
        controller: bool = False,
    ) -> tuple[Detached, ...]:
        """Adds each job with a pool of its own, and returns. The service ends the job, deletes the pool, and uploads
        the results to storage. runs_dir, max_price, max_duration: as for `run`; without a limit a job ends after 24
        hours. controller: a job on a small node moves it to the next candidate of its pool (`recover: true`). Raises
        UsageError and PlanError before anything is created."""
        from batchtrain.client.detach import detach  # see above

        origin, limits = Origin(root_of(runs_dir, os.environ)), limits_of(max_price, max_duration)
        recipe = self.recipe_here(recipe, tell)
        return detach(self, recipe, tell=tell or SHOW, origin=origin, limits=limits, has_controller=controller)

    @displayed("interrupted; only the following ends, the run continues")
    def attach(
        self,
        run: NamedRun = LATEST,
        *,
        tell: Tell = SHOW,
        timeout: float | str = JOB_SECONDS,
        check: bool = True,
        runs_dir: str | Path | None = None,
        link: str | None = None,
    ) -> Run:
        """Follows a detached run until it ends, and completes its run directory, on any machine. A run that was left is
        followed on its own machine. Raises TaskFailed if a task failed (unless `check` is off).

        run: what `detach` returned, a row of `account_runs`, or a name, its beginning or end, or `latest`, of this
        machine or else of the account. link: the storage account of the run; by default the one of the credentials.
        Raises UsageError for several runs, and for anything else.
        """
        wait_seconds = seconds("timeout", timeout) or 0.0
        runs, name, job_id = self._run_of(run, runs_dir, link)
        recording = runs.attach(name, job_id, tell=tell or SHOW, timeout=wait_seconds)
        if check and recording.failure is not None:
            raise recording.failure
        return Run(recording.run)

    def fetch_run(self, run: NamedRun = LATEST, *, runs_dir: str | Path | None = None, link: str | None = None) -> Run:
        """Fetches what the tasks of a run that continues without its command have left so far, and writes its end once
        it has ended. Arguments as for `attach`."""
        runs, name, job_id = self._run_of(run, runs_dir, link)
        return Run(runs.fetch(name, job_id, tell=SHOW).run)

    def stop_run(self, run: NamedRun = LATEST, *, runs_dir: str | Path | None = None) -> None:
        """Ends the tasks and the job of a run, of this machine or else of the account. Arguments as for `attach`."""
        runs, name, job_id = self._run_of(run, runs_dir)
        runs.stop(name, job_id)

    def account_runs(self) -> Table[AccountRun]:
        """The runs of all users and machines whose jobs the account still has, the oldest first."""
        from batchtrain.client import account_runs  # as for `run`

        return account_runs.of(self, root_of(None, os.environ)).listed()

    def _run_of(
        self, run: NamedRun, runs_dir: str | Path | None, link: str | None = None
    ) -> tuple[AccountRuns, str, str]:
        """The runs of the account, with the full name and the job of one of them."""
        from batchtrain.client import account_runs  # as for `run`

        text, root = account_runs.named(run)
        runs = account_runs.of(self, root_of(runs_dir or root, os.environ), link)
        return runs, *runs.find(text)
