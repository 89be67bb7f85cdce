"""Every framework trains across two nodes with two processes each, through the whole product, and ends as a gang."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from batchtrain import runtime
from batchtrain.config.load import load
from batchtrain.containers.recipe_images import behind
from batchtrain.emulator import mapped_images, server, steering
from tests import recipe_readmes, trained_models
from tests.conftest import framework_prefix
from tests.waiting import until

from .conftest import left_running

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
JOB = "job_specifications[0]"
TASK = f"{JOB}.tasks[0]"
GANG = f"{TASK}.multi_instance"
COMMAND = f"{TASK}.command"
VOLUMES = "global_resources.volumes.shared_data_volumes"
SHARED = "$AZ_BATCH_TASK_SHARED_DIR"
TOLERANCE = 0.06
"""How much less than a mode's accuracy will do: a sum in another order, or workers at another pace."""

RESULT = re.compile(
    r"^(?:\[\d+:[\w ]*\d+\] )?(?:rank|worker|chief) (\d+) of (\d+) .*?"
    r"host (\S+) .*?accuracy (\S+)(?: weights ([0-9a-f]{64}))?$",
    flags=re.M,
)


class Trained(NamedTuple):
    """What one process says at its end."""

    rank: int
    size: int
    host: str
    accuracy: float
    weights: str | None


class Mode(NamedTuple):
    """One way to train, as a recipe and what is set otherwise in it."""

    recipe: str
    accuracy: float
    """On images that nobody trained on, as it was measured."""
    ranks: int = 4
    settings: tuple[tuple[str, str], ...] = ()
    says: str = ""
    """A line or a part of one that proves the mode."""
    hosts: int = 2
    equal: bool = True
    """All processes end with the same weights."""
    resumes: bool = False
    """It fails once amid the training, and a retry continues from a checkpoint."""


def command(script: str, *arguments: str) -> tuple[tuple[str, str], ...]:
    return ((COMMAND, " ".join(("python -u", f"{SHARED}/{script}", *arguments))),)


def tf_cnn(update: str) -> tuple[tuple[str, str], ...]:
    return command("tf_cnn_benchmarks.py", f"--num_batches=480 --variable_update={update}")


CONVOLUTIONS = command("train.py", "--epochs 10", "--network conv")

