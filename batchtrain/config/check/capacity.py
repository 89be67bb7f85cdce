"""Rules about the candidates of a pool."""

from __future__ import annotations

from batchtrain.catalog import sizes
from batchtrain.config.candidates import PATH, candidates_of, hour, unpriced
from batchtrain.config.check.subject import Subject
from batchtrain.config.check.table import BOTH, CREDENTIALS, ERROR, POOL, WARNING, Found, Rule
from batchtrain.config.times import duration


def _unpriced(subject: Subject) -> Found:
    candidates = subject.pool.candidates
    if candidates is None or candidates.order == "given":
        return
    for candidate in candidates_of(subject.recipe):
        if hour(candidate, per_gpu=candidates.order == "price-per-gpu") is None:
            path = candidate.path if len(candidate.path) > 1 else (*POOL, "vm_size")
            yield path, f"`order: {candidates.order}`, and {unpriced(candidate)}"


def _accounts(subject: Subject) -> Found:
    accounts, candidates = subject.recipe.credentials.batch_accounts, subject.pool.candidates
    if candidates is None or not (accounts or subject.recipe.credentials.batch):
        return
    for number, alternative in enumerate(candidates.alternatives):
        if alternative.account and alternative.account not in accounts:
            near = subject.nearest(alternative.account, tuple(accounts))
            message = f"credentials.yaml has no `batch_accounts.{alternative.account}`{near}"
            yield (*PATH, "alternatives", number, "account"), message


def _equal(subject: Subject) -> Found:
    keys: list[tuple[object, ...]] = []
    for candidate in candidates_of(subject.recipe) if subject.pool.candidates else ():
        pool = candidate.pool
        key = (candidate.account, sizes.key(pool.vm_size), pool.vm_count, pool.vm_configuration.zones)
        if key in keys:
            yield candidate.path, "this is a candidate already: it has the same account, size, nodes and zones"
        keys.append(key)


def _own_pool(subject: Subject) -> Found:
    if subject.pool.candidates is None:
        return
    if subject.pool.autoscale is not None:
        yield PATH, "`autoscale` decides when the pool has nodes, so it never lacks them; remove one of them"
    if subject.pool.vm_sizes is not None:
        yield PATH, "`vm_sizes` lets Azure choose the size; remove one of them"
    for path, job in subject.jobs:
        if job.auto_pool is not None:
            yield (*path, "auto_pool"), "the service creates this pool, and tries no `candidates`; remove one of them"


def _patience(subject: Subject) -> Found:
    candidates = subject.pool.candidates
    if candidates is not None and not duration(candidates.patience):
        yield (*PATH, "patience"), f"`{candidates.patience}` is no time to wait"


def _recover(subject: Subject) -> Found:
    if subject.pool.candidates is None or not subject.pool.candidates.recover:
        return
    if len(subject.jobs) > 1:
        yield (*PATH, "recover"), f"one job can be moved, and the recipe has {len(subject.jobs)}"
    for number, (path, _, task) in enumerate(subject.tasks):
        if number or task.task_factory is not None:
            yield path, "one task can be moved: what others have left on their nodes would be deleted with them"
        elif task.checkpoint is None:
            yield path, "`candidates.recover` moves a job, and this task has no `checkpoint` to continue from"


def _fabric(subject: Subject) -> Found:
    size = subject.size
    gangs = [gang for gang in subject.gangs if (subject.instances(gang) or 2) > 1]
    if subject.pool.candidates is None or size is None or size.rdma is None or not gangs:
        return
    for candidate in candidates_of(subject.recipe)[1:]:
        other = subject.catalog.size(candidate.pool.vm_size)
        if other is not None and other.rdma is None:
            text = f"{other.name} has no InfiniBand, so the nodes of a task use Ethernet there, unlike on {size.name}"
            yield candidate.path, text


RULES = (
    Rule("candidate-price", ERROR, (*POOL, *CREDENTIALS), "Candidates in the order of their prices have prices.",
         "batchtrain: catalog.yaml", _unpriced),
    Rule("candidate-account", ERROR, (*POOL, *CREDENTIALS), "The accounts of candidates are in credentials.yaml.",
         "batchtrain: `run` signs in there", _accounts),
    Rule("candidate-equal", ERROR, POOL, "No two candidates are equal.", "batchtrain: it cannot help", _equal),
    Rule("candidate-pool", ERROR, BOTH, "Only a pool of a fixed number of nodes has candidates.",
         "batchtrain: `run` waits for its nodes", _own_pool),
    Rule("candidate-patience", ERROR, POOL, "A candidate has time to allocate its nodes.",
         "batchtrain: `run` waits for its nodes", _patience),
    Rule("candidate-recover", ERROR, BOTH, "A job that moves to another candidate has checkpoints.",
         "batchtrain: its nodes, and their files, are gone", _recover),
    Rule("candidate-fabric", WARNING, BOTH, "Candidates have InfiniBand if the pool has it.",
         "Azure: Enable InfiniBand", _fabric),
)  # fmt: skip
