"""Who may import whom, read from the imports themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.modules import PACKAGE, circles, files, graph, imports, name_of

ALLOWED: dict[str, set[str]] = {
    "hints": set(),
    "errors": {"hints"},
    "foreign": set(),
    "state_files": {"errors", "foreign"},
    "version": set(),
    "formula": set(),
    "connections": set(),
    "catalog": {"errors"},
    "runtime": set(),
    "shipped": set(),
    "markup": set(),
    "frameworks": {"errors"},
    "records": {"catalog", "errors", "markup"},
    "launchers": {"errors", "frameworks", "runtime"},
    "config": {"catalog", "errors", "formula", "frameworks", "launchers", "markup", "shipped", "state_files"},
    "plan": {"catalog", "config", "errors", "frameworks", "launchers", "markup"},
    "life": {"errors", "records"},
    "metrics": {"config", "foreign", "records", "runtime"},
    "service": {
        "catalog", "config", "errors", "foreign", "life", "markup", "plan", "records", "state_files", "version"},
    "storage": {"config", "errors", "launchers", "plan", "service"},
    "runs": {
        "catalog", "config", "errors", "foreign", "markup", "metrics", "plan", "records", "runtime", "service",
        "state_files", "storage", "version"},
    "containers": {"config", "errors", "service", "shipped", "state_files"},
    "emulator": {"catalog", "connections", "errors", "foreign", "formula", "state_files", "version"},
    "testing": {"emulator"},
    "diagnosis": {
        "catalog", "config", "errors", "launchers", "life", "markup", "metrics", "plan", "records", "service"},
    "display": {"catalog", "config", "errors", "hints", "life", "markup", "plan", "records", "runs", "service"},
    "client": {
        "catalog", "config", "diagnosis", "display", "emulator", "errors", "foreign", "frameworks", "life", "markup",
        "metrics", "plan", "records", "runs", "runtime", "service", "state_files", "storage"},
    "functions": {"client", "config", "containers", "emulator", "errors", "frameworks", "runs", "runtime", "service"},
    "scripts": {"client", "config", "containers", "emulator", "errors", "frameworks"},
    "verify": {
        "catalog", "client", "config", "errors", "launchers", "life", "metrics", "plan", "records", "runs", "runtime",
        "service", "storage", "version"},
    "dashboard": {
        "catalog", "client", "config", "connections", "diagnosis", "errors", "hints", "markup", "metrics", "records",
        "runs", "service", "version"},
    "cli": {
        "catalog", "client", "config", "containers", "dashboard", "diagnosis", "display", "emulator", "errors",
        "formula", "hints", "life", "markup", "metrics", "plan", "records", "runs", "runtime", "scripts", "service",
        "shipped", "state_files", "storage", "verify", "version"},
    "aio": {"client", "service"},
    "__init__": {"aio", "client", "config", "errors", "frameworks", "functions", "plan", "runs", "scripts", "version"},
}  # fmt: skip
"""What each part may import of ours beside itself. Emulator and client share only the wire and the ground floor."""

PURE = ("records", "life", "metrics", "plan", "launchers", "frameworks", "catalog", "config", "errors.py")
IMPURE = {
    "os", "time", "random", "socket", "subprocess", "threading", "asyncio", "secrets", "uuid", "requests", "shutil",
}  # fmt: skip
READERS = {
    "load.py", "saving.py", "source_directory.py", "projects.py", "catalog_file.py", "user_settings.py", "__main__.py",
    "custom_factories.py",
}  # fmt: skip
"""The modules of config that read or write files, or run Python of the user."""


SEEDED = {"factories.py": {"random"}, "injection.py": {"random"}}  # each of their numbers has a seed


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _ours(path: Path) -> set[str]:
    parts = {name.split(".")[1] for name in imports(path) if name.startswith("batchtrain.")}
    return parts - {_part(path), "__version__"}


def test_imports_run_downhill() -> None:
    for path in files():
        assert _ours(path) <= ALLOWED[_part(path)], path


def test_pure_parts_touch_no_clock_no_socket_no_process() -> None:
    parts = {name.removesuffix(".py") for name in PURE}
    for path in [path for path in files() if _part(path) in parts and path.name not in READERS]:
        assert not {name.split(".")[0] for name in imports(path)} & IMPURE - SEEDED.get(path.name, set()), path


DISTRIBUTIONS = {"yaml": "pyyaml", "rich_click": "rich-click"}
"""The distribution of a module that has another name."""


def _distribution(module: str) -> str:
    head, *rest = module.split(".")
    if head == "azure":
        return "azure-storage-blob" if rest[0] == "storage" else f"azure-{rest[0]}"
    return DISTRIBUTIONS.get(head, head)


def test_every_library_that_is_imported_is_declared() -> None:
    project = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    listed = project.partition("\ndependencies = [")[2].partition("]")[0]
    declared = {name.lower() for name in re.findall(r'"([A-Za-z0-9-]+)', listed)}
    # `agent.py` imports `rooted_path` from its own folder; pytest imports its plugin.
    ours = sys.stdlib_module_names | {"batchtrain", "rooted_path", "pytest"}
    modules = {name for path in files() if _part(path) != "runtime" for name in imports(path)} - {"azure"}
    foreign = {name for name in modules if name.split(".")[0] not in ours}
    assert {_distribution(name) for name in foreign} - declared == set()


def test_what_runs_on_a_node_imports_nothing_of_ours() -> None:
    for path in (PACKAGE / "runtime").rglob("*.py"):
        assert not _ours(path)


def test_no_modules_import_each_other() -> None:
    assert circles(graph()) == []


EMULATOR = "batchtrain.emulator."
EDGE = frozenset(
    {
        "__main__", "account_key", "alarms", "blob_store", "certificates", "connections", "control", "drive", "examine",
        "files", "http", "local_service", "logfile", "machine", "mapped_images", "own_catalog", "package_files",
        "pytest_plugin", "routes", "server", "serving", "steering", "store", "testing", "trust",
    }
)  # fmt: skip
"""The emulator's modules that use files, sockets, processes or the event loop; all others only decide."""


