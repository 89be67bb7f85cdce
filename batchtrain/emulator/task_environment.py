"""The AZ_BATCH_* environment of tasks and start tasks, and the commands for the machine; pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from batchtrain.emulator import applications, endpoints, job_preparation, mounts
from batchtrain.emulator.documents import job_directory, task_directory
from batchtrain.emulator.indexes import JobEntry, PoolEntry
from batchtrain.emulator.interface import BindMount, Container, Containers, Download, Login, NodeSpec, Run, Upload
from batchtrain.emulator.records import Document, JobNode, Node, Task
from batchtrain.emulator.wire import BLOB_STORE
from batchtrain.emulator.world import World, task_document

MASTER_PORT = 6000
"""The port that Batch uses on the primary; the emulator does not listen there."""
START_DIRECTORY = "startup"


def node_spec(world: World, entry: PoolEntry, node: Node) -> NodeSpec:
    """A node for the machine to boot."""
    size, service = world.size_of(entry.record.node_size), urlsplit(world.endpoint)
    host = "127.0.0.1" if service.hostname in ("localhost", None) else service.hostname
    return NodeSpec(
        entry.record.id,
        node.id,
        node.address,
        node.hostname,
        entry.record.node_size,
        size.gpus,
        simulated=entry.simulated,
        windows=entry.windows,
        packages=applications.packages(world, _references(entry.record.spec)),
        mounts=mounts.of_pool(entry.record.spec),
        forwards=endpoints.forwards(entry, node),
        containers=_containers(entry),
        service=(host, service.port or 0),
    )


RESERVED_DISK = (
    "AZ_BATCH_TASK_RESERVED_EPHEMERAL_DISK_SPACE_BYTES",
    "AZ_BATCH_RESERVED_EPHEMERAL_DISK_SPACE_BYTES",
    "AZ_BATCH_RESERVED_DISK_SPACE_BYTES",
)
"""The variables of the disk space that the node agent keeps free. Sources: the page of the variables of nodes has the
first, the changelog of the node agent (1.7.14) the last; the second is from memory."""
RESERVED_BYTES = "1000000000"
GANG_CONTAINERS = "batchtrain-gang-containers"
"""Metadata item: with the value `one`, all commands of a multi-instance task share a container on each node."""


def _containers(entry: PoolEntry) -> Containers | None:
    """The container settings of a pool; None if it has none."""
    spec = entry.record.spec
    configuration = spec["virtualMachineConfiguration"].get("containerConfiguration")
    if configuration is None:
        return None
    logins = (_login(registry, entry.record.logins) for registry in configuration.get("containerRegistries", []))
    return Containers(
        tuple(configuration.get("containerImageNames", [])),
        tuple(logins),
        {"name": GANG_CONTAINERS, "value": "one"} in spec.get("metadata", []),
    )


def container(spec: Document, passwords: Mapping[str, str]) -> Container | None:
    """How a command runs in its image; None for a command directly on the node."""
    document = spec.get("containerSettings")
    if document is None:
        return None
    binds = document.get("containerHostBatchBindMounts")
    return Container(
        image=document["imageName"],
        options=document.get("containerRunOptions", ""),
        image_directory=document.get("workingDirectory") == "containerImageDefault",
        mounts=None
        if binds is None
        else tuple(BindMount(bind["source"], bind.get("isReadOnly", False)) for bind in binds),
        login=_login(document["registry"], passwords) if "registry" in document else None,
    )


def _login(registry: Document, passwords: Mapping[str, str]) -> Login:
    server = registry.get("registryServer", "")
    return Login(server, registry.get("username", ""), passwords.get(server, ""))


def start_run(world: World, entry: PoolEntry, node: Node) -> Run:
    """The pool's start task on one node."""
    spec = entry.record.spec["startTask"]
    scope = f"n{node.seq}-b{node.boots}-s{node.start.get('retryCount', 0)}"
    environment = {**settings(spec), **_node(world, entry, node), **_directories(node, START_DIRECTORY)}
    return _command(world, entry, spec, scope, START_DIRECTORY, environment, None)


