"""Compares a plan with the existing pools, jobs and tasks; values only.

The service fills in defaults, changes the spelling of some values, and never returns a secret; none of that counts as a
difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.json import decode, encode

from batchtrain import markup
from batchtrain.config.masking import masked_document, variable
from batchtrain.config.secret_names import is_secret
from batchtrain.config.types import Secret
from batchtrain.plan.marks import OWN
from batchtrain.plan.task_stream import TaskStream
from batchtrain.plan.types import Plan
from batchtrain.plan.wire import Template, templates

Document = Mapping[str, Any]
OpenTexts = Mapping[str, Template]
"""Texts that have placeholders, as a plan shows them."""


class Living(NamedTuple):
    """The documents of the service: by id, those of tasks by job and id."""

    pools: Mapping[str, Document] = {}
    jobs: Mapping[str, Document] = {}
    schedules: Mapping[str, Document] = {}
    tasks: Mapping[tuple[str, str], Document] = {}


class Difference(NamedTuple):
    """One property that differs from the plan."""

    path: str
    living: Any
    planned: Any
    how: str
    """What it takes to change it."""


class Compared(NamedTuple):
    """One pool, job, job schedule or task of the plan."""

    kind: str
    id: str
    state: str
    """`make`: it is not there; `same`; `differs`."""
    differences: tuple[Difference, ...] = ()


class PlanComparison(tuple[Compared, ...]):
    """Every object of a plan beside the existing one: a tuple that prints as text."""

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        same = sum(item.state == "same" for item in self)
        return markup.card(markup.head(f"{same} of {len(self)} objects are as planned"), markup.pre(str(self)))


def compare(plan: Plan, living: Living) -> PlanComparison:
    """Every pool, job, schedule and task of a plan, in its order."""
    comparisons = []
    retries: dict[str, int] = {}
    by_id = {"pool": living.pools, "job": living.jobs, "schedule": living.schedules}
    for kind, name, document, open_texts in _planned(plan):
        if kind == "job":
            retries[name[0]] = document.get("constraints", {}).get("maxTaskRetryCount", 0)
        existing = living.tasks.get((name[0], name[1])) if kind == "task" else by_id[kind].get(name[0])
        if existing is None:
            comparisons.append(Compared(kind, "/".join(name), "make"))
            continue
        if document.get("enableAutoScale"):
            existing = {key: value for key, value in existing.items() if key not in COUNTS or key in document}
        defaults = _filled_in(kind, 0 if "constraints" in document else retries.get(name[0], 0))
        differences = tuple(
            Difference(path, _shown_as(path, before, plan.hidden), _shown_as(path, after, plan.hidden), how(kind, path))
            for path, before, after in _objects(existing, document, defaults, "")
            if not _may_be(before, after, open_texts)
        )
        comparisons.append(Compared(kind, "/".join(name), "differs" if differences else "same", differences))
    return PlanComparison(comparisons)


COUNTS = frozenset({"targetDedicatedNodes", "targetLowPriorityNodes", "resizeTimeout"})
"""The current number of nodes: it makes no other pool, and a formula sets it if the pool scales itself."""

SIZING = frozenset({"enableAutoScale", "autoScaleFormula", "autoScaleEvaluationInterval"})
"""How a pool sizes itself."""


def but_for_counts(comparison: Compared, *, formula: bool = True) -> Compared:
    """The comparison of a pool with its plan, without the number of its nodes and its variables with secrets.

    formula: with the formula for this number."""
    left_out = COUNTS if formula else COUNTS | SIZING
    differences = tuple(
        difference
        for difference in comparison.differences
        if difference.path not in left_out and not is_secret(_variable(difference.path))
    )
    return comparison._replace(state=comparison.state if differences else "same", differences=differences)


def has_other_formula(comparison: Compared) -> bool:
    """Whether a pool sizes itself in another way than planned."""
    return any(difference.path in SIZING for difference in comparison.differences)


def _shown_as(path: str, value: Any, secrets: tuple[Secret, ...]) -> Any:
    masked_value, name = masked_document(value, secrets), _variable(path)
    return variable(name, masked_value) if name and isinstance(masked_value, str) else masked_value


def _variable(path: str) -> str:
    """The environment variable whose value is at a path; empty for any other."""
    match = re.search(r"\[([^\[\]]+)\]\.value$", path)
    return match[1] if match else ""


def _filled_in(kind: str, retries: int) -> Document:
    """The service's defaults for omitted properties; without constraints, a task has the retries of its job."""
    defaults = FILLED_IN[kind]
    if kind != "task" or not retries:
        return defaults
    return {**defaults, "constraints": {**defaults["constraints"], "maxTaskRetryCount": retries}}


