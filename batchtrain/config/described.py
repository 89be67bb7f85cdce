"""A job described in Python: `command(...)` makes the Recipe that YAML files would, also in Azure ML's words."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from batchtrain.config import catalog_file, saving, schema, user_settings, yaml_text
from batchtrain.config.load import examine
from batchtrain.config.override import seconds
from batchtrain.config.types import (
    Job,
    MultiInstance,
    PlatformImage,
    Pool,
    Recipe,
    Task,
    TaskFactory,
    VmConfiguration,
    VmCount,
    span_of,
)
from batchtrain.config.user_settings import is_for_emulator
from batchtrain.errors import ConfigError, Problem, UsageError
from batchtrain.frameworks.base import Nodes
from batchtrain.frameworks.block import misspelt
from batchtrain.frameworks.mpi import MpiBlock
from batchtrain.frameworks.pytorch import PyTorchBlock
from batchtrain.frameworks.tensorflow import TensorFlowBlock

P = ParamSpec("P")
R = TypeVar("R")

VM_SIZE = "STANDARD_D4DS_V5"
"""The size of a new pool if `compute` and `instance_type` name none: 4 cores, no GPU."""
IMAGE = PlatformImage(publisher="microsoft-dsvm", offer="ubuntu-hpc", sku="2404")
"""The VM image of a new pool."""
CURATED = "mcr.microsoft.com/azureml/curated"
"""Where the images of Azure ML's curated environments are."""

_SIZE = re.compile(r"(?i)(standard|basic)_\w+")
_INPUT = re.compile(r"\$\{\{\s*(\w+)\.(\w+)\s*\}\}")
_CURATED = re.compile(r"AzureML-(?P<name>[^@:]+)(?:@latest|:(?P<version>[^@:]+))?")
_REGISTERED = re.compile(
    r"azureml://registries/azureml/environments/(?P<name>[^/]+)/(?:versions/(?P<version>[^/]+)|.*)"
)
_ELSEWHERE = {
    "outputs": "a command writes below $AZ_BATCH_TASK_WORKING_DIR; `output_data` of the saved jobs.yaml uploads it",
    "services": "`batchtrain pool ssh` and `batchtrain pool forward` reach a node",
    "identity": "`identities` of the pool gives nodes a managed identity",
    "locations": "the account has one location",
}
"""Keywords of Azure ML's `command` without a counterpart, and what to do instead."""


def suggesting(function: Callable[P, R]) -> Callable[P, R]:
    """Suggests the nearest keyword for a misspelt one."""
    keywords = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **given: P.kwargs) -> R:
        for name in given:
            if name in _ELSEWHERE and name not in keywords:
                raise TypeError(f"{function.__name__} has no keyword `{name}`: {_ELSEWHERE[name]}")
            if name not in keywords:
                raise TypeError(misspelt(function.__name__, name, keywords))
        return function(*args, **given)

    return checked


Sweep = Mapping[str, Iterable[str | float]] | Iterable[Mapping[str, str | float]]
"""The values of each parameter, for a task for each combination, or the parameters of each task."""


