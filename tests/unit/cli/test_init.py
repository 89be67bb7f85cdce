"""`batchtrain init`: a recipe in one file for a script."""

from __future__ import annotations

import json
from pathlib import Path

import click
import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from referencing import Registry, Resource

from batchtrain.cli import scripts
from batchtrain.cli.app import root
from batchtrain.cli.options import Settings
from batchtrain.config import user_settings
from batchtrain.config.load import load
from batchtrain.config.projects import FILE
from batchtrain.containers.uv import NotMade
from batchtrain.emulator.machine import azurite
from batchtrain.errors import UsageError
from batchtrain.scripts import local_environment


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("", encoding="utf-8")
    (tmp_path / "train.py").write_text("import torch, model\n", encoding="utf-8")
    return tmp_path


def init(*words: str) -> str:
    result = CliRunner().invoke(root, ["init", *words], obj=Settings(), catch_exceptions=False, standalone_mode=False)
    return result.stdout


def validator(schemas: Path) -> jsonschema.Draft202012Validator:
    """As an editor reads the schema, with those beside it."""
    documents = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in schemas.iterdir()}
    registry: Registry = Registry().with_resources(
        (name, Resource.from_contents(document)) for name, document in documents.items()
    )
    return jsonschema.Draft202012Validator(documents["batchtrain.json"], registry=registry)


def test_it_writes_a_recipe_that_loads_and_its_schema(here: Path) -> None:
    printed = init("--nodes", "2", "--", "--epochs", "3")
    assert "  batchtrain run . --local\n" in printed
    recipe = load(here).recipe
    (task,) = recipe.jobs[0].tasks
    assert task.command.endswith("/bin/python -u train.py --epochs 3")
    text = (here / "batchtrain.yaml").read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=.schemas/batchtrain.json\n")
    assert [error.message for error in validator(here / ".schemas").iter_errors(yaml.safe_load(text))] == []
    assert (here / FILE).exists()


def test_without_a_registry_the_start_task_makes_the_environment(here: Path) -> None:
    printed = init()
    assert "  batchtrain config validate .\n" in printed
    assert (
        "each node installs about 1250 MB of packages when it starts, in about 2 minutes, also on the emulator"
        in printed
    )
    assert "`rm batchtrain.yaml && batchtrain init train.py --local` writes a recipe" in printed
    recipe = load(here).recipe
    assert recipe.jobs[0].tasks[0].docker_image is None
    assert recipe.pool is not None
    assert "pip" in recipe.pool.additional_node_prep.commands.post[0]


def test_with_the_option_or_a_registry_the_recipe_names_an_image(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = init("--image")
    assert "  batchtrain images env .\n" in printed
    assert "  batchtrain config set registry NAME\n  batchtrain images build . --push\n" in printed
    assert "each node installs" not in printed
    file = here / "batchtrain.yaml"
    assert "docker_image: example/script:pytorch-cpu" in file.read_text(encoding="utf-8")
    file.unlink()
    monkeypatch.setattr(user_settings, "load", lambda: user_settings.UserSettings(registry="my.azurecr.io"))
    assert "  batchtrain images build . --push\n" in init()
    assert "docker_image: my.azurecr.io/script:pytorch-cpu" in file.read_text(encoding="utf-8")


def test_an_existing_recipe_is_kept(here: Path) -> None:
    (here / "pool.yaml").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"pool\.yaml exists already; `batchtrain run \.` runs it$"):
        init("train.py")
    (here / "pool.yaml").rename(here / "batchtrain.yaml")
    again = "rm batchtrain.yaml && batchtrain init train.py --nodes 2 -- --lr 1"
    with pytest.raises(UsageError, match=f"runs it, and `{again}` writes it again$"):
        init("train.py", "--nodes", "2", "--", "--lr", "1")


def test_without_a_usual_name_the_script_must_be_named(here: Path) -> None:
    (here / "train.py").rename(here / "fit.py")
    with pytest.raises(UsageError, match=r"name the script, .* the Python files here: fit\.py, model\.py"):
        init()


def test_a_terminal_asks_which_of_two_frameworks_is_meant(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "train.py").write_text("import torch, mpi4py\n", encoding="utf-8")
    with pytest.raises(UsageError, match="choose one of them"):
        init("train.py")
    monkeypatch.setattr(scripts, "_choose", lambda undecided: undecided.names[0])
    init("train.py")
    assert "runtime: mpich" in (here / "batchtrain.yaml").read_text(encoding="utf-8")


