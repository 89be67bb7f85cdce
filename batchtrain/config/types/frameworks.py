"""The frameworks of a multi-instance task as types: how many processes, in which roles, and how they meet."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from batchtrain.config.types.base import Block, Text, says

LAUNCH = "batchtrain: launch"

FRAMEWORKS = ("pytorch", "tensorflow", "mxnet", "horovod", "deepspeed", "jax")
"""Names of the blocks that batchtrain's own node launcher starts, beside `mpi`."""

AllProcesses = Annotated[int, Meta(ge=1, le=1_000_000)]
"""Processes of a whole gang."""
FreePort = Annotated[int, Meta(ge=1024, le=65535)]
"""A port that needs no administrator."""
Seconds = Annotated[float, Meta(ge=0, le=3600)]
Patience = Annotated[float, Meta(ge=5, le=3600)]
"""Seconds in which a node must answer ssh and start a Python; no node can in less."""


class Nodes(Block, frozen=True, kw_only=True):
    """What every framework's block may say of its processes and their nodes."""

    processes_per_node: Annotated[
        int | str | None,
        says(
            "Processes a node: a number, `auto` (one a GPU, or one), or a shell command run on each node.",
            LAUNCH,
            example="auto",
        ),
    ] = None
    processes: Annotated[
        AllProcesses | None,
        says("Processes of all nodes together, in place of `processes_per_node`; the nodes must share them evenly.",
             LAUNCH),
    ] = None  # fmt: skip
    binding: Annotated[
        Literal["auto", "none"],
        says("Bind each process to cores of its own, near its GPU; `none` leaves that to the program.", LAUNCH),
    ] = "auto"
    interface: Annotated[
        Text | None,
        says(
            "Network interface the processes talk over; found by itself when absent.",
            "batchtrain: GLOO_SOCKET_IFNAME / NCCL_SOCKET_IFNAME / DMLC_INTERFACE",
            example="eth0",
        ),
    ] = None
    port: Annotated[
        FreePort | None,
        says(
            "Port the processes meet at on the primary (not 6000, Batch's own); a free one when absent.",
            "batchtrain: MASTER_PORT / DMLC_PS_ROOT_PORT / JAX_COORDINATOR_ADDRESS",
            example="29500",
        ),
    ] = None
    barrier_seconds: Annotated[
        Patience, says("How long the nodes are waited for, in seconds; then the missing ones are named.", LAUNCH)
    ] = 120
    grace_seconds: Annotated[
        Seconds, says("From SIGTERM to SIGKILL when the task is ended from outside, in seconds.", LAUNCH)
    ] = 5
    leave_unset: Annotated[
        tuple[str, ...],
        says("Names of variables that batchtrain would set by itself and shall not; `config explain` lists them.",
             LAUNCH, example=["NCCL_DEBUG"]),
    ] = ()  # fmt: skip


class PyTorchBlock(Nodes, frozen=True, kw_only=True):
    """PyTorch: DDP, FSDP, Lightning and Accelerate, a process a GPU, meeting by environment or under torchrun."""

    launcher: Annotated[
        Literal["env", "torchrun"],
        says(
            "`env` starts every process itself; `torchrun` starts PyTorch's own launcher once a node.",
            "batchtrain: launch / torchrun",
        ),
    ] = "env"
    rendezvous: Annotated[
        Literal["static", "c10d"],
        says(
            "How torchrun's nodes find each other; `c10d` can begin again with other ranks.",
            "batchtrain: torchrun --rdzv-backend",
        ),
    ] = "static"
    max_restarts: Annotated[
        int,
        says(
            "How often torchrun starts the processes again after a failure.",
            "batchtrain: torchrun --max-restarts",
            ge=0,
            le=1000,
        ),
    ] = 0
    min_instances: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        says(
            "Nodes that are enough for torchrun to go on with (elastic); all of them when absent.",
            "batchtrain: torchrun --nnodes",
        ),
    ] = None
    backend: Annotated[
        Literal["auto", "nccl", "gloo", "mpi", "ucc"],
        says(
            "What the program is told in BATCHTRAIN_BACKEND; `auto` is nccl on GPUs, gloo without.",
            "batchtrain: BATCHTRAIN_BACKEND",
        ),
    ] = "auto"


