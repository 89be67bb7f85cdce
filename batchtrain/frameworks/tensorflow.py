"""TensorFlow: the roles of a cluster, and the flags of TensorFlow 1 for each role; the node launcher sets TF_CONFIG.

Source: TensorFlow, Distributed training (TF_CONFIG; MultiWorkerMirroredStrategy; ParameterServerStrategy) and
tf.estimator.train_and_evaluate; tensorflow/benchmarks, benchmark_cnn.py; measured with TensorFlow 1.15 and 2.15.
"""

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from batchtrain.frameworks.base import COMMAND, BlockFault, FrameworkRule, Nodes, Role, Scripts, Variable, says

_CONFIG = Variable(
    "TF_CONFIG", "the cluster's addresses, and this process's role and number",
    "TensorFlow's strategies read their cluster from it",
)  # fmt: skip
_FLAGS = Variable(
    "flags", "--job_name --task_index and the hosts of each role",
    "programs of TensorFlow 1 read their cluster from it",
)  # fmt: skip

FLAGS = ("job_name", "task_index", "ps_hosts", "worker_hosts", "chief_hosts", "controller_host")
"""The names in braces that a command of `flags` may contain; the node launcher fills them for each process."""

ALONE = ("replicated", "independent", "horovod")
"""The values of tf_cnn_benchmarks' `--variable_update` that do not support a TensorFlow cluster."""
NO_SERVERS = ("collective_all_reduce", "distributed_all_reduce")
_UPDATE = re.compile(r"(?<!\S)--?variable_update(?:=|\s+)[\"']?(\w+)")
_ROLE_FLAG = r"(?<!\S)--?(job_name|task_index|ps_hosts|worker_hosts|controller_host)(?:=|\s+)(?!\{)[\"']?[^\s\"']+"
_BENCHMARK_FLAGS = (
    ("distributed_all_reduce", r"--all_reduce_spec[=\s]+[\"']?nccl(?![\w/:])",
     "that stays within one node; for several workers write `nccl/xring`"),
    ("(?!parameter_server).+", r"--staged_vars(?![\w=]|\s+(?:[Ff]alse|0))|--staged_vars[=\s]+(?:[Tt]rue|1)\b",
     "it works only with parameter servers"),
    ("distributed_replicated", r"--cross_replica_sync[=\s]+(?:[Ff]alse|0)\b|--nocross_replica_sync\b",
     "the replicas must wait for each other"),
)  # fmt: skip
"""The flags that tf_cnn_benchmarks refuses: by `--variable_update`, with the reason."""


NEEDS_SPEC = "ends at once without `--all_reduce_spec`; add `--all_reduce_spec=collective`"


