"""From a task's configuration to its request: its launch, its files, and its limits."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from batchtrain.config import task_resources, travel
from batchtrain.config.link_life import days_of
from batchtrain.config.task_paths import OURS
from batchtrain.config.task_results import settings_of
from batchtrain.config.travel import AnySource, LargeSource, Source
from batchtrain.config.types import FETCH_VARIABLE, FetchSettings, JobManager, JobPreparation, MultiInstance, Task
from batchtrain.errors import PlanError, Problem
from batchtrain.frameworks.base import Fabric, Shape, Variable
from batchtrain.launchers import apptainer, package_versions, plain, shell_functions, steps, sweep, variables
from batchtrain.launchers import preparation as placing
from batchtrain.launchers.launch import File, Implicit, Launch, Step, rendered
from batchtrain.launchers.preparation import Moved
from batchtrain.plan import (
    before_upload,
    checkpoint,
    command,
    container,
    exits,
    frameworks,
    inputs,
    outputs,
    payload,
    wire,
    wire_times,
)
from batchtrain.plan.frame import Frame, either
from batchtrain.plan.render import FILE_MARK
from batchtrain.plan.types import Built, Upload
from batchtrain.plan.volumes import binds

_FABRICS = {None: Fabric.ETHERNET, "sr-iov": Fabric.SR_IOV, "network-direct": Fabric.NETWORK_DIRECT}
INPUT = ".batchtrain-input"
"""The directory below the working directory for data whose destination is elsewhere on the node."""


def build(frame: Frame, task: Task, task_id: str, path: str) -> Built:
    """One task's request; `path` is its path in the configuration. Raises PlanError for what could never run."""
    where = f"{frame.job.id}/{task_id}"
    shape, by_nodes, warnings = _shape(frame, task, where, path)
    way = _way(frame, task, shape, where)
    launch = _launch(frame, task, way, where)
    carrier, uploads = (payload.Carrier(), ()) if way.bare else _carrier(frame, task, launch, where)
    ends = exits.conditions(
        either(task.exit_conditions, frame.job.exit_conditions), acting=frame.acting, filling=frame.filling
    )
    body, by_request = _request(
        frame, task, way, launch, carrier, wire.TaskCreate(id=task_id, command_line="", exit_conditions=ends)
    )
    functions = () if frame.windows or task.entrypoint else shell_functions.implicit(_shell_texts(task))
    implicit = (*by_nodes, *functions, *launch.implicit, *by_request)
    remarks = (
        *frameworks.one_node(task, shape, _read(_source(frame, task)), where, path),
        *frameworks.notes(task, shape, where, path),
    )
    return Built(
        body,
        _text(task, launch).replace(command.FROM_VARIABLE, shell_functions.loaded((task.command or "").strip())),
        tuple(item._replace(where=path) for item in implicit),
        (*warnings, *remarks),
        uploads,
    )


def _shell_texts(task: Task) -> tuple[str, ...]:
    """The texts of the user that shells of the task run."""
    gang = task.multi_instance
    before = (gang.pre_execution_command, gang.coordination_command) if gang else ()
    return tuple(filter(None, (task.command, *before)))


class _Way(NamedTuple):
    """How a task runs."""

    shape: Shape
    fetched: tuple[inputs.Fetched, ...]
    image: apptainer.Apptainer | None
    direct: bool
    """The service gets the command as the user wrote it."""
    bare: bool
    """No file of batchtrain travels with the task."""
    carried: bool = False
    """The command is in a variable, so that all tasks of a factory have the same files."""

    @property
    def moved(self) -> tuple[Moved, ...]:
        """The data that the launch moves to where it belongs."""
        return inputs.moves(self.fetched)