MODES: Mapping[str, Mode] = {
    "PyTorch DDP": Mode("PyTorch-CPU", 0.97),
    "PyTorch DDP by torchrun": Mode("PyTorch-CPU", 0.97, settings=((f"{GANG}.pytorch.launcher", "torchrun"),)),
    "Accelerate": Mode("Accelerate", 0.97, says="precision bf16"),
    "DeepSpeed ZeRO 2": Mode("DeepSpeed", 0.97, says="stage 2"),
    "JAX": Mode("JAX", 0.97, says="devices 4", resumes=True),
    "Ray": Mode("Ray", 0.97, says="nodes 2 cpus 4"),
    "Horovod over gloo": Mode("Horovod-PyTorch", 0.97, says="over gloo"),
    "Horovod over MPI": Mode(
        "Horovod-PyTorch",
        0.97,
        settings=((f"{GANG}.horovod.over", "mpi"), (f"{GANG}.horovod.runtime", "openmpi")),
        says="over mpi",
    ),
    "MXNet dist_sync": Mode("MXNet-CPU", 0.97, says="kv-store dist_sync", resumes=True),
    "MXNet on the devices of each node": Mode("MXNet-GPU", 0.97, ranks=2, says="kv-store dist_device_sync"),
    "TensorFlow collective": Mode("TensorFlow-Distributed-CPU", 0.96, resumes=True),
    "TensorFlow parameter server": Mode(
        "TensorFlow-Distributed-CPU",
        0.97,
        ranks=1,
        hosts=1,
        settings=(
            (f"{GANG}.tensorflow.mode", "parameter_server"),
            (f"{GANG}.tensorflow.parameter_servers", "2"),
            (f"{GANG}.tensorflow.processes_per_node", "1"),
            (f"{GANG}.tensorflow.evaluator", "true"),
        ),
        says="evaluator host",
    ),
    "TensorFlow 1 parameter_server": Mode("TensorFlow-Benchmarks-CPU", 0.97, ranks=2, says="total images/sec: "),
    "TensorFlow 1 distributed_replicated": Mode(
        "TensorFlow-Benchmarks-CPU",
        0.97,
        ranks=2,
        settings=tf_cnn("distributed_replicated --num_gpus=2"),
        says="Variables:   distributed_replicated",
    ),
    "TensorFlow 1 collective_all_reduce": Mode(
        "TensorFlow-Benchmarks-CPU",
        0.97,
        ranks=2,
        settings=(
            (f"{GANG}.tensorflow.parameter_servers", "null"),
            *tf_cnn("collective_all_reduce --all_reduce_spec=collective --num_gpus=2"),
        ),
        says="AllReduce:   collective",
    ),
    "CNTK 32-bit": Mode(
        "CNTK-CPU-OpenMPI",
        0.96,
        settings=command("train.py", "--epochs 10", "-q 32"),
        says="learner 32-bit",
        resumes=True,
    ),
    "CNTK 1-bit SGD": Mode("CNTK-CPU-OpenMPI", 0.95, says="learner 1-bit"),
    "CNTK block momentum": Mode(
        "CNTK-CPU-OpenMPI", 0.93, settings=command("train.py", "--epochs 10", "-b 768"), says="learner block-momentum"
    ),
    "Keras in TensorFlow": Mode("Keras+TensorFlow", 0.97, resumes=True),
    "Keras over MXNet": Mode("Keras+MXNet", 0.98, says="backend mxnet"),
    "Keras over CNTK": Mode("Keras+CNTK", 0.97, says="backend cntk"),
    "Keras over MXNet, convolutions": Mode("Keras+MXNet", 0.96, settings=CONVOLUTIONS, says="backend mxnet"),
    "Keras over CNTK, convolutions": Mode("Keras+CNTK", 0.96, settings=CONVOLUTIONS, says="backend cntk"),
}
MORE_MODES: Mapping[str, Mode] = {
    "TensorFlow 1 parameter_server, asynchronous": Mode(
        "TensorFlow-Benchmarks-CPU",
        0.96,
        ranks=2,
        settings=tf_cnn("parameter_server --cross_replica_sync=False"),
        says="Sync:        False",
        equal=False,
    ),
    "TensorFlow 1 Estimator": Mode(
        "TensorFlow-Benchmarks-CPU",
        0.96,
        ranks=1,
        hosts=1,
        settings=(
            (f"{GANG}.tensorflow.mode", "estimator"),
            (f"{GANG}.tensorflow.evaluator", "true"),
            *command("estimator.py", "--model-dir SHARED_BY_NODES"),
        ),
        says="evaluator host",
        equal=False,
    ),
    "PyTorch FSDP": Mode("PyTorch-CPU", 0.97, settings=command("train.py", "--parallel fsdp")),
    "PyTorch DDP by torchrun, c10d": Mode(
        "PyTorch-CPU",
        0.97,
        settings=((f"{GANG}.pytorch.launcher", "torchrun"), (f"{GANG}.pytorch.rendezvous", "c10d")),
    ),
    "MXNet dist_async": Mode(
        "MXNet-CPU", 0.95, settings=command("train.py", "--kv-store dist_async", "--verify"), equal=False
    ),
    "MXNet dist_device_sync": Mode("MXNet-CPU", 0.97, settings=command("train.py", "--kv-store dist_device_sync")),
    "Horovod with TensorFlow over gloo": Mode(
        "Horovod-TensorFlow", 0.95, settings=((f"{GANG}.horovod.over", "gloo"),), says="over gloo"
    ),
    "Horovod with TensorFlow over MPI": Mode("Horovod-TensorFlow", 0.95, says="over mpi"),
    "Keras over PyTorch": Mode("Keras+PyTorch", 0.97, says="backend torch"),
    "Keras over JAX": Mode("Keras+JAX", 0.97, says="backend jax"),
}
"""Other ways of the same frameworks, which cost minutes more: only when asked for."""