def _command(
    world: World,
    entry: PoolEntry,
    spec: Document,
    scope: str,
    directory: str,
    environment: dict[str, str],
    logins: dict[str, str] | None,
) -> Run:
    """A command of the client on a node. logins: the passwords of registries besides those of the pool."""
    return Run(
        scope=scope,
        directory=directory,
        command_line=spec["commandLine"],
        environment=environment,
        downloads=downloads(spec.get("resourceFiles", []), world.endpoint),
        image=spec.get("containerSettings", {}).get("imageName"),
        elevated=_elevated(spec, entry),
        container=container(spec, {**entry.record.logins, **(logins or {})}),
    )


def coordination_run(world: World, job: JobEntry, task: Task, number: int) -> Run:
    """The coordination command on one instance; common resource files go to the task's root directory."""
    spec = task_document(task)
    gang = spec["multiInstanceSettings"]
    run = _run(world, job, task, number, spec)
    files = downloads(gang.get("commonResourceFiles", []), world.endpoint)
    return run._replace(command_line=gang["coordinationCommandLine"], downloads=files, downloads_to="", stays=True)


def application_run(world: World, job: JobEntry, task: Task) -> Run:
    """The task's own command, on the primary."""
    spec = task_document(task)
    return _run(world, job, task, 0, spec)._replace(uploads=uploads(spec.get("outputFiles", [])))


def node_run(world: World, job: JobEntry, job_node: JobNode, kind: str) -> Run:
    """The job's preparation or release task on one node."""
    spec = job_preparation.spec_of(job, kind) or {}
    entry = world.pool_of_node[job_node.id]
    node = entry.nodes[job_node.id]
    directory = f"{job_directory(job.record)}/{spec['id']}"
    scope = node_scope(job_node, kind, job_preparation.run_of(job_node, kind).run)
    environment = {**_of_job(world, entry, node, job, spec, directory), "AZ_BATCH_TASK_ID": spec["id"]}
    return _command(world, entry, spec, scope, directory, environment, job.record.logins)


def node_scope(job_node: JobNode, kind: str, run: int) -> str:
    """A name for one attempt of a job's preparation or release task on a node, never reused."""
    return f"j{job_node.seq}-{kind[0]}{run}"


def _of_job(
    world: World, entry: PoolEntry, node: Node, job: JobEntry, spec: Document, directory: str
) -> dict[str, str]:
    """Variables of every command of a job on a node."""
    variables = {
        **settings({"environmentSettings": job.record.spec.get("commonEnvironmentSettings", [])}),
        **settings(spec),
        **_node(world, entry, node),
        **_directories(node, directory),
        "AZ_BATCH_JOB_ID": job.record.id,
    }
    if before := job_preparation.spec_of(job, job_preparation.PREPARATION):
        prep_dir = f"{node.root_inside}/{job_directory(job.record)}/{before['id']}"
        variables |= {"AZ_BATCH_JOB_PREP_DIR": prep_dir, "AZ_BATCH_JOB_PREP_WORKING_DIR": f"{prep_dir}/wd"}
    return variables


def scope(task: Task, run: int, number: int) -> str:
    """A name for one instance of one run, never reused."""
    return f"t{task.seq}-r{run}-i{number}"


def _run(world: World, job: JobEntry, task: Task, number: int, spec: Document) -> Run:
    entry = world.pool_of_node[task.instances[number].node]
    node = entry.nodes[task.instances[number].node]
    directory = task_directory(job.record, task)
    environment = {
        **_of_job(world, entry, node, job, spec, directory),
        "AZ_BATCH_TASK_ID": task.id,
        **applications.environment(world, _references(spec), node.root_inside),
    }
    if task.gang:
        environment |= gang_environment(world, task, number)
        environment["AZ_BATCH_TASK_SHARED_DIR"] = environment["AZ_BATCH_TASK_DIR"]
    logins = (job.record if task.manager else task).logins
    run = _command(world, entry, spec, scope(task, task.run, number), directory, environment, logins)
    return run._replace(packages=applications.packages(world, _references(spec)))


def settings(spec: Document) -> dict[str, str]:
    """The environment settings of the client."""
    return {setting["name"]: setting.get("value", "") for setting in spec.get("environmentSettings", [])}


