"""From a task's `multi_instance` block to the launch it asks for: one launcher each, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from batchtrain.config import schema
from batchtrain.config.types import MultiInstance, StopWhen, Task
from batchtrain.errors import PlanError, Problem
from batchtrain.frameworks import plugins
from batchtrain.frameworks.base import Fabric, Nodes, Shape
from batchtrain.frameworks.mpi import MpiBlock, runs_cntk
from batchtrain.launchers import apptainer, mpi, node_launcher, plain, shell_functions, variables
from batchtrain.launchers.launch import File, MpiLaunch, Setup, Step
from batchtrain.plan import checkpoint


def launch(
    task: Task,
    gang: MultiInstance,
    shape: Shape,
    variable_names: frozenset[str],
    image: apptainer.Apptainer | None,
    stop_when: StopWhen | None = None,
    *,
    collects: bool = False,
) -> tuple[Step, ...]:
    """The steps of a multi-instance task. variable_names: names of the variables that the task or its job sets.
    stop_when: when a gang that stands still ends. collects: the files of other nodes are kept on the primary, too.

    Raises PlanError for two blocks at once, for a faulty framework of another package, and for what a launcher refuses.
    """
    command = (task.command or "").strip()
    try:
        for name, settings in gang.framework.items():
            plugins.block(name, settings)
    except plugins.UnusableFramework as error:
        raise PlanError(str(error)) from None
    if len(gang.launches) > 1:
        names = " and ".join(f"`{name}`" for name, _ in gang.launches)
        raise PlanError(f"multi_instance has {names}; a command is launched in one way: keep one of them")
    setup = Setup(
        gang.pre_execution_command and shell_functions.loaded(gang.pre_execution_command),
        gang.coordination_command and shell_functions.loaded(gang.coordination_command),
        preflight=gang.preflight,
        rank_logs=gang.rank_logs,
        inside=apptainer.CALL if image else "",
        own=variable_names,
        collects=collects,
        stop_when=stop_when.limits if stop_when else {},
        preemption=checkpoint.preemption(task),
    )
    words = shell_functions.as_words(command)
    for _, block in gang.launches:
        if isinstance(block, MpiBlock):
            is_cntk = runs_cntk(task.command or "", task.docker_image or task.singularity_image or "")
            return mpi.launch(MpiLaunch(block, setup, misses_mpi4py=not is_cntk), words, shape)
        return node_launcher.launch(block, setup, words, shape)
    return plain.launch(program(command, image), shape, setup)


def program(command: str, image: apptainer.Apptainer | None) -> str:
    """A command that no launcher starts: inside its image, or after the shell functions that it calls."""
    return apptainer.around(shell_functions.as_words(command), image) if image else shell_functions.loaded(command)


_EVERYTHING = (
    Shape(2, Fabric.SR_IOV, size="any", family="ND A100 v4", gpus=8, gpu_vendor="nvidia"),
    Shape(2, size="any", family=variables.GRAPH_FAMILY, gpus=1, gpu_vendor="nvidia"),
)
"""Nodes on which every variable is set that there is for GPUs, with InfiniBand and without."""


def notes(task: Task, shape: Shape, where: str, path: str) -> tuple[Problem, ...]:
    """Warnings of a framework's block: a name in `leave_unset` that nothing sets, InfiniBand that nothing uses."""
    if (gang := task.multi_instance) is None:
        return ()
    problems = [
        Problem(
            rule, f"{where}: {text}", path=".".join((path, "multi_instance", *gang.path(name))) + key, level="warning"
        )
        for name, block in gang.launches
        if isinstance(block, Nodes)
        for rule, key, text in (*_left_in_vain(block, task, shape.instances), *_left_idle(block, shape))
    ]
    return tuple(problems)


def _left_in_vain(block: Nodes, task: Task, instances: int) -> Iterator[tuple[str, str, str]]:
    if not block.leave_unset or task.multi_instance is None:
        return
    all_set = msgspec.structs.replace(block, leave_unset=())
    gang = task.multi_instance
    setup = Setup(gang.pre_execution_command, gang.coordination_command)
    command, shapes = (task.command or "").strip(), (shape._replace(instances=instances) for shape in _EVERYTHING)
    launches = (node_launcher.launch(all_set, setup, command, shape) for shape in shapes)
    implicit = (item for full_launch in launches for step in full_launch for item in step.implicit)
    words = (what for item in implicit for what in item.what.split(", "))
    names = tuple(dict.fromkeys(what for what in words if re.fullmatch(r"[A-Z]\w+", what)))
    for name in block.leave_unset:
        if name not in names and not name.startswith("BATCHTRAIN_"):
            near = schema.nearest(name, names)[0]
            meant = f"did you mean `{near}`?" if near else "`config explain` lists those that it sets"
            yield "leave-unset", ".leave_unset", f"`leave_unset` has `{name}`, which this launch never sets; {meant}"


def _left_idle(block: Nodes, shape: Shape) -> Iterator[tuple[str, str, str]]:
    """Without NCCL between GPUs a framework talks over tcp, and the pool's InfiniBand is idle unless an interface of it
    is named."""
    if shape.fabric is not Fabric.SR_IOV or shape.instances < 2 or block.interface is not None:
        return
    if block.ucx or (shape.gpus and block.nccl):
        return
    why = f", which `{block.name}` does not use between nodes: it" if shape.gpus else f" and no GPUs, so `{block.name}`"
    other = f" {block.idle_fabric}," if block.idle_fabric else ""
    yield (
        "infiniband-idle",
        "",
        f"{shape.size or 'this size'} has InfiniBand{why} talks tcp over the"
        " Ethernet; write `interface: ib0` (IP over InfiniBand; the name as `ip -o -4 addr` of a node has it),"
        f"{other} or `infiniband: false` where the Ethernet is meant",
    )


_ONE_NODE = (
    (rb"\bDataParallel\s*\(", rb"DistributedDataParallel|FullyShardedDataParallel|fully_shard", "DataParallel",
     "DistributedDataParallel"),
    (rb"\bMirroredStrategy\s*\(", rb"MultiWorkerMirroredStrategy|ParameterServerStrategy", "MirroredStrategy",
     "MultiWorkerMirroredStrategy"),
)  # fmt: skip
"""What a program calls for the GPUs of one node, what it would also have for several, and both names."""


def one_node(task: Task, shape: Shape, files: Iterable[File], where: str, path: str) -> tuple[Problem, ...]:
    """A warning for a program of the task's own files that trains on one node alone, in a task of several."""
    if task.multi_instance is None or shape.instances < 2:
        return ()
    names = {file.name.rpartition("/")[2] for file in files}
    words = re.finditer(r"\S+", task.command or "")
    run = names.intersection(word[0].strip("\"'").rpartition("/")[2] for word in words)
    return tuple(
        Problem(
            "one-node-strategy",
            f"{where}: `{file.name}` uses {name}, which is for the GPUs of one node, so each of the {shape.instances}"
            f" nodes would train alone; use {instead}, or an ordinary task on one node",
            path=f"{path}.command",
            level="warning",
        )
        for file in files
        if file.name.rpartition("/")[2] in run
        for pattern, several, name, instead in _ONE_NODE
        if re.search(pattern, file.data) and not re.search(several, file.data)
    )
