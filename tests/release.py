"""A release as one command: `python -m tests.release VERSION` (docs/how-to/release.md).

It works on a clone, so that a check that fails leaves nothing behind. Only at the end, and not with `--dry-run`, this
checkout gets the commit and the tag, and `dist/` the files to upload.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

import batchtrain
from batchtrain.containers import uv
from tests import environments

ROOT = environments.ROOT
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
UNRELEASED = "## Unreleased\n"
RECIPE = "mpi4py-MPICH"
COMMANDS = (
    ("--version",),
    ("recipe", "list"),
    ("recipe", "new", RECIPE),
    ("config", "validate", RECIPE),
    ("config", "plan", RECIPE),
    ("help", "results"),
)
"""What a new user does first, in an empty directory and without internet."""


class NotReleased(Exception):
    """Why there is no release, and what to do."""


def release(version: str, today: str, *, root: Path = ROOT, dry_run: bool = False) -> Iterator[str]:
    """Check, commit, build, try and tag a version; yields what has been done."""
    faults = [*_faults(version, root)]
    if faults:
        raise NotReleased("\n".join(faults))
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        folder = Path(name)
        clone = _committed(version, today, root, folder)
        yield f"committed version {version}"
        wheel = build(clone, folder / "dist")
        yield f"built {', '.join(sorted(file.name for file in wheel.parent.iterdir()))}"
        yield from (f"ran `{line}`" for line in try_out(wheel, folder / "installed"))
        if dry_run:
            yield "dry run: nothing was changed"
            return
        _git(root, "pull", "--quiet", "--ff-only", "--tags", str(clone), "HEAD")
        shutil.copytree(wheel.parent, root / "dist", dirs_exist_ok=True)
    publish = f"`git push origin HEAD v{version}` and `twine upload dist/batchtrain-{version}*`"
    yield f"tagged v{version}; publish it: {publish}"


def _faults(version: str, root: Path) -> Iterator[str]:
    """Everything that prevents a release."""
    current = batchtrain.__version__
    if not VERSION.fullmatch(version):
        yield f"`{version}` is not a version; write three numbers, such as {current}"
    elif _numbers(version) < _numbers(current):
        yield f"version {version} is older than {current} of batchtrain/version.py; choose a later one"
    if _git(root, "status", "--porcelain"):
        yield "the checkout has changes; commit or stash them (`git status` lists them)"
    if _git(root, "tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists; choose a later version"
    if not _changes(root):
        yield "CHANGELOG.md has nothing below `## Unreleased`; describe what users notice"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def _changes(root: Path) -> str:
    """What the changelog says about the next release."""
    _, _, rest = (root / "CHANGELOG.md").read_text(encoding="utf-8").partition(UNRELEASED)
    return re.split(r"^## ", rest, maxsplit=1, flags=re.M)[0].strip()


def _committed(version: str, today: str, root: Path, folder: Path) -> Path:
    """A clone with the version's commit and tag."""
    clone = folder / "clone"
    _git(root, "clone", "--quiet", str(root), str(clone))
    for key in ("user.name", "user.email"):
        _git(clone, "config", key, _git(root, "config", key))
    code, changelog = clone / "batchtrain/version.py", clone / "CHANGELOG.md"
    code.write_text(
        re.sub(r"(?m)^(__version__ = ).*", rf'\1"{version}"', code.read_text(encoding="utf-8")), encoding="utf-8"
    )
    text = changelog.read_text(encoding="utf-8")
    changelog.write_text(text.replace(UNRELEASED, f"{UNRELEASED}\n## {version} ({today})\n", 1), encoding="utf-8")
    _git(clone, "commit", "--quiet", "--all", "--message", f"Release {version}")
    _git(clone, "tag", "--annotate", f"v{version}", "--message", f"batchtrain {version}")
    return clone


def build(root: Path, dist: Path) -> Path:
    """Build the source archive, and the wheel from the archive; returns the wheel."""
    _run(uv.needed(), "build", "--quiet", "--out-dir", str(dist), str(root), variables=uv.settings_of_pip())
    (wheel,) = dist.glob("*.whl")
    return wheel


def try_out(wheel: Path, folder: Path) -> Iterator[str]:
    """Install a wheel into a new environment and run the first commands of a new user; yields each that worked."""
    venv, empty = folder / "venv", folder / "empty"
    _run(uv.needed(), "venv", "--quiet", "--python", sys.executable, str(venv))
    uv.install(venv, str(wheel), variables={"UV_COMPILE_BYTECODE": "0"}, links=True)
    empty.mkdir()
    offline = _offline()
    for words in COMMANDS:
        variables = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        _run(*offline, str(venv / "bin/batchtrain"), *words, cwd=empty, variables=variables)
        yield f"batchtrain {' '.join(words)}"


def _offline() -> tuple[str, ...]:
    """The words before a command that take the network from it, where the kernel lets a user do that."""
    words = ("unshare", "--user", "--net")
    possible = (
        shutil.which(words[0]) and not subprocess.run([*words, "true"], capture_output=True, check=False).returncode
    )
    return words if possible else ()


def _git(root: Path, *words: str) -> str:
    return _run("git", *words, cwd=root).strip()


def _run(*command: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None) -> str:
    """The output of a command. Raises NotReleased with everything that it printed if it fails."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AZURE_", "BATCHTRAIN_", "PYTHON"))
    }
    done = subprocess.run(
        command, cwd=cwd, env={**kept, **(variables or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        printed = (done.stdout + done.stderr).strip()
        raise NotReleased(f"`{' '.join(command)}` failed with exit code {done.returncode}:\n{printed}")
    return done.stdout


def main() -> int:
    """Release the version of the command line, or print why not."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--dry-run", action="store_true", help="build and check, but change nothing")
    given = parser.parse_args()
    today = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    try:
        for line in release(given.version, today, dry_run=given.dry_run):
            print(line, flush=True)
    except NotReleased as reason:
        print(f"not released: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
