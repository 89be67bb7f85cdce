"""`recipe new` where the disk is full."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from batchtrain.cli import recipe
from batchtrain.cli.failures import message_of


def test_a_recipe_is_listed_with_its_whole_first_sentence() -> None:
    abouts = [recipe._about(place) for place in recipe._all()]
    assert abouts
    assert [about for about in abouts if not about or about.endswith(("...", ",", " a"))] == []


@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk_leaves_no_half_recipe_and_is_no_bug(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "mine"
    if there:
        target.mkdir()

    def full(_source: Any, to: Any, **_: Any) -> None:
        (Path(to) / "config").mkdir(parents=True)
        said = f"[Errno 28] {os.strerror(errno.ENOSPC)}"
        raise shutil.Error([("jobs.yaml", str(target / "config/jobs.yaml"), said)])

    monkeypatch.setattr(shutil, "copytree", full)
    assert recipe.new.callback is not None
    with pytest.raises(OSError, match="No space left") as caught:
        recipe.new.callback(name="JAX", directory=str(target))
    assert message_of(caught.value) == (f"{target}/config/jobs.yaml: No space left on device", 2)
    assert list(tmp_path.rglob("*")) == ([target] if there else [])
