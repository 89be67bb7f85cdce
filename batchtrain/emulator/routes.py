"""The routes: verb and path of the service's 72 operations, and which of them the emulator has; pure.

Paths are matched as received, percent-encoded, so that the `%2F` of a file's path stays in its segment.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote, unquote_to_bytes

from batchtrain.emulator import autoscale, files, jobs, nodes, pools, schedules, statistics, tasks, usage, users
from batchtrain.emulator.applications import get_application, list_applications
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.reply import Call, Reply, Steps
from batchtrain.emulator.versions import NEWEST
from batchtrain.emulator.world import World

Operation = Callable[[World, Call], Reply | Steps]


class Route(NamedTuple):
    verb: str
    path: str
    """`{}` matches one segment, a final `{file}` all that follow."""
    name: str
    operation: Operation | None = None
    body: str = ""
    """The model of the request's body in `properties`."""
    answer: str = ""
    """The model of the answer, or of each entry of a list; empty if all service versions have the same."""
    query: tuple[str, ...] = ()
    """Parameters in addition to those of every operation."""
    until: int = NEWEST
    """The last revision of the service with this operation."""


PAGES = ("maxresults", "$skiptoken")
FILTER, SELECT, EXPAND, FORCE, RECURSIVE = ("$filter",), ("$select",), ("$expand",), ("force",), ("recursive",)
ENTITY = SELECT + EXPAND
FILTERED = PAGES + FILTER
LISTED = FILTERED + SELECT
ENTITIES = LISTED + EXPAND