def _node(world: World, entry: PoolEntry, node: Node) -> dict[str, str]:
    identity = {}
    if entry.record.spec.get("identity") and world.identity_authority:  # a node has no 169.254.169.254
        identity = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": world.identity_authority(entry.record.id)}
    return {
        "AZ_BATCH_ACCOUNT_NAME": world.account,
        "AZ_BATCH_ACCOUNT_URL": world.endpoint,
        "AZ_BATCH_POOL_ID": entry.record.id,
        "AZ_BATCH_NODE_ID": node.id,
        "AZ_BATCH_NODE_IS_DEDICATED": "true" if node.dedicated else "false",
        "AZ_BATCH_NODE_ROOT_DIR": node.root_inside,
        "AZ_BATCH_NODE_SHARED_DIR": f"{node.root_inside}/shared",
        "AZ_BATCH_NODE_STARTUP_DIR": f"{node.root_inside}/{START_DIRECTORY}",
        "AZ_BATCH_NODE_STARTUP_WORKING_DIR": f"{node.root_inside}/{START_DIRECTORY}/wd",
        "AZ_BATCH_NODE_MOUNTS_DIR": f"{node.root_inside}/fsmounts",
        **dict.fromkeys(RESERVED_DISK, RESERVED_BYTES),
        **identity,
        **applications.environment(world, _references(entry.record.spec), node.root_inside),
    }


def _references(spec: Document) -> list[Document]:
    return spec.get("applicationPackageReferences") or []


def _directories(node: Node, directory: str) -> dict[str, str]:
    root = f"{node.root_inside}/{directory}"
    return {"AZ_BATCH_TASK_DIR": root, "AZ_BATCH_TASK_WORKING_DIR": f"{root}/wd"}


def gang_environment(world: World, task: Task, number: int) -> dict[str, str]:
    """Variables of every instance of a multi-instance task. The service guarantees no order for AZ_BATCH_HOST_LIST;
    here the primary is last, so that no program relies on its position."""
    addresses, pairs = [], []
    for instance in task.instances:
        entry = world.pool_of_node[instance.node]
        addresses.append(entry.nodes[instance.node].address)
        pairs.append(f"{addresses[-1]} {world.size_of(entry.record.node_size).cores or 1}")
    primary_last = [*addresses[1:], addresses[0]]
    return {
        "AZ_BATCH_HOST_LIST": ",".join(primary_last),
        "AZ_BATCH_NODE_LIST": ";".join(primary_last),
        "AZ_BATCH_MASTER_NODE": f"{addresses[0]}:{MASTER_PORT}",
        "AZ_BATCH_IS_CURRENT_NODE_MASTER": "false" if number else "true",
        "CCP_NODES": " ".join([str(len(addresses)), *pairs]),
    }


def downloads(files: list[Document], endpoint: str) -> tuple[Download, ...]:
    """Resource files for the machine: single files, or the blobs of a container with a prefix."""
    return tuple(_download(file, endpoint) for file in files)


def _download(file: Document, endpoint: str) -> Download:
    path, mode = file.get("filePath", ""), file.get("fileMode", "0770")
    if url := file.get("httpUrl"):
        return Download(here(url, endpoint), path, mode)
    own_container = file.get("autoStorageContainerName", "")
    url, prefix = own_container or file["storageContainerUrl"], file.get("blobPrefix", "")
    return Download(url, path, mode, container=True, prefix=prefix, own=bool(own_container))


def uploads(files: list[Document]) -> tuple[Upload, ...]:
    """Output files for the machine."""
    return tuple(_upload(file, file["destination"]["container"]) for file in files)


def _upload(file: Document, container: Document) -> Upload:
    headers = tuple((header["name"], header.get("value", "")) for header in container.get("uploadHeaders", []))
    condition = file["uploadOptions"]["uploadCondition"]
    return Upload(file["filePattern"], container["containerUrl"], container.get("path", ""), condition, headers)


def _elevated(spec: Document, entry: PoolEntry) -> bool:
    """The automatic user, or the account of the pool that runs the command."""
    identity = spec.get("userIdentity", {})
    if name := identity.get("username"):
        accounts = entry.record.spec.get("userAccounts", [])
        return any(account["name"] == name and account["elevationLevel"] == "admin" for account in accounts)
    return bool(identity.get("autoUser", {}).get("elevationLevel") == "admin")


def here(url: str, endpoint: str) -> str:
    """The current link of a file that the emulator keeps; any other link is unchanged."""
    where = urlsplit(url)
    if not where.path.startswith(BLOB_STORE):
        return url
    now = urlsplit(endpoint)
    return where._replace(scheme=now.scheme, netloc=now.netloc).geturl()
