"""Who may import whom, read from the imports themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "batchtrain"

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "version": set(),
    "formula": set(),
    "catalog": {"errors"},
    "runtime": set(),
    "launchers": {"errors", "runtime"},
    "config": {"errors", "catalog", "formula"},
    "plan": {"errors", "catalog", "launchers", "config"},
    "service": {"errors", "plan", "config", "catalog", "version"},
    "storage": {"errors", "config", "launchers", "plan"},
    "containers": {"errors", "config"},
    "emulator": {"catalog", "formula", "version"},
    "testing": {"emulator"},
    "pytest_plugin": {"testing"},
    "placeholders": {"errors", "config", "plan", "service", "storage"},
    "client": {"errors", "config", "plan", "placeholders", "service", "storage", "emulator", "run", "launchers"},
    "doctor": {"errors", "catalog", "config", "service"},
    "run": {"errors", "config", "plan", "service", "client"},
    "cli": {
        "errors",
        "formula",
        "version",
        "catalog",
        "config",
        "plan",
        "service",
        "storage",
        "client",
        "run",
        "doctor",
        "containers",
        "emulator",
    },
    "__init__": {"client", "config", "errors", "plan", "version"},
}
"""What each part may import of ours beside itself. Emulator and client share only the wire."""

PURE = ("plan", "launchers", "catalog", "config", "errors.py")
IMPURE = {
    "os",
    "time",
    "random",
    "socket",
    "subprocess",
    "threading",
    "asyncio",
    "secrets",
    "uuid",
    "requests",
    "shutil",
}
READERS = {"load.py", "catalog_file.py", "__main__.py"}  # config's readers of files


SEEDED = {"factories.py": {"random"}}  # its numbers are the user's, and each has a seed


def _files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            if node.module == "batchtrain":
                found.update(f"batchtrain.{alias.name}" for alias in node.names)
    return found


def _ours(path: Path) -> set[str]:
    parts = {name.split(".")[1] for name in _imports(path) if name.startswith("batchtrain.")}
    return parts - {_part(path), "__version__"}


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downhill(path: Path) -> None:
    assert _ours(path) <= ALLOWED[_part(path)]


@pytest.mark.parametrize(
    "path",
    [p for p in _files() if _part(p) in {name.removesuffix(".py") for name in PURE} and p.name not in READERS],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_pure_parts_touch_no_clock_no_socket_no_process(path: Path) -> None:
    assert not {name.split(".")[0] for name in _imports(path)} & IMPURE - SEEDED.get(path.name, set())


def test_what_runs_on_a_node_imports_nothing_of_ours() -> None:
    for path in (PACKAGE / "runtime").rglob("*.py"):
        assert not _ours(path)
