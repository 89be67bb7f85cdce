"""Text files of the client are UTF-8 on every system: Python's default on Windows is another encoding."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests import modules
from tests.modules import PACKAGE

ON_LINUX = ("emulator", "runtime")
"""Folders whose code runs on Linux only."""


def test_every_text_file_that_the_client_opens_names_its_encoding() -> None:
    files = [path for path in modules.files() if path.relative_to(PACKAGE).parts[0] not in ON_LINUX]
    assert [f"{path.name}:{line}" for path in files for line in _without_encoding(path)] == []


def _without_encoding(path: Path) -> Iterator[int]:
    for node in modules.nodes(path):
        if isinstance(node, ast.Call) and _text(node) and not any(word.arg == "encoding" for word in node.keywords):
            yield node.lineno


def _text(call: ast.Call) -> bool:
    """Whether the call reads or writes text: `open` with a mode that is a literal, or a method of Path."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    modes = [word.value for word in call.args if isinstance(word, ast.Constant)]
    return name in ("read_text", "write_text") or (
        name == "open" and any(mode in ("r", "w", "a", "x") for mode in modes)
    )