# fmt: off
ROUTES = (
    Route("POST", "/pools", "create_pool", pools.create_pool, body="BatchPoolCreateOptions"),
    Route("GET", "/pools", "list_pools", pools.list_pools, answer="BatchPool", query=ENTITIES),
    Route("DELETE", "/pools/{}", "delete_pool", pools.delete_pool),
    Route("HEAD", "/pools/{}", "pool_exists", pools.pool_exists),
    Route("GET", "/pools/{}", "get_pool", pools.get_pool, answer="BatchPool", query=ENTITY),
    Route("PATCH", "/pools/{}", "update_pool", pools.update_pool, body="BatchPoolUpdateOptions"),
    Route("POST", "/pools/{}/disableautoscale", "disable_pool_auto_scale", autoscale.disable),
    Route("POST", "/pools/{}/enableautoscale", "enable_pool_auto_scale", autoscale.enable,
          body="BatchPoolEnableAutoScaleOptions"),
    Route("POST", "/pools/{}/evaluateautoscale", "evaluate_pool_auto_scale", autoscale.evaluate,
          body="BatchPoolEvaluateAutoScaleOptions"),
    Route("POST", "/pools/{}/resize", "resize_pool", pools.resize_pool, body="BatchPoolResizeOptions"),
    Route("POST", "/pools/{}/stopresize", "stop_pool_resize", pools.stop_pool_resize),
    Route("POST", "/pools/{}/updateproperties", "replace_pool_properties", pools.replace_pool_properties,
          body="BatchPoolReplaceOptions"),
    Route("POST", "/pools/{}/removenodes", "remove_nodes", pools.remove_nodes, body="BatchNodeRemoveOptions"),
    Route("GET", "/supportedimages", "list_supported_images", pools.list_supported_images,
          answer="BatchSupportedImage", query=FILTERED),
    Route("GET", "/nodecounts", "list_pool_node_counts", pools.list_node_counts,
          answer="BatchPoolNodeCounts", query=FILTERED),
    Route("GET", "/poolusagemetrics", "list_pool_usage_metrics", usage.list_usage,
          answer="BatchPoolUsageMetrics", query=(*FILTERED, "starttime", "endtime"), until=21),
    Route("GET", "/applications", "list_applications", list_applications, query=PAGES),
    Route("GET", "/applications/{}", "get_application", get_application),
    Route("POST", "/jobs", "create_job", jobs.create_job, body="BatchJobCreateOptions"),
    Route("GET", "/jobs", "list_jobs", jobs.list_jobs, answer="BatchJob", query=ENTITIES),
    Route("DELETE", "/jobs/{}", "delete_job", jobs.delete_job, query=FORCE),
    Route("GET", "/jobs/{}", "get_job", jobs.get_job, answer="BatchJob", query=ENTITY),
    Route("PATCH", "/jobs/{}", "update_job", jobs.update_job, body="BatchJobUpdateOptions"),
    Route("PUT", "/jobs/{}", "replace_job", jobs.replace_job, body="BatchJobReplaceOptions"),
    Route("POST", "/jobs/{}/disable", "disable_job", jobs.disable_job, body="BatchJobDisableOptions"),
    Route("POST", "/jobs/{}/enable", "enable_job", jobs.enable_job),
    Route("POST", "/jobs/{}/terminate", "terminate_job", jobs.terminate_job,
          body="BatchJobTerminateOptions", query=FORCE),
    Route("GET", "/jobs/{}/taskcounts", "get_job_task_counts", jobs.task_counts, answer="BatchTaskCountsResult"),
    Route("GET", "/jobs/{}/jobpreparationandreleasetaskstatus", "list_job_preparation_and_release_task_status",
          jobs.list_preparation_and_release, answer="BatchJobPreparationAndReleaseTaskStatus", query=LISTED),
    Route("POST", "/jobs/{}/tasks", "create_task", tasks.create_task, body="BatchTaskCreateOptions"),
    Route("GET", "/jobs/{}/tasks", "list_tasks", tasks.list_tasks, answer="BatchTask", query=ENTITIES),
    Route("POST", "/jobs/{}/addtaskcollection", "create_task_collection", tasks.create_task_collection,
          body="BatchTaskGroup"),
    Route("DELETE", "/jobs/{}/tasks/{}", "delete_task", tasks.delete_task),
    Route("GET", "/jobs/{}/tasks/{}", "get_task", tasks.get_task, answer="BatchTask", query=ENTITY),
    Route("PUT", "/jobs/{}/tasks/{}", "replace_task", tasks.replace_task, body="BatchTaskReplaceOptions"),
    Route("GET", "/jobs/{}/tasks/{}/subtasksinfo", "list_subtasks", tasks.list_subtasks,
          answer="BatchSubtask", query=SELECT),
    Route("POST", "/jobs/{}/tasks/{}/terminate", "terminate_task", tasks.terminate_task),
    Route("POST", "/jobs/{}/tasks/{}/reactivate", "reactivate_task", tasks.reactivate_task),
    Route("GET", "/jobs/{}/tasks/{}/files", "list_task_files", files.of_task(files.list_),
          answer="BatchNodeFile", query=FILTERED + RECURSIVE),
    Route("DELETE", "/jobs/{}/tasks/{}/files/{file}", "delete_task_file", files.of_task(files.delete),
          query=RECURSIVE),
    Route("GET", "/jobs/{}/tasks/{}/files/{file}", "download_task_file", files.of_task(files.read)),
    Route("HEAD", "/jobs/{}/tasks/{}/files/{file}", "get_task_file_properties", files.of_task(files.head)),
    Route("GET", "/jobschedules/{}/jobs", "list_jobs_from_schedule", jobs.list_jobs_from_schedule,
          answer="BatchJob", query=ENTITIES),
    Route("HEAD", "/jobschedules/{}", "job_schedule_exists", schedules.schedule_exists),
    Route("DELETE", "/jobschedules/{}", "delete_job_schedule", schedules.delete_schedule, query=FORCE),
    Route("GET", "/jobschedules/{}", "get_job_schedule", schedules.get_schedule,
          answer="BatchJobSchedule", query=ENTITY),
    Route("PATCH", "/jobschedules/{}", "update_job_schedule", schedules.update_schedule,
          body="BatchJobScheduleUpdateOptions"),
    Route("PUT", "/jobschedules/{}", "replace_job_schedule", schedules.replace_schedule,
          body="BatchJobScheduleReplaceOptions"),
    Route("POST", "/jobschedules/{}/disable", "disable_job_schedule", schedules.disable_schedule),
    Route("POST", "/jobschedules/{}/enable", "enable_job_schedule", schedules.enable_schedule),
    Route("POST", "/jobschedules/{}/terminate", "terminate_job_schedule", schedules.terminate_schedule, query=FORCE),
    Route("POST", "/jobschedules", "create_job_schedule", schedules.create_schedule,
          body="BatchJobScheduleCreateOptions"),
    Route("GET", "/jobschedules", "list_job_schedules", schedules.list_schedules,
          answer="BatchJobSchedule", query=ENTITIES),
    Route("GET", "/pools/{}/nodes", "list_nodes", nodes.list_nodes, answer="BatchNode", query=LISTED),
    Route("GET", "/pools/{}/nodes/{}", "get_node", nodes.get_node, answer="BatchNode", query=SELECT),
    Route("POST", "/pools/{}/nodes/{}/users", "create_node_user", users.create_user, body="BatchNodeUserCreateOptions"),
    Route("DELETE", "/pools/{}/nodes/{}/users/{}", "delete_node_user", users.delete_user),
    Route("PUT", "/pools/{}/nodes/{}/users/{}", "replace_node_user", users.replace_user,
          body="BatchNodeUserReplaceOptions"),
    Route("POST", "/pools/{}/nodes/{}/reboot", "reboot_node", nodes.reboot_node, body="BatchNodeRebootOptions"),
    Route("POST", "/pools/{}/nodes/{}/start", "start_node", nodes.start_node),
    Route("POST", "/pools/{}/nodes/{}/reimage", "reimage_node", nodes.reimage_node, body="BatchNodeReimageOptions"),
    Route("POST", "/pools/{}/nodes/{}/deallocate", "deallocate_node", nodes.deallocate_node,
          body="BatchNodeDeallocateOptions"),
    Route("POST", "/pools/{}/nodes/{}/disablescheduling", "disable_node_scheduling", nodes.disable_scheduling,
          body="BatchNodeDisableSchedulingOptions"),
    Route("POST", "/pools/{}/nodes/{}/enablescheduling", "enable_node_scheduling", nodes.enable_scheduling),
    Route("GET", "/pools/{}/nodes/{}/remoteloginsettings", "get_node_remote_login_settings",
          users.remote_login_settings, answer="BatchNodeRemoteLoginSettings"),
    Route("POST", "/pools/{}/nodes/{}/uploadbatchservicelogs", "upload_node_logs", nodes.upload_logs,
          body="UploadBatchServiceLogsOptions"),
    Route("GET", "/pools/{}/nodes/{}/extensions/{}", "get_node_extension", nodes.get_extension,
          answer="BatchNodeVMExtension", query=SELECT),
    Route("GET", "/pools/{}/nodes/{}/extensions", "list_node_extensions", nodes.list_extensions,
          answer="BatchNodeVMExtension", query=PAGES + SELECT),
    Route("GET", "/pools/{}/nodes/{}/files", "list_node_files", files.of_node(files.list_),
          answer="BatchNodeFile", query=FILTERED + RECURSIVE),
    Route("DELETE", "/pools/{}/nodes/{}/files/{file}", "delete_node_file", files.of_node(files.delete),
          query=RECURSIVE),
    Route("GET", "/pools/{}/nodes/{}/files/{file}", "download_node_file", files.of_node(files.read)),
    Route("HEAD", "/pools/{}/nodes/{}/files/{file}", "get_node_file_properties", files.of_node(files.head)),
)
# fmt: on
FORMER = (
    Route("GET", "/lifetimejobstats", "get_all_job_statistics", statistics.of_account, until=16),
    Route("GET", "/lifetimepoolstats", "get_all_pool_statistics", usage.of_account, until=16),
)
"""Operations that only older service versions have."""
NAMES = tuple(route.name for route in (*ROUTES, *FORMER))


