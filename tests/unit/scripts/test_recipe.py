"""The recipe of a script."""

from __future__ import annotations

import contextlib
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import batchtrain as bt
from batchtrain.client.client import Client
from batchtrain.client.shown_progress import SHOW
from batchtrain.config import user_settings
from batchtrain.config.source_packages import READY, digest, of_recipe
from batchtrain.config.types import Secret
from batchtrain.containers.environments import TORCH_INDEX
from batchtrain.errors import BatchtrainError, UsageError
from batchtrain.scripts import local_environment
from batchtrain.scripts.detection import LAUNCHES, NAMES
from batchtrain.scripts.recipe import Wish, prepare, quoted
from batchtrain.service.connect import Account
from tests import examples
from tests.detection_table import SHAPES, judged

LAUNCHES_ITSELF = r"train\.py:2: error: the script starts the processes"


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("import torch.distributed\n", encoding="utf-8")
    return path


def task_of(recipe: bt.Recipe) -> Any:
    ((task,),) = (job.tasks for job in recipe.jobs)
    return task


def test_a_script_that_imports_from_above_starts_there_and_finds_its_modules(tmp_path: Path) -> None:
    texts = {"mine/net.py": "import torch", "tools/my train.py": "import mine.net", "tools/requirements.txt": "tqdm"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / ".git").mkdir()
    prepared = prepare(tmp_path / "tools/my train.py", Wish(), local=True)
    task = task_of(prepared.recipe)
    assert (prepared.recipe.directory, task.source) == (str(tmp_path), ".")
    assert (task.command, task.environment_variables["PYTHONPATH"]) == ("python -u 'tools/my train.py'", ".")
    assert prepared.packages[0].path == tmp_path / "tools/requirements.txt"
    assert of_recipe(prepared.recipe, prepared.image) == prepared.packages


def test_checkpoints_of_a_script_are_kept_on_a_volume_with_the_same_rules(train: Path) -> None:
    recipe = prepare(train, Wish(checkpoints="mine"), local=True).recipe
    volume = recipe.resources.volumes.shared_data_volumes[task_of(recipe).checkpoint.volume]
    assert (volume.volume_driver, volume.storage_account_settings) == ("azurefile", "mine")


def test_a_script_becomes_a_recipe_with_its_directory_as_source(train: Path) -> None:
    wish = Wish(2, 8, "ND96isr_H100_v5", spot=True, arguments=["--name", "a b"])
    recipe = prepare(train, wish, local=True).recipe
    task = task_of(recipe)
    assert task.command == "python -u train.py --name 'a b'"
    assert (recipe.directory, task.source) == (str(train.parent), ".")
    assert task.multi_instance.num_instances == "pool_specification_vm_count_low_priority"
    assert task.multi_instance.pytorch.processes_per_node == "8"
    assert task.docker_image == "example/script:pytorch-gpu"
    assert recipe.pool is not None
    assert recipe.pool.vm_count.low_priority == 2
    assert [warning.rule for warning in recipe.warnings] == ["spot-inter-node"]


@pytest.mark.parametrize(
    ("argument", "here"),
    [
        ("a b", "'a b'"),
        ("$HOME", "'$HOME'"),
        ("snap=$BATCHTRAIN_CHECKPOINT_DIR/s.pt", '"snap=$BATCHTRAIN_CHECKPOINT_DIR/s.pt"'),
        ('${AZ_BATCH_TASK_ID} "$(x)" `y`', r'''"${AZ_BATCH_TASK_ID} \"\$(x)\" \`y\`"'''),
    ],
)
def test_variables_of_batch_and_batchtrain_in_an_argument_are_replaced_on_the_node(argument: str, here: str) -> None:
    assert quoted(argument) == here


def test_scripts_of_one_name_in_two_directories_have_their_own_ids(train: Path) -> None:
    (train.parent / "other").mkdir()
    other = train.parent / "other" / "train.py"
    other.write_text("import torch\n", encoding="utf-8")
    first, second, again = bt.script(train), bt.script(other), bt.script(train, name="mine")
    assert first.pool is not None
    assert first.pool.id == first.jobs[0].id
    assert re.fullmatch(r"train-[0-9a-f]{6}", first.jobs[0].id)
    assert first.jobs[0].id == bt.script(train).jobs[0].id != second.jobs[0].id
    assert again.jobs[0].id == "mine"


