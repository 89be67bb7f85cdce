"""`docs/reference/frameworks.md`, made of the tables that the framework tests run: `python -m tests.generated_files`.

The page cannot say more than the tests assert; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from batchtrain.config.load import load
from batchtrain.config.types import whole_number
from batchtrain.frameworks.base import Nodes
from tests.e2e import test_frameworks as tested

HEAD = """\
# Frameworks that the tests train

`python -m tests.generated_files` generates this page from the tables in `tests/e2e/test_frameworks.py`; a test fails if
it is stale. Each row is one run of `batchtrain run recipes/RECIPE --local` with the listed settings, on CPUs, with a
real build of the framework (`tests/environments.py` lists the versions). The test passes if every process exits with 0
and reaches the accuracy of the row on the test images (at most {tolerance:g} less). *Same weights* means that all
processes must end with exactly equal weights; `--verify` in the command prints their hashes. See also
[how to configure each framework](../how-to/train-with-your-framework.md).
"""
ON_EACH_CHANGE = "Tested with `pytest --all`"
VARIANTS = "Tested with `BATCHTRAIN_TEST_VARIANTS=1`"
COLUMNS = "| variant | recipe | settings | nodes × processes | accuracy | same weights |\n|---|---|---|---|---|---|\n"


def page() -> str:
    """The whole page."""
    parts = (
        HEAD.format(tolerance=tested.TOLERANCE),
        _table(ON_EACH_CHANGE, tested.MODES, tested.test_a_framework_trains_on_two_nodes_and_all_processes_agree),
        _table(VARIANTS, tested.MORE_MODES, tested.test_a_variant_trains_on_two_nodes_too),
        _on_gpus(),
        _deaths(),
    )
    return "\n".join(parts)


def _table(title: str, modes: Mapping[str, tested.Mode], test: Callable[..., None]) -> str:
    rows = "".join(f"| {' | '.join(_row(name, mode))} |\n" for name, mode in modes.items())
    return f"## {title}\n\nTest: `{test.__name__}`\n\n{COLUMNS}{rows}"


def _row(name: str, mode: tested.Mode) -> Iterable[str]:
    nodes, each = _shape(mode)
    settings = ", ".join(f"`{_short(path)}: {_readable(value)}`" for path, value in mode.settings)
    return (
        name,
        f"`{mode.recipe}`",
        settings or "–",
        f"{nodes} × {each}",
        f"{mode.accuracy:.2f}",
        _weights(mode),
    )


def _weights(mode: tested.Mode) -> str:
    if mode.ranks == 1:
        return "only the chief prints them"
    return "yes" if mode.equal else "no: asynchronous"


def _shape(mode: tested.Mode) -> tuple[int, int]:
    """Nodes, and processes that train on each."""
    recipe = load(tested.RECIPES / mode.recipe, settings=dict(mode.settings)).recipe
    assert recipe.pool is not None
    nodes = recipe.pool.vm_count.dedicated
    gang = recipe.jobs[0].tasks[0].multi_instance
    assert gang is not None
    ((_, block),) = gang.launches
    given = block.processes_per_node
    if given is None and isinstance(block, Nodes):
        return nodes, 1
    return nodes, whole_number(given) or mode.ranks // nodes


def _short(path: str) -> str:
    """What of a path a person would write in the file."""
    return path.rpartition(".")[2]


def _readable(value: str) -> str:
    return value.replace(f"{tested.SHARED}/", "").replace("python -u ", "")


def _on_gpus() -> str:
    test = tested.test_the_commands_of_a_gpu_recipe_launch_its_ranks_where_there_is_no_gpu.__name__
    rows = "".join(f"| `{case.recipe}` | 2 × {case.ranks // 2} |\n" for case in tested.ON_GPUS)
    return f"""\
## GPU recipes: their own launch

Test: `{test}`

The commands of the recipe's README launch its ranks on nodes without GPUs. Each prints its number instead of training:
the program is a copy of that of the recipe for CPUs.

| recipe | nodes × processes |
|---|---|
{rows}"""


def _deaths() -> str:
    test = tested.test_a_killed_rank_is_named_and_the_gang_is_gone.__name__
    ways = "\n".join(f"- {way}" for way in tested.DYING)
    return f"""\
## When a process dies

Test: `{test}`

The test kills one rank (signal 9) during a training. The message names the rank and its node, the command exits with
code 10, and no process of the gang remains on any node.

{ways}
"""
