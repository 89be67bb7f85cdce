"""Short words of `--set` for a recipe with one task."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import batchtrain as bt
from batchtrain.config.override import SHORT_WORDS
from batchtrain.errors import ConfigError


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("import torch\n", encoding="utf-8")
    return path


def set_in(recipe: bt.Recipe, word: str) -> Any:
    ((task,),) = (job.tasks for job in recipe.jobs)
    assert recipe.pool is not None
    assert task.multi_instance is not None
    return {
        "command": task.command,
        "image": task.docker_image,
        "job": recipe.jobs[0].id,
        "nodes": str(recipe.pool.vm_count.dedicated),
        "pool": recipe.pool.id,
        "processes_per_node": task.multi_instance.launches[0][1].processes_per_node,
        "size": recipe.pool.vm_size,
        "source": task.source,
    }[word]


@pytest.mark.parametrize("word", sorted({*SHORT_WORDS} - {"arguments", "spot"}))
def test_a_short_word_sets_the_value_of_its_path(word: str, script: Path) -> None:
    texts = {"nodes": "3", "processes_per_node": "3", "size": "Standard_D8s_v5", "source": str(script.parent)}
    value = texts.get(word, f"my-{word}")
    assert set_in(bt.script(script, nodes=2, settings={word: value}), word) == value


def test_arguments_are_added_to_the_command(script: Path) -> None:
    recipe = bt.script(script, arguments=["--lr", 1], settings={"arguments": "--epochs 3"})
    assert recipe.jobs[0].tasks[0].command.endswith("train.py --lr 1 --epochs 3")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("spot", "settings", "counts", "instances"),
    [
        (False, {"spot": "true"}, (0, 2), "pool_specification_vm_count_low_priority"),
        (False, {"nodes": "3", "spot": "true"}, (0, 3), "pool_specification_vm_count_low_priority"),
        (False, {"spot": "true", "nodes": "3"}, (0, 3), "pool_specification_vm_count_low_priority"),
        (True, {"nodes": "4"}, (0, 4), "pool_specification_vm_count_low_priority"),
        (True, {"spot": "false"}, (2, 0), "pool_specification_vm_count_dedicated"),
    ],
)
def test_spot_moves_the_nodes_and_the_gangs_that_count_them(
    spot: bool, settings: dict[str, str], counts: tuple[int, int], instances: str, script: Path
) -> None:
    recipe = bt.script(script, nodes=2, spot=spot, settings=settings)
    ((task,),) = (job.tasks for job in recipe.jobs)
    assert recipe.pool is not None
    assert task.multi_instance is not None
    assert (recipe.pool.vm_count.dedicated, recipe.pool.vm_count.low_priority) == counts
    assert task.multi_instance.num_instances == instances


def test_nodes_also_sets_a_number_of_instances(tmp_path: Path) -> None:
    saved = bt.command("true", instances=2).save(tmp_path)
    recipe = bt.load(saved.directory, settings={"nodes": "3"})
    (task,) = recipe.jobs[0].tasks
    assert task.multi_instance is not None
    assert task.multi_instance.num_instances == "3"


@pytest.mark.parametrize(
    ("name", "hint"), [("nodez", "Did you mean `nodes`?"), ("zzz", "Short words: arguments, nodes,")]
)
def test_a_misspelt_short_word_is_told_the_short_words(tmp_path: Path, name: str, hint: str) -> None:
    saved = bt.command("true").save(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(hint)):
        bt.load(saved.directory, settings={name: "3"})


def test_in_a_recipe_with_two_tasks_the_path_must_be_whole(tmp_path: Path) -> None:
    jobs = "job_specifications: [{id: a, tasks: [{command: x}, {command: y}]}]"
    (tmp_path / "jobs.yaml").write_text(jobs, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"this is not the path of a property; write `job_spec.*command`"):
        bt.load(tmp_path, settings={"command": "z"})


@pytest.mark.parametrize(
    "path",
    ["job_specifications.tasks.command", "job_specifications[0].tasks.command", "job_specifications.0.tasks.command"],
)
def test_an_item_of_a_list_has_a_number(tmp_path: Path, path: str) -> None:
    saved = bt.command("true").save(tmp_path)
    with pytest.raises(ConfigError, match=r"write `job_specifications(\[0\]|\.0)\.tasks\[0\]\.command`") as caught:
        bt.load(saved.directory, settings={path: "z"})
    assert len(caught.value.problems) == 1
