"""The table of local environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.config.source_packages import Package, SourcePackages
from batchtrain.containers.environments import ENVIRONMENTS, size_of
from batchtrain.containers.make_environment import Intended


@pytest.mark.parametrize(
    ("packages", "environment"),
    [({"rich", "torch"}, "pytorch"), ({"tensorflow"}, "tensorflow"), ({"tensorflow-cpu", "jax"}, "tensorflow")],
)
def test_a_list_that_names_a_framework_has_the_size_of_its_environment(packages: set[str], environment: str) -> None:
    assert size_of(packages) == ENVIRONMENTS[environment].megabytes


def test_a_list_without_a_framework_has_no_size() -> None:
    assert size_of({"rich", ""}) == 0


def test_the_size_is_told_before_the_download() -> None:
    listed = SourcePackages(Path("src"), "requirements.txt", (Package("torch", 1), Package("rich", 2)))
    plan = Intended("python", ENVIRONMENTS["python"], "3.11", None, (), Path("envs"), (listed,))
    assert plan.summary[0].startswith("the environment python needs about 1050 MB")
    assert "  of src/requirements.txt, about 1050 MB with its framework: torch rich" in plan.summary
