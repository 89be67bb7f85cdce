"""Commands of the command line that look at jobs, pools, runs and storage, or change a part of them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterable
from typing import Any

import msgspec

import batchtrain as bt
from batchtrain.client.detach import detach
from batchtrain.client.limits import Limits
from batchtrain.config import load
from batchtrain.config.types import Alternative, Candidates, Recipe
from batchtrain.errors import AlreadyExists, BatchtrainError, NotFound
from batchtrain.runs.finished import Runs
from batchtrain.runs.recording import Origin
from tests.simulation.owned import current
from tests.simulation.workload import LIMIT, LINK, PRICE, Checks, Exited, Told, Work, cli, find_detached

LOOKS = (
    "jobs list", "jobs list --schedules", "jobs show {job}", "jobs tasks {job}", "jobs tasks {job} --tail 3",
    "jobs tasks {job} --state completed", "jobs stats {job}", "jobs files {job}", "jobs files {job} task-0",
    "jobs files {job} task-0 --all-nodes", "jobs get {job} task-0 *.txt -d {folder}/got",
    "jobs get {job} *.txt -d {folder}/all", "jobs logs {job}", "jobs logs {job} --task task-0 --grep attempt",
    "jobs sweep {job} --metric loss", "jobs diagnose {job}", "jobs diagnose {job} --bundle {folder}/bundle.zip",
    "jobs gc --older-than 12h --dry-run", "pool list", "pool show {pool}", "pool diagnose {pool}",
    "pool files {pool} {node}", "pool get {pool} {node} *.txt -d {folder}/node", "config plan --diff",
    "runs list", "runs list --account", "runs show", "runs compare latest latest", "runs export --csv",
    "runs export --dlbs", "runs export --tensorboard", "data list {link}/data-{job}", "runs cost",
    "runs cost --account --by user",
)  # fmt: skip
"""Commands that change nothing in the account."""
CHANGES = (
    "jobs task term {job} task-0 -y", "jobs task reactivate {job} task-0", "jobs disable {job} --running requeue -y",
    "jobs enable {job}", "jobs task del {job} task-0 -y", "pool resize {pool} --dedicated 2 --no-wait -y",
    "jobs term {job} -y", "jobs disable {job} --running wait -y", "pool reboot {pool} {node} -y",
    "jobs migrate {job} {pool} --timeout 600 -y", "pool add --idle 30m --no-wait", "jobs task del {job} task-1 -y",
)  # fmt: skip
"""Commands that change a job or a pool of the user."""
USAGE = 2
"""The exit code for what is not there on this machine, such as a run, or cannot be asked, such as another plan."""
MOST = 1.0
"""What a run may cost."""


def _words(text: str, work: Work, node: str) -> list[str]:
    values = {"job": work.recipe.jobs[0].id, "pool": work.pool_id or "none", "folder": str(work.folder), "link": LINK,
              "node": node}  # fmt: skip
    return [word.format_map(values) for word in text.split()]


def _some(texts: Iterable[str], number: int, work: Work, checks: Checks) -> None:
    for text in random.sample(tuple(texts), number):
        cli(work, checks, *_words(text, work, checks.node(work)), allowed=(USAGE,))


def cli_looks(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """`Invariants.touched` says whether one of them changes something."""
    _some(LOOKS, 6, work, checks)
    with contextlib.suppress(BatchtrainError):
        _shown(checks)
    for read in random.sample(READS, 4):
        with contextlib.suppress(BatchtrainError):
            read(client, work, checks)


def _shown(checks: Checks) -> None:
    """What a notebook shows of the newest run."""
    runs = Runs(checks.runs)
    seen = runs.get()
    texts: tuple[Any, ...] = (runs.list(), seen, seen.tasks, seen.attempts, seen.metrics, seen.summary)
    texts += (seen.files, seen.logs())
    markup = [item._repr_html_() for item in (*texts, runs, runs.compare(seen, seen))]
    texts += (seen.plot("loss"), runs.compare(seen, seen).source)
    checks.service.sim.note(f"{len(markup)} pages, {len(''.join(map(str, texts)))} characters")


def _read(client: bt.Client, work: Work, checks: Checks) -> None:
    """A result has the bytes that were written."""
    job = client.jobs.handle(work.recipe.jobs[0].id)
    lines = job.task("task-0").open("result.txt").read().splitlines()
    if len(lines) != 20 or len(set(lines)) != 1:
        checks.invariants.fail(f"a result is read as it was written: {lines[:2]}")


def _read_job(client: bt.Client, work: Work, checks: Checks) -> None:
    job = client.jobs.get(work.recipe.jobs[0].id)
    checks.service.sim.note(f"{job!r}: {len(job._repr_html_())}, {len(client.jobs.list(counted=True))} jobs")
    checks.service.sim.note(f"{job.stats()}, {len(list(job.logs(follow=True, timeout=30)))} lines")


def _read_account(client: bt.Client, work: Work, checks: Checks) -> None:
    finding = client.pools.diagnose(work.pool_id)
    checks.service.sim.note(f"{len(client.account_runs())} runs of the account, {finding}")


def _planned(client: bt.Client, work: Work, checks: Checks) -> None:
    recipe = bt.load(str(work.folder))
    checks.service.sim.note(f"{len(client.plan(recipe).steps)} steps, {client.compare(recipe)}")


def _read_tasks(client: bt.Client, work: Work, checks: Checks) -> None:
    job = client.jobs.handle(work.recipe.jobs[0].id)
    rows, glance = job.last_tasks(3), job.glance(2)
    texts = [job.progress(task) for task in (*rows, *job.iter_tasks("failed", limit=2))]
    texts += [str(job.sweep("loss", runs_dir=checks.runs)), str(job.diagnose(runs_dir=checks.runs)), str(job.open)]
    checks.service.sim.note(f"{glance}: {texts}")


def _read_pools(client: bt.Client, work: Work, checks: Checks) -> None:
    pool = next((pool for pool in client.pools.list() if pool.id == work.pool_id), None)
    nodes = client.pools.nodes(work.pool_id)
    reason = pool and client.pools.reason_to_wait(pool, nodes)
    checks.service.sim.note(f"{reason}, {len(client.jobs.schedules())} schedules, {client.jobs.handle('none').open}")


READS = (_read, _read_job, _read_account, _planned, _read_tasks, _read_pools)
"""What a program reads of a job and of its account."""


def cli_changes(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    _some(CHANGES, 2, work, checks)


def cli_jobs_enable(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    if code := cli(work, checks, "jobs", "enable", work.recipe.jobs[0].id):
        raise NotFound("no job", operation="enable") if code == 3 else Exited(f"exit code {code}")


def cli_jobs_follow(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Follow the output for some time: broken nodes never end their tasks."""
    fiber = current()
    assert fiber is not None
    checks.service.sim.loop.call_later(LIMIT, fiber.process.receive, signal.SIGINT)
    code = cli(work, checks, "jobs", "add", "--follow", "--timeout", str(LIMIT))
    if code not in (0, 10):
        raise Exited(f"exit code {code}")