pytestmark = [pytest.mark.process, pytest.mark.framework]
variant = pytest.mark.skipif(
    not os.environ.get("BATCHTRAIN_TEST_VARIANTS"), reason="a variant; BATCHTRAIN_TEST_VARIANTS=1 runs them all"
)


@pytest.fixture
def prepared(batchtrain: Any, framework_environment: Callable[[str], Path]) -> Callable[[str], str]:
    """Maps a recipe's images to real environments and gives its directory; skips where one cannot be had."""

    return functools.partial(mapped, batchtrain.home, framework_environment)


def mapped(home: Path, environment: Callable[[str], Path], recipe: str) -> str:
    """A recipe's directory, its images mapped to real environments."""
    directory = RECIPES / recipe
    for image in load(directory).recipe.resources.docker_images:
        mapped_images.map_image(home, image, environment(behind(image).environment))
    return str(directory)


def run(batchtrain: Any, directory: str, settings: tuple[tuple[str, str], ...] = (), *, errors: bool = False) -> str:
    """What a run printed, which must have ended well; with `errors` also what its processes wrote to stderr."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as shared:  # each node has a /tmp of its own
        filled = tuple((name, value.replace("SHARED_BY_NODES", shared)) for name, value in settings)
        done = batchtrain("run", directory, "--local", *words(filled))
    return str(done.stdout + done.stderr if errors else done.stdout)


def failing_once(directory: str, settings: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The settings with a command that fails after the fourth epoch; a retry continues from the checkpoint."""
    (task,) = load(directory, settings=dict(settings)).recipe.jobs[0].tasks
    again = f'[ -e "$BATCHTRAIN_CHECKPOINT_DIR/step-4" ] && exec {task.command} --epochs 10 --verify'
    return (
        *settings,
        (COMMAND, f"sh -c '{again}; {task.command} --epochs 4 && exit 7'"),
        (f"{TASK}.max_task_retries", "1"),
        (f"{TASK}.checkpoint.volume", "shared"),
        (f"{VOLUMES}.shared.volume_driver", "nfs"),
        (f"{VOLUMES}.shared.source", "server:/shared"),
    )


def interrupted(
    batchtrain: Any, directory: str, settings: tuple[tuple[str, str], ...], faults: tuple[tuple[str, str, int], ...]
) -> str:
    """What a run prints, which must end well. At each of these lines, in this order, a node of the pool is lost."""
    with started(batchtrain, "run", directory, "--local", *words(settings)) as process:
        printed, left = [], list(faults)
        for line in process.stdout:
            printed.append(line)
            if left and left[0][0] in line:
                _, act, number = left.pop(0)
                befall(batchtrain.home, act, number)
        _, errors = process.communicate()
    assert process.returncode == 0, "".join(printed) + errors
    assert not left, printed
    return "".join(printed)


def befall(home: Path, act: str, number: int) -> None:
    """A node of the only pool dies or is preempted, and is back at once."""
    status = server.status(home)
    assert status is not None
    nodes = sorted(path.name for path in home.glob("nodes/*/tvmps_*"))
    steering.befall(status, nodes[number], act, 0.0 if act == "preempt" else None)


def words(settings: tuple[tuple[str, str], ...]) -> list[str]:
    """The options of the command line."""
    return [word for name, value in settings for word in ("--set", f"{name}={value}")]


