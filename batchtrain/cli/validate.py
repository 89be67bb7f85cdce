"""`batchtrain config validate`: every problem of a recipe, without any request."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from batchtrain.cli import loading
from batchtrain.cli.messages import colored
from batchtrain.cli.options import settings
from batchtrain.cli.output import show
from batchtrain.cli.wrapping import broken
from batchtrain.config import load, user_settings
from batchtrain.config.load import Examined
from batchtrain.errors import ConfigError


def validate(directory: str | None, fix: bool) -> int:
    """Report every problem of every file, with its position."""
    source = loading.directory_of(directory)
    files = load.read(source, settings().files)
    mends: list[Any] = []
    if fix:
        from batchtrain.cli.config import fix as mended  # 5 modules more

        mends = mended(source, files)
    options = settings()
    config = load.examine(
        source,
        files,
        settings=options.values,
        ignore=options.ignore,
        catalog=loading.catalog_of(source),
        local=bool(options.local),
        most=loading.most(),
        registry=user_settings.load().registry,
    )
    if options.output == "table":
        _report(source, files, config)
        return 0
    problems = [problem.document for problem in config.problems]
    answer = {"valid": config.valid, "problems": problems}
    show({**answer, "mends": mends} if fix else answer)
    return 0 if config.valid else ConfigError.exit_code


def _report(source: Path, files: Collection[str], config: Examined) -> None:
    """Prints the problems: errors end the command; warnings come before the result."""
    if not config.valid:
        raise ConfigError(config.problems)
    for warning in config.problems:
        print(broken(warning.rendered(color=colored(sys.stdout)), sys.stdout))
    read = ", ".join(Path(file).name for file in files)
    print(broken(f"{source} is valid ({read})", sys.stdout))
    loading.advise(config.problems, source)
