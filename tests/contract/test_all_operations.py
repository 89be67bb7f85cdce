"""Each operation of the service through the official SDK: what it does, and how it is refused.

One row an operation. All of them are asked over HTTP, and one of each shape (a page, a poller, …) in three more ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.batch import models
from azure.core.exceptions import HttpResponseError

from batchtrain.emulator.routes import ROUTES
from tests.contract.conftest import job, pool, task
from tests.contract.ways import WAYS, Way, sync_over_http
from tests.waiting import until

pytestmark = pytest.mark.process

Ask = Callable[..., Any]
FORMULA = "$TargetDedicatedNodes = 1;"


# What there is before a row is asked ---------------------------------------------------------------------------------


class Scene(NamedTuple):
    """The account as a row finds it."""

    ask: Ask
    node: str = "node"
    """That of `pool`, if it has one."""


def nothing(ask: Ask) -> Scene:
    return Scene(ask)


def empty_pool(ask: Ask) -> Scene:
    """A pool without nodes."""
    ask("create_pool", pool(nodes=0))
    until(lambda: ask("get_pool", "pool").allocation_state == "steady")
    return Scene(ask)


def idle_node(ask: Ask, **more: Any) -> Scene:
    """A pool with a node."""
    ask("create_pool", pool(**more))
    (node,) = until(lambda: [one for one in ask("list_nodes", "pool") if one.state == "idle"])
    until(lambda: ask("get_pool", "pool").allocation_state == "steady")
    return Scene(ask, node.id)


def reachable_node(ask: Ask) -> Scene:
    """A node whose ssh port is reached from outside."""
    ssh = models.BatchInboundNatPool(
        name="ssh", protocol="tcp", backend_port=22, frontend_port_range_start=2200, frontend_port_range_end=2299
    )
    endpoints = models.BatchPoolEndpointConfiguration(inbound_nat_pools=[ssh])
    return idle_node(ask, network_configuration=models.NetworkConfiguration(endpoint_configuration=endpoints))


def extended_node(ask: Ask) -> Scene:
    """A node with an extension."""
    machine = pool().virtual_machine_configuration
    machine.extensions = [models.VMExtension(name="monitor", publisher="Example.Monitor", type="Monitor")]
    return idle_node(ask, virtual_machine_configuration=machine)


def autoscaled_pool(ask: Ask) -> Scene:
    """A pool that sizes itself."""
    scaled = {"target_dedicated_nodes": None, "enable_auto_scale": True, "auto_scale_formula": FORMULA}
    ask("create_pool", pool(**scaled))
    until(lambda: ask("get_pool", "pool").allocation_state == "steady")
    return Scene(ask)


def waiting_task(ask: Ask) -> Scene:
    """A job whose task finds no node."""
    scene = empty_pool(ask)
    ask("create_job", job())
    ask("create_task", "job", task())
    return scene


def running_task(ask: Ask) -> Scene:
    """A task that does not end by itself."""
    scene = idle_node(ask)
    ask("create_job", job())
    ask("create_task", "job", task(command="wait"))
    until(lambda: ask("get_task", "job", "task").state == "running")
    return scene


def shrinking_pool(ask: Ask) -> Scene:
    """A pool that waits for a task before it gives its node up."""
    scene = running_task(ask)
    patient = models.BatchPoolResizeOptions(target_dedicated_nodes=0, node_deallocation_option="taskcompletion")
    ask("resize_pool", "pool", patient, wait=False)
    return scene


def ended_task(ask: Ask) -> Scene:
    """A task that printed `hello`."""
    return _ended(ask, "print hello")


def failed_task(ask: Ask) -> Scene:
    """A task that ended with exit code 3."""
    return _ended(ask, "exit 3")


def _ended(ask: Ask, command: str) -> Scene:
    scene = idle_node(ask)
    ask("create_job", job())
    ask("create_task", "job", task(command=command))
    until(lambda: ask("get_task", "job", "task").state == "completed")
    return scene


def prepared_job(ask: Ask) -> Scene:
    """A job whose nodes are prepared, after its task."""
    scene = idle_node(ask)
    ask("create_job", job(job_preparation_task=models.BatchJobPreparationTask(command_line="print ready")))
    ask("create_task", "job", task())
    until(lambda: ask("get_task", "job", "task").state == "completed")
    return scene


def schedule(ask: Ask) -> Scene:
    """A schedule, and the job it has made."""
    scene = empty_pool(ask)
    ask("create_job_schedule", a_schedule())
    until(lambda: ask("list_jobs_from_schedule", "schedule"))
    return scene


def disabled_schedule(ask: Ask) -> Scene:
    scene = schedule(ask)
    ask("disable_job_schedule", "schedule")
    return scene


def a_schedule() -> models.BatchJobScheduleCreateOptions:
    return models.BatchJobScheduleCreateOptions(
        id="schedule",
        schedule=models.BatchJobScheduleConfiguration(),
        job_specification=models.BatchJobSpecification(pool_info=models.BatchPoolInfo(pool_id="pool")),
    )


def a_user(ask: Ask) -> Scene:
    """A node with a user."""
    scene = idle_node(ask)
    ask("create_node_user", "pool", scene.node, models.BatchNodeUserCreateOptions(name="ann", password="s3cret!"))
    return scene


def deallocated_node(ask: Ask) -> Scene:
    scene = idle_node(ask)
    ask("deallocate_node", "pool", scene.node, {"nodeDeallocateOption": "requeue"})
    until(lambda: ask("get_node", "pool", scene.node).state == "deallocated")
    return scene


def offline_node(ask: Ask) -> Scene:
    """A node that takes no tasks."""
    scene = idle_node(ask)
    ask("disable_node_scheduling", "pool", scene.node, REQUEUE_OFFLINE)
    return scene


def disabled_job(ask: Ask) -> Scene:
    scene = waiting_task(ask)
    ask("disable_job", "job", REQUEUE)
    return scene


def empty_job(ask: Ask) -> Scene:
    scene = empty_pool(ask)
    ask("create_job", job())
    return scene


# The rows ------------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """One call of an operation and what must be there before it."""

    given: Callable[[Ask], Scene]
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012 - never written to


def call(given: Callable[[Ask], Scene], *arguments: Any, **options: Any) -> Call:
    return Call(given, arguments, options)


class Refusal(NamedTuple):
    status: int
    code: str
    """Nothing for HEAD, whose answer has no body, and for downloads, where the SDK does not read it."""


def then(operation: str, *arguments: Any, **fields: Any) -> Callable[[Any, Scene], bool]:
    """Whether what an operation gives afterwards has these values."""

    def holds(_: Any, scene: Scene) -> bool:
        found = scene.ask(operation, *_with_node(arguments, scene))
        return {name: getattr(found, name) for name in fields} == fields

    return holds


def soon(operation: str, *arguments: Any, **fields: Any) -> Callable[[Any, Scene], bool]:
    holds = then(operation, *arguments, **fields)
    return lambda answer, scene: until(lambda: holds(answer, scene))


NODE = object()
"""Stands for the scene's node among the arguments."""
pool_has, job_has = partial(then, "get_pool", "pool"), partial(then, "get_job", "job")
schedule_has, node_has = partial(then, "get_job_schedule", "schedule"), partial(then, "get_node", "pool", NODE)
node_will_have, task_will_have = partial(soon, "get_node", "pool", NODE), partial(soon, "get_task", "job", "task")


