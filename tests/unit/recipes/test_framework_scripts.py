"""The frameworks' training scripts: one file where two recipes share it, and readable by the Python they run on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[3] / "recipes"
SHARED = (
    ("CNTK-CPU-OpenMPI", "CNTK-GPU-OpenMPI", "train.py"),
    ("MXNet-CPU", "MXNet-GPU", "train.py"),
    ("MXNet-Benchmark", "TensorFlow-Benchmarks-CPU", "dlbs.py"),
    ("PyTorch-CPU", "PyTorch-GPU", "train.py"),
    ("PyTorch-CPU", "PyTorch-GPU", "imagenet.py"),
    ("PyTorch-CPU", "PyTorch-GPU", "digits_folder.py"),
    ("TensorFlow-Distributed-CPU", "TensorFlow-Distributed-GPU", "train.py"),
    ("mpiBench-MPICH", "mpiBench-OpenMPI", "bench.py"),
)
OLD = {"CNTK": (3, 6), "MXNet": (3, 7), "TensorFlow-Benchmarks": (3, 7)}
"""The Python of frameworks that ended: a part of a recipe's name, and MAJOR, MINOR."""
SCRIPTS = sorted(path for path in RECIPES.glob("*/src/*.py"))


@pytest.mark.parametrize(("one", "other", "script"), SHARED)
def test_a_gpu_recipe_trains_with_the_script_of_its_cpu_recipe(one: str, other: str, script: str) -> None:
    assert (RECIPES / one / "src" / script).read_bytes() == (RECIPES / other / "src" / script).read_bytes()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_a_script_is_readable_by_the_python_it_runs_on(path: Path) -> None:
    version = next((found for part, found in OLD.items() if part in path.parts[-3]), (3, 10))
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=version)
    assert ast.get_docstring(tree)
    if version == (3, 6):
        names = [name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names]
        assert "annotations" not in names