def wanted(plan: Plan) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """What a plan creates: kind, id (for a task: the job's id, then its own), document."""
    return ((kind, name, body) for kind, name, body, _ in _planned(plan))


def _planned(plan: Plan) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any], OpenTexts]]:
    """The same with the texts that have placeholders."""
    changes = {(step.action, step.subject): step.document for step in plan.steps if step.action in CHANGES}
    for step in plan.steps:
        if isinstance(step.body, TaskStream):
            for task in step.body.documents():
                yield "task", (step.subject, task.id), decode(task.body), task.templates
            continue
        body, subject, texts = step.document, step.subject, templates(step.body)
        match step.action:
            case "pool.add":  # a pool that is created empty is compared as it is after it got its identities and nodes
                formula = changes.get(("pool.autoscale", subject))
                scaling = {"enableAutoScale": True, **formula} if formula else {}
                yield "pool", (subject,), {**body, **changes.get(("pool.resize", subject), {}), **scaling}, texts
            case "job.add":
                yield "job", (subject,), {**body, **changes.get(("job.complete", subject), {})}, texts
            case "schedule.add":
                yield "schedule", (subject,), body, texts
            case "task.add":
                yield from (("task", (subject, task["id"]), task, texts) for task in body.get("value", (body,)))


CHANGES = frozenset({"pool.resize", "pool.autoscale", "job.complete"})
"""Actions that change what an earlier step of the plan made."""


def _may_be(before: Any, after: Any, open_texts: OpenTexts) -> bool:
    """Whether a value of the service may be a planned text with its placeholders filled."""
    return isinstance(before, str) and isinstance(after, str) and after in open_texts and open_texts[after].fits(before)


# --- what it takes to change something ------------------------------------------------------------------------------

RESIZE = "`batchtrain pool resize`"
AUTOSCALE = "enabling autoscale with the new formula"
PATCH = "in place (PATCH)"
PATCH_POOL = "in place (PATCH); nodes take it when they restart or join"
PATCH_EMPTY = "in place (PATCH) while the pool has no nodes, else delete and add"
ANEW = "delete and add"

HOW: dict[str, dict[str, str]] = {
    "pool": {
        **dict.fromkeys(("targetDedicatedNodes", "targetLowPriorityNodes", "resizeTimeout"), RESIZE),
        **dict.fromkeys(("enableAutoScale", "autoScaleFormula", "autoScaleEvaluationInterval"), AUTOSCALE),
        **dict.fromkeys(("startTask", "applicationPackageReferences"), PATCH_POOL),
        **dict.fromkeys(("metadata", "displayName"), PATCH),
        **dict.fromkeys(
            ("vmSize", "enableInterNodeCommunication", "virtualMachineConfiguration", "taskSlotsPerNode",
             "taskSchedulingPolicy", "networkConfiguration", "userAccounts", "mountConfiguration", "upgradePolicy"),
            PATCH_EMPTY,
        ),
    },
    "job": {
        **dict.fromkeys(
            ("priority", "allowTaskPreemption", "maxParallelTasks", "constraints", "onAllTasksComplete", "metadata",
             "networkConfiguration"),
            PATCH,
        ),
        "poolInfo": "in place (PATCH) while the job is disabled",
    },
    "schedule": {"schedule": PATCH, "metadata": PATCH, "jobSpecification": "in place (PATCH), from the next job on"},
    "task": {"constraints": "in place (PUT)"},
}  # fmt: skip
"""What may be changed, by the first name of its path (Azure Batch REST: Update Pool, Update Job, Update Job Schedule,
Replace Task); everything else stays as it was made."""


def how(kind: str, path: str) -> str:
    """What it takes to change a property."""
    return HOW[kind].get(re.split(r"[.\[]", path, maxsplit=1)[0], ANEW)


# --- what is no difference ------------------------------------------------------------------------------------------