def _way(frame: Frame, task: Task, shape: Shape, where: str) -> _Way:
    """Raises PlanError for what needs Linux nodes on a pool of Windows nodes."""
    image = _apptainer(frame, task, shape)
    downloads = inputs.fetched(frame.recipe, task.input_data.azure_storage, INPUT)
    way = _Way(shape, downloads, image, direct=False, bare=False)
    brings = task.checkpoint is not None or sweep.wanted(task.command)
    if task.multi_instance or task.source or way.moved or image or brings:
        if frame.windows:
            raise PlanError(f"{where}: {_LINUX_ONLY}")
        alone = not (task.multi_instance or image or brings)
        return way._replace(carried=frame.swept and alone)
    text = task.command or ""
    has_entrypoint = task.entrypoint is not None
    direct = shape.container and (frame.windows or command.speaks_for_itself(text, entrypoint=has_entrypoint))
    bare = direct or frame.windows or command.fits(text)
    return way._replace(direct=direct, bare=bare or frame.swept, carried=frame.swept and not bare)


def _request(
    frame: Frame, task: Task, way: _Way, launch: Launch, carrier: payload.Carrier, begun: wire.TaskCreate
) -> tuple[wire.TaskCreate, tuple[Implicit, ...]]:
    """The whole request; `begun` has the id and the exit conditions."""
    gang, shape = task.multi_instance, way.shape
    identity, by_identity = _identity(frame, task)
    settings, by_container = container.settings(frame, task, shape) if shape.container else (None, ())
    nccl = _nccl(frame, task, shape)
    span = task.depends_on_range
    ranges = (wire.TaskIdRange(start=span[0], end=span[1]),) if span is not None else ()
    line, by_line = _command_line(frame, task, way, launch, carrier)
    body = msgspec.structs.replace(
        begun,
        command_line=line,
        display_name=task.display_name,
        container_settings=settings,
        resource_files=inputs.resource_files(task.resource_files)
        + tuple(file for blobs in way.fetched for file in blobs.files)
        + (() if gang else carrier.resource_files),
        output_files=outputs.outputs(frame.recipe, task.output_data.azure_storage)
        + outputs.left(frame.recipe, frame.facts.results, task, begun.id, len(frame.job.tasks)),
        environment_settings=inputs.environment(
            task.environment_variables,
            (_gpus_seen(frame, task) if shape.container else ())
            + tuple(wire.Environment(name=variable.name, value=variable.value) for variable in nccl)
            + by_line
            + carrier.environment
            + outputs.live(frame.recipe, frame.facts.results, task)
            + _fetched_later(task),
            vault_id=task.environment_variables_keyvault_secret_id,
        ),
        affinity_info=wire.Affinity(affinity_id=task.affinity_id) if task.affinity_id else None,
        constraints=constraints(task, either(task.retention_time, frame.job.retention_time)),
        required_slots=task.required_slots or (1 if gang else None),
        user_identity=identity,
        multi_instance_settings=_multi_instance(gang, shape, carrier) if gang else None,
        depends_on=wire.unless_empty(wire.Dependencies(task_ids=task.depends_on, task_id_ranges=ranges)),
        application_package_references=inputs.packages(task.application_packages),
    )
    slot = Implicit("required_slots", "1", "the nodes of a gang have one slot each", "gang-slot")
    by_gang = (slot,) if gang and task.required_slots is None else ()
    by_size = variables.implicit(nccl)
    return body, (*by_container, *_by_apptainer(frame, way.image, shape), *by_size, *by_identity, *by_gang)


_LINUX_ONLY = (
    "multi-instance tasks, `source`, `checkpoint`, `batchtrain_sweep`, Apptainer images and input data outside the"
    " working directory are for Linux nodes, and this pool's run Windows; use a Linux image, or `resource_files` and a"
    " command of your own"
)


# --- what is known of the nodes -------------------------------------------------------------------------------------


