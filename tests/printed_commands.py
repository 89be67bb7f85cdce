"""Every command of another program that a message, a hint or a page of the documentation prints, and what it does to
what exists already."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

READS = "only reads"
FAILS = "creates, and fails if the thing exists"
ADDS = "adds to this machine or account, and leaves what exists"
NAMED = "changes or ends exactly what the user names in it"
REPLACES = "replaces what exists"

COMMANDS: dict[str, str] = {
    "apt-get install": ADDS,
    "az account get-access-token": READS,
    "az account list-locations": READS,
    "az acr import": FAILS,
    "az bicep": NAMED,
    "az batch account list": READS,
    "az batch account show": READS,
    "az batch job create": FAILS,
    "az batch location list-skus": READS,
    "az batch node delete": NAMED,
    "az batch node list": READS,
    "az batch node reboot": NAMED,
    "az batch node remote-login-settings show": READS,
    "az batch node service-logs upload": ADDS,
    "az batch node user delete": NAMED,
    "az batch pool autoscale": NAMED,
    "az batch pool autoscale disable": NAMED,
    "az batch pool autoscale evaluate": READS,
    "az batch pool create": FAILS,
    "az batch pool resize": NAMED,
    "az batch pool show": READS,
    "az batch pool supported-images list": READS,
    "az batch task create": FAILS,
    "az batch task file download": FAILS,
    "az batch task show": READS,
    "az batch task stop": NAMED,
    "az cloud register": FAILS,
    "az cloud set": NAMED,
    "az disk": NAMED,
    "az keyvault secret": NAMED,
    "az login": ADDS,
    "az ml compute create": NAMED,  # in a table of other tools' commands
    "az ml job cancel": NAMED,
    "az ml job create": FAILS,
    "az ml job download": FAILS,
    "az ml job stream": READS,
    "az network vnet create": REPLACES,
    "az network vnet show": READS,
    "az network vnet subnet create": REPLACES,
    "az network vnet subnet show": READS,
    "az rest": NAMED,  # in steps of `verify`, on a pool that is made for them
    "az storage container generate-sas": READS,
    "az storage file upload-batch": NAMED,  # files of the same names
    "az vm image terms accept": NAMED,
    "az vm list-skus": READS,
    "conda activate": ADDS,
    "docker create": FAILS,
    "docker exec": NAMED,
    "docker images": READS,
    "docker inspect": READS,
    "docker load": ADDS,
    "docker login": ADDS,
    "docker ps": READS,
    "docker push": NAMED,
    "docker run": FAILS,
    "docker save": READS,
    "docker tag": NAMED,
    "git ls-files": READS,
    "git push origin": NAMED,
    "git reset": NAMED,  # undoes a release that was not pushed
    "git tag": FAILS,
    "npm install": ADDS,
    "pip config list": READS,
    "pip install": ADDS,
    "sudo chronyc makestep": NAMED,
    "sudo ln": FAILS,
    "sudo ls": READS,
    "sudo sysctl": NAMED,
    "docker context": NAMED,
    "sudo timedatectl set-ntp true": NAMED,
    "systemctl start docker": ADDS,
    "uv cache prune": NAMED,
    "uv pip install": ADDS,
    "uv python install": ADDS,
}

PROGRAMS = "az|docker|podman|sudo|apt-get|apt|dnf|yum|pip|uv|conda|npm|git|systemctl|ssh-keygen|winget|brew"
_WORDS = r"((?: (?:[a-z][a-z-]*)(?![\w./=:-]))*)"
_PROGRAM = re.compile(rf"\b({PROGRAMS})\b")
_QUOTED = re.compile(rf"(?:`|\|\| ?|&& ?)({PROGRAMS}){_WORDS}")
_LINE = re.compile(rf"^\s*(?:\$ )?({PROGRAMS}){_WORDS}", re.MULTILINE)
_FENCE = re.compile(r"```.*?\n(.*?)```", re.DOTALL)


@cache
def printed() -> tuple[tuple[str, str], ...]:
    """The program and the verbs of each command, and the text around it."""
    return tuple(_printed())


def _printed() -> Iterator[tuple[str, str]]:
    for file in sorted(ROOT.glob("batchtrain/**/*.py")):
        source = file.read_text(encoding="utf-8")
        for text in _literals(source) if _PROGRAM.search(source) else ():  # parsing takes a hundred times as long
            yield from _commands(text, text)
    for file in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("recipes/*/README.md"))):
        for line in file.read_text(encoding="utf-8").splitlines():
            yield from _commands(line, line)
        for block in _FENCE.findall(file.read_text(encoding="utf-8")):
            yield from ((match[1] + match[2], match[0]) for match in _LINE.finditer(block))


def _commands(text: str, around: str) -> Iterator[tuple[str, str]]:
    for match in _QUOTED.finditer(text):
        if match[2]:  # else a program's name
            yield match[1] + match[2], around


def effect(command: str) -> str:
    """The row of a command, without the words that follow its verb; of a program or a group of it, READS. Empty if the
    table has none."""
    if any(row.startswith(f"{command} ") for row in COMMANDS):
        return READS
    words = command.split()
    starts = (" ".join(words[:count]) for count in range(len(words), 1, -1))
    return next((COMMANDS[start] for start in starts if start in COMMANDS), "")


def _literals(source: str) -> Iterator[str]:
    nodes = list(ast.walk(ast.parse(source)))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value