def job_and_task(scene: Scene) -> tuple[str, str]:
    """Their states."""
    return scene.ask("get_job", "job").state, scene.ask("get_task", "job", "task").state


class Row(NamedTuple):
    operation: str
    happy: Call
    holds: Callable[[Any, Scene], object]
    """Whether the answer, and the account after it, are as they should be."""
    refusal: Refusal | None = None
    refused: Call | None = None
    """What is refused: by default, the same call before there is what it is about."""

    def mistake(self) -> tuple[Call, Refusal]:
        if self.refused and self.refusal:
            return self.refused, self.refusal
        arguments = self.happy.arguments
        before, code = next((before, code) for about, before, code in ABOUT if arguments[: len(about)] == about)
        return self.happy._replace(given=before), self.refusal or Refusal(404, code)


ABOUT = (
    (("pool", NODE), empty_pool, "NodeNotFound"),
    (("pool",), nothing, "PoolNotFound"),
    (("job", "task"), empty_job, "TaskNotFound"),
    (("job",), nothing, "JobNotFound"),
    (("schedule",), nothing, "JobScheduleNotFound"),
)
"""What a call is about, by its first arguments; the account before there is that, and the code of the refusal."""
NO_CODE = Refusal(404, "")
BAD_QUERY, NONSENSE = Refusal(400, "InvalidQueryParameterValue"), call(nothing, filter="nonsense")