def _shape(frame: Frame, task: Task, where: str, path: str) -> tuple[Shape, tuple[Implicit, ...], tuple[Problem, ...]]:
    instances, warnings = _instances(frame, task, where, path)
    fabric, implicit = _fabric(frame, task)
    pool, size = frame.recipe.pool, frame.size
    shape = Shape(
        instances,
        fabric,
        task.docker_image is not None,
        replaces_nodes=pool is not None and pool.on_bad_node == "replace",
        explicit_fabric=either(task.infiniband, frame.job.infiniband) is not None,
    )
    if size is not None:
        gpus = task_resources.gpus(frame.job, task, size)
        shape = shape._replace(size=size.name, family=size.family, gpus=gpus, gpu_vendor=size.gpu_vendor)
        shape = shape._replace(hcas=size.hcas, port_gbps=size.port_gbps)
    return shape, implicit + _gpus(frame, task), warnings


def _instances(frame: Frame, task: Task, where: str, path: str) -> tuple[int, tuple[Problem, ...]]:
    """How many nodes; symbols are resolved from the pool file, or for `pool_current_*` from the living pool."""
    if task.multi_instance is None:
        return 1, ()
    symbol, pool = str(task.multi_instance.num_instances), frame.pool
    kind = task_resources.kind_of(symbol)
    if symbol.startswith("pool_current_") and pool is not None:
        now: int = getattr(pool, kind)
        if now == 0:
            raise PlanError(f"{where}: `{symbol}` is 0: pool {pool.id} has no {kind} nodes now")
        return _fitting(now, frame, where), ()
    count = task_resources.instances(symbol, frame.recipe.pool)
    if count is None:
        raise PlanError(f"{where}: `{symbol}` needs a pool.yaml, or a number instead")
    if count == 0:
        raise PlanError(f"{where}: `num_instances` is 0 ({symbol}); a multi-instance task needs a node")
    if not symbol.startswith("pool_current_") or frame.job.auto_pool is not None:
        return _fitting(count, frame, where), ()
    note = Problem(
        "offline-count",
        f"{where}: `{symbol}` is taken as the pool file's {count};"
        " the living pool's count is used when the job is added",
        path=f"{path}.multi_instance.num_instances",
        level="info",
    )
    return count, (note,)


def _fitting(count: int, frame: Frame, where: str) -> int:
    pool = frame.pool
    if pool is None:
        return count
    if not pool.inter_node:
        raise PlanError(f"{where}: pool {pool.id} has no inter-node communication; the task would wait for ever")
    if pool.slots > 1:
        raise PlanError(f"{where}: pool {pool.id} has {pool.slots} task slots a node; a multi-instance task needs 1")
    if count > pool.dedicated + pool.low_priority:
        raise PlanError(
            f"{where}: {count} instances need {count} nodes, pool {pool.id} has {pool.dedicated + pool.low_priority};"
            " the task would wait for ever"
        )
    return count


def _fabric(frame: Frame, task: Task) -> tuple[Fabric, tuple[Implicit, ...]]:
    """InfiniBand is implicit on an RDMA size with inter-node communication, and tcp on any other size. An explicit
    value wins; on an unknown size InfiniBand is that of all current sizes."""
    size = frame.size
    explicit = either(task.infiniband, frame.job.infiniband)
    if explicit is not None:
        return (_FABRICS[size.rdma if size else "sr-iov"] if explicit else Fabric.ETHERNET), ()
    if task.multi_instance is None:
        return Fabric.ETHERNET, ()
    if size is None:
        because = "the VM size is unknown"
        return Fabric.IMAGE, (Implicit("infiniband", "as the image says", because, "infiniband-by-size"),)
    if size.rdma is None or not frame.inter_node:
        because = f"{size.name} has none, so the gang uses tcp" if size.rdma is None else "no inter-node communication"
        return Fabric.ETHERNET, (Implicit("infiniband", "false", because, "infiniband-by-size"),)
    kind = "Network Direct" if size.rdma == "network-direct" else "SR-IOV"
    because = f"{size.name} has InfiniBand ({kind}) and the pool has inter-node communication"
    return _FABRICS[size.rdma], (Implicit("infiniband", "true", because, "infiniband-by-size"),)