def verified(directory: str, settings: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The settings with a command whose processes say what weights they end with."""
    (task,) = load(directory, settings=dict(settings)).recipe.jobs[0].tasks
    return (*settings, (COMMAND, f"{task.command} --verify"))


def trained(printed: str) -> list[Trained]:
    """The result lines of all processes, by rank."""
    found = [
        Trained(int(rank), int(size), host, float(accuracy), weights or None)
        for rank, size, host, accuracy, weights in RESULT.findall(printed)
    ]
    return sorted(found)


@pytest.mark.parametrize("mode", MODES)
def test_a_framework_trains_on_two_nodes_and_all_processes_agree(
    mode: str, batchtrain: Any, prepared: Callable[[str], str]
) -> None:
    check(MODES[mode], batchtrain, prepared)


@variant
@pytest.mark.parametrize("mode", MORE_MODES)
def test_a_variant_trains_on_two_nodes_too(mode: str, batchtrain: Any, prepared: Callable[[str], str]) -> None:
    check(MORE_MODES[mode], batchtrain, prepared)


def check(mode: Mode, batchtrain: Any, prepared: Callable[[str], str]) -> None:
    directory = str(RECIPES / mode.recipe)
    settings = verified(directory, mode.settings) if mode.equal else mode.settings
    settings = failing_once(directory, mode.settings) if mode.resumes else settings
    if not mode.settings:  # as the README has it
        printed = recipe_readmes.follow(batchtrain, framework_prefix, mode.recipe, *words(settings))
    else:
        printed = run(batchtrain, prepared(mode.recipe), settings)
    results = trained(printed)
    assert [(one.rank, one.size) for one in results] == [(rank, mode.ranks) for rank in range(mode.ranks)], printed
    assert len({one.host for one in results}) == mode.hosts
    assert min(one.accuracy for one in results) >= max(0.9, mode.accuracy - TOLERANCE)
    assert mode.says in printed
    assert not mode.resumes or re.search(r"continues after epoch [34]$", printed, flags=re.M), printed
    if mode.equal:
        assert len({one.weights for one in results}) == 1
        assert results[0].weights is not None
    left = batchtrain.cwd / "runs/latest"
    (file,) = left.glob("metrics/*.jsonl")
    assert {"loss", "accuracy"} & names_in(file)
    assert "test_accuracy" in recorded(left)
    if mode.recipe in trained_models.EVALUATIONS:
        check_model(mode.recipe, batchtrain.cwd, printed)


def check_model(recipe: str, directory: Path, printed: str) -> None:
    """A new process loads the model of a run and reaches the accuracy that the run printed."""
    accuracy = re.findall(r"^(?:\[[\w: ]+\] )?test accuracy (\S+)$", printed, flags=re.M)[-1]  # of the last attempt
    prefix = framework_prefix(recipe_readmes.environment_of(recipe))
    trained_models.check(recipe, prefix, directory, float(accuracy))


def recorded(run: Path) -> set[str]:
    """The names of the metrics that the programs of a run wrote to $BATCHTRAIN_METRICS."""
    return set().union(*(names_in(path) for path in run.glob("metrics/*/*.jsonl") if path.stem != "node"))


def names_in(file: Path) -> set[str]:
    return {name for line in file.read_text().splitlines() for name in json.loads(line)}


class OnGpus(NamedTuple):
    """A recipe for GPUs whose program and lines that load its model are copies of those of a recipe for CPUs."""

    recipe: str
    size: str
    """Of the rank's world, in the variable of its launcher."""
    rank: str
    ranks: int
    """On the two nodes that the README takes."""


ON_GPUS = (
    OnGpus("PyTorch-GPU", "$WORLD_SIZE", "$RANK", 4),
    OnGpus("TensorFlow-Distributed-GPU", "$BATCHTRAIN_WORLD_SIZE", "$BATCHTRAIN_RANK", 2),
    OnGpus("CNTK-GPU-OpenMPI", "$OMPI_COMM_WORLD_SIZE", "$OMPI_COMM_WORLD_RANK", 4),
)


@pytest.mark.parametrize("case", ON_GPUS, ids=lambda case: case.recipe)
def test_the_commands_of_a_gpu_recipe_launch_its_ranks_where_there_is_no_gpu(
    case: OnGpus, batchtrain: Any, mpi_environment: Callable[[str], Path]
) -> None:
    """No framework is imported: the environment of Open MPI takes its place."""
    shown = words(((COMMAND, f"sh -c 'echo rank {case.rank} of {case.size}.'"),))
    printed = recipe_readmes.follow(batchtrain, lambda _: mpi_environment("openmpi"), case.recipe, *shown)
    found = re.findall(r"rank (\d+) of (\d+)\.$", printed, flags=re.M)
    assert sorted(found) == [(str(rank), str(case.ranks)) for rank in range(case.ranks)], printed


def test_the_pytorch_gpu_recipe_starts_a_rank_for_each_gpu_of_an_h100_node(
    batchtrain: Any, mpi_environment: Callable[[str], Path]
) -> None:
    shown = ((COMMAND, "echo rank=$RANK of=$WORLD_SIZE local=$LOCAL_RANK gpus=$CUDA_VISIBLE_DEVICES"),)
    printed = run(batchtrain, mapped(batchtrain.home, lambda _: mpi_environment("mpich"), "PyTorch-GPU"), shown)
    found = re.findall(r"rank=(\d+) of=16 local=(\d+) gpus=0,1,2,3,4,5,6,7$", printed, flags=re.M)
    assert sorted((int(rank), int(local)) for rank, local in found) == [(rank, rank % 8) for rank in range(16)]


def test_one_process_trains_on_all_devices_of_its_node(batchtrain: Any) -> None:
    settings = words(command("train.py", "--epochs 10 --replicas 2 --verify"))
    printed = recipe_readmes.follow(batchtrain, framework_prefix, "TensorFlow-GPU", *settings)
    (accuracy,) = re.findall(r"^replicas 2 accuracy (\S+) weights", printed, flags=re.M)
    assert float(accuracy) >= 0.9
    check_model("TensorFlow-GPU", batchtrain.cwd, printed)


@variant
def test_accelerate_finds_its_processes_without_a_configuration(
    batchtrain: Any, prepared: Callable[[str], str]
) -> None:
    script = "from accelerate import Accelerator; a = Accelerator(); print(a.process_index, a.num_processes, a.device)"
    printed = run(batchtrain, prepared("PyTorch-CPU"), ((COMMAND, f"python -c '{script}'"),))
    found = re.findall(r"^\[\d:\d\] (\d) 4 cpu(?::\d)?$", printed, flags=re.M)
    assert sorted(found) == ["0", "1", "2", "3"]


def test_accelerate_itself_reads_the_options_of_its_launcher(tmp_path: Path) -> None:
    file = tmp_path / "fsdp.yaml"
    file.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n"
        "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
    )
    runner = Path(runtime.__file__).with_name("accelerated.py")
    words = [framework_prefix("pytorch") / "bin/python", runner, "--config_file", file, "--mixed_precision", "bf16"]
    printed = subprocess.check_output(
        [*words, "--", "env"], env={**os.environ, "WORLD_SIZE": "4", "MASTER_PORT": "29501"}, text=True
    )
    values = {"ACCELERATE_USE_FSDP=true", "FSDP_SHARDING_STRATEGY=FULL_SHARD", "ACCELERATE_MIXED_PRECISION=bf16"}
    assert values <= {*printed.splitlines()}


