"""The service's documents of pools, nodes, jobs and tasks, and the record that each becomes. Only `read` uses them.

Properties that were not selected have their defaults. The SDK's models take 0.1 ms for each task; they are not used.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from batchtrain.config.masking import masked_document
from batchtrain.records import Endpoint, Failure, Image, Job, JobSchedule, Node, Pool, Task, TaskNode, TaskRequest
from batchtrain.records.record import Record

ENDLESS_DAYS = 10_000_000
"""The service shows no limit of run time as an endless time."""

RecordType = TypeVar("RecordType", bound=Record)


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a document."""


# --- parts of several documents -------------------------------------------------------------------------------------


class _Run(_Part, frozen=True):
    """The last run of a task or a start task."""

    start_time: datetime | None = None
    end_time: datetime | None = None
    exit_code: int | None = None
    result: str = ""
    state: str = ""
    failure_info: Failure = Failure()
    retry_count: int = 0
    requeue_count: int = 0
    last_retry_time: datetime | None = None
    last_requeue_time: datetime | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took; None if it has not ended."""
        if self.start_time is None or self.end_time is None:
            return None
        return (self.end_time - self.start_time).total_seconds()

    @property
    def how(self) -> str:
        """How a start task ended."""
        if self.state == "running":
            return "running"
        return "ok" if self.exit_code == 0 else f"exit code {self.exit_code}"


class _Constraints(_Part, frozen=True):
    max_wall_clock_time: timedelta | None = None
    max_task_retry_count: int = 0

    @property
    def seconds(self) -> float | None:
        limit = self.max_wall_clock_time
        return limit.total_seconds() if limit is not None and limit.days < ENDLESS_DAYS else None


# --- pools, nodes and jobs: few, so that a table of paths is fast enough ----------------------------------------------

Document = Mapping[str, Any]
PATHS: Mapping[type[Record], str] = {
    Pool: (
        "allocation:allocationState created:creationTime dedicated:currentDedicatedNodes"
        " target_dedicated:targetDedicatedNodes spot:currentLowPriorityNodes target_spot:targetLowPriorityNodes"
        " inter_node:enableInterNodeCommunication slots:taskSlotsPerNode autoscale:enableAutoScale"
        " autoscale_error:autoScaleRun/error"
    ),
    Node: (
        "address:ipAddress allocated:allocationTime dedicated:isDedicated start_exit_code:startTaskInfo/exitCode"
        " start_failure:startTaskInfo/failureInfo size:vmSize booted:lastBootTime since:stateTransitionTime"
        " running_tasks:runningTasksCount running_slots:runningTaskSlotsCount total_run:totalTasksRun"
        " recent:recentTasks"
    ),
    Image: (
        "publisher:imageReference/publisher offer:imageReference/offer sku:imageReference/sku"
        " node_agent:nodeAgentSKUId ends:batchSupportEndOfLife"
    ),
    Job: (
        "created:creationTime ended:executionInfo/endTime reason:executionInfo/terminateReason"
        " failure:executionInfo/schedulingError"
    ),
    JobSchedule: (
        "created:creationTime next_run:executionInfo/nextRunTime ended:executionInfo/endTime"
        " job:executionInfo/recentJob/id"
    ),
}
"""The fields of a record that its document has at another PATH, as FIELD:PATH; others have their name in camel case."""


def record(kind: type[RecordType], document: Document, **fields: Any) -> RecordType:
    """The record of a document. fields: what is not simply one of its properties."""
    properties = ((name, at(document, path)) for name, path in _paths(kind))
    return msgspec.convert({name: value for name, value in properties if value is not None} | fields, kind)


@functools.cache
def _paths(kind: type[Record]) -> tuple[tuple[str, str], ...]:
    camel = {name: re.sub(r"_(.)", lambda match: match[1].upper(), name) for name in kind.__struct_fields__}
    return tuple({**camel, **dict(pair.split(":") for pair in PATHS[kind].split())}.items())


def at(document: Document, path: str) -> Any:
    """A property of a document; None if it is not there."""
    value: Any = document
    for key in path.split("/"):
        value = value.get(key) if value is not None else None
    return value


def node(document: Document) -> Node:
    run = msgspec.convert(document.get("startTaskInfo", {}), _Run)
    return record(Node, document, start_task=run.how if "startTaskInfo" in document else "", prepared=run.seconds)


def job(document: Document) -> Job:
    limit = msgspec.convert(document.get("constraints", {}), _Constraints).seconds
    pool = at(document, "poolInfo/poolId") or at(document, "executionInfo/poolId") or ""
    return record(Job, document, pool=pool, wall_clock=limit)


def endpoints(document: Document, port: int) -> Iterator[Endpoint]:
    """The outside addresses of a port of a node."""
    for endpoint in at(document, "endpointConfiguration/inboundEndpoints") or ():
        if endpoint["backendPort"] == port:
            address = endpoint.get("publicIPAddress") or endpoint.get("publicFQDN") or ""
            yield Endpoint(document["id"], address, endpoint["frontendPort"])


def node_states(document: Document) -> dict[str, int]:
    """The number of nodes of both kinds by state."""
    kinds = document.get("dedicated", {}), document.get("lowPriority", {})
    sums = {name.lower(): sum(kind.get(name, 0) for kind in kinds) for kind in kinds for name in kind}
    return {state: number for state, number in sums.items() if number and state != "total"}


# --- tasks ----------------------------------------------------------------------------------------------------------


class _NodeInfo(_Part, frozen=True):
    node_id: str = ""
    pool_id: str = ""
    task_root_directory: str = ""


class _MultiInstance(_Part, frozen=True):
    number_of_instances: int = 1


class _DependsOn(_Part, frozen=True):
    task_ids: tuple[str, ...] = ()


class _Variable(_Part, frozen=True):
    name: str
    value: str = ""


class SubtaskAnswer(_Part, frozen=True):
    """A task of a gang on one of its other nodes."""

    node_info: _NodeInfo = _NodeInfo()

    @property
    def node(self) -> TaskNode:
        return TaskNode(*msgspec.structs.astuple(self.node_info))


class TaskAnswer(SubtaskAnswer, frozen=True, kw_only=True):
    id: str
    state: str = ""
    state_transition_time: datetime | None = None
    creation_time: datetime | None = None
    execution_info: _Run = _Run()
    multi_instance_settings: _MultiInstance | None = None
    required_slots: int = 1
    depends_on: _DependsOn = _DependsOn()
    constraints: _Constraints = _Constraints()
    command_line: str = ""
    environment_settings: tuple[_Variable, ...] = ()

    @property
    def record(self) -> Task:
        """The task. Tasks share equal values, for there may be a million."""
        run, gang = self.execution_info, self.multi_instance_settings
        return Task(
            id=self.id,
            state=sys.intern(self.state),
            result=sys.intern(run.result.lower()),
            exit_code=run.exit_code,
            node=sys.intern(self.node_info.node_id),
            seconds=run.seconds,
            failure=_shared(run.failure_info),
            retries=run.retry_count,
            requeues=run.requeue_count,
            started=run.start_time,
            created=self.creation_time,
            pool=sys.intern(self.node_info.pool_id),
            request=_request(
                self.command_line,
                gang.number_of_instances if gang else None,
                self.required_slots,
                self.depends_on.task_ids,
                self.constraints.seconds,
            ),
        )


_request = functools.lru_cache(maxsize=1024)(TaskRequest)


@functools.lru_cache(maxsize=1024)
def _shared(failure: Failure) -> Failure:
    """One record of equal reasons, without secrets: the service may quote a command or a link."""
    return msgspec.convert(masked_document(msgspec.to_builtins(failure)), Failure) if failure else failure