def cli_jobs_recreate(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    if code := cli(work, checks, "jobs", "add", "--recreate", "-y", "--timeout", str(LIMIT)):
        raise Exited(f"exit code {code}")
    checks.added(work, told)


def cli_run_keep(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    code = cli(work, checks, "run", str(work.folder), "--keep", "--timeout", str(LIMIT))
    if code not in (0, 10):
        raise Exited(f"exit code {code}")


def cli_runs_clean(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Deletes what runs left, and nothing that a living run uses: `Invariants.touched` says so."""
    if code := cli(work, checks, "runs", "clean", "-y"):
        raise Exited(f"exit code {code}")


def cli_runs_restore(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    target = work.folder / f"restored-{checks.process}"
    cli(work, checks, "runs", "restore", "latest", str(target), allowed=(USAGE,))


def cli_run_max_price(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    _limited(work, checks, "--max-price", str(MOST))


def cli_run_max_duration(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    _limited(work, checks, "--max-duration", "10m")


def _limited(work: Work, checks: Checks, *options: str) -> None:
    """The nodes cost at most the limit and what they cost until the last look, the fetch and the deletion are over."""
    before = checks.invariants.node_seconds(work.pool_id)
    code = cli(work, checks, "run", str(work.folder), "--timeout", str(LIMIT), *options)
    if options[0] == "--max-price" and code in (0, 7, 10):
        checks.cost(work, (checks.invariants.node_seconds(work.pool_id) - before) / 3600 * PRICE, MOST)
    if code not in (0, 7, 10):
        raise Exited(f"exit code {code}")


def cli_data_ingress(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """What `global_resources.files` names is in storage."""
    folder = work.folder / "inputs"
    folder.mkdir(exist_ok=True)
    for number in range(3):
        (folder / f"{number}.bin").write_bytes(bytes(700 * number + 1))
        os.utime(folder / f"{number}.bin")
    if code := cli(work, checks, "data", "ingress"):
        raise Exited(f"exit code {code}")
    stored = checks.service.storage.containers[f"in-{work.recipe.jobs[0].id}"]
    if sorted(blob.data for blob in stored.values()) != sorted(path.read_bytes() for path in folder.iterdir()):
        checks.invariants.fail(f"what is uploaded is stored: {sorted(stored)}")


def cli_data_get(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """What is downloaded has the bytes that are stored; what is removed is gone, and nothing else."""
    job, target = work.recipe.jobs[0].id, work.folder / "taken"
    if code := cli(work, checks, "data", "get", f"{LINK}/in-{job}", str(target)):
        raise Exited(f"exit code {code}")
    stored = checks.service.storage.containers[f"in-{job}"]
    contents = [path.read_bytes() for path in target.rglob("*") if path.is_file() and not path.name.startswith(".")]
    if any(blob.data not in contents for blob in stored.values()):
        checks.invariants.fail(f"what is downloaded has the bytes that are stored: {sorted(stored)}")


def cli_data_rm(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    container = f"in-{work.recipe.jobs[0].id}"
    if code := cli(work, checks, "data", "rm", f"{LINK}/{container}", "*0.bin", "-y"):
        raise Exited(f"exit code {code}")
    names = list(checks.service.storage.containers[container])
    if len(names) != 2 or any(name.endswith("0.bin") for name in names):
        checks.invariants.fail(f"`data rm` deletes what its patterns match, and nothing else: {names} are there")


# --- candidates and their controller ---------------------------------------------------------------------------------


def with_candidates(work: Work) -> Recipe:
    """The recipe with another size for its pool, and without what cannot move."""
    options = Candidates(alternatives=(Alternative(vm_size="STANDARD_D4AS_V5"),), recover=True, patience="6m")
    recipe = load.load(work.folder).recipe
    assert recipe.pool is not None
    pool = msgspec.structs.replace(recipe.pool, candidates=options, autoscale=None)
    jobs = (msgspec.structs.replace(job, auto_pool=None, job_manager=None) for job in recipe.jobs)
    return msgspec.structs.replace(recipe, pool=pool, jobs=tuple(jobs))


def run_candidates(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """A run that moves to the other size if its pool loses nodes."""
    result = client.run(with_candidates(work), tell=told.append, timeout=LIMIT, check=False, runs_dir=checks.runs)
    checks.outcome(work, result.tasks, result.failure)


def detach_controller(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """A detached run with a controller, which moves its job while no command runs."""
    job = work.recipe.jobs[0].id
    checks.invariants.detached.add(job)
    if checks.job(work) is not None:
        return
    client.account = client.account._replace(emulated=True)
    try:
        detach(client, with_candidates(work), tell=told.append, origin=Origin(checks.runs), limits=Limits(None, 5400.0),
               has_controller=True)  # fmt: skip
    except AlreadyExists:
        return


def wait_detached(client: bt.Client, work: Work, told: Told, checks: Checks) -> None:
    """Wait until the service has ended the job, then fetch."""
    if code := cli(work, checks, "runs", "fetch", find_detached(work, checks)):
        raise Exited(f"exit code {code}")
    name, client.credentials = find_detached(work, checks), load.load(work.folder).recipe.credentials
    checks.fetched(work, client.fetch_run(name, runs_dir=checks.runs).directory)
