"""`docs/reference/environment-variables.md`, made of the tables of the launches: `python -m tests.generated_files`."""

from __future__ import annotations

from collections.abc import Iterable

from batchtrain.frameworks import FRAMEWORKS
from batchtrain.frameworks.base import Variable
from batchtrain.frameworks.mpi import MPIS

HEAD = """\
# Environment variables of a task

`python -m tests.generated_files` generates this page from the tables of the launches; a test fails if it is stale.
`batchtrain config explain DIR` lists what a recipe's launch sets by itself, with the reasons.
"""
BATCH = {
    "AZ_BATCH_ACCOUNT_NAME": "name of the account",
    "AZ_BATCH_ACCOUNT_URL": "its endpoint",
    "AZ_BATCH_POOL_ID": "id of the pool",
    "AZ_BATCH_NODE_ID": "id of the node",
    "AZ_BATCH_NODE_IS_DEDICATED": "`true`, or `false` on a spot node",
    "AZ_BATCH_NODE_ROOT_DIR": "root of all directories below",
    "AZ_BATCH_NODE_SHARED_DIR": "shared by the tasks of one node, not by nodes",
    "AZ_BATCH_NODE_STARTUP_DIR": "directory of the start task",
    "AZ_BATCH_NODE_STARTUP_WORKING_DIR": "its working directory",
    "AZ_BATCH_NODE_MOUNTS_DIR": "mounted file systems",
    "AZ_BATCH_JOB_ID": "id of the job",
    "AZ_BATCH_TASK_ID": "id of the task",
    "AZ_BATCH_TASK_DIR": "directory of the task",
    "AZ_BATCH_TASK_WORKING_DIR": "its working directory `wd`",
    "AZ_BATCH_TASK_RESERVED_EPHEMERAL_DISK_SPACE_BYTES": "with less free space, the node is `unusable` (`DiskFull`)",
    "AZ_BATCH_RESERVED_EPHEMERAL_DISK_SPACE_BYTES": "the same, by another name",
    "AZ_BATCH_RESERVED_DISK_SPACE_BYTES": "the same for the disk of the system",
    "AZ_BATCH_JOB_PREP_DIR": "directory of the job preparation task, if the job has one",
    "AZ_BATCH_JOB_PREP_WORKING_DIR": "its working directory",
    "AZ_BATCH_APP_PACKAGE_NAME_VERSION": "directory of an application package",
    "AZ_BATCH_TASK_SHARED_DIR": "multi-instance: the directory of the task, the same path on every node",
    "AZ_BATCH_HOST_LIST": "multi-instance: addresses of the nodes, `10.0.0.4,10.0.0.5`; in a launch, the primary first",
    "AZ_BATCH_NODE_LIST": "multi-instance: the same with semicolons",
    "AZ_BATCH_MASTER_NODE": "multi-instance: `10.0.0.4:6000`; Batch itself uses this port",
    "AZ_BATCH_IS_CURRENT_NODE_MASTER": "multi-instance: `true` on the primary, otherwise `false`",
}
"""Variables that Azure Batch sets, and their values (Azure Batch: compute node environment variables)."""
LAUNCH = {
    "BATCHTRAIN_ATTEMPT": "the number of this attempt of the task, from 1; without `checkpoint`, each node counts anew",
    "BATCHTRAIN_ATTEMPT_DIR": "a directory of this attempt that outlives it; without `checkpoint`, on the primary only",
    "BATCHTRAIN_RUN": "the name of the run that added the job; every task of the job has it",
}
"""Variables of a gang, and of a task with `source` or `checkpoint`."""
FACTORY = {
    "BATCHTRAIN_PARAMETERS": 'the parameters of the task as JSON: `{"lr": 0.1, "batch": 32}`',
}
"""Variables of tasks that a grid or a list makes."""
CHECKPOINT = {
    "BATCHTRAIN_CHECKPOINT_DIR, BATCHTRAIN_CHECKPOINT_KEEP": "where the checkpoints are; how many are kept",
    "BATCHTRAIN_PREEMPTION": "a file that appears when Azure announces the preemption of a node",
    "BATCHTRAIN_LINEAGE": "the name and the commit of the run, as JSON",
}
"""Variables of tasks that keep checkpoints."""
EVERY_PROCESS = {
    "BATCHTRAIN_RANK, BATCHTRAIN_WORLD_SIZE": "number of the process from 0, and all processes that train",
    "BATCHTRAIN_LOCAL_RANK, BATCHTRAIN_LOCAL_SIZE": "the same within the node",
    "BATCHTRAIN_ROLE, BATCHTRAIN_INDEX": "such as `worker`, `ps`; number within the role",
    "BATCHTRAIN_NODES, BATCHTRAIN_NODE_RANK": "number of nodes; number of this node, 0 is the primary",
    "BATCHTRAIN_NODE_ADDRESS, BATCHTRAIN_PORT": "address of this node; a port of the process",
    "BATCHTRAIN_PROCESSES_PER_NODE": "processes of this node",
    "BATCHTRAIN_MASTER_ADDRESS, BATCHTRAIN_MASTER_PORT": "where the processes meet",
    "BATCHTRAIN_BACKEND": "`nccl` on GPUs, otherwise `gloo`",
    "BATCHTRAIN_HOST_LIST": "addresses of the nodes, the primary first",
    "BATCHTRAIN_WORKER_HOSTS, BATCHTRAIN_<ROLE>_HOSTS": "`address:port` of each process of a role",
    "CUDA_VISIBLE_DEVICES": "GPUs of the process, on nodes with GPUs; empty for roles without GPUs",
}
AZURE_ML = {
    "AZ_BATCHAI_MPI_MASTER_NODE": ("address of the primary", "every framework and MPI"),
    "AZUREML_CR_NODE_RANK": ("number of the node, 0 is the primary", "every framework and MPI"),
    "AZ_BATCH_MASTER_NODE, AZ_BATCH_HOST_LIST": ("see above", "Azure Batch"),
    "AZURE_ML_INPUT_<NAME>": ("a value of `inputs`", "`bt.command(inputs=...)`"),
    "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE": ("number of the rank, and all ranks", "Open MPI, `jax`"),
    "OMPI_COMM_WORLD_LOCAL_RANK": ("number within the node", "Open MPI, `jax`"),
    "OMPI_COMM_WORLD_LOCAL_SIZE": ("ranks of the node", "Open MPI"),
    "MASTER_ADDR, MASTER_PORT": ("address of the primary, and 6105; your values win", "every MPI"),
    "MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK, NODE_RANK": (
        "see `pytorch`",
        "`pytorch` and its relatives",
    ),
    "TF_CONFIG": ("see `tensorflow`; without `environment: cloud`, which TensorFlow 2 does not read", "`tensorflow`"),
    "AZUREML_PROCESS_NAME": ("–", "not set"),
}
"""Variables of Azure ML's distributed training guide, their values, and what sets them here."""


