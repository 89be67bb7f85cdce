"""The recipe of a script."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import batchtrain as bt
from batchtrain.config import user_settings
from batchtrain.config.source_packages import READY, digest, of_recipe
from batchtrain.containers.environments import TORCH_INDEX
from batchtrain.errors import BatchtrainError, UsageError
from batchtrain.scripts.recipe import Wish, prepare


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("import torch\n", encoding="utf-8")
    return path


def task_of(recipe: bt.Recipe) -> Any:
    ((task,),) = (job.tasks for job in recipe.jobs)
    return task


def test_a_script_becomes_a_recipe_with_its_directory_as_source(train: Path) -> None:
    wish = Wish(2, 8, "ND96isr_H100_v5", spot=True, arguments=["--name", "a b"])
    recipe = prepare(train, wish, local=True).recipe
    task = task_of(recipe)
    assert task.command == "python -u $AZ_BATCH_TASK_SHARED_DIR/train.py --name 'a b'"
    assert (recipe.directory, task.source, task.link_source) == (str(train.parent), ".", True)
    assert task.multi_instance.num_instances == "pool_specification_vm_count_low_priority"
    assert task.multi_instance.pytorch.processes_per_node == "8"
    assert task.docker_image == "example/script:pytorch-gpu"
    assert recipe.pool is not None
    assert recipe.pool.vm_count.low_priority == 2
    assert [warning.rule for warning in recipe.warnings] == ["spot-inter-node"]


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


def test_a_script_is_saved_as_files_that_load_as_the_same_recipe(train: Path, tmp_path: Path) -> None:
    recipe = bt.script(train, nodes=2)
    saved = recipe.save(tmp_path / "saved")
    loaded = bt.load(tmp_path / "saved")
    assert msgspec.structs.replace(loaded, warnings=()) == msgspec.structs.replace(saved, warnings=())


def test_a_list_with_the_framework_is_the_whole_environment(train: Path) -> None:
    (train.parent / "requirements.txt").write_text("torch==2.13.0\n", encoding="utf-8")
    prepared = prepare(train, Wish(), local=True)
    assert prepared.image == f"example/script:base-cpu-{digest(prepared.packages)}"
    assert of_recipe(prepared.recipe, prepared.image) == prepared.packages


def test_another_list_is_added_to_the_packages_of_the_framework(train: Path) -> None:
    (train.parent / "requirements.txt").write_text("rich\n", encoding="utf-8")
    prepared = prepare(train, Wish(), local=True)
    assert prepared.image == f"example/script:pytorch-cpu-{digest(prepared.packages)}"


def test_an_import_that_no_file_names_is_a_warning_with_its_line(train: Path) -> None:
    train.write_text("import torch\nimport numpy, cv2\nimport rich\n", encoding="utf-8")
    (train.parent / "requirements.txt").write_text("rich\n", encoding="utf-8")
    (warning,) = bt.script(train).warnings
    assert (warning.file, warning.line, warning.level) == (str(train), 2, "warning")
    assert "no package file names `cv2`, which the script imports; write `opencv-python`" in warning.message


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
        ("import torch.multiprocessing as mp\nmp.spawn(f)", {}, r"train\.py:2 starts the processes of the training"),
        ("import subprocess\nsubprocess.run(['mpirun', 'a'])", {}, r"train\.py:2 starts the processes of the training"),
        ("x = (\n", {}, r"train\.py:1: '\(' was never closed"),
        ("import torch, mpi4py\n", {}, "fits several frameworks"),
        ("import torch", {"framework": "pytroch"}, "there is no framework pytroch; choose one of mpi, pytorch,"),
        ("import torch", {"processes_per_node": 1, "gpus_per_node": 1}, "are the same number here; give one of them"),
    ],
)
def test_what_cannot_be_launched_is_refused(text: str, words: dict[str, Any], message: str, train: Path) -> None:
    train.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
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
