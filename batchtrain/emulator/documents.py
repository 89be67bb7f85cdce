"""Makes the documents of the service's answers from records; pure."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from batchtrain.emulator import endpoints, models, states, wire
from batchtrain.emulator.columns import TaskRow
from batchtrain.emulator.indexes import JobEntry, PoolEntry, ScheduleEntry
from batchtrain.emulator.records import Document, Instance, Job, JobNode, JobSchedule, Node, NodeRun, Pool, Record, Task
from batchtrain.emulator.world import World, task_document

AGENT_VERSION = "1.12.15"
RECENT_TASKS = 10
"""The number of tasks that a node lists."""


def pool_url(base: str, pool: Pool) -> str:
    return f"{base}/pools/{pool.id}"


def node_url(base: str, pool_id: str, node_id: str) -> str:
    return f"{base}/pools/{pool_id}/nodes/{node_id}"


def job_url(base: str, job: Job) -> str:
    return f"{base}/jobs/{job.id}"


def task_url(base: str, job: Job, task: Task | TaskRow) -> str:
    return f"{base}/jobs/{job.id}/tasks/{task.id}"


def schedule_url(base: str, schedule: JobSchedule) -> str:
    return f"{base}/jobschedules/{schedule.id}"


def job_directory(job: Job) -> str:
    """The directory of a job on its nodes: `workitems/JOB/job-1`, or by its job schedule and its number there."""
    name, _, number = job.id.partition(":")
    return f"workitems/{name}/{number or 'job-1'}"


def task_directory(job: Job, task: Task) -> str:
    """The directory of a task on its node."""
    return f"{job_directory(job)}/{task.id}"


def pool_document(entry: PoolEntry, base: str) -> Document:
    pool = entry.record
    spec = pool.spec
    document = {
        "id": pool.id,
        "displayName": spec.get("displayName"),
        "url": pool_url(base, pool),
        **_history(pool),
        "allocationState": pool.allocation,
        "allocationStateTransitionTime": wire.timestamp(pool.allocation_time),
        "currentDedicatedNodes": entry.current(dedicated=True),
        "currentLowPriorityNodes": entry.current(dedicated=False),
        "targetDedicatedNodes": pool.target_dedicated,
        "targetLowPriorityNodes": pool.target_spot,
        "resizeErrors": pool.resize_errors or None,
        "autoScaleRun": pool.autoscale_run or None,
    }
    return {**_present(document), **FORMER, **spec}


def _present(document: Document) -> Document:
    """A document without the properties that have no value."""
    return {name: value for name, value in document.items() if value is not None}


def _time(ticks: int) -> str | None:
    """A time; None for what has not happened."""
    return wire.timestamp(ticks) if ticks else None


LATEST = "2026.11.1"
FORMER: Mapping[str, Any] = {"targetNodeCommunicationMode": "default", "currentNodeCommunicationMode": "simplified"}
"""Properties that every pool has in answers of older service versions."""


def node_document(world: World, entry: PoolEntry, node: Node, base: str) -> Document:
    running = entry.running[node.id]
    spec = entry.record.spec
    provision = spec.get("networkConfiguration", {}).get("publicIPAddressConfiguration", {}).get("provision")
    public, ipv6 = provision != "nopublicipaddresses", endpoints.ipv6_address(entry, node) or None
    image = spec["virtualMachineConfiguration"]["imageReference"]
    if "publisher" in image:  # the exact version is made up if the pool has the latest
        image = {**image, "exactVersion": image["version"] if image["version"] != "latest" else LATEST}
    document = {
        "id": node.id,
        "url": node_url(base, entry.record.id, node.id),
        "state": node.state,
        "schedulingState": "enabled" if node.scheduling else "disabled",
        "stateTransitionTime": wire.timestamp(node.state_time),
        "allocationTime": wire.timestamp(node.created),
        "ipAddress": node.address,
        "affinityId": f"TVM:{node.id}",
        "vmSize": entry.record.node_size,
        "totalTasksRun": node.total_run,
        "runningTasksCount": len(running),
        "runningTaskSlotsCount": entry.used(node.id),
        "totalTasksSucceeded": node.total_succeeded,
        "isDedicated": node.dedicated,
        "endpointConfiguration": {"inboundEndpoints": endpoints.of_node(entry, node)},
        "nodeAgentInfo": {"version": AGENT_VERSION, "lastUpdateTime": wire.timestamp(node.booted or node.created)},
        "virtualMachineInfo": {"imageReference": image},
        "certificateReferences": [],
        "publicIPAddress": node.address if public else None,
        "ipv6Address": ipv6,
        "publicIPv6Address": ipv6 if public else None,
        "lastBootTime": _time(node.booted),
        "recentTasks": list(_recent_tasks(world, running, node, base)) or None,
        "startTask": spec.get("startTask"),
        "startTaskInfo": node.start or None,
        "errors": node.errors or None,
    }
    return _present(document)


def _recent_tasks(world: World, running: Mapping[int, Task], node: Node, base: str) -> Iterable[Document]:
    """Tasks and subtasks of a node whose state changed last, those that run first."""
    running_tasks = [_task_key(world, task, node) for task in running.values()]
    tasks = itertools.chain(reversed(running_tasks), reversed(node.recent))
    for job_id, task_id, subtask in itertools.islice(dict.fromkeys(tasks), RECENT_TASKS):
        job = world.jobs.get(job_id.lower())
        task = job.tasks.get(task_id.lower()) if job else None
        if job is None or task is None:
            continue
        yield {
            "taskUrl": task_url(base, job.record, task),
            "jobId": job_id,
            "taskId": task_id,
            **({"subtaskId": subtask} if subtask else {}),
            "taskState": task.state,
            "executionInfo": task_execution(task),
        }


def _task_key(world: World, task: Task, node: Node) -> tuple[str, str, int]:
    """The job and the id of a task, and the number of its subtask on a node; 0 is the primary."""
    number = next(number for number, instance in enumerate(task.instances) if instance.node == node.id)
    return world.job_of[task.job].record.id, task.id, number


def node_counts(nodes: Iterable[Node]) -> Document:
    """The number of nodes by state."""
    counts = Counter(node.state for node in nodes)
    states = (field.name for field in models.fields()["BatchNodeCounts"])
    return {**{name: counts[name.lower()] for name in states}, "total": counts.total()}


def job_document(entry: JobEntry, base: str) -> Document:
    job = entry.record
    execution = {
        "startTime": wire.timestamp(job.started),
        "endTime": _time(job.ended),
        "poolId": entry.pool_id or None,
        "schedulingError": job.error,
        "terminateReason": job.reason or None,
    }
    history, spec = _history(job), _shown(job.spec)
    return {"id": job.id, "url": job_url(base, job), **history, **spec, "executionInfo": _present(execution)}


def _shown(spec: Document) -> Document:
    """A job's specification without the secrets of its auto pool."""
    if "autoPoolSpecification" not in spec["poolInfo"]:
        return spec
    return {**spec, "poolInfo": models.hide("BatchPoolInfo", copy.deepcopy(spec["poolInfo"]))}


