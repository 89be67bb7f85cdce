"""From a task's `multi_instance` block to the launch it asks for: one launcher each, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from batchtrain.config import schema, types
from batchtrain.config.types import MultiInstance, Task
from batchtrain.errors import PlanError, Problem
from batchtrain.launchers import apptainer, cntk, deepspeed, horovod, jax, mpi, mxnet, plain, pytorch, tensorflow
from batchtrain.launchers.types import (
    DeepSpeed,
    Fabric,
    File,
    Horovod,
    Jax,
    Launch,
    Mpi,
    Mxnet,
    Nodes,
    PyTorch,
    Shape,
    TensorFlow,
)


def launch(
    task: Task, gang: MultiInstance, shape: Shape, own: frozenset[str], image: apptainer.Apptainer | None
) -> Launch:
    """The launch of a multi-instance task. own: names of the variables that the task or its job sets.

    Raises PlanError for two blocks at once, and for what a launcher refuses.
    """
    command = (task.command or "").strip()
    if len(gang.launches) > 1:
        names = " and ".join(f"`{name}`" for name, _ in gang.launches)
        raise PlanError(f"multi_instance has {names}; a command is launched in one way: take one of them")
    for _, block in gang.launches:
        inside = apptainer.CALL if image else ""
        match block:
            case types.MpiBlock():
                return mpi.launch(_mpi(block, task, gang, own, inside), command, shape)
            case types.Nodes():
                return _by_nodes(block, _nodes(block, gang, own, inside), command, shape)
    return plain.launch(
        apptainer.around(command, image) if image else command,
        shape,
        pre_execution_command=gang.pre_execution_command,
        coordination_command=gang.coordination_command,
    )


def _mpi(block: types.MpiBlock, task: Task, gang: MultiInstance, own: frozenset[str], inside: str) -> Mpi:
    return Mpi(
        runtime=block.runtime,
        executable_path=block.executable_path,
        options=block.options,
        processes_per_node=block.processes_per_node,
        pre_execution_command=gang.pre_execution_command,
        coordination_command=gang.coordination_command,
        preflight=gang.preflight,
        inside=inside,
        own=own,
        cntk=cntk.is_cntk(task.command or "", task.docker_image or task.singularity_image or ""),
    )


def _nodes(block: types.Nodes, gang: MultiInstance, own: frozenset[str], inside: str) -> Nodes:
    return Nodes(
        processes_per_node=block.processes_per_node,
        processes=block.processes,
        binding=block.binding,
        interface=block.interface,
        port=block.port,
        barrier_seconds=block.barrier_seconds,
        grace_seconds=block.grace_seconds,
        leave_unset=block.leave_unset,
        own=own,
        pre_execution_command=gang.pre_execution_command,
        coordination_command=gang.coordination_command,
        preflight=gang.preflight,
        inside=inside,
    )


def _by_nodes(block: types.Nodes, nodes: Nodes, command: str, shape: Shape) -> Launch:
    match block:
        case types.PyTorchBlock():
            return pytorch.launch(
                PyTorch(
                    nodes, block.launcher, block.rendezvous, block.max_restarts, block.min_instances, block.backend
                ),
                command,
                shape,
            )
        case types.DeepSpeedBlock():
            return deepspeed.launch(DeepSpeed(nodes, block.backend, block.accelerator), command, shape)
        case types.TensorFlowBlock():
            return tensorflow.launch(
                TensorFlow(nodes, block.mode, block.parameter_servers, block.chief_name, block.evaluator),
                command,
                shape,
            )
        case types.MxnetBlock():
            return mxnet.launch(
                Mxnet(nodes, block.servers, block.server_command, block.rendezvous, block.verbose), command, shape
            )
        case types.HorovodBlock():
            return horovod.launch(
                Horovod(nodes, block.over, block.runtime, block.executable_path, block.options), command, shape
            )
        case _:
            return jax.launch(Jax(nodes), command, shape)


# --- what a block says in vain --------------------------------------------------------------------------------------

_EVERYTHING = Shape(2, Fabric.SR_IOV, size="any", family="ND A100 v4", gpus=8, gpu_vendor="nvidia")
"""A node on which every variable is set that there is for GPUs and InfiniBand."""


def notes(task: Task, shape: Shape, where: str, place: str) -> tuple[Problem, ...]:
    """Warnings of a framework's block: a name in `leave_unset` that nothing sets, InfiniBand that nothing uses."""
    launches = task.multi_instance.launches if task.multi_instance else ()
    found = [
        Problem(rule, f"{where}: {text}", path=f"{place}.multi_instance.{name}{key}", level="warning")
        for name, block in launches
        if isinstance(block, types.Nodes)
        for rule, key, text in (*_left_in_vain(block, task, shape.instances), *_left_idle(name, block, shape))
    ]
    return tuple(found)


