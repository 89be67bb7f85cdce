"""`docs/reference/frameworks.md`, made of the tables that the framework tests run: `python -m tests.frameworks_page`.

The page cannot say more than the tests assert; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from batchtrain.config.load import load
from batchtrain.config.types import Nodes, whole
from tests import environments
from tests.e2e import test_frameworks as tested

PAGE = environments.ROOT / "docs" / "reference" / "frameworks.md"

HEAD = """\
# Which frameworks train here, and how well

Made from the tables of `tests/e2e/test_frameworks.py` by `python -m tests.frameworks_page`; a test says when it is
stale. Each row is `batchtrain run recipes/RECIPE --local`, with what is set otherwise, on real builds of the framework
(`tests/environments.py` has their versions), on CPUs. Its test passes if every process ends well and is as good as the
row says (less {tolerance:g} at most) on images that nobody trained on; and where the row says so, all processes have
the same weights, bit for bit. [How to write each one](../how-to/train-with-your-framework.md).
"""
ON_EACH_CHANGE = "Run with all other tests"
VARIANTS = "Run with `BATCHTRAIN_TEST_VARIANTS=1`"
GPUS = "GPU recipes: their own launch, and processes that find no GPU and take the CPU"
COLUMNS = "| way | recipe | set otherwise | nodes × processes | accuracy | same weights |\n|---|---|---|---|---|---|\n"


def page() -> str:
    """The whole page."""
    parts = (
        HEAD.format(tolerance=tested.TOLERANCE),
        _table(ON_EACH_CHANGE, tested.MODES, tested.test_a_framework_trains_on_two_nodes_and_all_processes_agree),
        _table(VARIANTS, tested.MORE_MODES, tested.test_a_variant_trains_on_two_nodes_too),
        _table(GPUS, tested.GPU_MODES, tested.test_the_launch_of_a_gpu_recipe_trains_where_there_is_no_gpu),
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
        return "the chief says them"
    return "yes" if mode.equal else "no: each at its own pace"


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
    return nodes, whole(given) or mode.ranks // nodes


def _short(path: str) -> str:
    """What of a path a person would write in the file."""
    return path.rpartition(".")[2]


def _readable(value: str) -> str:
    return value.replace(f"{tested.SHARED}/", "").replace("python -u ", "")


def _deaths() -> str:
    test = tested.test_a_killed_rank_is_named_and_the_gang_is_gone_within_a_second.__name__
    ways = "\n".join(f"- {way}" for way in tested.DYING)
    return f"""\
## When a process dies

Test: `{test}`

One rank is killed (signal 9) in the middle of a training. The message names the rank and its node, the command ends
with exit code 10, and {tested.GONE_SECONDS:g} s after the death no process of the gang is left on any node.

{ways}
"""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