def page() -> str:
    """The whole page."""
    parts = (
        HEAD,
        _section("From Azure Batch", "The emulator sets them too.", BATCH.items()),
        _section("Every attempt of a gang, and of a task with `source` or `checkpoint`", "", LAUNCH.items()),
        _section("Every task of a `grid` or a `list`", "A value of the recipe wins.", FACTORY.items()),
        _section("Every task with `checkpoint`", "Set by the launch.", CHECKPOINT.items()),
        _section(
            "Every process of a framework", "Set by the node launcher, whatever was set before.", EVERY_PROCESS.items()
        ),
        *(_framework(name, kind.variables) for name, kind in FRAMEWORKS.items()),
        _mpi(),
        _table(
            "In Azure ML's guide", "", ("variable", "value", "set by"), ((_code(k), *v) for k, v in AZURE_ML.items())
        ),
    )
    return "\n".join(parts)


def _section(title: str, text: str, rows: Iterable[tuple[str, str]]) -> str:
    return _table(title, text, ("variable", "value"), ((_code(name), value) for name, value in rows))


def _framework(name: str, variables: Iterable[Variable]) -> str:
    text = "A value of the recipe wins where the last column says `default`."
    rows = (
        (_code(v.name), v.value or f"`{v.option}`", v.because, "default" if v.keeps else "always") for v in variables
    )
    return _table(f"`{name}`", text, ("variable", "value", "reason", "set"), rows)


def _mpi() -> str:
    text = "An MPI tells its ranks their numbers itself. batchtrain adds the first two variables of the next table."
    rows = ((f"`{name}`", mpi.library, _code(", ".join(mpi.rank))) for name, mpi in MPIS.items())
    return _table("`mpi`", text, ("runtime", "library", "the rank's number"), rows)


def _table(title: str, text: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
    return "\n".join((f"## {title}\n", *([f"{text}\n"] if text else []), *lines, ""))


def _code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))
