"""What programs do with the Python API, and runs that their user leaves."""

from __future__ import annotations

import contextlib
import json
import random
import signal
from typing import Any

import msgspec

import batchtrain as bt
from batchtrain.client.limits import Limits
from batchtrain.client.run import run as run_recipe
from batchtrain.config import load
from batchtrain.config.types import OutputData, Recipe, StorageOutput, convert
from batchtrain.errors import BatchtrainError, NoCapacity
from batchtrain.records.events import CandidateTried, RunContinues
from batchtrain.runs import directory
from batchtrain.runs.recording import Origin
from tests.simulation.commands import with_candidates
from tests.simulation.invariants import PASSWORD
from tests.simulation.owned import current
from tests.simulation.workload import IMAGE, LIMIT, LINK, Checks, Exited, Told, Work, cli

# --- secrets ---------------------------------------------------------------------------------------------------------


def pool_of_secrets(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """A pool whose users, share and registry have secrets, which the service receives (`Invariants.created`). No plan
    and no message has one."""
    recipe = with_secrets(work)
    pool_id = f"secrets-{work.folder.name}"
    plan = client.plan(recipe)
    if client.pools.stands(pool_id):
        client.pools.wait(pool_id, timeout=LIMIT, tell=told.append, recipe=recipe)
        client.pools.log_in(recipe, tell=told.append)
    else:
        client.pools.add(recipe, timeout=LIMIT, tell=told.append)
    texts = told.text, repr(plan), json.dumps([step.document for step in plan.steps]), repr(client.compare(recipe))
    if any(PASSWORD in text for text in texts):
        checks.invariants.fail("no secret is in a plan or a message")
    client.pools.delete(pool_id, tell=told.append)


def with_secrets(work: Work) -> Recipe:
    """A pool of one node that signs in wherever it can."""
    key = work.folder / "user.key"
    key.write_text(PASSWORD)
    login = {"username": "user", "password": PASSWORD}
    pool = {
        "id": f"secrets-{work.folder.name}", "vm_configuration": {"platform_image": {**IMAGE, "native": True}},
        "vm_size": "STANDARD_D4S_V5", "vm_count": {"dedicated": 1}, "user_accounts": [{"name": "user"}],
        "ssh": {"username": "login", "generated_file_export_path": str(work.folder / "login")},
    }  # fmt: skip
    volumes = {
        "share": {"volume_driver": "cifs", "source": "//server/share"},
        "older": {"volume_driver": "cifs", "source": "//server/share",
                  "mount_options": ["user=user", f"pass={PASSWORD}"]},
    }  # fmt: skip
    recipe: dict[str, Any] = {
        "directory": str(work.folder), "pool": pool, "jobs": [],
        "credentials": {
            "user_accounts": {"user": {**login, "ssh_private_key": "user.key"}}, "shares": {"share": login},
            "docker_registry": {"registry.example": login},
        },
        "resources": {
            "docker_images": ["registry.example/image:1"], "volumes": {"shared_data_volumes": volumes},
        },
    }  # fmt: skip
    return convert(recipe, Recipe)


# --- pools -----------------------------------------------------------------------------------------------------------


def pool_add_candidates(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """The pool of the first size that has nodes; what another one allocated in part is deleted before."""
    recipe, before = with_candidates(work), checks.standing(work)
    if client.pools.stands(work.pool_id):
        client.pools.wait(work.pool_id, timeout=LIMIT, tell=told.append)
        return
    try:
        client.pools.add(recipe, timeout=LIMIT, tell=told.append)
    except NoCapacity as error:
        checks.nothing_unnamed(work, told, error, before)
        raise
    tried = [event.attempt for event in told if isinstance(event, CandidateTried)]
    if not tried or tried[-1] is None or tried[-1].code:
        checks.invariants.fail(f"a pool is at the candidate that has the nodes: {tried}")


def pool_resize(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """The pool has the number of nodes that was asked for, and its users can log in."""
    if "autoscale" in work.features:
        return
    count, kind = 1 + len(work.codes) % 2, "spot" if "spot" in work.features else "dedicated"
    sizes = {"spot": count} if kind == "spot" else {"dedicated": count}
    pool = client.pools.resize(work.pool_id, **sizes, timeout=LIMIT, tell=told.append, recipe=work.recipe)
    if (pool.target_spot if kind == "spot" else pool.target_dedicated) != count:
        checks.invariants.fail(f"a pool has the size that was asked for: {pool.target} of {count}")
    client.pools.reboot(work.pool_id, [node.id for node in client.pools.nodes(work.pool_id)[:1]])


# --- runs that are left ----------------------------------------------------------------------------------------------


def run_left(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """A user presses Ctrl-C and lets the run continue, or closes the terminal: then a run continues whose results are
    in storage. What continues is there, and is recorded as left."""
    if checks.job(work) is not None:  # of this command before its death
        return
    recipe = load.load(work.folder).recipe
    if random.random() < 0.5:
        recipe = with_output(recipe)
    fiber = current()
    assert fiber is not None
    number = random.choice((signal.SIGINT, signal.SIGHUP))
    checks.service.sim.loop.call_later(random.choice((150, 250, 400)), fiber.process.receive, number)
    try:
        run_recipe(client, recipe, tell=told.append, timeout=LIMIT, origin=Origin(checks.runs), ask=lambda cost: True,
                   limits=random.choice((Limits(), Limits(None, 5400.0))))  # fmt: skip
    finally:
        if any(isinstance(event, RunContinues) for event in told):
            names = {lease.path.parent.name for lease in fiber.process.leases}
            if checks.service.driver is not None and not any(checks.has_job_of(work, name) for name in names):
                checks.invariants.fail("what continues without its command is there: its job is not")
            if not names.intersection(left_runs(work, checks)) and not fiber.process.has_bad_disk:
                checks.invariants.fail("what continues without its command is recorded as left")


def with_output(recipe: Recipe) -> Recipe:
    """The recipe with tasks whose results the service uploads."""
    output = OutputData(azure_storage=(StorageOutput(storage_account_settings=LINK, remote_path="outputs"),))
    jobs = (msgspec.structs.replace(job, tasks=tuple(msgspec.structs.replace(task, output_data=output)
                                                     for task in job.tasks)) for job in recipe.jobs)  # fmt: skip
    return msgspec.structs.replace(recipe, jobs=tuple(jobs))


def left_runs(work: Work, checks: Checks) -> list[str]:
    """The runs of the job that continue without their command, or whose process died."""
    names = []
    for run in directory.runs(checks.runs):
        with contextlib.suppress(BatchtrainError):
            record = run.record()
            names += [run.name] if record.job == work.recipe.jobs[0].id and record.state in ("left", "lost") else []
    return names


def fetch_left(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """`runs fetch` takes what a run that was left has so far, and ends it only after its tasks."""
    names = left_runs(work, checks)
    if not names or not checks.has_job_of(work, names[-1]):
        return
    if code := cli(work, checks, "runs", "fetch", names[-1]):
        raise Exited(f"exit code {code}")
    entry = checks.job(work) if checks.has_job_of(work, names[-1]) else None
    is_open = entry is not None and entry.counts["active"] + entry.counts["running"] > 0
    if is_open and names[-1] not in left_runs(work, checks):
        checks.invariants.fail("a run that was left ends after its tasks: `runs fetch` ends it before")


def wait_left(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """`jobs wait` or `runs attach` ends a run that was left, or that lost its process: neither is it any more, unless
    results are still on nodes. Then its job is kept, and a later command ends it."""
    names = left_runs(work, checks)
    if not names or not checks.has_job_of(work, names[-1]):
        return
    words = random.choice((("jobs", "wait", work.recipe.jobs[0].id), ("runs", "attach", names[-1])))
    code = cli(work, checks, *words, "--timeout", str(LIMIT))
    if code not in (0, 10):
        raise Exited(f"exit code {code}")
    if names[-1] not in left_runs(work, checks):
        return
    if code == 0 or not checks.has_job_of(work, names[-1]):
        checks.invariants.fail(f"a run that was left is ended: not by {words[1]}, which exits with {code}")
    raise Exited(f"exit code {code}")