def test_a_script_that_starts_its_own_processes_is_a_comment_of_the_recipe(here: Path) -> None:
    (here / "train.py").write_text("import torch.multiprocessing as mp\nmp.spawn(print)\n", encoding="utf-8")
    init("train.py")
    assert load(here).recipe.jobs
    comment = (here / "batchtrain.yaml").read_text(encoding="utf-8").splitlines()[-1]
    assert comment.startswith("# train.py:2: warning: the script starts the processes of the training itself")


def test_a_run_of_the_script_says_that_the_recipe_beside_it_is_not_used(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for written in (False, True):
        with click.Context(root, obj=Settings()):
            scripts.load("train.py", scripts.Options())
        assert ("is not used" in (printed := capsys.readouterr().err)) is written
        if not written:
            init()
    assert "batchtrain.yaml is not used; `batchtrain run .` runs what it says" in printed


@pytest.mark.parametrize(("option", "announced"), [("--detach", True), ("--checkpoints=mine", True), ("--spot", False)])
def test_a_run_announces_the_storage_that_it_installs_before_it_makes_the_environment(
    option: str, announced: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*_: object) -> None:
        raise NotMade("the wait begins")

    monkeypatch.setattr(azurite, "home", lambda: here / "azurite")
    monkeypatch.setattr(local_environment, "make", make)
    result = CliRunner().invoke(root, ["run", "train.py", "--local", option], obj=Settings())
    assert isinstance(result.exception, NotMade)
    text = f"it needs Azurite {azurite.VERSION}, the emulator's storage, in {here}/azurite (365 MB, a minute, once)"
    assert (text in " ".join(result.stderr.split())) is announced


@pytest.mark.parametrize(
    ("words", "command", "grid"),
    [
        (["--sweep", "lr=0.1,1e-3"], "python -u train.py '--lr={lr}'", {"lr": ("0.1", "1e-3")}),
        (
            ["--sweep", "a=1,2", "--sweep", "b=x"],
            "python -u train.py '--a={a}' '--b={b}'",
            {"a": ("1", "2"), "b": ("x",)},
        ),
        (["--sweep", "lr=1,2", "--", "opt.lr={lr}"], "python -u train.py 'opt.lr={lr}'", {"lr": ("1", "2")}),
    ],
)
def test_a_sweep_is_a_task_factory_whose_values_the_script_gets(
    words: list[str], command: str, grid: dict[str, tuple[str, ...]], here: Path
) -> None:
    init("train.py", "--nodes=2", "--local", *words)
    (task,) = load(here).recipe.jobs[0].tasks
    assert (task.command, task.task_factory and task.task_factory.grid) == (command, grid)
    assert task.multi_instance is not None


def test_each_task_of_a_sweep_without_a_framework_has_one_node(here: Path) -> None:
    (here / "train.py").write_text("import lightgbm\n", encoding="utf-8")
    init("train.py", "--nodes=2", "--local", "--sweep", "lr=1,2")
    recipe = load(here).recipe
    assert recipe.pool is not None
    assert (recipe.pool.vm_count.dedicated, recipe.jobs[0].tasks[0].multi_instance) == (2, None)


@pytest.mark.parametrize(("sweep", "runs"), [((), "on each node"), (("lr=1,2",), "for each task of the sweep (")])
def test_a_script_without_a_framework_is_announced_as_it_runs(
    sweep: tuple[str, ...], runs: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "train.py").write_text("", encoding="utf-8")
    with click.Context(root, obj=Settings()):
        scripts.prepare("train.py", scripts.Options(sweep=sweep))
    assert f"so it runs once {runs}" in capsys.readouterr().err


def test_the_command_of_a_hint_has_the_sweep() -> None:
    options = scripts.Options(nodes=2, sweep=("lr=1,2", "b=3"))
    assert options.words == ("--nodes", "2", "--sweep", "lr=1,2", "--sweep", "b=3")
    typed = options._replace(arguments=("--epochs=3", "--m={b}"))
    assert (typed.arguments, typed.passed) == (("--epochs=3", "--m={b}"), ("--epochs=3", "--m={b}", "--lr={lr}"))
