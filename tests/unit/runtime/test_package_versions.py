"""The list of packages that a task writes: what its Python imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from batchtrain.runtime import package_versions


def distribution(place: Path, folder: str, metadata: str) -> None:
    (place / f"{folder}.dist-info").mkdir(parents=True)
    (place / f"{folder}.dist-info" / "METADATA").write_text(metadata)


def test_the_first_distribution_of_a_name_counts_and_a_broken_one_is_left_out(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    distribution(first, "model-2", "Metadata-Version: 2.1\nName: model\nVersion: 2\n\nName: page\nVersion: 3\n")
    distribution(second, "model-1", "Metadata-Version: 2.1\nName: model\nVersion: 1\n")
    distribution(second, "broken-1", "")
    (second / "empty-1.dist-info").mkdir()
    (second / "legacy-1.egg-info").mkdir()
    (second / "legacy-1.egg-info" / "PKG-INFO").write_text("Name: legacy\nVersion: 1\n")
    (second / "single-1.egg-info").write_text("Name: single\nVersion: 4\n")
    environment = {**os.environ, "PYTHONPATH": f"{first}{os.pathsep}{second}"}
    subprocess.run(
        [sys.executable, "-s", package_versions.__file__, str(tmp_path / "list.json")], env=environment, check=True
    )
    packages = json.loads((tmp_path / "list.json").read_text())["packages"]
    assert [packages[name] for name in ("model", "legacy", "single")] == ["2", "1", "4"]
    assert not {"broken", "empty", "page"} & set(packages)