@suggesting
def command(
    command: str,
    *,
    image: str | None = None,
    instances: int | None = None,
    distribution: MpiBlock | Nodes | None = None,
    source: str | Path | None = None,
    inputs: Mapping[str, object] | None = None,
    sweep: Sweep | None = None,
    compute: str | Pool | None = None,
    environment_variables: Mapping[str, str] | None = None,
    name: str | None = None,
    code: str | Path | None = None,
    environment: str | Mapping[str, str] | None = None,
    instance_count: int | None = None,
    instance_type: str | None = None,
    shm_size: str | None = None,
    timeout: float | str | None = None,
    display_name: str | None = None,
    description: str | None = None,
    experiment_name: str | None = None,
    tags: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
    local: bool | None = None,
) -> Recipe:
    """A recipe with one job: one task, or those of a sweep. `client.run(recipe)` runs it, and `recipe.save(DIR)` writes
    it as YAML files.

    command: the command to run; once, or once per process of the distribution. `${{inputs.NAME}}` is replaced.
    image: the container image. Without one, the command runs on the nodes themselves.
    instances: number of nodes, by default 1.
    distribution: how the command is launched on the nodes: Mpi, PyTorch, TensorFlow, Horovod, DeepSpeed, Accelerate,
        Jax, Mxnet or Ray.
    source: a directory of this machine that is copied to every node. The command starts among its files.
    inputs: values for the command; each is also the environment variable AZURE_ML_INPUT_NAME.
    sweep: {"lr": [0.1, 0.01]} makes a task for each combination of values, [{"lr": 0.1}, ...] for each set of them. In
        the command `{lr}` stands for the value, and braces of the shell are written twice.
    compute: a VM size (STANDARD_ND96ISR_H100_V5), the id of a pool, or a Pool. The pool is created when the job runs.
    environment_variables: variables of every process.
    name: the id of the job, by default from `display_name`, otherwise `command`.
    shm_size: shared memory of the container, such as 8g. timeout: time limit in seconds, or a text such as 2h.
    ignore: names of checks to silence. local: for the emulator (or BATCHTRAIN_LOCAL=1), with a `source` of any size.

    The words of Azure ML's guide: `code` is `source`; `instance_count` is `instances`; `environment` is `image`, also
    the name of a curated environment, or a mapping of environment variables; `instance_type` is the VM size of a pool
    that `compute` names; `description`, `experiment_name` and `tags` are stored with the job.
    Raises TypeError for an unknown keyword and ConfigError, with every problem, for what could not run.
    """
    longest = seconds("timeout", timeout)
    variables = environment if isinstance(environment, Mapping) else {}
    picture = _one_of("image", image, "environment", environment if isinstance(environment, str) else None)
    count = 1 if (number := _one_of("instances", instances, "instance_count", instance_count)) is None else number
    input_texts = {key: _input(key, value) for key, value in (inputs or {}).items()}
    task = Task(
        id="task",
        command=_filled(command, input_texts),
        docker_image=_image(picture) if picture else None,
        source=str(_one_of("source", source, "code", code) or "") or None,
        task_factory=factory_of(sweep) if sweep is not None else None,
        multi_instance=_gang(count, distribution),
        environment_variables={
            **{f"AZURE_ML_INPUT_{key}": value for key, value in input_texts.items()},
            **variables,
            **(environment_variables or {}),
        },
        shm_size=shm_size,
    )
    notes = {"description": description, "experiment_name": experiment_name}
    job = Job(
        id=name or re.sub(r"[^A-Za-z0-9_-]+", "-", display_name or "command")[:64],
        display_name=display_name,
        auto_complete=True,
        metadata={**{key: value for key, value in notes.items() if value}, **(tags or {})},
        max_wall_time=span_of(longest) if longest is not None else None,
        tasks=(task,),
    )
    recipe = Recipe(directory=str(Path.cwd()), pool=new_pool(compute, instance_type, job, count), jobs=(job,))
    return valid(recipe, "command", ignore=ignore, remarks=_default_size(compute, instance_type), local=local)


def _one_of(ours: str, first: R | None, theirs: str, other: R | None) -> R | None:
    """The value of two keywords for the same thing."""
    if first is not None and other is not None and first != other:
        raise UsageError(f"command: `{ours}` and `{theirs}` are the same setting; give one of them")
    return other if first is None else first


# --- the command ----------------------------------------------------------------------------------------------------


def _input(name: str, value: object) -> str:
    if isinstance(value, (str, int, float, Path)):
        return str(value)
    raise UsageError(
        f"command: inputs[{name!r}] is a {type(value).__name__}; give a text or a number, and bring data to the nodes"
        " by `source`, or by `input_data` and volumes in the files of `recipe.save(DIR)`"
    )


def _filled(text: str, inputs: Mapping[str, str]) -> str:
    """The command with its inputs."""

    def value(match: re.Match[str]) -> str:
        if match[1] == "inputs" and match[2] in inputs:
            return inputs[match[2]]
        hint = schema.did_you_mean(match[2], tuple(inputs)) if match[1] == "inputs" else "Only `inputs` are known."
        raise UsageError(f"command: `{match[0]}` has no value. {hint or 'Add it to `inputs`.'}")

    return _INPUT.sub(value, text)


def factory_of(sweep: Sweep) -> TaskFactory:
    """The factory of the tasks of a sweep. Raises UsageError for a parameter without a list of values."""
    if isinstance(sweep, Mapping):
        for name, values in sweep.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise UsageError(f"sweep[{name!r}] is {values!r}; give a list of values")
        return TaskFactory(grid={name: tuple(values) for name, values in sweep.items()})
    return TaskFactory(list=tuple(map(dict, sweep)))


def _image(name: str) -> str:
    """The container image of a curated environment of Azure ML; any other name is an image already."""
    match = _CURATED.fullmatch(name) or _REGISTERED.fullmatch(name)
    return f"{CURATED}/{match['name'].lower()}:{match['version'] or 'latest'}" if match else name


def _gang(instances: int, distribution: MpiBlock | Nodes | None) -> MultiInstance | None:
    if instances < 1:
        raise UsageError(f"command: `instances` is {instances}; give 1 node or more")
    if distribution is None:
        return MultiInstance(num_instances=instances) if instances > 1 else None
    return new_gang(instances, distribution)


def new_gang(instances: int | str, distribution: MpiBlock | Nodes) -> MultiInstance:
    """The block that launches a command on several nodes."""
    gang = MultiInstance(num_instances=instances)
    name = "mpi" if isinstance(distribution, MpiBlock) else distribution.name
    if name in gang.__struct_fields__:
        return msgspec.structs.replace(gang, **{name: distribution})
    return msgspec.structs.replace(gang, framework={name: yaml_text.data_of(distribution)})