RESIZE = models.BatchPoolResizeOptions(target_dedicated_nodes=2)
METADATA = [models.BatchMetadataItem(name="a", value="b")]
REQUEUE_OFFLINE = models.BatchNodeDisableSchedulingOptions(node_disable_scheduling_option="requeue")
ENABLE_SCALING = models.BatchPoolEnableAutoScaleOptions(auto_scale_formula=FORMULA)
EVALUATE = models.BatchPoolEvaluateAutoScaleOptions(auto_scale_formula=FORMULA)
LOGS = models.UploadBatchServiceLogsOptions(
    container_url="http://127.0.0.1:9/account/logs?sv=1", start_time="2026-11-21T00:00:00Z"
)
POOLS = (
    Row("create_pool", call(nothing, pool(nodes=2)), pool_has(target_dedicated_nodes=2),
        Refusal(409, "PoolExists"), call(empty_pool, pool())),
    Row("list_pools", call(empty_pool, select=["id"]),
        lambda found, _: [(one.id, one.vm_size) for one in found] == [("pool", None)], BAD_QUERY, NONSENSE),
    Row("delete_pool", call(idle_node, "pool"), lambda _, scene: scene.ask("list_pools") == []),
    Row("pool_exists", call(empty_pool, "pool"), lambda found, _: found is True, NO_CODE),
    Row("get_pool", call(empty_pool, "pool"), lambda found, _: found.id == "pool"),
    Row("update_pool", call(empty_pool, "pool", models.BatchPoolUpdateOptions(metadata=METADATA)),
        pool_has(metadata=METADATA)),
    Row("disable_pool_auto_scale", call(autoscaled_pool, "pool"), pool_has(enable_auto_scale=False)),
    Row("enable_pool_auto_scale", call(empty_pool, "pool", ENABLE_SCALING), pool_has(auto_scale_formula=FORMULA)),
    Row("evaluate_pool_auto_scale", call(autoscaled_pool, "pool", EVALUATE),
        lambda found, _: "$TargetDedicatedNodes=1" in found.results),
    Row("resize_pool", call(empty_pool, "pool", RESIZE), pool_has(current_dedicated_nodes=2)),
    Row("stop_pool_resize", call(shrinking_pool, "pool"),
        lambda _, scene: [one.code for one in scene.ask("get_pool", "pool").resize_errors] == ["ResizeStopped"],
        Refusal(409, "OperationInvalidForCurrentState"), call(empty_pool, "pool")),
    Row("replace_pool_properties",
        call(empty_pool, "pool", models.BatchPoolReplaceOptions(application_package_references=[], metadata=METADATA)),
        pool_has(metadata=METADATA)),
    Row("remove_nodes", call(idle_node, "pool", {"nodeList": [NODE]}),
        lambda _, scene: scene.ask("list_nodes", "pool") == []),
    Row("list_supported_images", call(nothing, filter="osType eq 'linux'"),
        lambda found, _: found and {one.os_type for one in found} == {"linux"}, BAD_QUERY, NONSENSE),
    Row("list_pool_node_counts", call(idle_node, filter="poolId eq 'pool'"),
        lambda found, _: [one.dedicated.idle for one in found] == [1], BAD_QUERY, NONSENSE),
    Row("list_pool_usage_metrics", call(nothing), lambda found, _: found == [], BAD_QUERY, NONSENSE),
    Row("list_applications", call(nothing),
        lambda found, _: [(one.id, one.versions) for one in found] == [("solver", ["1.0"])],
        BAD_QUERY, call(nothing, max_results=0)),
    Row("get_application", call(nothing, "solver"), lambda found, _: found.versions == ["1.0"],
        Refusal(404, "ApplicationNotFound"), call(nothing, "nothing")),
)  # fmt: skip