def _gpus(frame: Frame, task: Task) -> tuple[Implicit, ...]:
    """The service gives a container all GPUs of its node; only fewer GPUs must be requested."""
    size = frame.size
    if size is None or not size.gpus or either(task.gpus, frame.job.gpus) is not None:
        return ()
    how = "the run options contain its devices" if size.gpu_vendor == "amd" else "the service adds them itself"
    because = f"{size.name} has {size.gpus} {size.gpu_model}" + (f"; {how}" if task.docker_image is not None else "")
    return (Implicit("gpus", "all", because, "gpus-by-size"),)


def _gpus_seen(frame: Frame, task: Task) -> tuple[wire.Environment, ...]:
    """The variables that select GPUs of a container; none if it uses all GPUs. NVIDIA Container Toolkit: `void` for
    none. ROCm: without the devices there is nothing to hide."""
    indices = task_resources.gpus_seen(task_resources.gpus_word(frame.job, task))
    if indices is None:
        return ()
    if frame.size is not None and frame.size.gpu_vendor == "amd":
        return (wire.Environment(name="ROCR_VISIBLE_DEVICES", value=",".join(indices)),) if indices else ()
    return (wire.Environment(name="NVIDIA_VISIBLE_DEVICES", value=",".join(indices) or "void"),)


def _nccl(frame: Frame, task: Task, shape: Shape) -> tuple[Variable, ...]:
    """The variables of a task for NCCL and the GPUs of its node, if no launch sets them."""
    if frame.windows or (task.multi_instance and task.multi_instance.launches):
        return ()
    names = (*frame.job.environment_variables, *task.environment_variables)
    in_image = shape.container or task.singularity_image is not None
    return variables.wanted(variables.without_launch(shape, in_image=in_image), names)


# --- what runs ------------------------------------------------------------------------------------------------------


def _apptainer(frame: Frame, task: Task, shape: Shape) -> apptainer.Apptainer | None:
    if task.singularity_image is None:
        return None
    size, gpus = frame.size, ""
    if size is not None and task_resources.gpus(frame.job, task, size):
        gpus = "--rocm" if size.gpu_vendor == "amd" else "--nv"
    mounts = binds(frame, task)
    return apptainer.Apptainer(
        task.singularity_image,
        task.singularity_execution.cmd,
        gpus,
        tuple(str(bind) for bind in mounts if bind.host),
        tuple(bind.inside for bind in mounts if not bind.host),
        task.additional_singularity_options,
        variables.TOPOLOGY_FOLDER if container.described_gpus(frame, task, shape) else "",
    )


def _by_apptainer(frame: Frame, image: apptainer.Apptainer | None, shape: Shape) -> tuple[Implicit, ...]:
    if image is None:
        return ()
    because = "the image sees the node's Batch directories at the same paths"
    implicits = [Implicit("apptainer", '--bind "$AZ_BATCH_NODE_ROOT_DIR"', because, "apptainer-mounts")]
    if image.gpus and frame.size is not None:
        implicits.append(Implicit("apptainer", image.gpus, f"{frame.size.name} has GPUs", "apptainer-gpus"))
    if image.descriptions and (topology := variables.topology(shape)):
        option = f"--bind {image.descriptions}"
        implicits.append(Implicit("apptainer", option, topology.because, topology.rule))
    return tuple(implicits)


def _launch(frame: Frame, task: Task, way: _Way, where: str) -> Launch:
    gang, source = task.multi_instance, _source(frame, task)
    links = payload.linked(file.name for file in source.files) if task.source else ""
    inside = apptainer.CALL if way.image else ""
    try:
        return rendered((
            Step(placing.moves(way.moved)),
            Step(links, everywhere=gang is not None),
            *((sweep.STEP,) if sweep.wanted(task.command) else ()),
            checkpoint.step(frame, task, way.shape, source),
            *(_alone(task, way) if gang is None else _gang(frame, task, gang, way)),
            *((Step(files=(apptainer.script(way.image),)),) if way.image else ()),
            before_upload.step(frame, task, way.shape),
            *((package_versions.step(task.command or "", inside),) if _lists_packages(task) else ()),
        ))  # fmt: skip
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from None


