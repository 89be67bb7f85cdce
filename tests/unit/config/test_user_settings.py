"""The user's registry: stored once, and then in place of `example` in the images of recipes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from batchtrain.cli.app import root
from batchtrain.config import load, user_settings
from batchtrain.errors import UsageError

RECIPE = Path(__file__).parents[3] / "recipes" / "PyTorch-CPU"


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def said(*words: str) -> str:
    done = CliRunner().invoke(root, list(words), catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_a_registry_that_is_set_once_is_in_the_images_of_a_recipe() -> None:
    assert "registry is mine.azurecr.io/team" in said("config", "set", "registry", "mine.azurecr.io/team/")
    assert said("config", "get", "registry") == "mine.azurecr.io/team\n"
    recipe = load.load(RECIPE).recipe
    assert recipe.resources.docker_images == ("mine.azurecr.io/team/pytorch:cpu",)
    assert recipe.jobs[0].tasks[0].docker_image == "mine.azurecr.io/team/pytorch:cpu"


def test_a_registry_that_is_unset_is_gone() -> None:
    said("config", "set", "registry", "mine.azurecr.io")
    assert "registry is not set" in said("config", "set", "registry", "")
    assert load.load(RECIPE).recipe.resources.docker_images == ("example/pytorch:cpu",)


def test_an_image_of_another_name_stays_as_it_is() -> None:
    user_settings.store("registry", "mine.azurecr.io")
    named = {
        "global_resources.docker_images": "[example.org/x:1]",
        "job_specifications[0].tasks[0].docker_image": "example.org/x:1",
    }
    assert load.load(RECIPE, settings=named).recipe.resources.docker_images == ("example.org/x:1",)


@pytest.mark.parametrize("value", ["Mine", "a b", "https://mine.azurecr.io", "mine:tag"])
def test_an_invalid_registry_is_refused_and_not_stored(value: str) -> None:
    with pytest.raises(UsageError, match="is not a registry; write SERVER"):
        user_settings.store("registry", value)
    assert not user_settings.file().exists()


def test_a_setting_that_does_not_exist_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no setting called `registri`. Did you mean `registry`\?"):
        user_settings.store("registri", "mine")


@pytest.mark.parametrize("text", ["registry: [", "registry: 'a b'", "registri: x", "- x", "registry: [x]"])
def test_a_file_that_cannot_be_read_is_named_with_what_to_do(text: str) -> None:
    user_settings.file().parent.mkdir()
    user_settings.file().write_text(text)
    with pytest.raises(UsageError, match=r"settings\.yaml: .*Correct the file, or delete it"):
        user_settings.load()


def test_an_empty_file_sets_nothing() -> None:
    user_settings.file().parent.mkdir()
    user_settings.file().write_text("")
    assert user_settings.load() == user_settings.UserSettings()


def test_another_setting_changes_no_digit_of_the_budget() -> None:
    user_settings.store("budget.month", "1234567.89")
    user_settings.store("registry", "me.azurecr.io")
    assert user_settings.load().budget.month == 1234567.89


@pytest.mark.parametrize("amount", ["-1", "nan", "inf", "five"])
def test_an_amount_that_is_no_budget_is_refused(amount: str) -> None:
    with pytest.raises(UsageError, match="is not a budget"):
        user_settings.store("budget.month", amount)
