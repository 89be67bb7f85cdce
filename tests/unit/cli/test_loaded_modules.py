"""What a short command loads: each library takes some hundredths of a second of every start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import ROOT

RECIPE = str(ROOT / "recipes" / "CNTK-GPU-Infiniband-IntelMPI")
LOADED = """
import atexit, json, os, sys
name = sys.argv.pop(1)
def note():
    with open(name, "w") as file:
        json.dump(list(sys.modules), file)
atexit.register(note)
end, os._exit = os._exit, lambda code: (note(), end(code))
sys.argv[0] = "batchtrain"
from batchtrain.cli.__main__ import main
main()
"""
LIBRARIES = {"azure", "click", "cryptography", "jsonschema", "msgspec", "pathspec", "requests", "rich", "yaml"}
HELP = {"cli", "config", "shipped"}
"""Of `config` the spelling of times, of `service` the deadlines, and of `shipped` the folder of the documentation."""
FILES = {
    "catalog", "cli", "config", "errors", "foreign", "frameworks", "launchers", "shipped", "state_files", "version",
}  # fmt: skip
EMULATOR = FILES - {"launchers", "shipped"} | {"emulator", "hints", "markup", "records"}
PLANS = FILES | {"hints", "markup", "plan", "runs", "runtime", "service"}


@pytest.mark.parametrize(
    ("words", "libraries", "parts"),
    [
        (["--version"], set(), {"cli"}),
        (["--help"], {"click"}, {"cli"}),
        (["run", "--help"], {"click"}, HELP),
        (["jobs", "--help"], {"click"}, HELP - {"shipped"} | {"service"}),
        (["jobs", "add", "--help"], {"click"}, HELP | {"service"}),
        (["emulator", "start", "--help"], {"click"}, HELP),
        (["COMPLETE", "jobs", "logs", "--fo"], {"click"}, HELP - {"shipped"} | {"service"}),
        (["config", "validate", RECIPE], {"click", "msgspec", "yaml"}, FILES | {"hints"}),
        (["config", "plan", RECIPE], {"click", "msgspec", "yaml"}, PLANS),
        (["emulator", "images", "list"], {"click", "msgspec", "yaml"}, EMULATOR),
    ],
)
def test_a_command_loads_these_libraries_and_parts(
    words: list[str], libraries: set[str], parts: set[str], tmp_path: Path
) -> None:
    noted, completes = tmp_path / "modules.json", words[0] == "COMPLETE"
    line = {"COMP_WORDS": " ".join(["batchtrain", *words[1:]]), "COMP_CWORD": str(len(words) - 1)}
    environment = os.environ | {"BATCHTRAIN_EMULATOR_DIR": str(tmp_path)}
    environment |= {"_BATCHTRAIN_COMPLETE": "bash_complete"} | line if completes else {}
    command = [sys.executable, "-c", LOADED, noted, *(() if completes else words)]
    subprocess.run(command, capture_output=True, check=not completes, env=environment)
    modules = [name.split(".") for name in json.loads(noted.read_text())]
    assert {name[0] for name in modules} & LIBRARIES == libraries
    assert {name[1] for name in modules if name[0] == "batchtrain" and len(name) > 1} == {*parts, "version"}