def test_what_decides_in_the_emulator_knows_nothing_of_its_edge() -> None:
    edges = graph()
    for path in files():
        name = name_of(path).removeprefix(EMULATOR)
        if name_of(path).startswith(EMULATOR) and name.partition(".")[0] not in EDGE:
            used = {other.removeprefix(EMULATOR).partition(".")[0] for other in edges[name_of(path)]}
            assert not used & EDGE, path
            assert not {part.split(".")[0] for part in imports(path)} & IMPURE - SEEDED.get(path.name, set()), path


def test_only_service_and_storage_reveal_a_secret() -> None:
    revealing = {_part(path) for path in files() if ".reveal()" in path.read_text(encoding="utf-8")}
    assert revealing == {"service", "storage"}


def test_commands_that_send_nothing_import_no_sdk() -> None:
    program = (
        "import sys; from batchtrain.cli.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'azure'], file=sys.stderr)"
    )
    recipe = str(PACKAGE.parent / "recipes" / "mpi4py-MPICH")
    for words in (["--help"], ["config", "validate", recipe], ["config", "plan", recipe]):
        done = subprocess.run([sys.executable, "-c", program, *words], check=True, capture_output=True, text=True)
        assert done.stderr.splitlines()[-1] == "[]", words


def test_a_client_that_only_asks_imports_nothing_of_a_run_a_plan_or_a_connection() -> None:
    program = "import sys, batchtrain.client.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    of_runs = {f"batchtrain.client.{name}" for name in ("run", "detach", "controller")} | {
        "azure.storage.blob",
        "asyncio",
        "platformdirs",
    }
    of_plans = {f"batchtrain.{name}" for name in ("plan.job", "plan.pool", "config.load", "config.check")}
    of_connections = {"requests", "batchtrain.emulator.models"}
    assert not (of_runs | of_plans | of_connections | {"packaging"}) & set(done.stdout.split())
