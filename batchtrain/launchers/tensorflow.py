"""TensorFlow: which roles a cluster has, and the flags of TensorFlow 1 for each; TF_CONFIG is the node launcher's.

Source: TensorFlow, Distributed training (TF_CONFIG; MultiWorkerMirroredStrategy; ParameterServerStrategy) and
tf.estimator.train_and_evaluate; tensorflow/benchmarks, benchmark_cnn.py; measured with TensorFlow 1.15 and 2.15.
"""

from __future__ import annotations

import re

from batchtrain.errors import PlanError
from batchtrain.launchers import nodes
from batchtrain.launchers.environment import Variable
from batchtrain.launchers.nodes import Framework, Role
from batchtrain.launchers.types import Launch, Shape, TensorFlow

_RULE = "framework-environment"
_CONFIG = Variable(
    "TF_CONFIG", "the cluster's addresses, and this process's role and number",
    "TensorFlow's strategies read their cluster from it", _RULE,
)  # fmt: skip
_FLAGS = Variable(
    "flags", "--job_name --task_index and the hosts of each role",
    "programs of TensorFlow 1 read their cluster from it", _RULE,
)  # fmt: skip

FLAGS = ("job_name", "task_index", "ps_hosts", "worker_hosts", "chief_hosts", "controller_host")
"""What a command of `flags` may hold in braces; the node launcher fills it in for each process."""

ALONE = {
    "replicated": "uses the GPUs of one node",
    "independent": "shares nothing between its GPUs",
    "horovod": "is started by Horovod; write a `horovod` block in place of `tensorflow`",
}
"""Of tf_cnn_benchmarks' `--variable_update`: those that know no cluster of TensorFlow, and why."""

_UPDATE = re.compile(r"(?<!\S)--?variable_update(?:=|\s+)[\"']?(\w+)")


def launch(options: TensorFlow, command: str, shape: Shape) -> Launch:
    """The launch with a `tensorflow` block. Raises PlanError for roles that cannot work together."""
    roles = _MODES[options.mode](options, command, shape)
    told = _FLAGS if options.mode == "flags" else _CONFIG
    framework = Framework(
        name="tensorflow",
        roles=roles,
        options={"mode": options.mode},
        each=1,
        told=(told,),
    )
    return nodes.launch(framework, options.nodes, command, shape)


# --- the roles of each mode -----------------------------------------------------------------------------------------


def _servers(options: TensorFlow, command: str, shape: Shape) -> Role:
    """They wait for ever; so they neither decide nor may they take a GPU."""
    total = options.parameter_servers if options.parameter_servers is not None else shape.instances
    if total < 1:
        raise PlanError(f"`mode: {options.mode}` needs parameter servers, and `parameter_servers` is {total}")
    return Role("ps", command, total=total, place="spread", gpus=False, ranked=False, decides=False)


def _evaluator(options: TensorFlow, command: str) -> tuple[Role, ...]:
    if not options.evaluator:
        return ()
    last = Role("evaluator", command, total=1, place="primary", gpus=False, ranked=False, decides=False, linger=30)
    return (last,)


def _no_servers(options: TensorFlow, why: str) -> None:
    if options.parameter_servers:
        raise PlanError(f"{why} has no parameter servers; take `parameter_servers` out")


def _mirrored(options: TensorFlow, command: str, shape: Shape) -> tuple[Role, ...]:
    """Workers alone: every one trains, and ends by itself."""
    _no_servers(options, "`mode: multi_worker_mirrored`")
    return (Role("worker", command), *_evaluator(options, command))


def _coordinated(options: TensorFlow, command: str, shape: Shape) -> tuple[Role, ...]:
    """The chief leads and does not train; workers and servers wait for its orders for ever, so it alone decides."""
    return (
        Role("chief", command, total=1, place="primary", gpus=False, ranked=False),
        Role("worker", command, decides=False),
        _servers(options, command, shape),
        *_evaluator(options, command),
    )


def _estimator(options: TensorFlow, command: str, shape: Shape) -> tuple[Role, ...]:
    """The chief is the first of the processes that train, on the primary: it takes the place of a worker."""
    return (
        Role(options.chief_name, command, total=1, place="primary", instead_of="worker"),
        Role("worker", command),
        _servers(options, command, shape),
        *_evaluator(options, command),
    )


def _flags(options: TensorFlow, command: str, shape: Shape) -> tuple[Role, ...]:
    """ps and workers for any program of TensorFlow 1; of tf_cnn_benchmarks what its `--variable_update` allows."""
    if options.evaluator:
        raise PlanError("`mode: flags` has no evaluator; it is a role of TF_CONFIG")
    update = update_of(command)
    if update in ALONE:
        raise PlanError(f"`--variable_update={update}` {ALONE[update]}; it has no roles on several nodes")
    if update == "collective_all_reduce":
        _no_servers(options, f"`--variable_update={update}`")
        return (Role("worker", _with(command, "worker_hosts")),)
    if update == "distributed_all_reduce":
        _no_servers(options, f"`--variable_update={update}`")
        text = _with(command, "worker_hosts", "controller_host")
        return (
            Role("controller", text, total=1, place="primary", gpus=False, ranked=False),
            Role("worker", text, decides=False),
        )
    text = _with(command, "ps_hosts", "worker_hosts")
    return (_servers(options, text, shape), Role("worker", text))


def update_of(command: str) -> str:
    """tf_cnn_benchmarks' `--variable_update`, its default when it is not said; empty for any other program."""
    if "tf_cnn_benchmarks" not in command:
        return ""
    match = _UPDATE.search(command)
    return match[1] if match else "parameter_server"


def _with(command: str, *hosts: str) -> str:
    """The command with the flags of its role at the end, but where it has places for them."""
    if any(f"{{{name}}}" in command for name in FLAGS):
        return command
    return " ".join((command.rstrip(), *(f"--{name}={{{name}}}" for name in ("job_name", "task_index", *hosts))))


_MODES = {
    "multi_worker_mirrored": _mirrored,
    "parameter_server": _coordinated,
    "estimator": _estimator,
    "flags": _flags,
}
