"""A job described in Python is the recipe that its YAML files would be."""

from __future__ import annotations

import inspect
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import batchtrain as bt
from batchtrain.config.described import VM_SIZE
from batchtrain.config.override import setting_texts
from batchtrain.config.source_directory import read_sources
from batchtrain.config.travel import BLOB_STORE
from batchtrain.config.types import Recipe, Task, TaskFactory
from batchtrain.errors import ConfigError, PlanError, UsageError
from batchtrain.frameworks import FRAMEWORKS, PyTorchBlock
from batchtrain.plan import plan_jobs
from batchtrain.plan.types import Facts

GUIDE = """\
from batchtrain import command, MpiDistribution

job = command(
    code="./src",  # local path where the code is stored
    command="python train.py --epochs ${{inputs.epochs}}",
    inputs={"epochs": 1},
    environment="AzureML-tensorflow-2.7-ubuntu20.04-py38-cuda11-gpu@latest",
    compute="gpu-cluster",
    instance_count=2,
    distribution=MpiDistribution(process_count_per_instance=2),
    display_name="tensorflow-mnist-distributed-horovod-example"
    # experiment_name: tensorflow-mnist-distributed-horovod-example
    # description: Train a basic neural network with TensorFlow on the MNIST dataset, distributed via Horovod.
)
job.save("written")
"""
"""The job of document 3, with another import."""
BUILT: dict[str, Any] = {
    "Mpi": bt.Mpi(processes_per_node=4, runtime="mpich"),
    "Mpi of the guide": bt.MpiDistribution(process_count_per_instance=2),
    "PyTorch": bt.PyTorch(launcher="torchrun", rendezvous="c10d", max_restarts=2),
    "PyTorch of the guide": bt.PyTorchDistribution(process_count_per_instance=8),
    "TensorFlow": bt.TensorFlow(mode="multi_worker_mirrored"),
    "TensorFlow of the guide": bt.TensorFlowDistribution(worker_count=2, parameter_server_count=1),
    "Horovod": bt.Horovod(over="mpi", options=("-x", "A=b c")),
    "DeepSpeed": bt.DeepSpeed(processes_per_node="auto"),
    "Accelerate": bt.Accelerate(mixed_precision="bf16"),
    "Jax": bt.Jax(),
    "Mxnet": bt.Mxnet(servers=2),
    "Ray": bt.Ray(leave_unset=("NCCL_DEBUG",)),
}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a `src`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for name in ("train.py", "ds.json"):
        (tmp_path / "src" / name).write_text("")
    return tmp_path


def task_of(recipe: Recipe) -> Task:
    ((task,),) = (job.tasks for job in recipe.jobs)
    return task


@pytest.mark.parametrize("name", BUILT)
def test_a_described_job_is_loaded_from_its_files_as_an_equal_value(name: str, source: Path) -> None:
    arguments = ["python train.py 'a b'", "echo x\necho y"]
    for command in arguments:
        recipe = bt.command(command, image="example/x:1", source="src", instances=2, distribution=BUILT[name])
        saved = recipe.save(source / "saved" / str(arguments.index(command)))
        loaded = bt.load(saved.directory)
        assert msgspec.structs.replace(loaded, warnings=()) == msgspec.structs.replace(saved, warnings=())
        assert (loaded.pool, loaded.resources) == (recipe.pool, recipe.resources)
        gang = task_of(recipe).multi_instance
        assert gang is not None
        assert task_of(loaded).multi_instance == gang
        assert len(gang.launches) == 1


