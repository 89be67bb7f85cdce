"""What a recipe could never do is refused before anything is made: neither `run` nor `pool add` leaves a pool."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environments import ROOT

from .conftest import Shell

pytestmark = [pytest.mark.process, pytest.mark.slow]
RECIPE = ROOT / "recipes" / "mpi4py-MPICH"


def _large(recipe: Path) -> None:
    (recipe / "src" / "data.bin").write_bytes(random.Random(0).randbytes(400 * 1024))


def _empty(recipe: Path) -> None:
    (recipe / "src" / "train.py").unlink()


def _misnamed(recipe: Path) -> None:
    (recipe / "src" / "train.py").rename(recipe / "src" / "trian.py")


def _no_pool(recipe: Path) -> None:
    (recipe / "config" / "pool.yaml").unlink()


FAULTS: dict[str, Callable[[Path], None]] = {
    "fit into a request": _large,
    "[source-empty]": _empty,
    "`train.py` is not in the `source` ../src, which has `trian.py`": _misnamed,
    "a pool.yaml with `pool_specification` is missing": _no_pool,
}


@pytest.mark.parametrize("verb", [("run",), ("pool", "add")], ids=" ".join)
def test_a_refused_recipe_makes_nothing(verb: tuple[str, ...], trained: Shell, tmp_path: Path) -> None:
    """An account is named by its key and nobody listens there: a request would be `unreachable`, exit code 5."""
    nobody = {
        "AZURE_BATCH_ACCOUNT": "x",
        "AZURE_BATCH_ACCESS_KEY": "a2V5",
        "AZURE_BATCH_ENDPOINT": "http://127.0.0.1:9",
    }
    for number, (said, spoil) in enumerate(FAULTS.items()):
        recipe = Path(shutil.copytree(RECIPE, tmp_path / f"{verb[0]}{number}"))
        spoil(recipe)
        assert said in trained(*verb, str(recipe), code=2, environment=nobody).stderr
    silenced = (
        str(tmp_path / f"{verb[0]}0"),
        "--ignore",
        "source-size",
    )  # the plan is made first, whatever is silenced
    assert "KiB that fit into a request" in trained(*verb, *silenced, code=2, environment=nobody).stderr


@pytest.mark.parametrize("verb", [("run",), ("pool", "add")], ids=" ".join)
def test_an_image_that_is_not_mapped_makes_nothing(verb: tuple[str, ...], batchtrain: Shell) -> None:
    batchtrain("emulator", "start", "--port", "0")
    said = batchtrain(*verb, str(RECIPE), "--local", code=2).stderr
    assert "No container engine runs the image example/mpich:digits here" in said
    assert batchtrain("pool", "list", "--local", "-o", "json").stdout.strip() == "[]"
