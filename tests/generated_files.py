"""The files that are made of tables and types: `python -m tests.generated_files` writes them. A test compares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests import (
    aio_stub,
    causes_page,
    faults_page,
    frameworks_page,
    launcher_options_page,
    life_page,
    operations_page,
    reference_page,
    shipyard_page,
    sources_page,
    transports_page,
    untested_page,
    variables_page,
)
from tests.environments import ROOT

FILES: Mapping[str, Callable[[], str]] = {
    "batchtrain/aio.pyi": aio_stub.page,
    "docs/explanation/untested-on-azure.md": untested_page.page,
    "docs/how-to/from-batch-shipyard.md": shipyard_page.page,
    "docs/reference/causes.md": causes_page.page,
    "docs/reference/config.md": reference_page.page,
    "docs/reference/emulator-operations.md": operations_page.page,
    "docs/reference/environment-variables.md": variables_page.page,
    "docs/reference/faults.md": faults_page.page,
    "docs/reference/frameworks.md": frameworks_page.page,
    "docs/reference/launcher-options.md": launcher_options_page.page,
    "docs/reference/life-of-a-run.md": life_page.page,
    "docs/reference/sources.md": sources_page.page,
    "docs/reference/transports.md": transports_page.page,
}


def main() -> None:
    for name, text in FILES.items():
        (ROOT / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