def test_intels_own_benchmarks_run_over_intel_mpi(batchtrain: Any) -> None:
    printed = recipe_readmes.follow(batchtrain, framework_prefix, "mpiBench-IntelMPI")
    assert re.search(r"# Benchmarking PingPong .*#bytes +#repetitions", printed, flags=re.S)
    assert re.search(r"# Benchmarking Allreduce\s+# #processes = 4", printed)
    assert "# All processes entering MPI_Finalize" in printed


@pytest.mark.parametrize("mpi", ["MPICH", "OpenMPI"])
def test_messages_between_nodes_are_timed(mpi: str, batchtrain: Any) -> None:
    printed = recipe_readmes.follow(batchtrain, framework_prefix, f"mpiBench-{mpi}")
    assert "ranks 4 on 2 hosts" in printed
    assert len(re.findall(r"^(?:pingpong|allreduce) \d+ bytes [\d.]+ usec", printed, flags=re.M)) == 20


class Dying(NamedTuple):
    """A training that does not end by itself, and how its ranks are told apart."""

    recipe: str
    settings: tuple[tuple[str, str], ...]
    begun: str
    """In the first line that says that all ranks are training."""
    variable: str = "BATCHTRAIN_RANK"
    rank: int = 1


LONG = command("train.py", "--epochs 1000000")


