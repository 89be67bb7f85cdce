"""`batchtrain init [SCRIPT]`: write a recipe in one file for a script."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

from batchtrain.cli import scripts
from batchtrain.cli.messages import completed, say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show
from batchtrain.config import load, projects, user_settings
from batchtrain.config.image_names import publishing
from batchtrain.config.source_directory import SCHEMAS
from batchtrain.config.user_settings import is_for_emulator
from batchtrain.errors import UsageError
from batchtrain.shipped import shipped

USUAL = ("train.py", "main.py")
"""Names of the script of a directory with several."""


class New(NamedTuple):
    """The file, and the commands that use it."""

    file: str
    script: str
    framework: str
    next: tuple[str, ...]


@scripts.options
def command(script: str | None, image: bool, wish: scripts.Options) -> None:
    """Write batchtrain.yaml beside a script: pool, launch, image and command, found as `run SCRIPT` does.

    SCRIPT is by default train.py, main.py or the only Python file of this directory. The file is a whole recipe, to be
    changed as you like; accounts stand in a credentials.yaml beside it. Also writes its schema for editors, and the id
    of the project. The recipe names an image if you have a registry, and with --local or --image. Otherwise the start
    task of each node makes the environment.
    """
    path = Path(script) if script else _script_here()
    prepared = scripts.prepare(str(path), wish, in_image=True if image else None, runs=False)
    folder = path.parent if not prepared.above else Path(os.path.relpath(prepared.recipe.directory))
    target = folder / scripts.FILE
    directory = shlex.quote(str(folder))
    if existing := next(load.configuration_files(folder), None):
        again = _again(target, path, wish, local=bool(settings().local))
        another = f", and `{again}` writes it again" if Path(existing).name == scripts.FILE else ""
        raise UsageError(f"{existing} exists already; `batchtrain run {directory}` runs it{another}")
    for warning in prepared.recipe.warnings:
        if warning.rule != "image-registry":  # the next commands are the answer
            say(str(warning))
    target.write_text(scripts.text_of(prepared.recipe), encoding="utf-8")
    shutil.copytree(shipped("schemas"), folder / SCHEMAS, dirs_exist_ok=True)
    projects.write(folder, projects.project_of(str(folder)).id)
    publishes = publishing(str(folder)) if prepared.image and not is_for_emulator(settings().local) else ()
    following = (
        f"batchtrain {'images env' if prepared.image else 'config validate'} {directory}",
        f"batchtrain run {directory} --local",
        *(publishes[1:] if user_settings.load().registry else publishes),
        f"batchtrain config plan {directory}",
    )
    lines = [f"{target} is written. Next:", *(completed(f"  {line}") for line in following)]
    if prepared.installs:
        again = _again(target, path, wish, local=True)
        lines.append(f"{prepared.installs}, also on the emulator; `{again}` writes a recipe with one for all")
    show(New(str(target), str(path), prepared.choice.name, following), "\n".join(lines))


def _again(target: Path, script: Path, wish: scripts.Options, *, local: bool) -> str:
    """The commands that write the file another time."""
    behind = (*(("--local",) if local else ()), *(("--", *wish.arguments) if wish.arguments else ()))
    words = ("batchtrain", "init", str(script), *wish.words, *behind)
    return f"{shlex.join(('rm', str(target)))} && {shlex.join(words)}"


def _script_here() -> Path:
    """The script of the working directory. Raises UsageError if it is not clear which one."""
    files = sorted(Path(settings().configdir or ".").glob("*.py"))
    usual = [file for name in USUAL for file in files if file.name == name]
    if usual or len(files) == 1:
        return (usual or files)[0]
    listing = ", ".join(file.name for file in files[:10]) or "none"
    raise UsageError(f"name the script, as in `batchtrain init train.py`; the Python files here: {listing}")
