"""`check fabric`: which options are refused before anything is created."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from batchtrain.cli.app import root
from batchtrain.errors import UsageError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mark", "pair_gb_per_second=1.2.3"], "is not METRIC=EXPECTED[:WARN[:REPORT]]"),
        (["--mark", "pair_gb_per_sec=24"], "no check measures pair_gb_per_sec; did you mean pair_gb_per_second?"),
        (["--mark", "loss=1"], "no check measures loss; it is one of allreduce_gb_per_second, "),
    ],
)
def test_a_wrong_option_is_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(root, ["check", "fabric", "--size", "Standard_HB120rs_v3", "--local", *arguments])
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