def one_each(block: str) -> tuple[tuple[str, str], ...]:
    """One process on each of the two nodes: half the imports. A gang of each launcher has two, as its recipe says."""
    return ((f"{GANG}.{block}.processes_per_node", "1"),)


DYING: Mapping[str, Dying] = {
    "torchrun": Dying("PyTorch-CPU", (*LONG, (f"{GANG}.pytorch.launcher", "torchrun")), "epoch 2 ", "RANK", rank=3),
    "JAX": Dying("JAX", (*LONG, *one_each("jax")), "epoch 2 "),
    "Horovod over MPI": Dying(
        "Horovod-PyTorch",
        (*LONG, *one_each("horovod"), (f"{GANG}.horovod.over", "mpi"), (f"{GANG}.horovod.runtime", "openmpi")),
        "epoch 2 ",
        "OMPI_COMM_WORLD_RANK",
    ),
    "TensorFlow collective": Dying("TensorFlow-Distributed-CPU", (*LONG, *one_each("tensorflow")), "epoch 2 "),
    "TensorFlow 1 flags": Dying(
        "TensorFlow-Benchmarks-CPU",
        command("tf_cnn_benchmarks.py", "--variable_update=parameter_server --num_batches=100000000"),
        "serves",
    ),
    "CNTK": Dying("CNTK-CPU-OpenMPI", LONG, "epoch 2 ", "OMPI_COMM_WORLD_RANK", rank=3),
}
"""Of each launcher, and of each library by which the others notice a death. In FAILING, ranks of PyTorch's gloo and of
MXNet end amid a step; DeepSpeed and Horovod meet by gloo, too. Ranks of JAX all fail when one does, with exit codes of
their own: an exception in a step proves no more of it than a killed rank."""


@pytest.mark.parametrize("framework", DYING)
def test_a_killed_rank_is_named_and_the_gang_is_gone(
    framework: str, batchtrain: Any, prepared: Callable[[str], str]
) -> None:
    case = DYING[framework]
    directory = prepared(case.recipe)
    with started(batchtrain, "run", directory, "--local", *words(case.settings)) as process:
        assert process.stdout is not None
        seen = next((line for line in process.stdout if case.begun in line), None)
        assert seen is not None, process.stderr.read()
        gang = ranks(batchtrain.home, case.variable)
        os.kill(gang[case.rank], signal.SIGKILL)
        until(lambda: not any(map(runs, gang.values())))
        _, errors = process.communicate()
    assert process.returncode == 10, errors
    assert re.search(rf"rank {case.rank} on node tvmps_\w+…_d \(127\.\S+\) was killed by signal 9", errors), errors
    assert not left_running(batchtrain.home)


def test_a_ray_cluster_that_loses_a_node_is_ended_with_its_command(
    batchtrain: Any, prepared: Callable[[str], str]
) -> None:
    """The command calls nothing on the lost node: one that does may fail first, and is named then."""
    program = 'import ray, time; ray.init(logging_level="ERROR"); print("begun", flush=True); time.sleep(86400)'
    settings = words(((COMMAND, f"python -c '{program}'"),))
    with started(batchtrain, "run", prepared("Ray"), "--local", *settings) as process:
        assert process.stdout is not None
        assert next((line for line in process.stdout if "begun" in line), None), process.stderr.read()
        gang = left_running(batchtrain.home)
        [raylet] = [
            pid
            for pid in gang
            if Path(f"/proc/{pid}/exe").resolve().name == "raylet" and variable_of(pid, "BATCHTRAIN_ROLE") == "worker"
        ]
        os.kill(raylet, signal.SIGKILL)
        _, errors = process.communicate()
    assert process.returncode == 10, errors
    assert re.search(r"worker 0 on node tvmps_\w+…_d", errors), errors
    assert not left_running(batchtrain.home)


