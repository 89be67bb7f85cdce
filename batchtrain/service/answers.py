"""The service's documents of pools, nodes, jobs and tasks, and the record that each becomes. Only `read` uses them.

Properties that were not selected have their defaults. The SDK's models take 0.1 ms for each task; they are not used.
"""

from __future__ import annotations

import functools
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, TypeVar

import msgspec

from batchtrain.config.masking import masked_document
from batchtrain.records import Endpoint, Failure, Image, Job, JobSchedule, Node, Pool, Task, TaskNode, TaskRequest
from batchtrain.records.jobs import Preparation
from batchtrain.records.record import Int32, Record, Time
from batchtrain.records.tasks import ExitConditions
from batchtrain.service.answer_body import at

ENDLESS_DAYS = 1_000_000
"""A limit of run time from which on there is none: the service shows no limit as 10,675,199 days."""

MOST_REPEATS = 100_000
"""Retries and requeues of a task that are counted: each becomes a record, and a service may claim any number."""

RecordType = TypeVar("RecordType", bound=Record)


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a document."""


# --- parts of several documents -------------------------------------------------------------------------------------


class _Run(_Part, frozen=True):
    """The last run of a task or a start task."""

    start_time: Time | None = None
    end_time: Time | None = None
    exit_code: Int32 | None = None
    result: str = ""
    state: str = ""
    failure_info: Failure = Failure()
    retry_count: Annotated[int, msgspec.Meta(ge=0)] = 0
    requeue_count: Annotated[int, msgspec.Meta(ge=0)] = 0
    last_retry_time: Time | None = None
    last_requeue_time: Time | None = None

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


class _Variable(_Part, frozen=True):
    name: str
    value: str = ""


class _Constraints(_Part, frozen=True):
    max_wall_clock_time: timedelta | None = None
    max_task_retry_count: Int32 = 0

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
        " autoscale_error:autoScaleRun/error evaluated:autoScaleRun/timestamp"
        " evaluation_interval:autoScaleEvaluationInterval allocation_since:allocationStateTransitionTime"
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
    Preparation: (
        "node:nodeId state:jobPreparationTaskExecutionInfo/state result:jobPreparationTaskExecutionInfo/result"
        " failure:jobPreparationTaskExecutionInfo/failureInfo"
        " directory:jobPreparationTaskExecutionInfo/taskRootDirectory"
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


def node(document: Document) -> Node:
    run = msgspec.convert(document.get("startTaskInfo", {}), _Run)
    return record(Node, document, start_task=run.how if "startTaskInfo" in document else "", prepared=run.seconds)


def job(document: Document) -> Job:
    limit = msgspec.convert(document.get("constraints", {}), _Constraints).seconds
    pool = at(document, "poolInfo/poolId") or at(document, "executionInfo/poolId") or ""
    preparation = document.get("jobPreparationTask")
    must_prepare = preparation is not None and at(document, "jobPreparationTask/waitForSuccess") is not False
    return record(Job, document, pool=pool, wall_clock=limit, must_prepare=must_prepare)


class _InboundEndpoint(_Part, frozen=True):
    backend_port: Int32
    frontend_port: Int32
    public_ip_address: str | None = msgspec.field(default=None, name="publicIPAddress")
    public_fqdn: str | None = msgspec.field(default=None, name="publicFQDN")


class _EndpointConfiguration(_Part, frozen=True):
    inbound_endpoints: tuple[_InboundEndpoint, ...] = ()


class NodeEndpoints(_Part, frozen=True):
    """The outside addresses of a node."""

    id: str
    endpoint_configuration: _EndpointConfiguration | None = None

    def of(self, port: int) -> Iterator[Endpoint]:
        """Those of a port."""
        for item in self.endpoint_configuration.inbound_endpoints if self.endpoint_configuration else ():
            if item.backend_port == port:
                yield Endpoint(self.id, item.public_ip_address or item.public_fqdn or "", item.frontend_port)


class NodeCounts(_Part, frozen=True):
    """The nodes of a pool by state."""

    pool_id: str
    dedicated: dict[str, Int32] = {}
    low_priority: dict[str, Int32] = {}

    @property
    def states(self) -> dict[str, int]:
        """The number of nodes of both kinds by state."""
        sums = Counter[str]()
        for kind in (self.dedicated, self.low_priority):
            sums.update({name.lower(): number for name, number in kind.items()})
        return {state: number for state, number in sums.items() if number and state != "total"}


class TaskCounts(_Part, frozen=True):
    """The tasks of a job by state."""

    task_counts: dict[str, Int32]


class _PoolInfo(_Part, frozen=True):
    pool_id: str = ""
    auto_pool_specification: dict[str, Any] | None = None


class Named(_Part, frozen=True):
    """What is read of any task document, beside its comparison with a plan."""

    id: str


class Whole(_Part, frozen=True):
    """The same of a whole document of a pool, a job or a job schedule."""

    id: str = ""
    state: str = ""
    on_all_tasks_complete: str = ""
    metadata: tuple[_Variable, ...] = ()
    pool_info: _PoolInfo = _PoolInfo()
    constraints: dict[str, Any] = {}


def checked(document: dict[str, Any], kind: type[_Part] = Whole) -> dict[str, Any]:
    """A document, if what is read of it has the right form. Raises ValidationError."""
    msgspec.convert(document, kind)
    return document


# --- tasks ----------------------------------------------------------------------------------------------------------


class _NodeInfo(_Part, frozen=True):
    node_id: str = ""
    pool_id: str = ""
    task_root_directory: str = ""


class _MultiInstance(_Part, frozen=True):
    number_of_instances: Int32 = 1


class _Range(_Part, frozen=True):
    start: Int32
    end: Int32


class _DependsOn(_Part, frozen=True):
    task_ids: tuple[str, ...] = ()
    task_id_ranges: tuple[_Range, ...] = ()


class SubtaskAnswer(_Part, frozen=True):
    """A task of a gang on one of its other nodes."""

    node_info: _NodeInfo = _NodeInfo()

    @property
    def node(self) -> TaskNode:
        return TaskNode(*msgspec.structs.astuple(self.node_info))


class _Container(_Part, frozen=True):
    container_run_options: str = ""
    working_directory: str = ""

    @property
    def volumes(self) -> tuple[tuple[str, str], ...]:
        """What `-v` and `--volume` mount: the alias of a shared volume or the directory of the node, and the path
        inside; without batchtrain's own."""
        mounts = (match[1].split(":") for match in _VOLUME.finditer(self.container_run_options))
        return tuple(
            (mount[0].strip("'\"").rpartition("_MOUNTS_DIR/")[2], mount[1].strip("'\""))
            for mount in mounts
            if len(mount) > 1 and mount[0] != mount[1]
        )