NO_LIMIT = "P10675199DT2H48M5.4775807S"
_DEFAULT_USER = {"autoUser": {"scope": "pool", "elevationLevel": "nonadmin"}}
_CONSTRAINTS = {"maxWallClockTime": NO_LIMIT, "maxTaskRetryCount": 0}
_TASK_CONSTRAINTS = {**_CONSTRAINTS, "retentionTime": "P7D"}

FILLED_IN: dict[str, dict[str, Any]] = {
    "pool": {
        "resizeTimeout": "PT15M", "targetDedicatedNodes": 0, "targetLowPriorityNodes": 0, "enableAutoScale": False,
        "autoScaleEvaluationInterval": "PT15M", "enableInterNodeCommunication": False, "taskSlotsPerNode": 1,
        "taskSchedulingPolicy": {"nodeFillType": "spread", "jobDefaultOrder": "none"},
        "virtualMachineConfiguration": {
            "imageReference": {"version": "latest"}, "nodePlacementConfiguration": {"policy": "regional"},
        },
        "networkConfiguration": {
            "dynamicVNetAssignmentScope": "none", "enableAcceleratedNetworking": False,
            "publicIPAddressConfiguration": {"provision": "batchmanaged"},
        },
        "startTask": {"maxTaskRetryCount": 0, "waitForSuccess": True, "userIdentity": _DEFAULT_USER},
        "upgradePolicy": {"mode": "manual"},
    },
    "job": {
        "priority": 0, "allowTaskPreemption": False, "maxParallelTasks": -1, "usesTaskDependencies": False,
        "onAllTasksComplete": "noaction", "onTaskFailure": "noaction", "constraints": _CONSTRAINTS,
        "jobManagerTask": {
            "killJobOnCompletion": True, "runExclusive": True, "allowLowPriorityNode": True, "requiredSlots": 1,
            "userIdentity": _DEFAULT_USER, "constraints": _TASK_CONSTRAINTS,
        },
        "jobPreparationTask": {
            "id": "jobpreparation", "waitForSuccess": True, "rerunOnNodeRebootAfterSuccess": True,
            "userIdentity": _DEFAULT_USER, "constraints": _TASK_CONSTRAINTS,
        },
        "jobReleaseTask": {
            "id": "jobrelease", "maxWallClockTime": "PT15M", "retentionTime": "P7D", "userIdentity": _DEFAULT_USER,
        },
        "poolInfo": {"autoPoolSpecification": {"keepAlive": False}},
    },
    "schedule": {},
    "task": {
        "requiredSlots": 1, "userIdentity": _DEFAULT_USER, "constraints": _TASK_CONSTRAINTS,
        "multiInstanceSettings": {"numberOfInstances": 1},
        "containerSettings": {"workingDirectory": "taskWorkingDirectory"},
    },
}  # fmt: skip
"""What the service gives back where a request said nothing (azure_batch 2.1-2.4: recorded answers)."""
FILLED_IN["job"]["poolInfo"]["autoPoolSpecification"]["pool"] = FILLED_IN["pool"]
FILLED_IN["schedule"]["jobSpecification"] = FILLED_IN["job"]

FILLED_IN_ITEMS = {"dataDisks": {"caching": "none", "managedDisk": {"storageAccountType": "standard_lrs"}}}
"""The same of each item of a list."""

NEVER_GIVEN_BACK = frozenset({"password", "accountKey", "sasKey", "sshPrivateKey", "protectedSettings"})
READ_ONLY = frozenset({
    "allocationState", "allocationStateTransitionTime", "autoScaleRun", "creationTime", "currentDedicatedNodes",
    "currentLowPriorityNodes", "eTag", "exactVersion", "executionInfo", "identity", "lastModified", "nodeInfo",
    "odata.metadata", "previousState", "previousStateTransitionTime", "resizeErrors", "state",
    "stateTransitionTime", "stats", "url",
})  # fmt: skip
"""Properties that the service adds to its answers."""
UNORDERED = {"environmentSettings": "name", "commonEnvironmentSettings": "name", "metadata": "name",
             "uploadHeaders": "name", "userAccounts": "name", "extensions": "name", "dataDisks": "lun",
             "inboundNATPools": "name", "vmSizes": "name"}  # fmt: skip
