"""The notebooks run from start to end on the emulator, and are stored without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import GUARD

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def _stem(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", NOTEBOOKS, ids=_stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    cells = [cell for cell in json.loads(path.read_bytes())["cells"] if cell["cell_type"] == "code"]
    assert [cell["source"] for cell in cells if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.mpi
@pytest.mark.parametrize("path", NOTEBOOKS, ids=_stem)
def test_a_notebook_runs(path: Path, batchtrain: Any, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="there is no nbclient (pip install -e '.[notebook]')")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="there is no kernel (pip install -e '.[notebook]')")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    entry = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(entry, timeout=GUARD, resources={"metadata": {"path": str(folder)}})
    client.execute(env=batchtrain.environment)
    shown = json.dumps(entry.cells)
    assert "<script" not in shown
    assert SHOWN[path.stem] in shown


SHOWN = {
    "1-first-training": "done after",
    "2-sweep": "rate2-decay0",
    "3-preempted-language-model": "sample: ",
    "4-from-laptop-to-azure": "STANDARD_HB120RS_V3",
}
"""A text of the outputs of each notebook."""
