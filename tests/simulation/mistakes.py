"""What users get wrong: calls that are refused before they change anything, each with words of its message."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import batchtrain as bt
from batchtrain.config.types import Credentials, Recipe, convert
from batchtrain.errors import BatchtrainError, ConfigError, PlanError, UsageError
from batchtrain.records.events import Event
from batchtrain.runs import directory
from tests.simulation import storage
from tests.simulation.workload import IMAGE, LINK, Checks, Told, Work

Call = Callable[[bt.Client, Recipe, Path], object]
AT_ONCE = 16
"""The mistakes of one command."""


def _quiet(event: Event) -> None: ...


def _run(client: bt.Client, recipe: Recipe, runs: Path) -> object:
    return client.run(recipe, tell=_quiet, runs_dir=runs)


def _run_limited(client: bt.Client, recipe: Recipe, runs: Path) -> object:
    return client.run(recipe, tell=_quiet, runs_dir=runs, max_price=1.0)


def _detach(client: bt.Client, recipe: Recipe, runs: Path) -> object:
    return client.detach(recipe, tell=_quiet, runs_dir=runs)


def _detach_limited(client: bt.Client, recipe: Recipe, runs: Path) -> object:
    return client.detach(recipe, tell=_quiet, runs_dir=runs, max_duration=30.0)


def _control(client: bt.Client, recipe: Recipe, runs: Path) -> object:
    return client.detach(recipe, tell=_quiet, runs_dir=runs, controller=True)


def _add_pool(client: bt.Client, recipe: Recipe, runs: Path) -> object:
    return client.pools.add(recipe, tell=_quiet)


def _add_job(client: bt.Client, recipe: Recipe, runs: Path) -> object:
    return client.jobs.add(recipe, tell=_quiet)


class Mistake(NamedTuple):
    says: str
    call: Call
    pool: Mapping[str, Any] = {}
    job: Mapping[str, Any] = {}
    task: Mapping[str, Any] = {}
    credentials: Mapping[str, Any] = {}
    resources: Mapping[str, Any] = {}

    def recipe(self, work: Work) -> Recipe:
        """A recipe of one task with the mistake."""
        name = f"none-{work.folder.name}"
        pool = {
            "id": name, "vm_configuration": {"platform_image": IMAGE}, "vm_size": "STANDARD_D4S_V5",
            "vm_count": {"dedicated": 1}, **self.pool,
        }  # fmt: skip
        tasks = [{"id": "task-0", "command": "sim 1 0", **self.task}]
        account = {"account": storage.ACCOUNT, "account_key": storage.KEY, "endpoint": f"https://{storage.HOST}"}
        recipe = {
            "directory": str(work.folder), "pool": pool, "jobs": [{"id": name, "tasks": tasks, **self.job}],
            "credentials": {"storage": {LINK: account}, **self.credentials}, "resources": self.resources,
        }  # fmt: skip
        return convert(recipe, Recipe)


KEPT_POOL = {"auto_pool": {"keep_alive": True}}
RECURRENCE = {"recurrence": {"schedule": {"recurrence_interval": "01:00:00"}}}
IDENTITY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"
ALTERNATIVES = {"alternatives": [{"vm_size": "STANDARD_D4AS_V5"}], "recover": True}
OTHER_ACCOUNT = {"alternatives": [{"account": "other"}], "recover": True}
LARGE_SOURCE = {"task_factory": {"repeat": 2}}


def _volume(**options: Any) -> Mapping[str, Any]:
    return {"volumes": {"shared_data_volumes": {"data": options}}}


CIFS = _volume(volume_driver="cifs", source="//server/share")
MISTAKES: tuple[Mistake, ...] = (
    Mistake("is a path, and this call takes a recipe", lambda client, recipe, runs: client.run(recipe.directory)),  # type: ignore[arg-type]
    Mistake("a job schedule has no end", _run, job=RECURRENCE),
    Mistake("keeps its pool alive", _run, job=KEPT_POOL),
    Mistake("ends by itself", _run, job={"auto_pool": {}, "auto_complete": True}),
    Mistake("`keep` and `reuse` keep it", lambda client, recipe, runs: client.run(
        recipe, tell=_quiet, runs_dir=runs, reuse=True, max_price=1.0)),
    Mistake("what an hour of all nodes", _run_limited),
    Mistake("what an hour of all nodes", _run_limited, pool={"autoscale": {"formula": "$TargetDedicatedNodes = 9;"}}),
    Mistake("no run", lambda client, recipe, runs: client.run(recipe, tell=_quiet, runs_dir=runs, resume="none")),
    Mistake("a job schedule has no end", _detach, job=RECURRENCE),
    Mistake("keeps its pool alive", _detach, job=KEPT_POOL),
    Mistake("`task_factory`", _detach, task=LARGE_SOURCE),
    Mistake("`identities`", _detach, pool={"identities": [IDENTITY]}),
    Mistake("several sizes", _detach, pool={"vm_sizes": {"alternatives": ["STANDARD_D4AS_V5"]}}),
    Mistake("`candidates.recover`", _detach, pool={"candidates": ALTERNATIVES}),
    Mistake("tries none", _detach, pool={"candidates": {**ALTERNATIVES, "recover": False}}),
    Mistake("`on_bad_node: replace`", _detach, pool={"on_bad_node": "replace"}),
    Mistake("would end 30 s after its creation", _detach_limited),
    Mistake("needs a storage account", _detach, credentials={"storage": {}}),
    Mistake("several storage accounts", _detach, credentials={
        "storage": {"one": {"account": "one"}, "two": {"account": "two"}}}),
    Mistake("a controller moves a job among the `candidates`", _control),
    Mistake("a controller has the rights of one Batch account", _control, pool={"candidates": OTHER_ACCOUNT},
            credentials={"batch_accounts": {"other": {"account_service_url": "https://other.region.batch.example"}}}),
    Mistake("a controller signs in to the Batch account", _control, pool={"candidates": ALTERNATIVES}),
    Mistake("nodes are awaited", lambda client, recipe, runs: client.pools.add(recipe, wait=False, tell=_quiet),
            pool={"candidates": ALTERNATIVES}),
    Mistake("creates its own pool", _add_pool, job={"auto_pool": {}}),
    Mistake("Azure Resource Manager, which takes no account key", _add_pool, pool={"identities": [IDENTITY]}),
    Mistake("has no password", _add_pool, pool={"user_accounts": [{"name": "user"}]}),
    Mistake("which is not a file here", _add_pool, pool={"user_accounts": [{"name": "user"}]},
            credentials={"user_accounts": {"user": {"password": "secret", "ssh_private_key": "no-key"}}}),
    Mistake("the share `data` has no username", _add_pool, resources=CIFS),
    Mistake("the share `data` has no password", _add_pool, resources=CIFS,
            credentials={"shares": {"data": {"username": "user"}}}),
    Mistake("the network is given only by name", _add_pool, pool={
        "virtual_network": {"name": "net", "subnet": {"name": "sub"}}}),
    Mistake("use jobs.add_all", _add_job, job=RECURRENCE),
    Mistake("there is no pool", _add_job),
    Mistake("`on_bad_node: replace`", _add_job, pool={"on_bad_node": "replace"}),
    Mistake("dedicated, spot or both", lambda client, recipe, runs: client.pools.resize("none", tell=_quiet)),
    Mistake("has no login", lambda client, recipe, runs: client.pools.log_in(recipe, tell=_quiet)),
    Mistake("has a run `none`", lambda client, recipe, runs: client.stop_run("none", runs_dir=runs)),
    Mistake("has a run `none`", lambda client, recipe, runs: client.fetch_run("none", runs_dir=runs)),
    Mistake("has a run `none`", lambda client, recipe, runs: client.attach("none", runs_dir=runs)),
    Mistake("no Batch account `none`", lambda client, recipe, runs: bt.connect(
        local=False, credentials=Credentials(), environment={}, account="none")),
    Mistake("nowhere to run", lambda client, recipe, runs: bt.connect(local=False, environment={})),
    Mistake("job none", lambda client, recipe, runs: client.jobs.handle("none").diagnose(runs_dir=runs)),
    Mistake("none", lambda client, recipe, runs: client.pools.wait("none", tell=_quiet)),
)  # fmt: skip


def _refusal(client: bt.Client, mistake: Mistake, work: Work, runs: Path) -> BatchtrainError | None:
    try:
        mistake.call(client, mistake.recipe(work), runs)
    except BatchtrainError as error:
        return error
    return None


def mistakes(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Each is refused with its reason and leaves no run directory; `Invariants.touched` says that it sends nothing."""
    runs = work.folder / "mistakes"
    for mistake in random.sample(MISTAKES, AT_ONCE):
        error = _refusal(client, mistake, work, runs)
        is_fault = isinstance(error, BatchtrainError) and not isinstance(error, (ConfigError, PlanError, UsageError))
        if mistake.says not in str(error) and not is_fault:
            checks.invariants.fail(f"a mistake is refused with its reason: {mistake.says!r}, not {error}")
    if list(directory.runs(runs)):
        checks.invariants.fail("a mistake leaves no run directory")
