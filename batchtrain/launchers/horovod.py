"""Horovod: over gloo by the node launcher, over an MPI by that MPI's launch.

Source: Horovod, Horovod with MPI; runner/gloo_run.py (the variables of a slot); measured with Horovod 0.28.1.
"""

from __future__ import annotations

from batchtrain.launchers import mpi, nodes, pytorch
from batchtrain.launchers.environment import Variable
from batchtrain.launchers.nodes import Framework, Role
from batchtrain.launchers.types import Horovod, Implicit, Launch, Mpi, Shape

_RULE = "framework-environment"
_TOLD = (
    Variable("HOROVOD_CONTROLLER", "gloo", "the build may have MPI as well", _RULE),
    Variable("HOROVOD_CPU_OPERATIONS", "gloo", "the build may have MPI as well", _RULE),
    Variable("HOROVOD_GLOO_RENDEZVOUS_ADDR", "the primary's address", "the node launcher answers there", _RULE),
    Variable("HOROVOD_GLOO_RENDEZVOUS_PORT", "a free port of the primary", "the node launcher answers there", _RULE),
    Variable("HOROVOD_RANK, HOROVOD_SIZE", "of all nodes", "each process has its own", _RULE),
    Variable("HOROVOD_LOCAL_RANK, HOROVOD_LOCAL_SIZE", "of the node", "the GPU the program takes", _RULE),
    Variable("HOROVOD_CROSS_RANK, HOROVOD_CROSS_SIZE", "the same local rank of all nodes",
             "hierarchical operations go between them", _RULE),
    Variable("HOROVOD_GLOO_IFACE", pytorch.INTERFACE, "gloo would take the one the host name leads to", _RULE),
    Variable("HOROVOD_HOSTNAME", "the node's address", "processes of one node share memory", _RULE),
)  # fmt: skip
_OVER_MPI = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
_UNBOUND = {"openmpi": ("--bind-to none",), "mpich": ("-bind-to none",), "mvapich": ("-bind-to none",)}
"""A process has threads for its GPU's data; one core would be too few."""


def launch(options: Horovod, command: str, shape: Shape) -> Launch:
    """The launch with a `horovod` block."""
    if options.over == "mpi":
        return _over_mpi(options, command, shape)
    framework = Framework(
        name="horovod",
        roles=(Role("worker", command),),
        options={},
        each=nodes.AUTO,
        told=(*_TOLD, *pytorch.sockets(options.nodes, shape)),
    )
    return nodes.launch(framework, options.nodes, command, shape)


def _over_mpi(options: Horovod, command: str, shape: Shape) -> Launch:
    """The MPI's own launch, with Horovod told to use that MPI and its processes not bound to a core each."""
    own = options.nodes
    unbound = () if "bind-to" in " ".join(options.options) else _UNBOUND.get(options.runtime, ())
    built = mpi.launch(
        Mpi(
            runtime=options.runtime,
            executable_path=options.executable_path,
            options=(*options.options, *unbound),
            processes_per_node=nodes.processes(own, nodes.AUTO, shape.instances),
            pre_execution_command=own.pre_execution_command,
            coordination_command=own.coordination_command,
            preflight=own.preflight,
            inside=own.inside,
            own=own.own | frozenset(own.leave_unset),
            misses_mpi4py=False,
            environment=tuple(f"{name}={value}" for name, value in _OVER_MPI.items() if name not in own.leave_unset),
        ),
        command,
        shape,
    )
    told = tuple(
        Implicit(name, value, "the build may have gloo as well, and `over: mpi` is asked for", _RULE)
        for name, value in _OVER_MPI.items()
        if name not in (*own.own, *own.leave_unset)
    )
    because = "a process has threads for its GPU's data, and one core would be too few"
    free = tuple(Implicit("mpi.options", one, because, "horovod-binding") for one in unbound)
    return built._replace(implicit=(*built.implicit, *free, *told))
