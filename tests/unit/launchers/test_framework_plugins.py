"""Frameworks of other packages: what a package must have, what is said of one that has not, and when they are read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import batchtrain as bt
from batchtrain.config.load import Loaded, load
from batchtrain.errors import ConfigError, PlanError
from batchtrain.frameworks import plugins
from batchtrain.plan import plan_recipe
from tests.properties import BASE, built

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = (ROOT / "tests/data/echo_framework/batchtrain_echo.py").read_text(encoding="utf-8")
GANG = "job_specifications[0].tasks[0].multi_instance"

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package on the path of this process, as pip would: an entry point, and the module that it names."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(point: str, text: str = EXAMPLE, package: str = "batchtrain-echo") -> None:
        module = point.partition("= ")[2].partition(":")[0]
        (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
        information = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{point}\n")
        monkeypatch.delitem(sys.modules, module, raising=False)

    plugins._entry_points.cache_clear()
    plugins.kind_or_fault.cache_clear()
    yield installed
    plugins._entry_points.cache_clear()
    plugins.kind_or_fault.cache_clear()


def loaded(folder: Path, framework: dict[str, Any], ignore: tuple[str, ...] = (), **gang: Any) -> Loaded:
    values = built({f"{GANG}.num_instances": 2, f"{GANG}.framework": framework})
    values["job_specifications"][0]["tasks"][0]["multi_instance"] |= gang
    (folder / "pool.json").write_text(json.dumps({"pool_specification": BASE["pool_specification"]}))
    (folder / "jobs.json").write_text(json.dumps({"job_specifications": values["job_specifications"]}))
    return load(folder, ignore=ignore)


def faults(folder: Path, framework: dict[str, Any], **gang: Any) -> list[str]:
    """What is said of a file: path and message of each problem."""
    with pytest.raises(ConfigError) as caught:
        loaded(folder, framework, **gang)
    return [f"{problem.path.removeprefix(GANG)}: {problem.message}" for problem in caught.value.problems]


def test_a_framework_of_a_package_is_launched_as_one_of_ours(tmp_path: Path, install: Install) -> None:
    install("echo = batchtrain_echo:EchoBlock")
    plan = plan_recipe(loaded(tmp_path, {"echo": {"greeting": "hi", "processes_per_node": 3}}).recipe)
    ((_, text),) = plan.launch
    parts = ('"framework": "echo"', '"processes_per_node": 3', '"greeting": "hi"', "class Echo(Framework):")
    assert [part for part in parts if part not in text] == []
    assert {("ECHO_RANK", "framework-environment"), ("ECHO_GREETING", "framework-environment")} <= {
        (implicit.what, implicit.rule) for implicit in plan.implicit
    }


def test_a_job_described_in_python_keeps_the_block_in_its_files(tmp_path: Path, install: Install) -> None:
    install("echo = batchtrain_echo:EchoBlock")
    block = plugins.block("echo", {"processes_per_node": 2})
    recipe = bt.command(command="true", instances=2, distribution=block)
    recipe.save(tmp_path / "saved")
    gangs = [task.multi_instance for task in (*recipe.jobs[0].tasks, *load(tmp_path / "saved").recipe.jobs[0].tasks)]
    assert [gang and gang.framework for gang in gangs] == [{"echo": {"processes_per_node": "2"}}] * 2


def test_the_rules_about_frameworks_hold_for_one_of_a_package(tmp_path: Path, install: Install) -> None:
    install("echo = batchtrain_echo:EchoBlock")
    found = faults(tmp_path, {"echo": {"port": 6000, "processes": 3}}, pytorch={})
    assert [fault.partition(":")[0] for fault in found] == [
        ".framework.echo",
        ".framework.echo.port",
        ".framework.echo.processes",
    ]


def test_mistakes_in_the_block_are_found_by_its_type(tmp_path: Path, install: Install) -> None:
    install("echo = batchtrain_echo:EchoBlock")
    assert faults(tmp_path, {"echo": {"greting": "hi", "barrier_seconds": "long"}}) == [
        ".framework.echo.greting: `greting` is not known here. Did you mean `greeting`?",
        ".framework.echo.barrier_seconds: `long` is not a number.",
    ]


def test_a_fault_that_the_block_itself_finds_is_reported(tmp_path: Path, install: Install) -> None:
    own = (
        "    def faults(self, command, instances):\n"
        "        yield from super().faults(command, instances)\n"
        "        yield BlockFault('echo-greeting', 'greeting', 'no greeting is polite enough')\n"
    )
    text = EXAMPLE.replace("import LAUNCH", "import LAUNCH, BlockFault")
    install("echo = batchtrain_echo:EchoBlock", f"{text}\n{own}")
    assert faults(tmp_path, {"echo": {}}) == [".framework.echo.greeting: no greeting is polite enough."]


HEAD = "from batchtrain.frameworks.base import Nodes\n"
BAD: dict[str, tuple[str, str, str]] = {
    "import error": (
        "echo = bt_echo:Block", "import a_library_that_is_not_there",
        "the framework `echo` of batchtrain-echo 1.0 (bt_echo:Block) cannot be imported: ModuleNotFoundError: No module"
        " named 'a_library_that_is_not_there'; repair or uninstall the package.",
    ),
    "no such class": (
        "echo = bt_echo:Block", "",
        "the framework `echo` of batchtrain-echo 1.0 (bt_echo:Block) cannot be imported: AttributeError: module"
        " 'bt_echo' has no attribute 'Block'; repair or uninstall the package.",
    ),
    "wrong type": (
        "echo = bt_echo:Block", "def Block(): ...",
        "the framework `echo` of batchtrain-echo 1.0 (bt_echo:Block) is no subclass of"
        " `batchtrain.frameworks.base.Nodes`; repair or uninstall the package.",
    ),
    "incomplete": (
        "echo = bt_echo:Block", f"{HEAD}class Block(Nodes): name = 'echo'",
        "the framework `echo` of batchtrain-echo 1.0 (bt_echo:Block) lacks `source` and `variables`; repair the"
        " package.",
    ),
    "another name": (
        "echo = bt_echo:Block", f"{HEAD}class Block(Nodes): name, source, variables = 'other', '', ()",
        "the framework `echo` of batchtrain-echo 1.0 (bt_echo:Block) has the name `other`; both names must be the same,"
        " of the letters a to z.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_package_that_cannot_be_used_is_named_with_the_reason(case: str, tmp_path: Path, install: Install) -> None:
    point, text, message = BAD[case]
    install(point, text)
    assert faults(tmp_path, {"echo": {}}) == [f".framework.echo: {message}"]


def test_two_packages_with_one_name_are_both_named(tmp_path: Path, install: Install) -> None:
    install("echo = batchtrain_echo:EchoBlock")
    install("echo = second:EchoBlock", package="another-echo")
    (fault,) = faults(tmp_path, {"echo": {}})
    assert sorted(fault.partition(" have the framework")[0].removeprefix(".framework.echo: ").split(" and ")) == [
        "another-echo 1.0 (second:EchoBlock)", "batchtrain-echo 1.0 (batchtrain_echo:EchoBlock)",
    ]  # fmt: skip
    assert fault.endswith(" have the framework `echo`; uninstall all but one.")


def test_no_package_takes_the_name_of_one_of_ours(tmp_path: Path, install: Install) -> None:
    install("pytorch = batchtrain_echo:EchoBlock")
    assert faults(tmp_path, {"pytorch": {}}) == [
        ".framework.pytorch: `pytorch` is a block of `multi_instance` itself; write it beside `framework`, not below"
        " it."
    ]


def test_a_name_without_a_package_is_refused_with_those_that_there_are(tmp_path: Path, install: Install) -> None:
    install("echo = batchtrain_echo:EchoBlock")
    (fault,) = faults(tmp_path, {"ecco": {}})
    assert fault.endswith(
        "has the entry point `ecco` in the group `batchtrain.frameworks`; install the package, or correct the name."
        " Known: `echo`."
    )


def test_a_silenced_check_does_not_let_a_broken_package_launch(tmp_path: Path, install: Install) -> None:
    install("echo = bt_echo:Block", "def Block(): ...")
    recipe = loaded(tmp_path, {"echo": {}}, ignore=("framework-plugin",)).recipe
    with pytest.raises(PlanError, match=r"is no subclass of `batchtrain\.frameworks\.base\.Nodes`"):
        plan_recipe(recipe)


@pytest.mark.usefixtures("install")
def test_packages_are_searched_only_for_a_framework_that_is_not_ours(tmp_path: Path) -> None:
    loaded(tmp_path, {}, pytorch={})
    program = (
        "import sys\nfrom batchtrain.config.load import load\nfrom batchtrain.plan import plan_recipe\n"
        f"plan_recipe(load({str(tmp_path)!r}).recipe)\nprint('importlib.metadata' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert plugins._entry_points.cache_info().currsize == 0