_VOLUME = re.compile(r"(?<!\S)(?:-v|--volume)[ =](\S+)")


class TaskAnswer(SubtaskAnswer, frozen=True, kw_only=True):
    id: str
    state: str = ""
    state_transition_time: Time | None = None
    creation_time: Time | None = None
    execution_info: _Run = _Run()
    multi_instance_settings: _MultiInstance | None = None
    required_slots: Int32 = 1
    depends_on: _DependsOn = _DependsOn()
    exit_conditions: ExitConditions = ExitConditions()
    constraints: _Constraints = _Constraints()
    command_line: str = ""
    environment_settings: tuple[_Variable, ...] = ()
    container_settings: _Container | None = None

    @property
    def record(self) -> Task:
        """The task. Tasks share equal values, for there may be a million."""
        run, gang, container = self.execution_info, self.multi_instance_settings, self.container_settings
        return Task(
            id=self.id,
            state=sys.intern(self.state),
            result=sys.intern(run.result.lower()),
            exit_code=run.exit_code,
            node=sys.intern(self.node_info.node_id),
            seconds=run.seconds,
            failure=_shared(run.failure_info),
            retries=min(run.retry_count, MOST_REPEATS),
            requeues=min(run.requeue_count, MOST_REPEATS),
            started=run.start_time,
            created=self.creation_time,
            pool=sys.intern(self.node_info.pool_id),
            request=_request(
                self.command_line,
                gang.number_of_instances if gang else None,
                self.required_slots,
                self.depends_on.task_ids,
                tuple((span.start, span.end) for span in self.depends_on.task_id_ranges),
                self.exit_conditions,
                self.constraints.seconds,
                container.volumes if container else (),
                container is not None and container.working_directory == "taskWorkingDirectory",
            ),
        )


_request = functools.lru_cache(maxsize=1024)(TaskRequest)


@functools.lru_cache(maxsize=1024)
def _shared(failure: Failure) -> Failure:
    """One record of equal reasons, without secrets: the service may quote a command or a link."""
    return msgspec.convert(masked_document(msgspec.to_builtins(failure)), Failure) if failure else failure