def test_a_sweep_is_the_factory_that_its_file_would_have(source: Path) -> None:
    grid = TaskFactory(grid={"lr": ("0.1", "1e-05"), "batch": ("32", "33")})
    for sweep, factory in (
        ({"lr": [0.1, 1e-5], "batch": range(32, 34)}, grid),
        ([{"lr": 0.1}], TaskFactory(list=({"lr": "0.1"},))),
    ):
        recipe = bt.command("echo {lr}", sweep=sweep, name="list" if factory.list else "grid")
        assert task_of(recipe).task_factory == factory
        assert bt.load(recipe.save(source / recipe.jobs[0].id).directory).jobs == recipe.jobs
    with pytest.raises(UsageError, match=r"sweep\['lr'\] is 0\.1; give a list of values"):
        bt.command("echo {lr}", sweep={"lr": 0.1})  # type: ignore[dict-item]  # the mistake of the test


def test_every_framework_of_the_registry_has_a_name_in_the_api() -> None:
    assert {getattr(bt, kind.__name__.removesuffix("Block")) for kind in FRAMEWORKS.values()} == {*FRAMEWORKS.values()}


def test_the_public_names_are_listed_before_their_first_use_and_suggested() -> None:
    words = [sys.executable, "-c", "import batchtrain as bt; print(*dir(bt)); bt.comand"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.stdout.split() == sorted(bt.__all__)
    assert ended.stderr.endswith("has no attribute 'comand'. Did you mean: 'command'?\n")


def test_the_guides_file_runs_with_another_import(source: Path) -> None:
    (source / "job.py").write_text(GUIDE)
    subprocess.run([sys.executable, "job.py"], check=True, cwd=source)
    recipe = bt.load(source / "written")
    task = task_of(recipe)
    assert task.command == "python train.py --epochs 1"
    assert task.docker_image == "mcr.microsoft.com/azureml/curated/tensorflow-2.7-ubuntu20.04-py38-cuda11-gpu:latest"
    assert task.environment_variables == {"AZURE_ML_INPUT_epochs": "1"}
    assert recipe.pool is not None
    assert (recipe.pool.id, recipe.pool.vm_count.dedicated) == ("gpu-cluster", 2)
    assert recipe.jobs[0].id == "tensorflow-mnist-distributed-horovod-example"


def test_a_vm_size_and_a_pool_are_told_apart() -> None:
    sized = bt.command("true", compute="Standard_ND96isr_H100_v5")
    named = bt.command("true", compute="mine", instance_type="STANDARD_HB176RS_V4")
    default = bt.command("true", compute="mine")
    pools = [recipe.pool for recipe in (sized, named, default) if recipe.pool]
    assert [(pool.id, pool.vm_size) for pool in pools] == [
        ("command", "Standard_ND96isr_H100_v5"), ("mine", "STANDARD_HB176RS_V4"), ("mine", VM_SIZE),
    ]  # fmt: skip
    assert [problem.rule for problem in default.warnings] == ["default-size"]
    assert bt.command("true", compute=pools[1]).pool == pools[1]


def test_an_environment_is_an_image_or_variables() -> None:
    recipe = bt.command("true", environment={"A": "1"}, environment_variables={"B": "2"}, timeout=90061)
    assert task_of(recipe).environment_variables == {"A": "1", "B": "2"}
    assert recipe.jobs[0].max_wall_time == "1.01:01:01"


REGISTERED = "azureml://registries/azureml/environments/acpt-pytorch-2.2/versions/7"


@pytest.mark.parametrize(
    ("environment", "image"),
    [("AzureML-x:12", ":12"), (REGISTERED, "/acpt-pytorch-2.2:7"), (REGISTERED[:-10] + "labels/latest", ":latest")],
)
def test_a_curated_environment_is_its_image(environment: str, image: str) -> None:
    found = task_of(bt.command("true", environment=environment)).docker_image
    assert found is not None
    assert found.startswith("mcr.microsoft.com/azureml/curated/")
    assert found.endswith(image)


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        (
            bt.command,
            {"command": "true", "instnces": 2},
            "command has no keyword `instnces`. Did you mean `instances`?",
        ),
        (bt.command, {"command": "true", "outputs": {}}, "command has no keyword `outputs`: a command writes below"),
        (bt.PyTorch, {"proces_per_node": 1}, "Did you mean `processes_per_node`"),
        (bt.Mpi, {"proces_per_node": 1}, "Did you mean `processes_per_node`"),
    ],
)
def test_an_unknown_keyword_is_refused_with_the_nearest_one(call: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        call(**given)


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"command": "echo ${{inputs.epoch}}", "inputs": {"epochs": 1}}, UsageError, "Did you mean `epochs`"),
        ({"command": "echo ${{outputs.x}}"}, UsageError, "Only `inputs` are known"),
        ({"inputs": {"data": {}}}, UsageError, r"inputs\['data'\] is a dict"),
        ({"image": "a", "environment": "b"}, UsageError, "`image` and `environment` are the same setting"),
        ({"instances": 0}, UsageError, "`instances` is 0"),
        ({"timeout": 0}, ConfigError, "with a time of 0"),
        ({"instances": 2, "distribution": bt.PyTorch(processes_per_node=0)}, ConfigError,
         r"^command: error: \S+pytorch.processes_per_node: processes_per_node is 0"),
    ],
)  # fmt: skip
def test_what_the_guides_words_cannot_say_or_what_could_not_run_is_refused(
    given: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        bt.command(**{"command": "python x", **given})


def test_help_has_a_sentence_for_each_property() -> None:
    text = inspect.getdoc(bt.PyTorch) or ""
    assert all(f"\n{name}: " in text for name in PyTorchBlock.__struct_fields__)
    assert str(inspect.signature(bt.PyTorch)).startswith("(*, processes_per_node: ")
    assert "Annotated" not in str(inspect.signature(bt.PyTorch))
    told = inspect.getdoc(bt.command) or ""
    assert all(f"{name}" in told for name in inspect.signature(bt.command).parameters)


@pytest.mark.parametrize("local", [True, None])
def test_a_large_source_is_accepted_for_the_emulator_as_the_refusal_says(
    local: bool | None, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "src" / "weights.bin").write_bytes(random.Random(1).randbytes(3 * 2**18))
    with pytest.raises(ConfigError, match=r"192 KiB.*`local=True`.*accepts it unchanged"):
        bt.command("python train.py", source="src")
    if local is None:
        monkeypatch.setenv("BATCHTRAIN_LOCAL", "1")
    recipe = bt.command("python train.py", source="src", local=local)
    sources = read_sources(recipe)
    with pytest.raises(PlanError, match="192 KiB"):
        plan_jobs(recipe, Facts(), sources)
    uploads = plan_jobs(recipe, Facts(blob_store=BLOB_STORE), sources).uploads
    assert [upload.path.partition("/")[0] for upload in uploads] == [BLOB_STORE]


CALLS = """\
import batchtrain as bt

bt.command("x", instances=2, distribution=bt.Horovod(over="gloo")).save("x")
bt.command("x", instances="2")
bt.command("x", distribution="mpi")
bt.PyTorch(launcher="env", proces=1)
"""


@pytest.mark.slow
def test_a_type_checker_finds_wrong_arguments(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(CALLS)
    root = Path(bt.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "", "--follow-imports=silent", tmp_path / "calls.py"],
        cwd=root, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line] == ["4", "5", "6"], done


def test_importing_the_package_imports_no_description() -> None:
    asked = "import sys, batchtrain; print([name for name in sys.modules if name.startswith('batchtrain.')])"
    done = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['batchtrain.version']"


def test_settings_and_times_are_read_as_on_the_command_line() -> None:
    assert (
        bt.command("true", timeout="1h").jobs[0].max_wall_time == bt.command("true", timeout=3600).jobs[0].max_wall_time
    )
    with pytest.raises(UsageError, match="`timeout` is 'soon'"):
        bt.command("true", timeout="soon")
    assert setting_texts({"nodes": 3, "size": "x"}) == {"nodes": "3", "size": "x"}
    with pytest.raises(UsageError, match="`settings` is 'nodes=3'"):
        setting_texts("nodes=3")  # type: ignore[arg-type]  # the mistake