@pytest.mark.parametrize(
    ("sweep", "arguments", "command", "factory"),
    [
        ({"lr": [0.1, 1], "o": ["a b"]}, (), "--lr={lr} --o={o}", {"grid": {"lr": ["0.1", "1"], "o": ["a b"]}}),
        ({"lr": (0.1,)}, ("o.lr={lr}",), "o.lr={lr}", {"grid": {"lr": ["0.1"]}}),
        ([{"lr": 0.1}, {"lr": 1}], (), "--lr={lr}", {"list": [{"lr": "0.1"}, {"lr": "1"}]}),
    ],
)
def test_a_sweep_in_python_is_that_of_the_command_line(
    sweep: Any, arguments: tuple[str, ...], command: str, factory: dict[str, Any], train: Path
) -> None:
    task = task_of(bt.script(train, nodes=2, arguments=arguments, sweep=sweep))
    assert shlex.split(task.command)[3:] == command.split()
    values = msgspec.json.decode(msgspec.json.encode(task.task_factory))
    assert {name: value for name, value in values.items() if value} == factory
    with pytest.raises(UsageError, match=r"sweep\['lr'\] is 0\.1; give a list of values"):
        bt.script(train, sweep={"lr": 0.1})  # type: ignore[dict-item]


def test_a_script_is_saved_as_files_that_load_as_the_same_recipe(train: Path, tmp_path: Path) -> None:
    recipe = bt.script(train, nodes=2)
    saved = recipe.save(tmp_path / "saved")
    loaded = bt.load(tmp_path / "saved")
    assert msgspec.structs.replace(loaded, warnings=()) == msgspec.structs.replace(saved, warnings=())


@pytest.mark.parametrize(
    ("text", "nodes", "block"),
    [
        ("import lightgbm, numpy", 1, ""),
        ("import xgboost", 1, ""),
        ("import sklearn.svm", 1, ""),
        ("print('step 1 loss 0.5')", 1, ""),
        ("import lightgbm", 2, "pytorch"),
        ("import os, numpy\nos.environ['RANK']", 1, "pytorch"),
        ("import numpy\nfrom mpi4py import MPI", 1, "mpi"),
        ("import jax", 1, "jax"),
        ("import ray", 1, "ray"),
        ("import torch", 1, "pytorch"),
    ],
)
def test_a_script_is_a_plain_task_unless_something_has_to_launch_it(
    train: Path, text: str, nodes: int, block: str
) -> None:
    train.write_text(text, encoding="utf-8")
    recipe = prepare(train, Wish(nodes), local=True).recipe
    gang = task_of(recipe).multi_instance
    assert [name for name, _ in gang.launches] == [block] if block else gang is None
    assert recipe.pool is not None
    assert recipe.pool.inter_node_communication_enabled is bool(block)
    assert (task_of(recipe).results is not None) == (block == "pytorch" and "torch" not in text)


KERAS_SETTING = "job_specifications[0].tasks[0].environment_variables.KERAS_BACKEND"