class Failing(NamedTuple):
    """A program whose ranks need each other in every step, and whose last rank fails in one."""

    recipe: str
    program: str
    ways: tuple[str, ...]
    """Of FAILS. `test_node_launcher.py` has all ways for frameworks of the node launcher."""
    settings: tuple[tuple[str, str], ...] = ()
    last: int = 3


FAILING: Mapping[str, Failing] = {
    "PyTorch": Failing(
        "PyTorch-CPU",
        "import os, sys, torch, torch.distributed as d; d.init_process_group(); w = torch.ones(1);"
        " [d.all_reduce(w) or step == 20 and d.get_rank() == LAST and FAIL for step in range(10**9)]",
        ("an exception",),
    ),
    "MXNet": Failing(
        "MXNet-CPU",
        'import os, sys, mxnet as m; s = m.kv.create("dist_sync"); w = m.nd.ones(1); s.init("w", w);'
        ' [s.push("w", w) or s.pull("w", w) or w.asscalar() and step == 20'
        ' and os.environ["BATCHTRAIN_RANK"] == "LAST" and FAIL for step in range(10**9)]',
        ("an exception",),
        one_each("mxnet"),
        last=1,
    ),
    "CNTK": Failing(
        "CNTK-CPU-OpenMPI",
        "import os, sys, numpy as n, cntk as C; from cntk.train.distributed import Communicator as M,"
        " data_parallel_distributed_learner as D; x = C.input_variable(4); y = C.input_variable(2);"
        " z = C.layers.Dense(2)(x); c = C.cross_entropy_with_softmax(z, y);"
        " t = C.Trainer(z, c, [D(C.sgd(z.parameters, 0.1))]); f = n.float32;"
        " [t.train_minibatch({x: n.ones((4, 4), f), y: n.ones((4, 2), f)}) and step == 20 and M.rank() == LAST and FAIL"
        " for step in range(10**9)]",
        ("an exit code", "an exception"),
    ),
}
FAILS: Mapping[str, tuple[str, str]] = {
    "an exit code": ("os._exit(7)", "exited with code 7"),
    "an exception": (
        "1 / 0",
        r"ZeroDivisionError: division by zero"
        r" \((?:exited with code 1(?: through MPI_Abort)?|then killed by signal 6)\)",
    ),
}
"""How it fails, and what is said of it then. PyTorch's threads may abort a process that an exception ends."""


@pytest.mark.parametrize(
    ("framework", "how"),
    [(framework, how) for framework, case in FAILING.items() for how in case.ways],
)
def test_a_rank_that_fails_amid_a_step_is_named_and_ends_the_gang(
    framework: str, how: str, batchtrain: Any, prepared: Callable[[str], str]
) -> None:
    case = FAILING[framework]
    fail, said = FAILS[how]
    program = case.program.replace("LAST", str(case.last)).replace("FAIL", fail)
    settings = (*case.settings, (COMMAND, f"python -c '{program}'"))
    with started(batchtrain, "run", prepared(case.recipe), "--local", *words(settings)) as process:
        printed, errors = process.communicate()
    assert process.returncode == 10, errors
    named = rf"task \S+/train failed: rank {case.last} on node tvmps_\w+…_d:? (?:{said})$"
    assert re.search(named, errors, flags=re.M), errors
    assert ("ZeroDivisionError" in printed + errors) == (how == "an exception")
    assert not left_running(batchtrain.home)


@contextlib.contextmanager
def started(batchtrain: Any, *arguments: str) -> Iterator[Any]:
    """A command that is over when the block is."""
    process = batchtrain.start(*arguments)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()


def ranks(home: Path, variable: str) -> dict[int, int]:
    """Rank -> process on a node that has it: the program itself, which is the last of those that inherit the number."""
    found = {}
    for pid in sorted(left_running(home)):
        number = variable_of(pid, variable)
        if number is not None and "python" in Path(f"/proc/{pid}/exe").resolve().name:
            found[int(number)] = pid
    return found


def variable_of(pid: int, name: str) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return None
    pairs = (pair.partition("=") for pair in environment.split("\0"))
    return next((value for known, _, value in pairs if known == name), None)


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
