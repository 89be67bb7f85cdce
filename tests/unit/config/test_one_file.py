"""batchtrain.yaml: a whole recipe in one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.config import saving
from batchtrain.config.load import load
from batchtrain.errors import ConfigError, UsageError
from batchtrain.shipped import shipped

RECIPE = shipped("recipes") / "PyTorch-CPU"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    recipe = load(RECIPE).recipe
    text = saving.whole(recipe.files, ".schemas/batchtrain.json").replace("../src", str(RECIPE / "src"))
    (tmp_path / "batchtrain.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def test_it_is_loaded_as_the_files_that_it_replaces(whole: Path) -> None:
    one, four = load(whole).recipe, load(RECIPE).recipe
    assert (one.pool, one.resources, one.settings) == (four.pool, four.resources, four.settings)
    assert [job.id for job in one.jobs] == [job.id for job in four.jobs]


@pytest.mark.parametrize("other", ["pool.yaml", "config.json", "config/jobs.yaml"])
def test_beside_a_file_that_it_replaces_it_is_an_error(other: str, whole: Path) -> None:
    (whole / other).parent.mkdir(exist_ok=True)
    (whole / other).write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=rf"batchtrain\.yaml is a whole recipe, and .*{other} is a part of one"):
        load(whole)


def test_accounts_stand_beside_it_and_not_in_it(whole: Path) -> None:
    accounts = "credentials:\n  batch:\n    account_service_url: https://a.region.batch.azure.com\n"
    (whole / "credentials.yaml").write_text(accounts, encoding="utf-8")
    assert load(whole).recipe.credentials.batch.account_service_url == "https://a.region.batch.azure.com"
    (whole / "credentials.yaml").unlink()
    with (whole / "batchtrain.yaml").open("a", encoding="utf-8") as file:
        file.write(accounts)
    with pytest.raises(ConfigError, match=r"accounts and secrets stand in a credentials\.yaml beside this file"):
        load(whole)