NODES = (
    Row("list_nodes", call(idle_node, "pool", filter="state eq 'idle'"),
        lambda found, scene: [one.id for one in found] == [scene.node]),
    Row("get_node", call(idle_node, "pool", NODE), lambda found, _: found.state == "idle"),
    Row("create_node_user",
        call(idle_node, "pool", NODE, models.BatchNodeUserCreateOptions(name="ann", password="s3cret!")),
        lambda _, scene: scene.ask("delete_node_user", "pool", scene.node, "ann") is None,
        Refusal(409, "NodeUserExists"),
        call(a_user, "pool", NODE, models.BatchNodeUserCreateOptions(name="ann", password="s3cret!"))),
    Row("delete_node_user", call(a_user, "pool", NODE, "ann"), lambda found, _: found is None,
        Refusal(404, "NodeUserNotFound"), call(idle_node, "pool", NODE, "ann")),
    Row("replace_node_user", call(a_user, "pool", NODE, "ann", models.BatchNodeUserReplaceOptions(password="an0ther!")),
        lambda found, _: found is None,
        Refusal(404, "NodeUserNotFound"),
        call(idle_node, "pool", NODE, "ann", models.BatchNodeUserReplaceOptions(password="an0ther!"))),
    Row("reboot_node", call(idle_node, "pool", NODE, {"nodeRebootOption": "requeue"}), node_will_have(state="idle")),
    Row("start_node", call(deallocated_node, "pool", NODE), node_will_have(state="idle")),
    Row("reimage_node", call(idle_node, "pool", NODE, {"nodeReimageOption": "requeue"}), node_will_have(state="idle")),
    Row("deallocate_node", call(idle_node, "pool", NODE, {"nodeDeallocateOption": "requeue"}),
        node_has(state="deallocated")),
    Row("disable_node_scheduling", call(idle_node, "pool", NODE, REQUEUE_OFFLINE),
        node_has(scheduling_state="disabled")),
    Row("enable_node_scheduling", call(offline_node, "pool", NODE), node_has(scheduling_state="enabled"),
        Refusal(409, "NodeAlreadyInTargetSchedulingState"), call(idle_node, "pool", NODE)),
    Row("get_node_remote_login_settings", call(reachable_node, "pool", NODE),
        lambda found, _: found.remote_login_ip_address and found.remote_login_port == 2200),
    Row("upload_node_logs", call(idle_node, "pool", NODE, LOGS),
        lambda found, _: found.virtual_directory_name and found.number_of_files_uploaded >= 0),
    Row("list_node_extensions", call(extended_node, "pool", NODE),
        lambda found, _: [one.vm_extension.name for one in found] == ["monitor", "batchNodeExtension"]),
    Row("get_node_extension", call(extended_node, "pool", NODE, "monitor"),
        lambda found, _: found.vm_extension.publisher == "Example.Monitor",
        Refusal(404, "NodeExtensionNotFound"), call(idle_node, "pool", NODE, "monitor")),
)  # fmt: skip

FILE = "workitems/job/job-1/task/stdout.txt"
FILES = (
    Row("list_node_files", call(ended_task, "pool", NODE, recursive=True),
        lambda found, _: FILE in [one.name for one in found]),
    Row("download_node_file", call(ended_task, "pool", NODE, FILE), lambda found, _: found == b"hello\n",
        NO_CODE, call(idle_node, "pool", NODE, "nothing.txt")),
    Row("get_node_file_properties", call(ended_task, "pool", NODE, FILE),
        lambda found, _: (found.content_length, found.is_directory) == (6, False),
        NO_CODE, call(idle_node, "pool", NODE, "nothing.txt")),
    Row("delete_node_file", call(ended_task, "pool", NODE, FILE),
        lambda _, scene: FILE not in [one.name for one in scene.ask("list_node_files", "pool", scene.node)],
        Refusal(404, "FileNotFound"), call(idle_node, "pool", NODE, "nothing.txt")),
    Row("list_task_files", call(ended_task, "job", "task"),
        lambda found, _: [one.name for one in found] == ["stderr.txt", "stdout.txt", "wd"],
        Refusal(404, "JobNotFound"), call(nothing, "nothing", "task")),
    Row("download_task_file", call(ended_task, "job", "task", "stdout.txt", ocp_range="bytes=1-3"),
        lambda found, _: found == b"ell", NO_CODE, call(ended_task, "job", "task", "nothing.txt")),
    Row("get_task_file_properties", call(ended_task, "job", "task", "wd"), lambda found, _: found.is_directory is True,
        NO_CODE, call(ended_task, "job", "task", "nothing.txt")),
    Row("delete_task_file", call(ended_task, "job", "task", "stdout.txt"),
        lambda _, scene: [one.name for one in scene.ask("list_task_files", "job", "task")] == ["stderr.txt", "wd"],
        Refusal(409, "OperationInvalidForCurrentState"), call(waiting_task, "job", "task", "stdout.txt")),
)  # fmt: skip