def _left_in_vain(block: types.Nodes, task: Task, instances: int) -> Iterator[tuple[str, str, str]]:
    if not block.leave_unset or task.multi_instance is None:
        return
    plain = _nodes(block, task.multi_instance, frozenset(), "")._replace(leave_unset=())
    made = _by_nodes(block, plain, (task.command or "").strip(), _EVERYTHING._replace(instances=instances))
    told = (what for item in made.implicit for what in item.what.split(", "))
    known = tuple(dict.fromkeys(what for what in told if re.fullmatch(r"[A-Z]\w+", what)))
    for name in block.leave_unset:
        if name not in known and not name.startswith("BATCHTRAIN_"):
            near = schema.nearest(name, known)[0]
            meant = f"did you mean `{near}`?" if near else "`config explain` lists those that it sets"
            yield "leave-unset", ".leave_unset", f"`leave_unset` has `{name}`, which this launch never sets; {meant}"


def _left_idle(name: str, block: types.Nodes, shape: Shape) -> Iterator[tuple[str, str, str]]:
    """Without GPUs a framework talks over tcp, and the pool's InfiniBand is idle unless an interface of it is named."""
    if shape.fabric is not Fabric.SR_IOV or shape.gpus or shape.instances < 2 or block.interface is not None:
        return
    if (isinstance(block, types.HorovodBlock) and block.over == "mpi") or _backend(block) in ("mpi", "ucc"):
        return
    yield (
        "infiniband-idle",
        "",
        f"{shape.size or 'this size'} has InfiniBand and no GPUs, without which `{name}` talks tcp over the Ethernet;"
        " write `interface: ib0` (IP over InfiniBand; the name as `ip -o -4 addr` of a node has it),"
        f"{_OTHER.get(name, '')} or `infiniband: false` where the Ethernet is meant",
    )


_OTHER = {
    "pytorch": " `backend: mpi` with a PyTorch that was built for it,",
    "horovod": " `over: mpi`,",
}


def _backend(block: types.Nodes) -> str:
    return block.backend if isinstance(block, types.PyTorchBlock | types.DeepSpeedBlock) else ""


# --- what the task's own program says -------------------------------------------------------------------------------

_ONE_NODE = (
    (rb"\bDataParallel\s*\(", rb"DistributedDataParallel|FullyShardedDataParallel|fully_shard", "DataParallel",
     "DistributedDataParallel"),
    (rb"\bMirroredStrategy\s*\(", rb"MultiWorkerMirroredStrategy|ParameterServerStrategy", "MirroredStrategy",
     "MultiWorkerMirroredStrategy"),
)  # fmt: skip
"""What a program calls for the GPUs of one node, what it would also have for several, and both names."""


def one_node(task: Task, shape: Shape, files: Iterable[File], where: str, place: str) -> tuple[Problem, ...]:
    """A warning for a program of the task's own files that trains on one node alone, in a task of several."""
    if task.multi_instance is None or shape.instances < 2:
        return ()
    run = {word.strip("\"'").rpartition("/")[2] for word in (task.command or "").split()}
    return tuple(
        Problem(
            "one-node-strategy",
            f"{where}: `{file.name}` uses {name}, which is for the GPUs of one node, so each of the {shape.instances}"
            f" nodes would train alone; use {instead}, or an ordinary task on one node",
            path=f"{place}.command",
            level="warning",
        )
        for file in files
        if file.name.rpartition("/")[2] in run
        for pattern, several, name, instead in _ONE_NODE
        if re.search(pattern, file.data) and not re.search(several, file.data)
    )