def find(verb: str, raw_path: str) -> tuple[Route, tuple[str, ...]]:
    """The operation of a request, and the decoded segments of its path. Raises Fault 404 or 405."""
    segments = raw_path.strip("/").split("/")
    shapes = _table().get(segments[0], ())
    matching = [(route, path) for route, shape in shapes if (path := _match(shape, segments)) is not None]
    for route, path in matching:
        if route.verb == verb:
            return route, path
    raise Fault("UnsupportedHttpVerb" if matching else "ResourceNotFound")


def begins(raw_path: str) -> bool:
    """Whether a path begins as one of an operation."""
    return raw_path.strip("/").partition("/")[0] in _table()


def _match(shape: tuple[str, ...], segments: list[str]) -> tuple[str, ...] | None:
    if shape[-1] == "{file}":
        count = len(shape) - 1
        if len(segments) <= count:
            return None
        segments = [*segments[:count], "/".join(segments[count:])]
    if len(shape) != len(segments):
        return None
    values = []
    for part, segment in zip(shape, segments, strict=True):
        if part in ("{}", "{file}"):
            values.append(unquote(segment) if part == "{}" else os.fsdecode(unquote_to_bytes(segment)))
        elif part != segment.lower():
            return None
    return tuple(values)


@functools.cache
def _table() -> dict[str, list[tuple[Route, tuple[str, ...]]]]:
    table: dict[str, list[tuple[Route, tuple[str, ...]]]] = {}
    for route in (*ROUTES, *FORMER):
        shape = tuple(route.path.strip("/").split("/"))
        table.setdefault(shape[0], []).append((route, shape))
    return table