PRIORITY = models.BatchJobUpdateOptions(priority=7)
REQUEUE = models.BatchJobDisableOptions(disable_tasks="requeue")
JOBS = (
    Row("create_job", call(empty_pool, job(priority=5)), job_has(priority=5),
        Refusal(409, "JobExists"), call(waiting_task, job())),
    Row("list_jobs", call(waiting_task, filter="state eq 'active'"),
        lambda found, _: [one.id for one in found] == ["job"], BAD_QUERY, NONSENSE),
    Row("delete_job", call(waiting_task, "job"), lambda _, scene: scene.ask("list_jobs") == []),
    Row("get_job", call(waiting_task, "job"),
        lambda found, _: (found.state, found.pool_info.pool_id) == ("active", "pool")),
    Row("update_job", call(waiting_task, "job", PRIORITY), job_has(priority=7)),
    Row("replace_job", call(waiting_task, "job", {"poolInfo": {"poolId": "pool"}, "priority": 9}), job_has(priority=9)),
    Row("disable_job", call(running_task, "job", REQUEUE),
        lambda _, scene: job_and_task(scene) == ("disabled", "active")),
    Row("enable_job", call(disabled_job, "job"), job_has(state="active")),
    Row("terminate_job", call(running_task, "job", {"terminateReason": "enough"}),
        lambda _, scene: scene.ask("get_job", "job").execution_info.termination_reason == "enough"),
    Row("get_job_task_counts", call(ended_task, "job"),
        lambda found, _: (found.task_counts.completed, found.task_slot_counts.succeeded) == (1, 1)),
    Row("list_job_preparation_and_release_task_status", call(prepared_job, "job"),
        lambda found, scene: [(one.node_id, one.job_preparation_task_execution_info.exit_code) for one in found]
        == [(scene.node, 0)]),
)  # fmt: skip

TASKS = (
    Row("create_task", call(empty_job, "job", task("new")), then("get_task", "job", "new", state="active"),
        Refusal(409, "TaskExists"), call(waiting_task, "job", task())),
    Row("list_tasks", call(waiting_task, "job", select=["id", "state"]),
        lambda found, _: [(one.id, one.state, one.command_line) for one in found] == [("task", "active", None)]),
    Row("create_task_collection",
        call(waiting_task, "job", models.BatchTaskGroup(task_values=[task("new"), task("task")])),
        lambda found, _: {one.task_id: one.status.lower() for one in found.result_values}
        == {"new": "success", "task": "clienterror"},
        Refusal(400, "InvalidPropertyValue"),
        call(waiting_task, "job", models.BatchTaskGroup(task_values=[task(f"t{n}") for n in range(101)]))),
    Row("delete_task", call(ended_task, "job", "task"),
        lambda _, scene: until(lambda: scene.ask("list_tasks", "job") == [])),
    Row("get_task", call(ended_task, "job", "task"),
        lambda found, _: (found.state, found.execution_info.exit_code) == ("completed", 0)),
    Row("replace_task", call(waiting_task, "job", "task", {"constraints": {"maxTaskRetryCount": 4}}),
        lambda _, scene: scene.ask("get_task", "job", "task").constraints.max_task_retry_count == 4),
    Row("list_subtasks", call(waiting_task, "job", "task"), lambda found, _: found == []),
    Row("terminate_task", call(running_task, "job", "task"), task_will_have(state="completed"),
        Refusal(409, "TaskCompleted"), call(ended_task, "job", "task")),
    Row("reactivate_task", call(failed_task, "job", "task"), task_will_have(state="completed"),
        Refusal(409, "TaskSucceeded"), call(ended_task, "job", "task")),
)  # fmt: skip