class DeepSpeedBlock(Nodes, frozen=True, kw_only=True):
    """DeepSpeed: `python train.py --deepspeed ...`; batchtrain takes the place of its launcher and host file."""

    backend: Annotated[
        Literal["auto", "nccl", "gloo", "ccl"],
        says(
            "What the program is told in BATCHTRAIN_BACKEND; `auto` is nccl on GPUs, gloo without.",
            "batchtrain: BATCHTRAIN_BACKEND",
        ),
    ] = "auto"
    accelerator: Annotated[
        Literal["auto", "cuda", "cpu", "xpu", "hpu"],
        says(
            "DS_ACCELERATOR; `auto` leaves it to DeepSpeed on GPUs and is `cpu` without.", "batchtrain: DS_ACCELERATOR"
        ),
    ] = "auto"


class TensorFlowBlock(Nodes, frozen=True, kw_only=True):
    """TensorFlow and Keras: TF_CONFIG, or the flags of TensorFlow 1, for each role of a cluster."""

    mode: Annotated[
        Literal["multi_worker_mirrored", "parameter_server", "estimator", "flags"],
        says(
            "Which cluster: workers alone; chief, workers and servers; TensorFlow 1's Estimator; or TensorFlow 1's"
            " flags (`--job_name`, `--task_index`, `--ps_hosts`, `--worker_hosts`), also of tf_cnn_benchmarks.",
            "batchtrain: TF_CONFIG / flags",
        ),
    ] = "multi_worker_mirrored"
    parameter_servers: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)] | None,
        says(
            "Parameter servers of all nodes together, on CPUs; one a node when absent.",
            "batchtrain: launch (role `ps`)",
        ),
    ] = None
    chief_name: Annotated[
        Literal["chief", "master"],
        says("What the chief is called; `master` up to TensorFlow 1.3.", "batchtrain: TF_CONFIG"),
    ] = "chief"
    evaluator: Annotated[
        bool,
        says(
            "One more process that evaluates, on a CPU; it ends with the others.",
            "batchtrain: launch (role `evaluator`)",
        ),
    ] = False


class MxnetBlock(Nodes, frozen=True, kw_only=True):
    """MXNet: a scheduler on the primary, servers and workers (ps-lite); a worker drives all GPUs of its node."""

    servers: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        says("Parameter servers of all nodes together; one a node when absent.", "batchtrain: DMLC_NUM_SERVER"),
    ] = None
    server_command: Annotated[
        Text | None,
        says("What servers and scheduler run; the task's own command when absent.", LAUNCH,
             example="python -c 'import mxnet'"),
    ] = None  # fmt: skip
    rendezvous: Annotated[
        Text | None,
        says(
            "`[INTERFACE:]ADDRESS:PORT` as DLBS writes it; the address is always the primary's.",
            "batchtrain: DMLC_INTERFACE / DMLC_PS_ROOT_PORT",
            example="ib0:10.0.0.4:29500",
        ),
    ] = None
    verbose: Annotated[
        int, says("PS_VERBOSE: 1 says who connects, 2 every message.", "batchtrain: PS_VERBOSE", ge=0, le=2)
    ] = 0


class HorovodBlock(Nodes, frozen=True, kw_only=True):
    """Horovod: over gloo by batchtrain itself, or over an MPI; a process a GPU."""

    over: Annotated[
        Literal["gloo", "mpi"],
        says(
            "What its processes meet over; it must be in the build (`horovodrun --check-build`).",
            "batchtrain: HOROVOD_CONTROLLER",
        ),
    ] = "gloo"
    runtime: Annotated[
        Literal["intelmpi", "intelmpi-ofa", "openmpi", "mpich", "mvapich"],
        says("The MPI's dialect, over `mpi`.", LAUNCH),
    ] = "openmpi"
    executable_path: Annotated[Text, says("The MPI's launcher, by path or found on PATH.", LAUNCH)] = "mpirun"
    options: Annotated[tuple[str, ...], says("Options of your own for the MPI's launcher.", LAUNCH)] = ()


class JaxBlock(Nodes, frozen=True, kw_only=True):
    """JAX: `jax.distributed.initialize()` finds its coordinator; one process drives all GPUs of its node."""