def schedule_document(entry: ScheduleEntry, base: str, next_run: int) -> Document:
    """`next_run` is when the next job is due; 0 if no job is due."""
    schedule, latest = entry.record, next(reversed(entry.jobs.values()), None)
    execution = {
        "nextRunTime": _time(next_run) if schedule.state in ("active", "disabled") else None,
        "recentJob": {"id": latest.record.id, "url": job_url(base, latest.record)} if latest else None,
        "endTime": _time(schedule.ended),
    }
    return {
        "id": schedule.id,
        "url": schedule_url(base, schedule),
        **_history(schedule),
        **schedule.spec,
        "jobSpecification": _shown(schedule.spec["jobSpecification"]),
        "executionInfo": _present(execution),
    }


def job_node_document(entry: JobEntry, job_node: JobNode, base: str) -> Document:
    """The state of a job's preparation and release tasks on one node."""
    url, spec = node_url(base, job_node.pool, job_node.id), entry.record.spec
    run, release = job_node.preparation, job_node.release
    preparation = {
        **_node_run(entry, spec["jobPreparationTask"], run, url),
        "retryCount": run.retries,
        "lastRetryTime": _time(run.last_retry),
    }
    document = {
        "poolId": job_node.pool,
        "nodeId": job_node.id,
        "nodeUrl": url,
        "jobPreparationTaskExecutionInfo": _present(preparation),
    }
    if release is not None and release.start:
        document["jobReleaseTaskExecutionInfo"] = _node_run(entry, spec["jobReleaseTask"], release, url)
    return document


