"""Rules about roles and flags of frameworks, as far as they can be read safely from the command and environment."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from batchtrain.config.check.subject import Path, Placed, Subject, command_of
from batchtrain.config.check.table import ERROR, JOBS, WARNING, Found, Rule
from batchtrain.frameworks.mpi import runs_cntk
from batchtrain.frameworks.mxnet import KVSTORE
from batchtrain.frameworks.tensorflow import NEEDS_SPEC

FLAG = r"(?<!\S)--?([A-Za-z_][\w-]*)(?:=|\s+)(?:\"([^\"]*)\"|'([^']*)'|(?!-)([^\s\"';&|]*))"
ONE_BIT = r"(?<!\S)(-q|--quantized_bits)[\s=]+[\"']?1(?![\d.])|\b(gradientBits|num_quantization_bits)\s*=\s*1(?![\d.])"
WARM_START = r"(?<!\S)(-a|--distributed_after)(?=[\s=])|\b(distributed_after|parallelizationStartEpoch)\s*="
LOCAL_KVSTORES = frozenset({"local", "device", "nccl", "nccl_allreduce"})
SERVERS = r"\blaunch\.py\b.*?(?<!\S)(?:-s|--num-servers)[=\s]+0(?!\d)"


# --- CNTK -----------------------------------------------------------------------------------------------------------


def _one_bit(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        command = command_of(task)
        is_cntk = "1" in command and runs_cntk(command, task.docker_image or task.singularity_image or "")
        match = re.search(ONE_BIT, command) if is_cntk else None
        if match and not re.search(WARM_START, command):
            yield (
                (*path, "command"),
                f"`{' '.join(match[0].split())}` uses 1-bit SGD from the first sample on, which may not converge:"
                " CNTK should start with full gradients (`-a SAMPLES`, `distributed_after`,"
                " `parallelizationStartEpoch`); write `-a 0` if this is intended",
            )


# --- TensorFlow -----------------------------------------------------------------------------------------------------


def _benchmarks(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        command = command_of(task)
        has_launch = task.multi_instance is not None and task.multi_instance.tensorflow is not None
        if "tf_cnn_benchmarks" in command and not has_launch:  # a launch sets the roles: `tensorflow-launch`
            flags = {name.replace("-", "_"): a or b or c for name, a, b, c in re.findall(FLAG, command)}
            yield from (((*path, "command"), fault) for fault in _benchmark_faults(flags))


def _benchmark_faults(flags: dict[str, str]) -> Iterator[str]:
    """The flags that tf_cnn_benchmarks.py refuses, or that make it wait forever."""
    kind = flags.get("variable_update", "parameter_server")
    role, servers, workers = flags.get("job_name", ""), flags.get("ps_hosts", ""), flags.get("worker_hosts", "")
    if "$" in kind:
        return
    if kind in ("replicated", "independent", "horovod") and role:
        yield f"`--variable_update={kind}` is one process of its own, and `--job_name={role}` makes it one of a cluster"
    if kind == "distributed_replicated" and not role:
        yield "`--variable_update=distributed_replicated` needs `--job_name` (ps or worker)"
    if kind in ("parameter_server", "distributed_replicated") and role and not servers:
        yield f"`--variable_update={kind}` with workers needs parameter servers: `--ps_hosts`"
    if kind in ("horovod", "collective_all_reduce", "distributed_all_reduce") and (servers or role == "ps"):
        yield f"`--variable_update={kind}` has no parameter servers; remove `--ps_hosts` and the role `ps`"
    if kind == "distributed_all_reduce" and not flags.get("controller_host"):
        yield "`--variable_update=distributed_all_reduce` needs a controller: `--controller_host`"
    if kind == "distributed_all_reduce" and flags.get("all_reduce_spec") == "nccl" and "," in workers:
        yield "`--all_reduce_spec=nccl` stays within one node; for several workers write `nccl/xring`"
    if kind in ("parameter_server", "distributed_replicated") and role and not workers:
        yield f"`--job_name={role}` belongs to a cluster, but its workers are not given: add `--worker_hosts`"
    hosts, index = servers if role == "ps" else workers, flags.get("task_index", "")
    if role in ("ps", "worker") and index.isdecimal() and hosts and "$" not in hosts and int(index) > hosts.count(","):
        yield f"`--task_index={index}` of {hosts.count(',') + 1} `{role}` processes, which are counted from 0"
    if kind == "collective_all_reduce" and not flags.get("all_reduce_spec"):
        yield f"`--variable_update={kind}` {NEEDS_SPEC}"
    if kind == "collective_all_reduce" and flags.get("controller_host"):
        yield "`--variable_update=collective_all_reduce` has only workers; remove `--controller_host`"
    gpus = flags.get("num_gpus", "1")
    if kind == "horovod" and gpus.isdigit() and int(gpus) > 1:
        yield f"under Horovod each process has one GPU, so `--num_gpus={gpus}` is refused; start a process for each GPU"
    if kind != "parameter_server" and flags.get("staged_vars", "").lower() in ("true", "1"):
        yield f"`--staged_vars` works only with parameter servers, not with `--variable_update={kind}`"


def _cluster(subject: Subject) -> Found:
    for path, owner in subject.owners:
        text = owner.environment_variables.get("TF_CONFIG")
        if text is not None:
            yield from (((*path, "environment_variables", "TF_CONFIG"), fault) for fault in _cluster_faults(text))


def _cluster_faults(text: str) -> Iterator[str]:
    """The values that TensorFlow cannot read, or that make it wait forever."""
    try:
        config = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        if "$" not in text:
            yield 'TF_CONFIG is not JSON; it looks like {"cluster": {"worker": ["HOST:PORT"]}, "task": {...}}'
        return
    cluster = config.get("cluster") if isinstance(config, dict) else None
    task = config.get("task", {}) if isinstance(config, dict) else {}
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        yield "TF_CONFIG needs a `cluster`, with the hosts of each role"
        return
    if "ps" in cluster and not {"worker", "chief", "master"} & set(cluster):
        yield "TF_CONFIG has parameter servers but no worker; add `worker`"
    role, index = task.get("type"), task.get("index")
    if role is not None and role not in cluster and role != "evaluator":
        yield f"TF_CONFIG has the role `{role}`, which is not in the cluster; it has {', '.join(sorted(cluster))}"
    elif role in cluster and isinstance(index, int) and not 0 <= index < len(cluster[role]):
        yield f"TF_CONFIG has the role `{role}` {index}, but the cluster has {len(cluster[role])} of them, from 0"


# --- MXNet ----------------------------------------------------------------------------------------------------------


def _mxnet_roles(subject: Subject) -> Found:
    for placed_task in subject.tasks:
        path, _, task = placed_task
        command = command_of(task)
        variables = (*task.environment_variables, *placed_task.job.environment_variables)
        if "DMLC_" not in command and "kv" not in command and not any(name.startswith("DMLC_") for name in variables):
            continue
        for name, where in (("DMLC_NUM_SERVER", "parameter servers"), ("DMLC_NUM_WORKER", "workers")):
            at, value = _variable(placed_task, name)
            if value == "0":
                yield at, f"`{name}=0`: ps-lite would wait forever for {where}; give one or more"
        at, role = _variable(placed_task, "DMLC_ROLE")
        if role and "$" not in role and role not in ("scheduler", "server", "worker"):
            yield at, f"`DMLC_ROLE={role}` is not a role; write scheduler, server or worker"
        store = re.search(KVSTORE, command)
        if store and "dist" in store[1] and re.search(SERVERS, command):
            yield ((*path, "command"), f"kv-store `{store[1]}` needs parameter servers, but `launch.py` starts none")
        van = _variable(placed_task, "DMLC_PS_VAN_TYPE")[1]
        if store and van == "p3" and "async" in store[1]:
            message = f"kv-store `{store[1]}` does not work with `DMLC_PS_VAN_TYPE=p3`; use a `_sync` one"
            yield (*path, "command"), message


def _mxnet_local(subject: Subject) -> Found:
    for path, _, task, gang in subject.gangs:
        store = re.search(KVSTORE, command_of(task))
        if store and store[1] in LOCAL_KVSTORES:
            instead = "`horovod`" if gang.horovod is not None else "`dist_sync` or `dist_device_sync`"
            yield (
                (*path[:-1], "command"),
                f"kv-store `{store[1]}` works within one process, so each process would train alone; write {instead}",
            )


def _variable(placed_task: Placed, name: str) -> tuple[Path, str]:
    """The value of a variable as the task sees it, and its path; empty if the variable is not set."""
    path, job, task = placed_task
    match = re.search(rf"\b{name}=(\S+)", command_of(task))
    if match:
        return (*path, "command"), match[1].strip("\"';")
    if name in task.environment_variables:
        return (*path, "environment_variables", name), task.environment_variables[name]
    return (*path[:2], "environment_variables", name), job.environment_variables.get(name, "")


RULES = (
    Rule("cntk-one-bit", WARNING, JOBS, "1-bit SGD begins after a warm start.",
         "CNTK: Enabling 1-bit SGD; Examples, TrainResNet_CIFAR10_Distributed.py", _one_bit),
    Rule("tensorflow-roles", ERROR, JOBS, "The roles of tf_cnn_benchmarks are consistent.",
         "tensorflow/benchmarks: benchmark_cnn.py, its own checks", _benchmarks),
    Rule("tensorflow-cluster", ERROR, JOBS, "TF_CONFIG is a cluster that contains the role of the task.",
         "TensorFlow: Distributed training, TF_CONFIG", _cluster),
    Rule("mxnet-roles", ERROR, JOBS, "ps-lite has servers and workers.",
         "MXNet: Distributed training; src/kvstore/kvstore.cc", _mxnet_roles),
    Rule("mxnet-local", WARNING, JOBS, "A gang of MXNet exchanges gradients.", "MXNet: src/kvstore/kvstore.cc",
         _mxnet_local),
)  # fmt: skip
