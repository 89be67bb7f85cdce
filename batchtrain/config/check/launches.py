"""Rules about the blocks that launch a gang: one of them, roles that work together, what is left to the launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchtrain.config.check.frameworks import KVSTORE
from batchtrain.config.check.gangs import LAUNCHERS, NESTED
from batchtrain.config.check.subject import LONGEST_READ, Gang, Path, Subject, command_of, instances
from batchtrain.config.check.table import ERROR, JOBS, POOL, WARNING, Found, Rule
from batchtrain.config.types import MpiBlock, Nodes, PyTorchBlock, TensorFlowBlock, whole

BOTH = (*POOL, *JOBS)
BATCHS_PORT = 6000

_TORCH = (
    r"RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|GROUP_WORLD_SIZE|ROLE_RANK|ROLE_WORLD_SIZE"
    r"|MASTER_ADDR|MASTER_PORT|TORCHELASTIC_\w+|PET_\w+"
)
RESERVED = {
    "pytorch": _TORCH,
    "deepspeed": _TORCH,
    "tensorflow": r"TF_CONFIG",
    "mxnet": (
        r"DMLC_(?:ROLE|PS_ROOT_URI|PS_ROOT_PORT|NUM_SERVER|NUM_WORKER|NODE_HOST|INTERFACE|WORKER_ID|SERVER_ID|TASK_ID"
        r"|RANK)"
    ),
    "horovod": (
        r"HOROVOD_(?:RANK|SIZE|LOCAL_RANK|LOCAL_SIZE|CROSS_RANK|CROSS_SIZE|HOSTNAME|CONTROLLER|CPU_OPERATIONS"
        r"|GLOO_RENDEZVOUS_\w+|ELASTIC)"
    ),
    "jax": r"JAX_(?:COORDINATOR_ADDRESS|PROCESS_ID|NUM_PROCESSES|LOCAL_DEVICE_IDS)",
}
"""Variables that the node launcher gives each process, by block: patterns of whole names."""

ELSEWHERE = {
    "MASTER_PORT": "`port` of the block chooses it",
    "DMLC_PS_ROOT_PORT": "`port` of the block chooses it",
    "DMLC_INTERFACE": "`interface` of the block chooses it",
    "DMLC_NUM_SERVER": "`servers` of the block chooses it",
    "DMLC_NUM_WORKER": "`processes_per_node` of the block chooses it",
    "WORLD_SIZE": "`processes` or `processes_per_node` of the block chooses it",
    "HOROVOD_SIZE": "`processes` or `processes_per_node` of the block chooses it",
    "HOROVOD_CONTROLLER": "`over` of the block chooses it",
    "HOROVOD_CPU_OPERATIONS": "`over` of the block chooses it",
    "HOROVOD_ELASTIC": (
        "elastic Horovod asks for nodes that come and go, and a gang's nodes are fixed; save checkpoints, and let Batch"
        " repeat the task (`max_task_retries`)"
    ),
}
"""What to do in place of setting one of them."""

ONE_NODE = (
    r"(?<![A-Za-z])(?:nn\.)?DataParallel\b|--data[-_]parallel\b|--strategy[=\s]+[\"']?(?:dp|mirrored)\b"
    r"|--accelerator[=\s]+dp\b|--distribution_strategy[=\s]+[\"']?(?:mirrored|one_device)\b|\bMirroredStrategy\b"
)
"""Words for several GPUs of one node; DistributedDataParallel and MultiWorkerMirrored are others."""

ALONE = ("replicated", "independent", "horovod")
NO_SERVERS = ("collective_all_reduce", "distributed_all_reduce")
UPDATE = r"(?<!\S)--?variable_update(?:=|\s+)[\"']?(\w+)"
ROLE_FLAG = r"(?<!\S)--?(job_name|task_index|ps_hosts|worker_hosts|controller_host)(?:=|\s+)(?!\{)[\"']?[^\s\"']+"

BENCHMARK_FLAGS = (
    ("distributed_all_reduce", r"--all_reduce_spec[=\s]+[\"']?nccl(?![\w/:])",
     "that stays within one node; for several workers write `nccl/xring`"),
    ("(?!parameter_server).+", r"--staged_vars(?![\w=]|\s+(?:[Ff]alse|0))|--staged_vars[=\s]+(?:[Tt]rue|1)\b",
     "it works with parameter servers alone"),
    ("distributed_replicated", r"--cross_replica_sync[=\s]+(?:[Ff]alse|0)\b|--nocross_replica_sync\b",
     "the replicas must wait for each other"),
)  # fmt: skip
"""What tf_cnn_benchmarks itself refuses: of which `--variable_update`, the flag, and why."""

MPI_IN_NAMES = (("intelmpi", "intelmpi"), ("impi", "intelmpi"), ("openmpi", "openmpi"), ("mvapich", "mvapich"),
                ("mpich", "mpich"))  # fmt: skip
"""What an image's name says of its MPI, and the dialect it is."""


