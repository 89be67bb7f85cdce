"""Faults that a review found in what a run leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.config.masking import masked_setting, masked_word
from batchtrain.emulator.interface import StorageMissing
from batchtrain.emulator.machine import azurite
from batchtrain.errors import UsageError
from batchtrain.runs import directory
from batchtrain.runs.numbers import Recorded
from batchtrain.runs.results import selects

from .made import made


@pytest.mark.parametrize("pattern", ["ckpt[z-a]", "[!]"])
def test_a_pattern_with_an_invalid_set_means_its_own_text(pattern: str) -> None:
    assert selects([pattern], pattern)
    assert not selects([pattern], "x")


@pytest.mark.parametrize("line", ["Epoch " + "9" * 5000 + "/3", '{"step":1,"\\ud800":1.0}'])
def test_an_absurd_line_of_a_program_is_no_metric_and_ends_nothing(line: str, tmp_path: Path) -> None:
    numbers = Recorded(made(tmp_path), lambda task: ())
    for text in (line, '{"step": 1, "loss": 2.0}'):
        numbers.lines("train", "stdout", (text,))
    assert list(numbers.end({})["train"]) == ["loss"]


def test_a_secret_of_the_command_line_is_not_recorded() -> None:
    path = "job_specifications[0].environment_variables"
    assert masked_word(f"{path}.WANDB_API_KEY=x") == f"{path}.WANDB_API_KEY=***"
    assert masked_word("--set=credentials.batch.account_key=x") == "--set=credentials.batch.account_key=***"
    assert masked_word("pool_specification.id=p") == "pool_specification.id=p"
    assert masked_setting(path, "{A_KEY: x, B: y}") == '{A_KEY: "***", B: y}'
    assert masked_setting(path, "{") == "{"


def test_a_directory_with_other_files_is_not_replaced_by_azurite(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StorageMissing, match="holds other files"):
        azurite._install(azurite.Node("node", ("npm",)), tmp_path, lambda: False)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_too_many_names_of_metrics_are_refused_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MOST_CELLS", 10_000)
    run = made(tmp_path)
    run.replace_lines(run.metrics_file("t"), (b'{"loss%d":1}\n' % number for number in range(1000)))
    with pytest.raises(UsageError, match=r"too many for a table.*`batchtrain runs export`"):
        run.metrics()


def test_a_table_of_metrics_may_have_as_many_cells_as_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MOST_CELLS", 4)
    run = made(tmp_path)
    run.replace_lines(run.metrics_file("t"), (b'{"loss":1,"rate":1}\n',) * 2)
    assert run.metrics().values == {"loss": [1, 1], "rate": [1, 1]}