"""Lists whose items have names, and no order that counts."""
CASELESS = frozenset({
    "access", "allocationStrategy", "caching", "dependencyAction", "dynamicVNetAssignmentScope", "elevationLevel",
    "jobAction", "jobDefaultOrder", "loginMode", "mode", "nodeFillType", "offer", "onAllTasksComplete",
    "onTaskFailure",
    "placement", "policy", "poolId", "poolLifetimeOption", "protocol", "provision", "publisher", "resourceId",
    "scope", "securityType", "sku", "storageAccountType", "subnetId", "type", "uploadCondition",
    "virtualMachineImageId", "vmSize", "workingDirectory",
})  # fmt: skip
"""Words that the service writes in a case of its own."""
_SPAN = re.compile(r"P(?=[0-9T])(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d*)?)S)?)?")


def _objects(existing: Document, document: Document, defaults: Document, path: str) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*document, *existing)):
        if key in READ_ONLY or key in NEVER_GIVEN_BACK:
            continue
        below = f"{path}.{key}" if path else key
        yield from _values(existing.get(key), document.get(key), defaults.get(key), below, key)


def _values(before: Any, after: Any, default: Any, path: str, key: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(default, Mapping) or isinstance(before, Mapping) or isinstance(after, Mapping):
        is_new = before is None and after is not None and not default
        if is_new or not _all_are(Mapping, before, after, default):
            yield path, before, after
        else:
            yield from _objects(before or {}, after or {}, default or {}, path)
        return
    before, after = (default if value is None else value for value in (before, after))
    if (before is not None or after is not None) and _all_are((list, tuple), before, after):
        name = UNORDERED.get(key)
        old, new = _by_name(before or (), name), _by_name(after or (), name)
        for name in OWN:
            old.pop(name, None)
        for item in dict.fromkeys((*new, *old)):
            yield from _items(old.get(item), new.get(item), f"{path}[{item}]", key)
    elif not same(before, after, key):
        yield path, before, after


def _all_are(kinds: Any, *values: Any) -> bool:
    """Whether the values that are there are of these kinds. A value of the service may be of any."""
    return all(value is None or isinstance(value, kinds) for value in values)


def _items(before: Any, after: Any, path: str, key: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _objects(before, after, FILLED_IN_ITEMS.get(key, {}), path)
    elif not same(before, after, key):
        yield path, before, after


def _by_name(items: Sequence[Any], name: str | None) -> dict[Any, Any]:
    """The items by the text or number that names them, otherwise by their position."""
    keys = [item.get(name) if name and isinstance(item, Mapping) else None for item in items]
    return {
        key if isinstance(key, (str, int)) else number: item
        for number, (key, item) in enumerate(zip(keys, items, strict=True))
    }


def same(before: Any, after: Any, key: str) -> bool:
    """Whether two scalars mean the same: in another case, in another unit of time."""
    if not isinstance(before, str) or not isinstance(after, str):
        return bool(before == after)
    if before == after or (key in CASELESS and before.lower() == after.lower()):
        return True
    return _seconds(before) == _seconds(after) is not None


def _seconds(span: str) -> float | None:
    match = _SPAN.fullmatch(span)
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


# --- for people -----------------------------------------------------------------------------------------------------

LONGEST = 60
"""Characters of a value that are shown."""
ALIKE = 5
"""Tasks of one state that are named; the rest is counted."""


def as_text(comparisons: Iterable[Compared]) -> str:
    """A line for each pool, job and task with what differs below it; tasks alike are one line."""
    lines: list[str] = []
    groups: dict[tuple[Any, ...], list[Compared]] = {}
    for item in comparisons:
        alone = item.kind != "task"
        key = (item.kind, item.id if alone else item.id.split("/")[0], item.state, repr(item.differences))
        groups.setdefault(key, []).append(item)
    for members in groups.values():
        first, names = members[0], ", ".join(item.id for item in members[:ALIKE])
        more = f" and {len(members) - ALIKE:,} more" if len(members) > ALIKE else ""
        lines.append(f"{_MARKS[first.state]} {first.kind} {names}{more}: {_STATES[first.state]}")
        lines += [
            f"    {item.path}: {_shown(item.living)} -> {_shown(item.planned)}   ({item.how})"
            for item in first.differences
        ]
    return "\n".join(lines)


_MARKS = {"make": "+", "same": "=", "differs": "~"}
_STATES = {"make": "to be made", "same": "as planned", "differs": "differs"}


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = encode(value).decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
