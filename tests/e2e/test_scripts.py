"""A bare script trains on two nodes by one command, and a script that cannot is refused before anything is created."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import environments

DATA = Path(__file__).resolve().parents[1] / "data" / "scripts"
pytestmark = [pytest.mark.process]


class Case(NamedTuple):
    """A script, the framework that it imports, what it leaves, and the words after its name."""

    script: str
    framework: str
    files: frozenset[str]
    metric: str = "loss"
    options: tuple[str, ...] = ()


PLAIN = Case("work.py", "none", frozenset({"n0/sum-0.txt", "n1/sum-1.txt"}))
CASES: Mapping[str, Case] = {
    "mpi4py": Case("train.py", "mpi", frozenset({"weights.npy"})),
    "nanogpt": Case(
        "train.py", "pytorch", frozenset({"out/ckpt.pt"}), options=("--processes-per-node", "2", "--", "--epochs", "8")
    ),
    "trainer": Case(
        "finetune.py", "accelerate",
        frozenset({"model/config.json", "model/model.safetensors", "model/training_args.bin"}),
    ),
}  # fmt: skip
"""`tests/detection_table.py` has the scripts of the other frameworks, and `test_frameworks.py` trains with them."""
SLOW = [pytest.mark.slow, pytest.mark.framework]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """Environments are made once for all runs of the tests. Python compiles what it imports: compiling all of
    transformers and PyTorch takes longer than to train with them."""
    return {"BATCHTRAIN_ENVIRONMENTS_DIR": str(environments.home()), "UV_COMPILE_BYTECODE": "0"}


def bare(batchtrain: Any, name: str) -> Path:
    """The directory of a script alone."""
    return Path(shutil.copytree(DATA / name, batchtrain.cwd / name))


def left(batchtrain: Any) -> set[str]:
    outputs = batchtrain.cwd / "runs" / "latest" / "outputs" / "train"
    return {file.relative_to(outputs).as_posix() for file in outputs.rglob("*") if file.is_file()}


def metrics(batchtrain: Any) -> set[str]:
    lines = (batchtrain.cwd / "runs/latest/metrics/train.jsonl").read_text(encoding="utf-8").splitlines()
    return {name for line in lines for name in json.loads(line)}


def trained(batchtrain: Any, name: str, case: Case, environment: Mapping[str, str]) -> None:
    script = bare(batchtrain, name) / case.script
    words = ("run", str(script), "--nodes", "2", "--local", *case.options)
    told = batchtrain(*words, environment=environment, timeout=900).stderr
    launch = "without a framework" if case.framework == "none" else f"with {case.framework}"
    assert f"is launched {launch}: " in told
    assert left(batchtrain) == case.files
    assert case.metric in metrics(batchtrain)


def test_a_plain_script_runs_on_both_nodes(batchtrain: Any, environment: Mapping[str, str]) -> None:
    trained(batchtrain, "plain", PLAIN, environment)
    sums = [int((batchtrain.cwd / "runs/latest/outputs/train" / name).read_text()) for name in PLAIN.files]
    assert sum(sums) == sum(range(1, 101))


@pytest.mark.mpi
def test_a_script_with_mpi4py_trains_on_two_nodes(batchtrain: Any, environment: Mapping[str, str]) -> None:
    trained(batchtrain, "mpi4py", CASES["mpi4py"], environment)


@pytest.mark.mpi
def test_only_the_chosen_rank_of_a_plain_mpi_is_printed(batchtrain: Any, environment: Mapping[str, str]) -> None:
    text = "from mpi4py import MPI\nprint('this is rank', MPI.COMM_WORLD.rank, flush=True)\n"
    (batchtrain.cwd / "train.py").write_text(text, encoding="utf-8")
    words = ("run", "train.py", "--nodes", "2", "--local", "--rank", "1")
    assert batchtrain(*words, environment=environment, timeout=600).stdout == "[1:1] this is rank 1\n"


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW) for name in CASES if name != "mpi4py"])
def test_a_script_of_a_framework_trains_on_two_nodes(
    name: str, batchtrain: Any, environment: Mapping[str, str]
) -> None:
    try:
        if CASES[name].framework == "pytorch":  # which is installed already
            environments.share("pytorch")
    except environments.Missing as missing:  # the command would build it then
        pytest.skip(str(missing))
    trained(batchtrain, name, CASES[name], environment)


@pytest.fixture
def account(batchtrain: Any) -> Mapping[str, str]:
    """The variables of an emulator that is used as an account of Azure."""
    batchtrain("emulator", "start", "--port", "0")
    shell = batchtrain("emulator", "env").stdout
    return dict(line.removeprefix("export ").split("=", 1) for line in shell.splitlines() if "AZURE_BATCH" in line)


@pytest.mark.slow
def test_on_an_account_the_start_task_makes_the_environment(batchtrain: Any, account: Mapping[str, str]) -> None:
    script = bare(batchtrain, "plain") / "work.py"
    told = batchtrain("run", str(script), "--nodes", "2", environment=account, timeout=600).stderr
    assert "on account batchtrain" in told
    assert left(batchtrain) == PLAIN.files


@pytest.mark.slow
def test_a_package_index_that_a_node_does_not_reach_is_one_message(batchtrain: Any, account: Mapping[str, str]) -> None:
    script = bare(batchtrain, "plain") / "work.py"
    lines = ("--index-url http://127.0.0.1:9/simple", "--retries 0", "no-such-package-of-batchtrain")
    (script.parent / "requirements.txt").write_text("\n".join(lines), encoding="utf-8")
    told = batchtrain("run", str(script), environment=account, code=4, timeout=600).stderr
    assert told.count("batchtrain: pip could not install the packages of the script") >= 1
    assert told.count("batchtrain: the start task failed on node") == 1
    assert batchtrain("pool", "list", "-o", "json", environment=account).stdout.strip() in ("", "[]")


def test_a_recipe_of_init_runs_as_the_script_does(batchtrain: Any, environment: Mapping[str, str]) -> None:
    directory = bare(batchtrain, "plain")
    batchtrain("init", str(directory / "work.py"), "--nodes", "2", "--image")
    batchtrain("images", "env", str(directory), environment=environment)
    batchtrain("run", str(directory), "--local", environment=environment)
    assert left(batchtrain) == PLAIN.files


def test_a_script_that_cannot_be_launched_is_refused_before_anything_is_created(batchtrain: Any) -> None:
    (batchtrain.cwd / "train.py").write_text("import torch.multiprocessing as mp\nmp.spawn(main)\n", encoding="utf-8")
    told = batchtrain("run", "train.py", "--nodes", "2", "--local", code=2).stderr
    assert "train.py:2: error: the script starts the processes" in told
    assert len(told.strip().splitlines()) <= 4
    assert not batchtrain.home.exists() or not list(batchtrain.home.iterdir())