def _alone(task: Task, way: _Way) -> tuple[Step, ...]:
    text = command.FROM_VARIABLE if way.carried else (task.command or "").strip()
    recorded = (steps.RECORDED, steps.MEASURED) if task.source or task.checkpoint else ()
    return (*recorded, steps.passes_on(checkpoint.preemption(task)), plain.alone(frameworks.program(text, way.image)))


def _gang(frame: Frame, task: Task, gang: MultiInstance, way: _Way) -> tuple[Step, ...]:
    names = frozenset((*task.environment_variables, *frame.job.environment_variables))
    stop_when, collects = frame.job.stop_when, bool(frame.facts.results)
    launch = frameworks.launch(task, gang, way.shape, names, way.image, stop_when, collects=collects)
    return (steps.RECORDED, *launch)


def _source(frame: Frame, task: Task) -> AnySource:
    return frame.sources.get(task.source, Source()) if task.source else Source()


def _read(source: AnySource) -> tuple[File, ...]:
    """The files that were read for the plan; those in the archive of a large source are not."""
    return source.others if isinstance(source, LargeSource) else source.files


def _carrier(frame: Frame, task: Task, launch: Launch, where: str) -> tuple[payload.Carrier, tuple[Upload, ...]]:
    source = _source(frame, task)
    large = source if isinstance(source, LargeSource) else None
    files = _read(source)
    payload.refuse_reserved((file.name for file in (large.files if large else files)), where)
    ours = [File(f"{OURS}/launch.sh", launch.application.encode())]
    if task.multi_instance:
        ours.append(File(f"{OURS}/coordinate.sh", launch.coordination.encode()))
    archive = travel.archive((*files, *ours, *launch.files))
    directory = _storage_directory(frame, task, files, archive, where)
    carriers = []
    if large:
        refusal = f"{where}: the source `{task.source}` does not fit into a request. {travel.EXITS}"
        account = frame.recipe.settings.storage_account_settings if frame.facts.blob_store else None
        store = _container(frame, account) if account else _store(frame, refusal)
        path = f"{store}/{large.digest[:32]}.source.tar.gz"
        carriers.append(_linked(frame, task, Upload(path, large), payload.SOURCE))
    carriers.append(
        (payload.inside_request(archive, where), ())
        if directory is None
        else _linked(frame, task, Upload(f"{directory}/{payload.blob_name(archive)}", archive), payload.ARCHIVE)
    )
    return payload.joined(carrier for carrier, _ in carriers), tuple(
        part for _, uploads in carriers for part in uploads
    )


def _linked(frame: Frame, task: Task, upload: Upload, name: str) -> tuple[payload.Carrier, tuple[Upload, ...]]:
    days = days_of(frame.recipe, upload.path.partition("/")[0])
    url = wire.later("sas", f"{upload.path}?days={days}")
    return payload.through_storage(url, name, everywhere=task.multi_instance is not None), (upload,)


def _container(frame: Frame, link: str) -> str:
    return f"{link}/{frame.recipe.settings.storage_entity_prefix}-files"


def _storage_directory(frame: Frame, task: Task, files: tuple[File, ...], archive: bytes, where: str) -> str | None:
    """Where in storage the packed files go; None for inside the request. Raises PlanError if they fit in neither."""
    if frame.link is not None:
        return _container(frame, frame.link)
    too_large = travel.too_large(files) if len(archive) > travel.MOST_PACKED else ""
    if not too_large:
        return None
    return _store(frame, f"{where}: the source `{task.source}`: {too_large}")


def _store(frame: Frame, refusal: str) -> str:
    """Where files go that do not fit into a request. Raises PlanError with the refusal if nothing takes them."""
    if link := travel.link_of(frame.recipe):
        return _container(frame, link)
    if not frame.facts.blob_store:
        raise PlanError(refusal)
    return f"{frame.facts.blob_store}/{frame.job.id}"


_SHARED = 'export AZ_BATCH_TASK_SHARED_DIR="${AZ_BATCH_TASK_SHARED_DIR:-$AZ_BATCH_TASK_DIR}"'