def _node_run(entry: JobEntry, spec: Document, run: NodeRun, url: str) -> Document:
    directory, has_ended = f"{job_directory(entry.record)}/{spec['id']}", run.phase in ("ended", "lost")
    return {
        "startTime": wire.timestamp(run.start),
        "state": "completed" if has_ended else "running",
        "taskRootDirectory": directory,
        "taskRootDirectoryUrl": f"{url}/files/{directory}",
        **(_outcome(run, run.end) if has_ended else {}),
    }


def _outcome(run: NodeRun | Instance, end: int) -> Document:
    """The result of a command that has ended."""
    document = {
        "endTime": _time(end),
        "exitCode": run.exit_code,
        "containerInfo": run.container,
        "failureInfo": run.failure,
        "result": "success" if run.exit_code == 0 and run.failure is None else "failure",
    }
    return _present(document)


def task_document_of(entry: JobEntry, task: Task, base: str) -> Document:
    document: Document = {
        "id": task.id,
        "url": task_url(base, entry.record, task),
        **_history(task),
        **task_document(task),
        "executionInfo": task_execution(task),
    }
    if task.instances and task.state != "active":
        document["nodeInfo"] = _node_info(entry, task, task.instances[0], base)
    return document


TASK_PARTS: Mapping[str, Callable[[JobEntry, Task | TaskRow, str], Any]] = {
    "id": lambda entry, task, base: task.id,
    "url": lambda entry, task, base: task_url(base, entry.record, task),
    "lastModified": lambda entry, task, base: wire.timestamp(task.modified),
    "creationTime": lambda entry, task, base: wire.timestamp(task.created),
    "state": lambda entry, task, base: task.state,
    "stateTransitionTime": lambda entry, task, base: wire.timestamp(task.state_time),
}
"""The properties of a task that are known without reading its record."""
RECORD_PARTS: Mapping[str, Callable[[Task], Any]] = {
    "eTag": lambda task: task.etag,
    "executionInfo": lambda task: task_execution(task),
}
"""Those that are known without parsing the client's document, which is stored as text."""


def task_part(entry: JobEntry, task: Task, base: str, names: Iterable[str]) -> Document:
    """Only these properties, all of TASK_PARTS or RECORD_PARTS."""
    return {
        name: RECORD_PARTS[name](task) if name in RECORD_PARTS else TASK_PARTS[name](entry, task, base)
        for name in names
    }


def task_execution(task: Task) -> Document:
    """How the task runs or ran. The end of a run is recorded before its output files and nodes are done; as in the
    service, it is visible only with the state `completed`."""
    completed = task.state == "completed"
    execution = {
        "startTime": _time(task.start),
        "endTime": _time(task.end) if completed else None,
        "exitCode": task.exit_code if completed else None,
        "containerInfo": task.instances[0].container if task.instances else None,
        "failureInfo": task.failure if completed else None,
        "retryCount": task.retries,
        "lastRetryTime": _time(task.last_retry),
        "requeueCount": task.requeues,
        "lastRequeueTime": _time(task.last_requeue),
        "result": task.result or None,
    }
    return _present(execution)


def subtask_documents(entry: JobEntry, task: Task, base: str) -> list[Document]:
    """All instances except the primary."""
    subtasks = []
    for number, instance in enumerate(task.instances[1:], 1):
        state = states.SUBTASK_STATE.get(instance.phase, "running")
        document = {
            "id": number,
            "nodeInfo": _node_info(entry, task, instance, base),
            "state": state,
            "stateTransitionTime": wire.timestamp(instance.phase_time),
            "startTime": _time(instance.start),
        }
        if state == "completed":
            document |= {"previousState": "running", **_outcome(instance, instance.end or instance.phase_time)}
        subtasks.append(_present(document))
    return subtasks


def _node_info(entry: JobEntry, task: Task, instance: Instance, base: str) -> Document:
    directory = task_directory(entry.record, task)
    url = node_url(base, task.node_pool, instance.node)
    return {
        "affinityId": f"TVM:{instance.node}",
        "nodeUrl": url,
        "poolId": task.node_pool,
        "nodeId": instance.node,
        "taskRootDirectory": directory,
        "taskRootDirectoryUrl": f"{url}/files/{directory}",
    }


def _history(record: Record) -> Document:
    history = {
        "eTag": record.etag,
        "lastModified": wire.timestamp(record.modified),
        "creationTime": wire.timestamp(record.created),
        "state": record.state,
        "stateTransitionTime": wire.timestamp(record.state_time),
        "previousState": record.previous or None,
        "previousStateTransitionTime": wire.timestamp(record.previous_time) if record.previous else None,
    }
    return _present(history)
