"""PyTorch: one process per GPU that reads RANK, WORLD_SIZE and MASTER_ADDR, or torchrun once per node.

DDP, FSDP, Lightning and Accelerate all read these. Source: PyTorch, Distributed communication package (environment
variable initialization) and torchrun; measured with PyTorch 2.13.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from batchtrain.frameworks.base import (
    AUTO,
    NUMBER_OF_THREADS,
    SOCKETS,
    BlockFault,
    FrameworkRule,
    Nodes,
    Role,
    Runner,
    Scripts,
    Variable,
    says,
)

_COUNTED = "`processes` or `processes_per_node` of the block chooses it"
MEETING = (
    Variable("MASTER_ADDR", "the primary's address", "the processes meet there (env://)"),
    Variable("MASTER_PORT", "`port`, or a free one of the primary", "not 29500, which another task may use",
             instead="`port` of the block chooses it"),
    Variable("RANK", "0 to WORLD_SIZE - 1, rank 0 on the primary", "each process has its own"),
    Variable("WORLD_SIZE", "processes of all nodes", "PyTorch counts them", instead=_COUNTED),
    Variable("LOCAL_RANK", "number within the node", "the program selects its GPU by it"),
    Variable("LOCAL_WORLD_SIZE", "processes of the node", "libraries use it to share the GPUs of a node"),
    Variable("NODE_RANK", "number of the node, 0 is the primary", "Lightning and older launchers read it"),
    Variable("GROUP_RANK, GROUP_WORLD_SIZE", "number of the node; nodes", "names that torchrun uses"),
    Variable("TORCHELASTIC_ERROR_FILE", "wd/ranks/rank-N.error.json", "programs under `record` write their error"),
)  # fmt: skip
"""torch.distributed's env://."""
OF_TORCHRUN = ((r"ROLE_RANK|ROLE_WORLD_SIZE|TORCHELASTIC_\w+|PET_\w+", "take it out"),)
BACKEND = Variable("BATCHTRAIN_BACKEND", "nccl on GPUs, gloo without", "a program can pass it to init_process_group")
CPU = Variable("ACCELERATE_USE_CPU", "true on nodes without GPUs", "Accelerate would search for GPUs", keeps=True)
ENVIRONMENT = (*MEETING, *SOCKETS, BACKEND, CPU)
_TORCHRUN = Variable(
    "torchrun",
    "--nnodes --nproc-per-node --node-rank --rdzv-backend",
    "the node launcher starts it once per node, and keeps its store until all nodes are done; it sets the variables of"
    " its processes itself",
)
_OWN_STORE = Variable(
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    "1",
    "each start has its own store: in torchrun's store, ranks would find the addresses of ended ranks",
    "torchrun-store",
)


class Torch(Nodes, frozen=True, kw_only=True):
    """Common properties of blocks that use torch.distributed."""

    reserved_names: ClassVar[tuple[tuple[str, str], ...]] = OF_TORCHRUN
    each: ClassVar[int | str] = AUTO

    @property
    def settles(self) -> bool:
        """With `auto`, nodes without GPUs use gloo, whatever the pool's size is: a recipe for GPUs can be tried on a
        machine without them."""
        return getattr(self, "backend", AUTO) in (AUTO, "gloo")

    def settings(self) -> dict[str, Any]:
        return {name: self.given(name) if name == "backend" else getattr(self, name) for name in self.passed_on}