class TensorFlowBlock(Nodes, frozen=True, kw_only=True):
    """TensorFlow and Keras: TF_CONFIG, or the flags of TensorFlow 1, for each role of a cluster."""

    mode: Annotated[
        Literal["multi_worker_mirrored", "parameter_server", "estimator", "flags"],
        says(
            "Kind of the cluster: only workers; chief, workers and servers; TensorFlow 1's Estimator; or TensorFlow 1's"
            " flags (`--job_name`, `--task_index`, `--ps_hosts`, `--worker_hosts`), also of tf_cnn_benchmarks.",
            "batchtrain: TF_CONFIG / flags",
        ),
    ] = "multi_worker_mirrored"
    parameter_servers: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)] | None,
        says(
            "Parameter servers of all nodes together, on CPUs. Default: one per node.", "batchtrain: launch (role `ps`)"
        ),
    ] = None
    chief_name: Annotated[
        Literal["chief", "master"],
        says("Name of the chief role; `master` up to TensorFlow 1.3.", "batchtrain: TF_CONFIG"),
    ] = "chief"
    evaluator: Annotated[
        bool,
        says(
            "Start an additional evaluator process on a CPU; it ends with the others.",
            "batchtrain: launch (role `evaluator`)",
        ),
    ] = False

    name: ClassVar[str] = "tensorflow"
    source: ClassVar[str] = "TensorFlow: TF_CONFIG"
    scripts: ClassVar[Scripts] = Scripts(
        imports=("tensorflow",),
        weak_imports=("keras", "keras_hub", "keras_nlp", "keras_cv", "keras_rs", "keras_tuner"),
        level=-1,  # beside another framework it reads data
        image="tensorflow",
        packages=("tensorflow", "tensorflow-cpu"),
        keras_backend="tensorflow",
        joined_by=(
            "MultiWorkerMirroredStrategy", "distribute", "distribution", "ParameterServerStrategy", "estimator",
            "TF_CONFIG", "ClusterSpec", "horovod", "RANK", "WORLD_SIZE",
        ),
    )  # fmt: skip
    variables: ClassVar[tuple[Variable, ...]] = (_CONFIG,)
    passed_on: ClassVar[tuple[str, ...]] = ("mode",)
    rules: ClassVar[tuple[FrameworkRule, ...]] = (
        FrameworkRule("tensorflow-launch", "The roles of a TensorFlow cluster can work together.",
                      "TensorFlow: Distributed training; tensorflow/benchmarks: benchmark_cnn.py"),
    )  # fmt: skip

    def shown_variables(self) -> tuple[Variable, ...]:
        return (_FLAGS if self.mode == "flags" else _CONFIG,)

    def roles(self, command: str, instances: int) -> tuple[Role, ...]:
        if self.mode == "flags":
            return self._by_flags(command, instances)
        aside = Role("chief", command, total=1, placement="primary", gpus=False, ranked=False)
        evaluators = (aside._replace(name="evaluator", decides=False, linger=30),) if self.evaluator else ()
        worker = Role("worker", command)
        if self.mode == "multi_worker_mirrored":  # every process trains and ends by itself
            return (worker, *evaluators)
        servers = self._servers(command, instances)
        if self.mode == "estimator":  # the chief is the first training process
            chief = Role(self.chief_name, command, total=1, placement="primary", instead_of="worker")
            return (chief, worker, servers, *evaluators)
        # The chief leads and does not train. Workers and servers wait for it without end, so only the chief decides
        # when the gang is complete.
        return (aside, worker._replace(decides=False), servers, *evaluators)

    def _servers(self, command: str, instances: int) -> Role:
        """Parameter servers wait without end, so they do not decide when the gang is complete, and they may not use a
        GPU."""
        total = self.parameter_servers if self.parameter_servers is not None else instances
        return Role("ps", command, total=total, placement="spread", gpus=False, ranked=False, decides=False)

    def _by_flags(self, command: str, instances: int) -> tuple[Role, ...]:
        """ps and workers for any program of TensorFlow 1; for tf_cnn_benchmarks, the roles that `--variable_update`
        allows."""
        update = update_of(command)
        if update == "collective_all_reduce":
            return (Role("worker", _with(command, "worker_hosts")),)
        if update == "distributed_all_reduce":
            text = _with(command, "worker_hosts", "controller_host")
            return (
                Role("controller", text, total=1, placement="primary", gpus=False, ranked=False),
                Role("worker", text, decides=False),
            )
        text = _with(command, "ps_hosts", "worker_hosts")
        return (self._servers(text, instances), Role("worker", text))

    def faults(self, command: str, instances: int | None) -> Iterator[BlockFault]:
        yield from super().faults(command, instances)
        update = update_of(command)
        for key, text in self._cluster(update):
            yield BlockFault("tensorflow-launch", key, text)
        for key, text in self._benchmark(command, update):
            yield BlockFault("tensorflow-launch", key, text, launchable=True)

    def _cluster(self, update: str) -> Iterator[tuple[str, str]]:
        serverless = update in NO_SERVERS or self.mode == "multi_worker_mirrored"
        if self.parameter_servers and serverless:
            kind = f"--variable_update={update}" if update in NO_SERVERS else f"mode: {self.mode}"
            yield "parameter_servers", f"`{kind}` has only workers and no parameter servers; remove it"
        if self.parameter_servers == 0 and not serverless:
            yield "parameter_servers", f"`mode: {self.mode}` needs parameter servers; give one or more"
        if self.mode == "flags" and self.evaluator:
            yield "evaluator", "`mode: flags` has no evaluator; it is a role of TF_CONFIG"
        if self.mode == "flags" and update in ALONE:
            instead = "; write a `horovod` block" if update == "horovod" else ", or an ordinary task on one node"
            yield (
                COMMAND,
                f"`--variable_update={update}` does not support a cluster on several nodes; use"
                f" `collective_all_reduce` or `parameter_server`{instead}",
            )

    def _benchmark(self, command: str, update: str) -> Iterator[tuple[str, str]]:
        if update and self.mode != "flags":
            yield "mode", f"tf_cnn_benchmarks reads flags, not TF_CONFIG; write `mode: flags`, not `{self.mode}`"
        for kind, pattern, why in _BENCHMARK_FLAGS:
            if re.fullmatch(kind, update) and (match := re.search(pattern, command)):
                yield COMMAND, f"`{match[0]}` with `--variable_update={update}`: {why}"
        if update == "collective_all_reduce" and not re.search(r"--?all_reduce_spec[=\s]+\S", command):
            yield COMMAND, f"`--variable_update={update}` {NEEDS_SPEC}"
        role_flag = re.search(_ROLE_FLAG, command) if self.mode == "flags" else None
        if role_flag:
            yield (
                COMMAND,
                f"`--{role_flag[1]}` is set for each process by the `tensorflow` launch; remove it, or write"
                f" `--{role_flag[1]}={{{role_flag[1]}}}` where it belongs",
            )


def update_of(command: str) -> str:
    """The `--variable_update` of tf_cnn_benchmarks, or its default; empty for any other program."""
    if "tf_cnn_benchmarks" not in command:
        return ""
    match = _UPDATE.search(command)
    return match[1] if match else "parameter_server"


def _with(command: str, *hosts: str) -> str:
    """The command with the flags of its role at the end, unless it has placeholders for them."""
    if any(f"{{{name}}}" in command for name in FLAGS):
        return command
    return " ".join((command.rstrip(), *(f"--{name}={{{name}}}" for name in ("job_name", "task_index", *hosts))))