@pytest.mark.parametrize(
    ("text", "packages", "of_nodes", "framework", "reason"),
    [
        (
            "os.environ['KERAS_BACKEND'] = 'torch'",
            "keras torch",
            "",
            "pytorch",
            "train.py:2 sets KERAS_BACKEND to torch",
        ),
        ("os.environ.setdefault('KERAS_BACKEND', 'jax')", "", "", "jax", "train.py:2 sets KERAS_BACKEND to jax"),
        ("os.environ.update(KERAS_BACKEND='jax')", "", "torch", "jax", "train.py:2 sets KERAS_BACKEND to jax"),
        ("os.environ.update({'KERAS_BACKEND': 'jax'})", "", "", "jax", "train.py:2 sets KERAS_BACKEND to jax"),
        (
            "os.environ['KERAS_BACKEND'] = 'jax'; import tensorflow",
            "",
            "",
            "jax",
            "train.py:2 sets KERAS_BACKEND to jax",
        ),
        (
            "os.environ.setdefault('KERAS_BACKEND', 'jax')",
            "",
            "torch",
            "pytorch",
            "a setting sets KERAS_BACKEND to torch",
        ),
        ("os.environ['KERAS_BACKEND'] = 'numpy'", "", "", "none", "it imports no framework"),
        ("name = 'jax'; os.environ['KERAS_BACKEND'] = name", "", "", "jax", "train.py:2 sets KERAS_BACKEND to jax"),
        (
            "os.environ['KERAS_BACKEND'] = os.getenv('KERAS_BACKEND', 'jax')",
            "",
            "torch",
            "pytorch",
            "a setting sets KERAS_BACKEND to torch",
        ),
        (
            "os.environ['KERAS_BACKEND'] = os.environ.get('NAME') or 'jax'",
            "",
            "",
            "jax",
            "train.py:2 sets KERAS_BACKEND to jax",
        ),
        (
            "import keras as k; k.config.set_backend('jax')",
            "",
            "torch",
            "jax",
            "train.py:2 sets KERAS_BACKEND to jax",
        ),
        (
            "os.environ['KERAS_BACKEND'] = options.backend",
            "",
            "",
            "tensorflow",
            "train.py:3 imports keras (train.py:2 computes KERAS_BACKEND; if it is another framework, add"
            " `--framework NAME`)",
        ),
        ("", "keras torch", "", "pytorch", "train.py:3 imports keras, and its packages bring no tensorflow"),
        ("", "keras torch tensorflow-gpu", "", "tensorflow", "train.py:3 imports keras"),
        ("", "keras", "", "tensorflow", "train.py:3 imports keras"),
        ("", "", "", "tensorflow", "train.py:3 imports keras"),
    ],
)
def test_keras_is_launched_as_its_backend(
    text: str, packages: str, of_nodes: str, framework: str, reason: str, train: Path
) -> None:
    train.write_text(f"import os\n{text}\nimport keras\n", encoding="utf-8")
    if packages:
        (train.parent / "requirements.txt").write_text(packages.replace(" ", "\n"), encoding="utf-8")
    prepared = prepare(train, Wish(2), settings={KERAS_SETTING: of_nodes} if of_nodes else {}, local=True)
    assert (prepared.choice.name, prepared.choice.reason.partition(", so")[0]) == (framework, reason)
    is_only_listed = packages == "keras torch" and not text  # then Keras itself would take TensorFlow
    backend = of_nodes or ("torch" if is_only_listed else None)
    assert task_of(prepared.recipe).environment_variables.get("KERAS_BACKEND") == backend


def test_a_list_with_the_framework_is_the_whole_environment(train: Path) -> None:
    (train.parent / "requirements.txt").write_text("torch==2.13.0\n", encoding="utf-8")
    prepared = prepare(train, Wish(), local=True)
    assert prepared.image == f"example/script:base-cpu-{digest(prepared.packages)}"
    assert of_recipe(prepared.recipe, prepared.image) == prepared.packages


def test_another_list_is_added_to_the_packages_of_the_framework(train: Path) -> None:
    (train.parent / "requirements.txt").write_text("rich\n", encoding="utf-8")
    prepared = prepare(train, Wish(), local=True)
    assert prepared.image == f"example/script:pytorch-cpu-{digest(prepared.packages)}"


ADVICE = {
    "import cv2": "`cv2` is imported, and no requirement provides it; write `opencv-python` into requirements.txt",
    "import own_thing": "`own_thing` is imported, and no requirement provides it; add the package that does to"
    " requirements.txt",
    "import apex.amp": "`apex` is imported, and no requirement provides it; add the package that does to"
    " requirements.txt",
    "import numpy": "",
    "import hydra, omegaconf": "",
    "import fsspec": "",
    "import azure.storage.blob": "",
    "try:\n    import cv2\nexcept ImportError:\n    cv2 = None": "",
}


@pytest.mark.parametrize("text", ADVICE)
def test_an_import_is_the_name_of_a_package_only_if_a_table_says_so(text: str, train: Path) -> None:
    train.write_text(f"import torch\n{text}\nimport rich\n", encoding="utf-8")
    (train.parent / "requirements.txt").write_text("rich\nhydra-core\nazure-storage-blob\n", encoding="utf-8")
    warnings = [(warning.file, warning.line, warning.message) for warning in bt.script(train).warnings]
    assert warnings == ([(str(train), 2, ADVICE[text])] if ADVICE[text] else [])
    assert bt.script(train, ignore=["script-package"]).warnings == ()