def _frameworks(subject: Subject) -> Iterator[tuple[Gang, str, Nodes]]:
    """Gangs that the node launcher starts, with the name of the block and the block."""
    for gang in subject.gangs:
        for name, block in gang.options.launches:
            if isinstance(block, Nodes):
                yield gang, name, block


# --- who launches ---------------------------------------------------------------------------------------------------


def _one(subject: Subject) -> Found:
    for path, _, _, gang in subject.gangs:
        names = [name for name, _ in gang.launches]
        if len(names) > 1:
            yield (
                (*path, names[1]),
                f"`{names[0]}` launches the command already; a command is launched in one way: take one of"
                f" {', '.join(f'`{name}`' for name in names)}",
            )


def _inside(subject: Subject) -> Found:
    for gang, name, _ in _frameworks(subject):
        match = re.search(NESTED, command_of(gang.task).strip())
        if match:
            launcher = " ".join(match["launcher"].split())
            yield (
                (*gang.task_path, "command"),
                f"the command starts `{launcher}` itself, and `{name}` starts the command once a process: each would"
                f" start a launch of its own; write `python {_script_behind(name)}`{_instead(name, launcher)}",
            )


def _script_behind(name: str) -> str:
    return "train.py --deepspeed ..." if name == "deepspeed" else "train.py ..."


def _instead(name: str, launcher: str) -> str:
    if launcher == "torchrun" and name == "pytorch":
        return ", and `launcher: torchrun` in the block where torchrun is wanted"
    if re.fullmatch(LAUNCHERS, launcher) and launcher.startswith(("mpi", "orte", "prte")):
        return ", or an `mpi` block in place of this one"
    return ""


# --- what is the launcher's own -------------------------------------------------------------------------------------


def _reserved(subject: Subject) -> Found:
    for gang, name, _ in _frameworks(subject):
        pattern = RESERVED[name]
        for place, variable in _variables(gang):
            if re.fullmatch(pattern, variable):
                yield place, _why(variable, name)
        for place, text in _texts(gang):
            match = re.search(rf"{_BEFORE}({pattern})=", text)
            if match:
                yield place, _why(match[1], name)


_BEFORE = r"(?:^|[;&|(\n][ \t]*|(?<!\S)(?:export|env)[ \t]+)(?:\w+=[^\s;&|(]*[ \t]+)*"
"""Where a shell may set a variable: before a command, behind others, with export or env. It takes linear time."""


def _variables(gang: Gang) -> Iterator[tuple[Path, str]]:
    for place, owner in ((gang.task_path, gang.task), (gang.path[:2], gang.job)):
        for variable in owner.environment_variables:
            yield (*place, "environment_variables", variable), variable


def _texts(gang: Gang) -> Iterator[tuple[Path, str]]:
    yield (*gang.task_path, "command"), command_of(gang.task).strip()
    if gang.options.pre_execution_command:
        yield (*gang.path, "pre_execution_command"), gang.options.pre_execution_command.strip()[:LONGEST_READ]


def _why(variable: str, name: str) -> str:
    instead = ELSEWHERE.get(variable, "take it out")
    return f"`{variable}` is given to each process by the `{name}` launch, each its own value; {instead}"


def _port(subject: Subject) -> Found:
    for gang, name, block in _frameworks(subject):
        if block.port == BATCHS_PORT:
            yield (*gang.path, name, "port"), f"{BATCHS_PORT} is Batch's own port on the primary; take another, or none"


# --- how many -------------------------------------------------------------------------------------------------------


def _divide(subject: Subject) -> Found:
    for gang, name, block in _frameworks(subject):
        nodes = instances(gang.options)
        if block.processes is None:
            continue
        if block.processes_per_node is not None:
            yield (
                (*gang.path, name, "processes"),
                "`processes_per_node` says how many processes there are, too; take one of them",
            )
        elif nodes and block.processes % nodes:
            yield (
                (*gang.path, name, "processes"),
                f"{block.processes} processes do not divide among {nodes} nodes; give a multiple of {nodes}, or"
                " `processes_per_node`",
            )


def _over_gpus(subject: Subject) -> Found:
    for gang, name, block in _frameworks(subject):
        gpus = _seen(gang, subject.gpus(gang.job, gang.task))
        key, each = _each(gang, block)
        if gpus and each is not None and each > gpus:
            yield (
                (*gang.path, name, key),
                f"{each} processes a node, and {gpus} GPU{'s' if gpus > 1 else ''}: two processes on one GPU are"
                f" refused, by NCCL too; write `auto` or at most {gpus}",
            )


