"""PyTorch: a process a GPU that reads RANK, WORLD_SIZE and MASTER_ADDR, or torchrun once a node.

DDP, FSDP, Lightning and Accelerate all read these. Source: PyTorch, Distributed communication package (environment
variable initialization) and torchrun; measured with PyTorch 2.13.
"""

from __future__ import annotations

from batchtrain.errors import PlanError
from batchtrain.launchers import environment, nodes, python, shell
from batchtrain.launchers.environment import Variable
from batchtrain.launchers.nodes import Framework, Role
from batchtrain.launchers.types import Launch, Nodes, PyTorch, Shape

_RULE = "framework-environment"
MEETING = (
    Variable("MASTER_ADDR", "the primary's address", "the processes meet there (env://)", _RULE),
    Variable("MASTER_PORT", "`port`, or a free one of the primary", "not 29500, which another task may hold", _RULE),
    Variable("RANK", "0 to WORLD_SIZE - 1, rank 0 on the primary", "each process has its own", _RULE),
    Variable("WORLD_SIZE", "processes of all nodes", "PyTorch counts them", _RULE),
    Variable("LOCAL_RANK", "number within the node", "the GPU the program takes", _RULE),
    Variable("LOCAL_WORLD_SIZE", "processes of the node", "libraries share a node's GPUs by it", _RULE),
    Variable("NODE_RANK", "number of the node, 0 is the primary", "Lightning and older launchers read it", _RULE),
    Variable("GROUP_RANK, GROUP_WORLD_SIZE", "number of the node; nodes", "as torchrun calls them", _RULE),
)
INTERFACE = "`interface`, or the one with the node's own address"
SOCKETS = (
    Variable("GLOO_SOCKET_IFNAME", INTERFACE, "gloo would take the one the host name leads to", _RULE),
    Variable("NCCL_SOCKET_IFNAME", INTERFACE, "NCCL would take the first it likes", _RULE),
)
BACKEND = Variable(
    "BATCHTRAIN_BACKEND", "nccl on GPUs, gloo without", "a program can pass it to init_process_group", _RULE
)
CPU = Variable("ACCELERATE_USE_CPU", "true on nodes without GPUs", "Accelerate would look for one", _RULE)
_TORCHRUN = Variable(
    "torchrun",
    "--nnodes --nproc-per-node --node-rank --rdzv-backend",
    "the node launcher starts it once a node, and it sets the variables of its processes itself",
    _RULE,
)


_OWN_STORE = Variable(
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    "1",
    "each start has a store of its own: in torchrun's, ranks would find the addresses of those that ended",
    "torchrun-store",
)


def launch(options: PyTorch, command: str, shape: Shape) -> Launch:
    """The launch with a `pytorch` block. Raises PlanError for what PyTorch could not do."""
    _check(options, shape)
    under_torchrun = options.launcher == "torchrun"
    settles = may_be_gloo(options.backend)
    if under_torchrun:
        role = _torchrun(options, nodes.ending(command, settles=True) if settles else command)
    else:
        role = Role("worker", command)
    framework = Framework(
        name="pytorch",
        roles=(role,),
        options={
            "launcher": options.launcher,
            "rendezvous": options.rendezvous,
            "max_restarts": options.max_restarts,
            "min_instances": options.min_instances,
            "backend": backend(options.backend),
        },
        each=nodes.AUTO,
        told=((_TORCHRUN, *_threads(options.nodes)) if under_torchrun else MEETING)
        + (*sockets(options.nodes, shape), BACKEND, CPU),
        ucx=options.backend in ("ucc", "mpi"),
        threads=not under_torchrun,
        defaults=(_OWN_STORE,) if under_torchrun and options.rendezvous == "c10d" else (),
        settles=settles,
    )
    return nodes.launch(framework, options.nodes, command, shape)


def may_be_gloo(wanted: str) -> bool:
    """Whether the processes may exchange data through gloo. With `auto` they do on nodes without GPUs, whatever the
    pool's size says: a pool with GPUs may be tried on a machine that has none."""
    return wanted in ("auto", "gloo")


def backend(wanted: str) -> str | None:
    """What the node launcher is told: nothing where it is to find it out."""
    return None if wanted == "auto" else wanted


def _torchrun(options: PyTorch, command: str) -> Role:
    """Once a node, by the command's own Python, with the options that the node launcher makes for that node.

    `--no-python` takes the command as it is, with its interpreter's own options. With c10d the primary is said to be
    the host, for torchrun would compare names and addresses that another node may have too.
    """
    own = python.interpreter(command)
    words = (
        _THREADS if _threads(options.nodes) else "",
        f"{own} -m torch.distributed.run" if own else "torchrun",
        "$BATCHTRAIN_TORCHRUN",
        _HOST if options.rendezvous == "c10d" else "",
        "--no-python",
        command if shell.is_simple(command) else f"/bin/bash -c {shell.word(command)}",
    )
    return Role("torchrun", " ".join(word for word in words if word), per_node=1, ranked=False)


_HOST = '--rdzv-conf="is_host=$([ "$BATCHTRAIN_NODE_RANK" = 0 ] && echo true || echo false)"'
_EACH = "$BATCHTRAIN_PROCESSES_PER_NODE"
_THREADS = f'OMP_NUM_THREADS="${{OMP_NUM_THREADS:-$(($(nproc) > {_EACH} ? $(nproc) / {_EACH} : 1))}}"'
"""torchrun gives each of its processes one thread and warns of it, where nothing is set."""


def _threads(own: Nodes) -> tuple[Variable, ...]:
    return environment.wanted((environment.NUMBER_OF_THREADS,), own)


def sockets(own: Nodes, shape: Shape) -> tuple[Variable, ...]:
    """NCCL's is a rule of its own on InfiniBand, and not set on nodes without GPUs."""
    named = {one.name for one in environment.on_infiniband(shape)}
    if shape.size and not shape.gpus:
        named.add("NCCL_SOCKET_IFNAME")
    return tuple(one for one in SOCKETS if one.name not in named and one.name not in own.own)


def _check(options: PyTorch, shape: Shape) -> None:
    elastic = options.min_instances is not None or options.max_restarts > 0
    if elastic and options.launcher != "torchrun":
        raise PlanError(
            "`max_restarts` and `min_instances` are torchrun's; write `launcher: torchrun`, or let Batch repeat the"
            " task (`max_task_retries`)"
        )
    if options.max_restarts > 0 and options.rendezvous != "c10d":
        raise PlanError(
            "`max_restarts` needs `rendezvous: c10d`; with `static`, ranks that start again find the addresses of those"
            " that ended, and end as well"
        )
    if options.min_instances is None:
        return
    if options.rendezvous != "c10d":
        raise PlanError("`min_instances` needs `rendezvous: c10d`; with `static` all nodes are counted at the start")
    if options.min_instances > shape.instances:
        raise PlanError(f"`min_instances` is {options.min_instances}, more than the {shape.instances} nodes there are")