def test_the_module_for_checkpoints_comes_with_them(train: Path) -> None:
    train.write_text("import batchtrain_checkpoint\n", encoding="utf-8")
    (warning,) = bt.script(train).warnings
    assert "no requirement provides it; `--checkpoints NAME` brings it" in str(warning)
    assert "batchtrain_checkpoint" not in str(bt.script(train, checkpoints="mystore").warnings)


@pytest.mark.parametrize(
    ("text", "options", "way"),
    [
        ("import torch", {"nodes": 2}, "DistributedDataParallel"),
        ("import torch", {"processes_per_node": 2}, "DistributedDataParallel"),
        ("import torch", {"size": "ND96asr_v4"}, "DistributedDataParallel"),
        ("import torch", {}, ""),
        ("import torch\nfrom other import wrap", {"nodes": 2}, ""),  # other.py uses torch.distributed
        ("import keras", {"nodes": 2}, "MultiWorkerMirroredStrategy"),
        ("import keras, tensorflow as tf\ntf.distribute.get_strategy()", {"nodes": 2}, ""),
        ("import jax", {"nodes": 2}, "distributed"),
        ("import os, keras\nos.environ['KERAS_BACKEND'] = 'torch'  # or jax", {"nodes": 2}, "DistributedDataParallel"),
        ("import os, keras\nos.environ['KERAS_BACKEND'] = 'jax'", {"nodes": 2}, "distributed"),
        ("import os, keras\nos.environ['KERAS_BACKEND'] = 'jax'\nkeras.distribution.initialize()", {"nodes": 2}, ""),
        ("from transformers import Trainer", {"nodes": 2}, ""),
        ("import mpi4py", {"nodes": 2}, ""),
        ("import torch", {"nodes": 2, "sweep": {"lr": [1, 2]}}, ""),
    ],
)
def test_a_program_whose_processes_would_train_alone_is_a_warning(
    text: str, options: dict[str, Any], way: str, train: Path
) -> None:
    train.write_text(text, encoding="utf-8")
    (train.parent / "other.py").write_text("import torch.distributed\ndef wrap(): ...\n", encoding="utf-8")
    warnings = [warning for warning in bt.script(train, **options).warnings if warning.rule == "script-alone"]
    assert [warning.line for warning in warnings] == [1] * bool(way)
    assert all(f"(it has no `{way}` and the like)" in warning.message for warning in warnings)


@pytest.mark.parametrize(
    ("text", "options", "is_warned"),
    [
        ("print(1)", {"nodes": 2}, True),
        ("print(1)", {"processes_per_node": 2}, True),
        ("import os; print(os.environ['RANK'])", {"nodes": 2}, False),
        ("print(1)", {"nodes": 2, "sweep": {"lr": [1, 2]}}, False),
        ("print(1)", {"size": "ND96asr_v4"}, False),
    ],
)
def test_a_plain_program_that_does_the_same_on_each_node_is_a_warning(
    text: str, options: dict[str, Any], is_warned: bool, train: Path
) -> None:
    train.write_text(text, encoding="utf-8")
    warnings = [warning.message for warning in bt.script(train, **options).warnings if warning.rule == "script-alone"]
    assert [message.partition(",")[0] for message in warnings] == [
        "the script reads no `RANK` and the like"
    ] * is_warned


def test_the_packages_of_a_script_are_those_of_the_directory_above_if_it_has_none(train: Path) -> None:
    (train.parent / "src").mkdir()
    script = train.rename(train.parent / "src" / "train.py")
    (train.parent / "requirements.txt").write_text("rich\n", encoding="utf-8")
    prepared = prepare(script, Wish(), local=True)
    assert [packages.path for packages in prepared.packages] == [train.parent / "requirements.txt"]
    assert of_recipe(prepared.recipe, prepared.image) == prepared.packages
    (script.parent / ".git").mkdir()  # the project begins here
    assert prepare(script, Wish(), local=True).packages == ()


def test_values_of_the_command_line_override_those_of_the_script(train: Path) -> None:
    recipe = bt.script(train, settings={"pool_specification.vm_count.dedicated": "3"})
    assert recipe.pool is not None
    assert recipe.pool.vm_count.dedicated == 3