class PyTorchBlock(Torch, frozen=True, kw_only=True):
    """PyTorch: DDP, FSDP, Lightning and Accelerate, one process per GPU, with environment variables or torchrun."""

    launcher: Annotated[
        Literal["env", "torchrun"],
        says(
            "`env` starts every process; `torchrun` starts PyTorch's launcher once per node.",
            "batchtrain: launch / torchrun",
        ),
    ] = "env"
    rendezvous: Annotated[
        Literal["static", "c10d"],
        says(
            "How torchrun's nodes find each other; `c10d` can restart with other ranks.",
            "batchtrain: torchrun --rdzv-backend",
        ),
    ] = "static"
    max_restarts: Annotated[
        int,
        says(
            "How often torchrun restarts the processes after a failure.",
            "batchtrain: torchrun --max-restarts",
            ge=0,
            le=1000,
        ),
    ] = 0
    min_instances: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        says("Minimum number of nodes for torchrun (elastic). Default: all nodes.", "batchtrain: torchrun --nnodes"),
    ] = None
    backend: Annotated[
        Literal["auto", "nccl", "gloo", "mpi", "ucc"],
        says("Value of BATCHTRAIN_BACKEND; `auto` is nccl on GPUs, gloo without.", "batchtrain: BATCHTRAIN_BACKEND"),
    ] = "auto"

    name: ClassVar[str] = "pytorch"
    source: ClassVar[str] = "PyTorch: env:// initialization, torchrun"
    scripts: ClassVar[Scripts] = Scripts(
        imports=("torch", "lightning", "pytorch_lightning"),
        image="pytorch",
        packages=("torch", "lightning"),
        spawns=("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"),
        keras_backend="torch",
        joined_by=(
            "DistributedDataParallel", "distributed", "fully_shard", "RANK", "LOCAL_RANK", "WORLD_SIZE", "lightning",
            "pytorch_lightning", "ignite", "fastai", "fairscale", "colossalai", "composer",
        ),
    )  # fmt: skip
    passed_on: ClassVar[tuple[str, ...]] = ("launcher", "rendezvous", "max_restarts", "min_instances", "backend")
    variables: ClassVar[tuple[Variable, ...]] = ENVIRONMENT
    rules: ClassVar[tuple[FrameworkRule, ...]] = (
        FrameworkRule("elastic", "Elastic torchrun needs c10d.", "PyTorch: torchrun (elastic)"),
    )
    commands: ClassVar[tuple[str, ...]] = ("torchrun",)
    modules: ClassVar[tuple[str, ...]] = (r"torch\.distributed\.(?:run|launch)", "torchrun")
    ranks: ClassVar[tuple[str, ...]] = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK")
    sizes: ClassVar[tuple[str, ...]] = ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
    own_launcher: ClassVar[tuple[str, str]] = ("torchrun", "`launcher: torchrun`")
    idle_fabric: ClassVar[str] = "`backend: mpi` with a PyTorch that was built for it"

    @property
    def ucx(self) -> bool:
        return self.backend in ("ucc", "mpi")

    @property
    def threads(self) -> bool:
        return self.launcher != "torchrun"

    @property
    def defaults(self) -> tuple[Variable, ...]:
        return (_OWN_STORE,) if self.launcher == "torchrun" and self.rendezvous == "c10d" else ()

    def shown_variables(self) -> tuple[Variable, ...]:
        if self.launcher != "torchrun":
            return super().shown_variables()
        return (_TORCHRUN, NUMBER_OF_THREADS._replace(keeps=True), *ENVIRONMENT[len(MEETING) :])

    def roles(self, command: str, instances: int) -> tuple[Role, ...]:
        """torchrun is started with the options that the node launcher makes for each node.

        `--no-python` takes the command as it is, with its interpreter's own options. With c10d the primary is set as
        the host, because torchrun would compare names and addresses that another node may share.
        """
        if self.launcher != "torchrun":
            return (Role("worker", command),)
        host = (_HOST,) if self.rendezvous == "c10d" else ()
        options = ("$BATCHTRAIN_TORCHRUN", *host, "--no-python")
        threads = "" if "OMP_NUM_THREADS" in self.leave_unset else _THREADS
        runner = Runner("torchrun", "torch.distributed.run", options, "torchrun.py", threads)
        return (Role("torchrun", command, per_node=1, ranked=False, runner=runner),)

    def faults(self, command: str, instances: int | None) -> Iterator[BlockFault]:
        yield from super().faults(command, instances)
        if self.launcher != "torchrun":
            for key in ("max_restarts", "min_instances"):
                if getattr(self, key):
                    text = (
                        f"`{key}` needs torchrun; write `launcher: torchrun`, or let Batch retry the task"
                        " (`max_task_retries`)"
                    )
                    yield BlockFault("elastic", key, text)
        elif self.rendezvous != "c10d" and self.min_instances is not None:
            text = "`min_instances` needs `rendezvous: c10d`; with `static` all nodes are needed at the start"
            yield BlockFault("elastic", "min_instances", text)
        elif self.rendezvous != "c10d" and self.max_restarts:
            text = (
                "`max_restarts` needs `rendezvous: c10d`; with `static`, restarted ranks find the addresses of ended"
                " ranks, and fail too"
            )
            yield BlockFault("elastic", "max_restarts", text)
        elif self.min_instances is not None and instances is not None and self.min_instances > instances:
            text = f"`min_instances` is {self.min_instances}, more than the {instances} nodes of the task"
            yield BlockFault("elastic", "min_instances", text)


_HOST = '--rdzv-conf="is_host=$([ "$BATCHTRAIN_NODE_RANK" = 0 ] && echo true || echo false)"'
_EACH = "$BATCHTRAIN_PROCESSES_PER_NODE"
_THREADS = f'OMP_NUM_THREADS="${{OMP_NUM_THREADS:-$(($(nproc) > {_EACH} ? $(nproc) / {_EACH} : 1))}}"'
"""torchrun gives each of its processes one thread and warns about it if OMP_NUM_THREADS is not set."""
