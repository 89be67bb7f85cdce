"""`check fabric`: which options are refused before anything is created."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from batchtrain.catalog.fabric_marks import Mark
from batchtrain.cli import check
from batchtrain.cli.app import root
from batchtrain.config.types import Pool
from batchtrain.errors import UsageError
from batchtrain.records.fabric_check import FabricCheck, FabricMeasurement, Judged
from tests.unit.plan.jobs import recipe


def pool_of(nodes: int) -> Pool:
    pool = recipe(pool={"vm_count": {"dedicated": nodes}}).pool
    assert pool is not None
    return pool


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mark", "pair_gb_per_second=1.2.3"], "is not METRIC=EXPECTED[:WARN[:REPORT]]"),
        (["--mark", "pair_gb_per_sec=24"], "no check measures pair_gb_per_sec; did you mean pair_gb_per_second?"),
        (["--nodes", "1"], "a network needs 2 nodes; give --nodes 2"),
        (["--mark", "loss=1"], "no check measures loss; it is one of allreduce_gb_per_second, "),
        (["mine"], "--size takes a pool for the check alone, and mine has one; give one of them"),
        (["--mark", "pair=fast"], "is not METRIC=EXPECTED[:WARN[:REPORT]]"),
    ],
)
def test_a_wrong_option_is_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(root, ["check", "fabric", "--size", "Standard_HB120rs_v3", "--local", *arguments])
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


@pytest.mark.parametrize(
    ("nodes", "marks", "words"),
    [
        (3, (), "nodes are only compared with one another"),
        (2, (Mark("pair_ratio", 1.0),), "only --mark judges its values"),
        (2, (), "fewer than 3 nodes cannot be compared with one another; give --nodes 3 or --mark"),
    ],
)
def test_a_size_without_marks_says_what_judges_its_nodes(nodes: int, marks: tuple[Mark, ...], words: str) -> None:
    assert check._comparison(pool_of(nodes), marks).endswith(words)


RATE = Judged("pair_gb_per_second", 1.0, 24.0, 20.0, 12.0, "fault", "")
AGAIN = "check again on other nodes; if it stays, report it to Azure with the node ids in runs/r/fabric.json"


@pytest.mark.parametrize(
    ("pool_id", "slow_nodes", "step"),
    [
        ("p", ("tvm-1",), "reboot with `batchtrain pool reboot p tvm-1`, and check again; if it stays, report it"),
        ("p", (), AGAIN),
        (None, ("tvm-1",), AGAIN),
    ],
)
def test_a_slow_node_is_rebooted_only_while_its_pool_exists(
    pool_id: str | None, slow_nodes: tuple[str, ...], step: str
) -> None:
    fault = FabricCheck("HB", FabricMeasurement((), {}), (RATE,), slow_nodes)
    message = check._fault(fault, pool_id, Path("runs/r"))
    assert message.startswith("pair_gb_per_second misses the limit of HB")
    assert step in message