def test_the_accounts_beside_the_script_are_used(train: Path) -> None:
    text = "credentials:\n  batch:\n    account_service_url: https://a.region.batch.azure.com\n    account_key: a2V5\n"
    (train.parent / "credentials.yaml").write_text(text, encoding="utf-8")
    assert bt.script(train).credentials.batch.account_service_url == "https://a.region.batch.azure.com"


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("import torch.multiprocessing as mp\nmp.spawn(f)", {}, LAUNCHES_ITSELF),
        ("import subprocess\nsubprocess.run(['mpirun', 'a'])", {}, LAUNCHES_ITSELF),
        ("x = (\n", {}, r"train\.py:1: '\(' was never closed"),
        ("import torch, mpi4py\n", {}, "fits several frameworks"),
        ("import torch", {"framework": "pytroch"}, "there is no framework pytroch; choose one of mpi, pytorch,"),
        ("import torch", {"processes_per_node": 1, "gpus_per_node": 1}, "are the same number here; give one of them"),
    ],
)
def test_what_cannot_be_launched_is_refused(text: str, words: dict[str, Any], message: str, train: Path) -> None:
    train.write_text(text, encoding="utf-8")
    with pytest.raises(BatchtrainError, match=message):
        bt.script(train, **words)


def test_with_a_registry_the_image_is_there(train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_settings, "load", lambda: user_settings.UserSettings(registry="my.azurecr.io/team"))
    assert task_of(bt.script(train)).docker_image == "my.azurecr.io/team/script:pytorch-cpu"


def test_without_a_registry_the_start_task_makes_the_environment_of_the_command(train: Path) -> None:
    (train.parent / "requirements.txt").write_text("rich >= 13\n", encoding="utf-8")
    recipe = bt.script(train, nodes=2)
    task = task_of(recipe)
    assert task.docker_image is None
    assert recipe.pool is not None
    (lines,) = recipe.pool.additional_node_prep.commands.post
    prefix = task.command.partition("/bin/python")[0]
    assert prefix.startswith("$AZ_BATCH_NODE_SHARED_DIR/batchtrain/pytorch-")
    assert f'"{prefix}/bin/pip" install --quiet "${{index[@]}}" \'rich >= 13\'' in lines
    assert f"index=(--extra-index-url {TORCH_INDEX})" in lines
    assert lines.startswith(f'if [ ! -e "{prefix}/{READY}" ]; then\n')


@pytest.mark.parametrize(
    ("module", "packages", "text"),
    [
        ("torch", "", "each node installs about 1250 MB of packages when it starts, in about 2 minutes\n"),
        ("torch", "torch", "each node installs the packages that the script lists when it starts\n"),
        ("json", "", ""),
    ],
)
def test_the_client_that_runs_a_script_says_once_what_each_node_installs(
    train: Path, capsys: pytest.CaptureFixture[str], module: str, packages: str, text: str
) -> None:
    train.write_text(f"import {module}\n", encoding="utf-8")
    (train.parent / "requirements.txt").write_text(packages, encoding="utf-8")
    client = Client(Account("https://a.region.batch.azure.com", "a", Secret("a2V5")))
    client.display = None
    recipe = bt.script(train)
    client.recipe_here(recipe, None)
    client.recipe_here(recipe, SHOW, makes=False)
    assert capsys.readouterr().err == ""
    client.recipe_here(client.recipe_here(recipe, SHOW), SHOW)
    assert capsys.readouterr().err == text


def test_the_start_task_takes_a_python_that_the_script_allows(train: Path) -> None:
    train.write_text('# /// script\n# requires-python = ">=3.13"\n# ///\nimport torch\n', encoding="utf-8")
    recipe = bt.script(train)
    assert recipe.pool is not None
    assert "for name in python3.13 python3.14; do" in recipe.pool.additional_node_prep.commands.post[0]
    train.write_text('# /// script\n# requires-python = "<3.9"\n# ///\nimport torch\n', encoding="utf-8")
    with pytest.raises(BatchtrainError, match=r"train\.py:2 asks for Python <3\.9, and the environment pytorch needs"):
        bt.script(train)


def test_a_node_with_gpus_takes_the_builds_of_pypi(train: Path) -> None:
    recipe = bt.script(train, size="Standard_NC24ads_A100_v4")
    assert recipe.pool is not None
    assert TORCH_INDEX not in recipe.pool.additional_node_prep.commands.post[0]


def test_mpi_starts_from_the_environment_of_the_nodes(train: Path) -> None:
    train.write_text("from mpi4py import MPI\n", encoding="utf-8")
    path = task_of(bt.script(train, nodes=2)).multi_instance.mpi.executable_path
    assert path.startswith("$AZ_BATCH_NODE_SHARED_DIR/batchtrain/mpich-")
    assert path.endswith("/bin/mpiexec")


