"""What a short command loads: each library takes some hundredths of a second of every start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import ROOT

RECIPE = str(ROOT / "recipes" / "CNTK-GPU-Infiniband-IntelMPI")
LOADED = """
import atexit, json, os, sys
def note():
    with open(sys.argv[0], "w") as file:
        json.dump(list(sys.modules), file)
atexit.register(note)
end, os._exit = os._exit, lambda code: (note(), end(code))
sys.argv.pop(0)
from batchtrain.cli.__main__ import main
main()
"""
LIBRARIES = {"azure", "click", "cryptography", "jsonschema", "msgspec", "pathspec", "requests", "rich", "yaml"}
FILES = {
    "catalog",
    "cli",
    "config",
    "errors",
    "foreign",
    "frameworks",
    "launchers",
    "shipped",
    "state_files",
    "version",
}
PLANS = FILES | {"client", "hints", "markup", "plan", "runs", "runtime", "service"}


@pytest.mark.parametrize(
    ("words", "libraries", "parts"),
    [
        (["--version"], set(), {"cli"}),
        (["--help"], {"click"}, {"cli"}),
        (["config", "validate", RECIPE], {"click", "msgspec", "yaml"}, FILES | {"hints"}),
        (["config", "plan", RECIPE], {"click", "msgspec", "yaml"}, PLANS),
    ],
)
def test_a_command_loads_these_libraries_and_parts(
    words: list[str], libraries: set[str], parts: set[str], tmp_path: Path
) -> None:
    noted = tmp_path / "modules.json"
    subprocess.run([sys.executable, "-c", LOADED, noted, *words], capture_output=True, check=True)
    modules = [name.split(".") for name in json.loads(noted.read_text())]
    assert {name[0] for name in modules} & LIBRARIES == libraries
    assert {name[1] for name in modules if name[0] == "batchtrain" and len(name) > 1} == {*parts, "version"}