def _command_line(
    frame: Frame, task: Task, way: _Way, launch: Launch, carrier: payload.Carrier
) -> tuple[str, tuple[wire.Environment, ...]]:
    if way.direct:
        return (task.command or "").strip(), ()
    if frame.windows:
        return command.carried(task.command or "ver", on_windows=True)
    line, by_line = command.in_variable(task.command or "") if way.carried else ("", ())
    if way.bare:
        return line or (command.bash(task.command) if task.command else ""), by_line
    run = f'/bin/bash "$AZ_BATCH_TASK_SHARED_DIR/{OURS}/launch.sh"'
    run = f"{launch.before}{run}{launch.after}" if launch.after else f"{launch.before}exec {run}"
    if task.multi_instance:
        return command.bash(carrier.forget, run), ()
    return command.bash("set -e -o pipefail", _SHARED, carrier.unpack, carrier.forget, run), by_line


def _lists_packages(task: Task) -> bool:
    """Whether the run records the package versions of the task: of a program that it sends, in the environment that the
    task begins with. A `pre_execution_command` may change that, and an image that is `run` has its own command."""
    prepared = task.multi_instance is not None and task.multi_instance.pre_execution_command
    own = task.singularity_image is not None and task.singularity_execution.cmd == "run"
    return task.source is not None and not prepared and not own


def _fetched_later(task: Task) -> tuple[wire.Environment, ...]:
    """What `jobs fetch` needs to know about the task where the recipe is not there: tasks have no metadata."""
    settings = settings_of(task)
    if settings == FetchSettings():
        return ()
    value = msgspec.json.encode(settings).decode()
    return (wire.Environment(name=FETCH_VARIABLE, value=value),)


def _multi_instance(gang: MultiInstance, shape: Shape, carrier: payload.Carrier) -> wire.MultiInstance:
    run = f'exec /bin/bash "$AZ_BATCH_TASK_SHARED_DIR/{OURS}/coordinate.sh"'
    return wire.MultiInstance(
        number_of_instances=shape.instances,
        coordination_command_line=command.bash("set -e -o pipefail", carrier.unpack, carrier.forget, run),
        common_resource_files=inputs.resource_files(gang.resource_files) + carrier.resource_files,
    )


def _text(task: Task, launch: Launch) -> str:
    if not task.multi_instance and not launch.files:
        return launch.application
    parts = [launch.application]
    if task.multi_instance:
        parts.insert(0, f"# ---- every instance: the coordination command\n{launch.coordination}".rstrip("\n"))
        parts.insert(1, "# ---- the primary: the application command")
    for file in launch.files:
        parts += [f"{FILE_MARK}{file.name.removeprefix('.batchtrain/')}", file.data.decode()]
    return "\n".join(part.rstrip("\n") for part in parts) + "\n"


def _identity(frame: Frame, task: Task) -> tuple[wire.UserIdentity, tuple[Implicit, ...]]:
    """The user's choice; by default the pool's automatic user, who is an administrator in a container."""
    identity, is_admin = either(task.user_identity, frame.job.user_identity), task.docker_image is not None
    is_elevated = task.singularity_image is not None and task.singularity_execution.elevated
    if is_elevated and container.user_of(identity) is None:
        return wire.POOL_ADMIN, ()
    on_host = "no command on the host needs more; the user owns the key"
    because = "a container runs as root, which its sshd needs" if is_admin else on_host
    return container.identity_or_default(identity, because, is_admin=is_admin)


def constraints(task: Task | JobManager | JobPreparation, retention: str | None) -> wire.TaskConstraints | None:
    """The limits of a task; None without any. Only tasks have a retention time, so a task takes that of its job; the
    service applies the job's other limits."""
    body = wire.TaskConstraints(
        max_wall_clock_time=wire_times.optional_duration(task.max_wall_time),
        retention_time=wire_times.optional_duration(retention),
        max_task_retry_count=task.max_task_retries,
    )
    return wire.unless_empty(body)