# --- the pool -------------------------------------------------------------------------------------------------------


def new_pool(compute: str | Pool | None, size: str | None, job: Job, instances: int) -> Pool:
    """The pool for a job of one task. compute: a VM size, or the id of a pool with nodes of a size."""
    if isinstance(compute, Pool):
        return compute
    named = compute is not None and not _SIZE.fullmatch(compute)
    (task,) = job.tasks
    image = msgspec.structs.replace(IMAGE, native=task.docker_image is not None)
    return Pool(
        id=str(compute) if named else job.id,
        vm_size=size or (VM_SIZE if named or compute is None else str(compute)),
        vm_count=VmCount(dedicated=instances),
        vm_configuration=VmConfiguration(platform_image=image),
        inter_node_communication_enabled=task.multi_instance is not None,
    )


def _default_size(compute: str | Pool | None, size: str | None) -> Iterator[Problem]:
    """Warns that the pool may exist with another size."""
    if isinstance(compute, str) and not _SIZE.fullmatch(compute) and size is None:
        text = f"the size of the pool `{compute}` is not given, so a new one has {VM_SIZE}; give `instance_type`"
        yield Problem("default-size", text, "command", level="warning")


def valid(
    recipe: Recipe,
    origin: str,
    *,
    files: Mapping[str, bytes] | None = None,
    settings: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
    remarks: Iterable[Problem] = (),
    local: bool | None = None,
) -> Recipe:
    """A recipe that was made in Python, as it is loaded from its own files. Raises ConfigError with every problem.

    origin: what the problems are about. files: further files, with the credentials. settings: values that override, by
    path. remarks: further problems.
    """
    silent = tuple(ignore)
    images = dict.fromkeys(task.docker_image for job in recipe.jobs for task in job.tasks if task.docker_image)
    folder = Path(recipe.directory)
    resources = msgspec.structs.replace(recipe.resources, docker_images=tuple(images))
    written = msgspec.structs.replace(recipe, resources=resources)
    texts = {f"{name}.yaml": saving.rendered(block).encode() for name, block in written.files.items()}
    examined = examine(
        folder, {**texts, **(files or {})}, settings=settings, ignore=silent, catalog=catalog_file.load(folder),
        local=is_for_emulator(local), registry=user_settings.load().registry,
    )  # fmt: skip
    remarks = tuple(remark for remark in remarks if remark.rule not in silent)
    problems = (*(_without_line(problem, origin, texts) for problem in examined.problems), *remarks)
    if any(problem.level == "error" for problem in problems):
        raise ConfigError(problems)
    return msgspec.structs.replace(examined.recipe, warnings=problems)


def _without_line(problem: Problem, origin: str, texts: Collection[str]) -> Problem:
    """Removes the lines of problems, because the files do not exist; the path gives the position."""
    if problem.file not in texts:
        return problem
    return problem._replace(file=origin, line=0, column=0, end_line=0, end_column=0, source="", fix="")


# --- how it is launched ---------------------------------------------------------------------------------------------


@suggesting
def Mpi(
    *,
    processes_per_node: int | str | None = None,
    runtime: str = "openmpi",
    executable_path: str = "mpirun",
    options: Iterable[str] = (),
    allow_singletons: bool = False,
) -> MpiBlock:
    """Launch the command with the MPI of the image.

    processes_per_node: ranks per node: a number, `auto` (one per GPU, or one), or a shell command. Default: 1.
    runtime: the MPI implementation, as in jobs.yaml. executable_path: the launcher. options: its options.
    allow_singletons: each rank may be rank 0 of 1.
    """
    return MpiBlock(
        runtime=runtime,
        executable_path=executable_path,
        options=tuple(options),
        processes_per_node=processes_per_node,
        allow_singletons=allow_singletons,
    )


@suggesting
def MpiDistribution(*, process_count_per_instance: int = 1) -> MpiBlock:
    """Azure ML's name for Mpi: Open MPI with a number of ranks on each node."""
    return Mpi(processes_per_node=process_count_per_instance)


@suggesting
def PyTorchDistribution(*, process_count_per_instance: int = 1) -> PyTorchBlock:
    """Azure ML's name for PyTorch: a number of processes on each node, with MASTER_ADDR, RANK and WORLD_SIZE."""
    return PyTorchBlock(processes_per_node=process_count_per_instance)


@suggesting
def TensorFlowDistribution(*, worker_count: int | None = None, parameter_server_count: int = 0) -> TensorFlowBlock:
    """Azure ML's name for TensorFlow: TF_CONFIG with a number of workers (default: one per node) and of parameter
    servers.

    With parameter servers, a chief on the primary leads (ParameterServerStrategy).
    """
    if parameter_server_count:
        return TensorFlowBlock(
            mode="parameter_server", processes=worker_count, parameter_servers=parameter_server_count
        )
    return TensorFlowBlock(processes=worker_count)