def _seen(gang: Gang, gpus: int) -> int:
    """Of a node's GPUs those that CUDA_VISIBLE_DEVICES chooses, where the task or its job sets it."""
    variables = gang.job.environment_variables | gang.task.environment_variables
    chosen = [word for word in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    return min(gpus, len(chosen)) if chosen else gpus


def _each(gang: Gang, block: Nodes) -> tuple[str, int | None]:
    nodes = instances(gang.options)
    if block.processes is not None and nodes:
        return "processes", -(-block.processes // nodes)
    return "processes_per_node", whole(block.processes_per_node)


# --- what works together --------------------------------------------------------------------------------------------


def _elastic(subject: Subject) -> Found:
    for gang, name, block in _frameworks(subject):
        if not isinstance(block, PyTorchBlock):
            continue
        nodes = instances(gang.options)
        if block.launcher != "torchrun":
            for key in ("max_restarts", "min_instances"):
                if getattr(block, key):
                    yield (
                        (*gang.path, name, key),
                        f"`{key}` is torchrun's; write `launcher: torchrun`, or let Batch repeat the task"
                        " (`max_task_retries`)",
                    )
        elif block.min_instances is not None and block.rendezvous != "c10d":
            yield (
                (*gang.path, name, "min_instances"),
                "`min_instances` needs `rendezvous: c10d`; with `static` all nodes are counted at the start",
            )
        elif block.max_restarts and block.rendezvous != "c10d":
            yield (
                (*gang.path, name, "max_restarts"),
                "`max_restarts` needs `rendezvous: c10d`; with `static`, ranks that start again find the addresses of"
                " those that ended, and end as well",
            )
        elif block.min_instances is not None and nodes is not None and block.min_instances > nodes:
            yield (
                (*gang.path, name, "min_instances"),
                f"{block.min_instances} nodes at least, and the task has {nodes}",
            )


def _one_node(subject: Subject) -> Found:
    for path, _, task, gang in subject.gangs:
        if instances(gang) == 1:
            continue
        match = re.search(ONE_NODE, command_of(task))
        if match:
            yield (
                (*path[:-1], "command"),
                f"`{' '.join(match[0].split())}` uses the GPUs of one node, so each node would train alone; use"
                " DistributedDataParallel or MultiWorkerMirroredStrategy, or an ordinary task on one node",
            )


def _tensorflow(subject: Subject) -> Found:
    for gang, name, block in _frameworks(subject):
        if isinstance(block, TensorFlowBlock):
            yield from _cluster(gang, (*gang.path, name), block)


def _cluster(gang: Gang, path: Path, block: TensorFlowBlock) -> Found:
    command = command_of(gang.task)
    update = _update(command)
    if block.parameter_servers and (block.mode == "multi_worker_mirrored" or update in NO_SERVERS):
        kind = f"--variable_update={update}" if update in NO_SERVERS else f"mode: {block.mode}"
        yield (*path, "parameter_servers"), f"`{kind}` has workers and no parameter servers; take it out"
    if block.parameter_servers == 0 and block.mode != "multi_worker_mirrored" and update not in NO_SERVERS:
        yield (*path, "parameter_servers"), f"`mode: {block.mode}` needs parameter servers; give one or more"
    if block.mode == "flags" and block.evaluator:
        yield (*path, "evaluator"), "`mode: flags` has no evaluator; it is a role of TF_CONFIG"
    if update and block.mode != "flags":
        yield (*path, "mode"), f"tf_cnn_benchmarks reads flags, not TF_CONFIG; write `mode: flags`, not `{block.mode}`"
    if block.mode == "flags" and update in ALONE:
        block_for = "; write a `horovod` block" if update == "horovod" else ", or an ordinary task on one node"
        yield (
            (*gang.task_path, "command"),
            f"`--variable_update={update}` knows no cluster, so it has no roles on several nodes; take"
            f" `collective_all_reduce` or `parameter_server`{block_for}",
        )
    for kind, pattern, why in BENCHMARK_FLAGS:
        if re.fullmatch(kind, update) and (match := re.search(pattern, command)):
            yield (*gang.task_path, "command"), f"`{match[0]}` with `--variable_update={update}`: {why}"
    given = re.search(ROLE_FLAG, command) if block.mode == "flags" else None
    if given:
        yield (
            (*gang.task_path, "command"),
            f"`--{given[1]}` is given to each process by the `tensorflow` launch; take it out, or write"
            f" `--{given[1]}={{{given[1]}}}` where it belongs",
        )


def _update(command: str) -> str:
    if "tf_cnn_benchmarks" not in command:
        return ""
    match = re.search(UPDATE, command)
    return match[1] if match else "parameter_server"


def _rendezvous(subject: Subject) -> Found:
    for path, _, _, gang in subject.gangs:
        text = gang.mxnet.rendezvous if gang.mxnet else None
        if text and not re.fullmatch(r"(?:[^:\s]+:)?[^:\s]+:[0-9]{4,5}", text.strip()):
            yield (
                (*path, "mxnet", "rendezvous"),
                f"`{text}` is not [INTERFACE:]ADDRESS:PORT with a port from 1024 to 65535, such as"
                " `ib0:10.0.0.4:29500`",
            )


def _kv_store(subject: Subject) -> Found:
    for path, _, task, gang in subject.gangs:
        store = re.search(KVSTORE, command_of(task))
        if store is None:
            continue
        if gang.mxnet is not None and store[1] == "horovod":
            yield (
                (*path, "mxnet"),
                "kv-store `horovod` has no servers and no scheduler; write a `horovod` block in place of `mxnet`, and"
                " take an image whose Horovod was built for MXNet",
            )
        if gang.horovod is not None and store[1].startswith("dist"):
            yield (
                (*path, "horovod"),
                f"kv-store `{store[1]}` waits for servers and a scheduler, which Horovod has not; write"
                " `--kv-store horovod`, or an `mxnet` block in place of `horovod`",
            )


def _cntk_mpi(subject: Subject) -> Found:
    for gang in subject.gangs:
        image = (gang.task.docker_image or gang.task.singularity_image or "").lower()
        if "cntk" not in image and "cntk" not in command_of(gang.task).lower():
            continue
        for name, block in gang.options.launches:
            if not isinstance(block, MpiBlock):
                continue
            built = next((dialect for word, dialect in MPI_IN_NAMES if word in image), "")
            if built and _family(built) != _family(block.runtime):
                yield (
                    (*gang.path, name, "runtime"),
                    f"the image's name says that its CNTK was built on {built}, and with {block.runtime} each rank"
                    f" would train alone; write `runtime: {built}`",
                )


def _family(dialect: str) -> str:
    """MPIs that start each other's programs are one."""
    return "openmpi" if dialect == "openmpi" else "mpich"


_LAUNCH = "batchtrain's node launcher"

RULES = (
    Rule("gang-one-launch", ERROR, JOBS, "A command is launched in one way.", _LAUNCH, _one),
    Rule("launcher-inside", ERROR, JOBS, "A command that is launched starts no launcher.",
         f"{_LAUNCH}; it takes the place of torchrun, deepspeed, horovodrun and mpirun", _inside),
    Rule("environment-reserved", ERROR, JOBS, "What each process is told of the gang is left to the launcher.",
         "PyTorch: env://; TensorFlow: TF_CONFIG; ps-lite, Horovod and JAX: environment variables", _reserved),
    Rule("launch-port", ERROR, JOBS, "Batch's own port is left to Batch.",
         "Azure Batch: AZ_BATCH_MASTER_NODE (port 6000)", _port),
    Rule("processes-divide", ERROR, JOBS, "The nodes share the processes evenly.", _LAUNCH, _divide),
    Rule("ranks-over-gpus", ERROR, BOTH, "No two processes share a GPU.",
         "NCCL: Creating a communicator (duplicate GPU)", _over_gpus),
    Rule("elastic", ERROR, JOBS, "Elastic is asked of torchrun with c10d alone.", "PyTorch: torchrun (elastic)",
         _elastic),
    Rule("one-node-strategy", WARNING, JOBS, "A program for the GPUs of one node runs on one.",
         "PyTorch: DataParallel; TensorFlow: MirroredStrategy", _one_node),
    Rule("tensorflow-launch", ERROR, JOBS, "The roles of a TensorFlow cluster can work together.",
         "TensorFlow: Distributed training; tensorflow/benchmarks: benchmark_cnn.py", _tensorflow),
    Rule("mxnet-rendezvous", ERROR, JOBS, "A rendezvous is written as DLBS writes it.",
         "DLBS: distributed MXNet (mxnet.rendezvous)", _rendezvous),
    Rule("mxnet-horovod", ERROR, JOBS, "MXNet under Horovod is launched as Horovod.",
         "MXNet: Distributed training using Horovod", _kv_store),
    Rule("cntk-mpi", WARNING, JOBS, "CNTK is started by the MPI it was built on.",
         "CNTK: Multiple GPUs and machines; Batch Shipyard's recipes for CNTK", _cntk_mpi),
)  # fmt: skip