@pytest.mark.parametrize(
    ("module", "requirements", "message"),
    [
        ("deepspeed", "", "the environment deepspeed needs builds that a node does not make; name the registry"),
        ("torch", "-r more.txt", r"requirements\.txt:1 has `-r more\.txt`, and the files of the source are not there"),
    ],
)
def test_what_a_start_task_cannot_install_is_refused(module: str, requirements: str, message: str, train: Path) -> None:
    train.write_text(f"import {module}\n", encoding="utf-8")
    (train.parent / "requirements.txt").write_text(f"{requirements}\n", encoding="utf-8")
    with pytest.raises(BatchtrainError, match=message):
        bt.script(train)


MODULES = sorted(
    {module for scripts in LAUNCHES.values() for module in (*scripts.imports, *scripts.weak_imports, *scripts.spawns)}
    | {"horovod.mxnet", "horovod.keras", "horovod.tensorflow.keras", "horovod.jax", "numpy", "cv2", "é", "own_thing"}
)


@pytest.mark.property
@examples.of(200)
@given(
    st.lists(st.sampled_from(MODULES), max_size=3, unique=True),
    st.sampled_from(["", *NAMES]),
    st.booleans(),
    st.sampled_from(["", "ND96isr_H100_v5"]),
)
def test_any_imports_give_a_recipe_or_a_message(modules: list[str], name: str, local: bool, size: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "train.py")
        path.write_text("".join(f"import {module}\n" for module in modules), encoding="utf-8")
        with contextlib.suppress(UsageError):
            assert prepare(path, Wish(framework=name, size=size), local=local).recipe.jobs


def test_an_image_without_a_local_environment_is_named_in_a_recipe(train: Path) -> None:
    train.write_text("import horovod.mxnet\nimport mxnet\n", encoding="utf-8")
    assert prepare(train, Wish(), local=True).image == "example/script:horovod-mxnet-cpu"


@pytest.mark.parametrize("name", SHAPES)
def test_the_shapes_of_example_programs_are_understood(name: str) -> None:
    assert judged(SHAPES[name]) == (SHAPES[name].framework, SHAPES[name].verdict)


def test_a_launcher_that_the_imported_file_starts_is_seen(train: Path) -> None:
    (train.parent / "engine.py").write_text("import torch.multiprocessing as mp\ndef go(f):\n    mp.spawn(f)\n")
    train.write_text("import torch, engine\nengine.go(print)\n", encoding="utf-8")
    with pytest.raises(BatchtrainError, match=r"engine\.py:3: error: the script starts the processes"):
        bt.script(train)


@pytest.mark.parametrize("words", [{"framework": "pytorch"}, {"ignore": ["script-launcher"]}])
def test_the_user_decides_whether_a_script_with_a_launcher_runs(words: dict[str, Any], train: Path) -> None:
    train.write_text("import torch.multiprocessing as mp\nmp.spawn(print)\n", encoding="utf-8")
    rules = [warning.rule for warning in bt.script(train, **words).warnings]
    assert rules == ([] if "ignore" in words else ["script-launcher"])


def test_the_client_that_runs_it_decides_where_its_packages_are(train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train.write_text("import torch\n", encoding="utf-8")
    made = list[tuple[str, object]]()
    monkeypatch.setattr(
        local_environment, "make", lambda _, image, __, *, data_dir=None: made.append((image, data_dir))
    )
    recipe = bt.script(train, nodes=2)
    here = Client(Account("http://127.0.0.1:1", "a", Secret("a2V5"), emulated=True, home="/home/of/it"))
    there = Client(Account("https://a.region.batch.azure.com", "a", Secret("a2V5")))
    assert there.recipe_here(recipe) == structs.replace(recipe, for_target=None)
    for makes, directories in ((False, []), (True, [Path("/home/of/it")])):
        emulated = here.recipe_here(recipe, makes=makes)
        assert emulated == bt.script(train, nodes=2, local=True)
        assert [directory for _, directory in made if directory] == directories
    changed = structs.replace(recipe, silent=frozenset({"size-retired"}))
    assert here.recipe_here(changed) is changed
    assert here.recipe_here(own := bt.script(train, nodes=2, local=False)) is own
