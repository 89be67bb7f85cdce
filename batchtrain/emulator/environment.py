"""The AZ_BATCH_* environment of tasks and start tasks, and the commands the machine is given; pure."""

from __future__ import annotations

from typing import Any

from batchtrain.emulator.documents import task_directory
from batchtrain.emulator.machine.types import Download, NodeSpec, Run
from batchtrain.emulator.records import Node, Task
from batchtrain.emulator.world import JobBook, PoolBook, World, task_document

Document = dict[str, Any]

MASTER_PORT = 6000
"""Batch's own port on the primary: nobody listens there."""
START_DIRECTORY = "startup"


def node_spec(world: World, book: PoolBook, node: Node) -> NodeSpec:
    """A node as the machine boots it."""
    size = world.size_of(book.record.spec["vmSize"])
    return NodeSpec(
        book.record.id,
        node.id,
        node.address,
        node.hostname,
        book.record.spec["vmSize"],
        size.gpus,
        simulated=book.simulated,
    )


def start_run(world: World, book: PoolBook, node: Node) -> Run:
    """The pool's start task on one node."""
    spec = book.record.spec["startTask"]
    return Run(
        scope=f"n{node.seq}-b{node.boots}-s{node.start.get('retryCount', 0)}",
        directory=START_DIRECTORY,
        command_line=spec["commandLine"],
        environment={**settings(spec), **_node(world, book, node), **_directories(node, START_DIRECTORY)},
        downloads=downloads(spec.get("resourceFiles", [])),
        image=spec.get("containerSettings", {}).get("imageName"),
        elevated=_elevated(spec),
    )


def coordination_run(world: World, job: JobBook, task: Task, number: int) -> Run:
    """The coordination command on one instance; common resource files go to the task's root directory."""
    spec = task_document(task)
    gang = spec["multiInstanceSettings"]
    run = _run(world, job, task, number, spec)
    files = downloads(gang.get("commonResourceFiles", []))
    return run._replace(command_line=gang["coordinationCommandLine"], downloads=files, downloads_to="")


def application_run(world: World, job: JobBook, task: Task) -> Run:
    """The task's own command, on the primary."""
    spec = task_document(task)
    return _run(world, job, task, 0, spec)._replace(downloads=downloads(spec.get("resourceFiles", [])))


def scope(task: Task, run: int, number: int) -> str:
    """Names one instance of one run, for ever."""
    return f"t{task.seq}-r{run}-i{number}"


def _run(world: World, job: JobBook, task: Task, number: int, spec: Document) -> Run:
    book = world.pool_of_node[task.instances[number].node]
    node = book.nodes[task.instances[number].node]
    directory = task_directory(job.record, task)
    environment = {
        **settings({"environmentSettings": job.record.spec.get("commonEnvironmentSettings", [])}),
        **settings(spec),
        **_node(world, book, node),
        **_directories(node, directory),
        "AZ_BATCH_JOB_ID": job.record.id,
        "AZ_BATCH_TASK_ID": task.id,
    }
    if task.gang:
        environment |= gang_environment(world, task, number) | {
            "AZ_BATCH_TASK_SHARED_DIR": environment["AZ_BATCH_TASK_DIR"]
        }
    return Run(
        scope=scope(task, task.run, number),
        directory=directory,
        command_line=spec["commandLine"],
        environment=environment,
        image=spec.get("containerSettings", {}).get("imageName"),
        elevated=_elevated(spec),
    )


def settings(spec: Document) -> dict[str, str]:
    """What the client set."""
    return {one["name"]: one.get("value", "") for one in spec.get("environmentSettings", [])}


def _node(world: World, book: PoolBook, node: Node) -> dict[str, str]:
    return {
        "AZ_BATCH_ACCOUNT_NAME": world.account,
        "AZ_BATCH_ACCOUNT_URL": world.endpoint,
        "AZ_BATCH_POOL_ID": book.record.id,
        "AZ_BATCH_NODE_ID": node.id,
        "AZ_BATCH_NODE_IS_DEDICATED": "true" if node.dedicated else "false",
        "AZ_BATCH_NODE_ROOT_DIR": node.root_inside,
        "AZ_BATCH_NODE_SHARED_DIR": f"{node.root_inside}/shared",
        "AZ_BATCH_NODE_STARTUP_DIR": f"{node.root_inside}/{START_DIRECTORY}",
        "AZ_BATCH_NODE_STARTUP_WORKING_DIR": f"{node.root_inside}/{START_DIRECTORY}/wd",
        "AZ_BATCH_NODE_MOUNTS_DIR": f"{node.root_inside}/fsmounts",
        "AZ_BATCH_TASK_RESERVED_EPHEMERAL_DISK_SPACE_BYTES": "1000000000",
    }


def _directories(node: Node, directory: str) -> dict[str, str]:
    root = f"{node.root_inside}/{directory}"
    return {"AZ_BATCH_TASK_DIR": root, "AZ_BATCH_TASK_WORKING_DIR": f"{root}/wd"}


def gang_environment(world: World, task: Task, number: int) -> dict[str, str]:
    """What every instance of a multi-instance task sees.

    The service promises no order for AZ_BATCH_HOST_LIST; here the primary is last, so that nobody relies on it.
    """
    addresses = []
    cores = []
    for instance in task.instances:
        book = world.pool_of_node[instance.node]
        addresses.append(book.nodes[instance.node].address)
        cores.append(world.size_of(book.record.spec["vmSize"]).cores or 1)
    turned = [*addresses[1:], addresses[0]]
    pairs = [f"{address} {count}" for address, count in zip(addresses, cores, strict=True)]
    return {
        "AZ_BATCH_HOST_LIST": ",".join(turned),
        "AZ_BATCH_NODE_LIST": ";".join(turned),
        "AZ_BATCH_MASTER_NODE": f"{addresses[0]}:{MASTER_PORT}",
        "AZ_BATCH_IS_CURRENT_NODE_MASTER": "false" if number else "true",
        "CCP_NODES": " ".join([str(len(addresses)), *pairs]),
    }


def downloads(files: list[Document]) -> tuple[Download, ...]:
    """Resource files as the machine fetches them."""
    return tuple(Download(file["httpUrl"], file["filePath"], file.get("fileMode", "0770")) for file in files)


def _elevated(spec: Document) -> bool:
    return bool(spec.get("userIdentity", {}).get("autoUser", {}).get("elevationLevel") == "admin")