DAILY = models.BatchJobScheduleConfiguration(recurrence_interval="P1D")
SPECIFICATION = {"poolInfo": {"poolId": "pool"}}
SCHEDULES = (
    Row("create_job_schedule", call(empty_pool, a_schedule()), schedule_has(state="active"),
        Refusal(409, "JobScheduleExists"), call(schedule, a_schedule())),
    Row("list_job_schedules", call(schedule, select=["id"]), lambda found, _: [one.id for one in found] == ["schedule"],
        BAD_QUERY, NONSENSE),
    Row("list_jobs_from_schedule", call(schedule, "schedule"),
        lambda found, _: [one.id for one in found] == ["schedule:job-1"]),
    Row("job_schedule_exists", call(schedule, "schedule"), lambda found, _: found is True, NO_CODE),
    Row("delete_job_schedule", call(schedule, "schedule"), lambda _, scene: scene.ask("list_job_schedules") == []),
    Row("get_job_schedule", call(schedule, "schedule"),
        lambda found, _: (found.id, found.execution_info.recent_job.id) == ("schedule", "schedule:job-1")),
    Row("update_job_schedule", call(schedule, "schedule", models.BatchJobScheduleUpdateOptions(schedule=DAILY)),
        lambda _, scene: scene.ask("get_job_schedule", "schedule").schedule.recurrence_interval.days == 1),
    Row("replace_job_schedule",
        call(schedule, "schedule", {"schedule": {"recurrenceInterval": "P1D"}, "jobSpecification": SPECIFICATION}),
        lambda _, scene: scene.ask("get_job_schedule", "schedule").schedule.recurrence_interval.days == 1),
    Row("disable_job_schedule", call(schedule, "schedule"), schedule_has(state="disabled")),
    Row("enable_job_schedule", call(disabled_schedule, "schedule"), schedule_has(state="active")),
    Row("terminate_job_schedule", call(schedule, "schedule"), schedule_has(state="completed")),
)  # fmt: skip


ROWS = (*POOLS, *NODES, *FILES, *JOBS, *TASKS, *SCHEDULES)
HAVE = {route.name for route in ROUTES if route.operation}
IN_EVERY_WAY = {
    "create_task", "create_task_collection", "delete_pool", "download_task_file", "get_task_file_properties",
    "job_schedule_exists", "list_tasks", "resize_pool", "replace_job", "update_job",
}  # fmt: skip
"""A request of each shape: with a body, without one, HEAD, pages, pollers and downloads."""


# The tests -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """One client of one service for all rows."""
    data_dir: Path = tmp_path_factory.mktemp(request.param.__name__)
    with ExitStack() as stack:
        way: Way = stack.enter_context(request.param(data_dir))
        (data_dir / "applications" / "solver").mkdir(parents=True)
        (data_dir / "applications" / "solver" / "1.0.zip").touch()
        yield way


@pytest.fixture
def ask(way: Way) -> Ask:
    """Operations on an empty account."""
    way.reset()
    return way.ask


def asked() -> list[Any]:
    """Each way with its rows."""
    return [
        pytest.param(way, row, id=f"{way.__name__}-{row.operation}")
        for way in WAYS
        for row in ROWS
        if row.operation in (HAVE if way is sync_over_http else IN_EVERY_WAY)
    ]


def ask_row(ask: Ask, operation: str, wanted: Call) -> tuple[Any, Scene]:
    scene = wanted.given(ask)
    return ask(operation, *_with_node(wanted.arguments, scene), **wanted.options), scene


def _with_node(value: Any, scene: Scene) -> Any:
    """The scene's node wherever NODE stands."""
    if isinstance(value, (tuple, list)):
        return type(value)(_with_node(one, scene) for one in value)
    if type(value) is dict:
        return {name: _with_node(one, scene) for name, one in value.items()}
    return scene.node if value is NODE else value


@pytest.mark.parametrize(("way", "row"), asked(), indirect=["way"])
def test_an_operation_does_what_it_is_for(ask: Ask, row: Row) -> None:
    answer, scene = ask_row(ask, row.operation, row.happy)
    assert row.holds(answer, scene), answer


@pytest.mark.parametrize(("way", "row"), asked(), indirect=["way"])
def test_an_operation_is_refused_in_the_services_words(ask: Ask, row: Row) -> None:
    mistake, refusal = row.mistake()
    with pytest.raises(HttpResponseError) as caught:
        ask_row(ask, row.operation, mistake)
    code = caught.value.error.code if caught.value.error else ""
    assert (caught.value.status_code, code) == refusal


def test_every_operation_has_a_row() -> None:
    names = [row.operation for row in ROWS]
    assert len(set(names)) == len(names)
    assert HAVE - set(names) == set()
    assert IN_EVERY_WAY <= HAVE
    assert set(names) <= {route.name for route in ROUTES}
