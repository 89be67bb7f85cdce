"""A release: the built wheel works without a clone, and the one command tags a version or leaves nothing behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import needs, release

pytestmark = pytest.mark.process


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clean checkout whose changelog has a change."""
    needs.program("git")
    folder = tmp_path / "checkout"
    (folder / "batchtrain").mkdir(parents=True)
    for name in ("batchtrain/version.py", "CHANGELOG.md"):
        (folder / name).write_text((release.ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    git(folder, "init", "--quiet")
    git(folder, "config", "user.name", "A Name")
    git(folder, "config", "user.email", "name@example.com")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Start")
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(("git", *words), cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def _built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building and trying are another test's."""

    def build(clone: Path, dist: Path) -> Path:
        version = git(clone, "describe", "--tags").removeprefix("v")
        dist.mkdir()
        wheel = dist / f"batchtrain-{version}-py3-none-any.whl"
        wheel.write_text((clone / "batchtrain/version.py").read_text(encoding="utf-8"), encoding="utf-8")
        return wheel

    monkeypatch.setattr(release, "build", build)
    monkeypatch.setattr(release, "try_out", lambda _wheel, _folder: iter(["batchtrain --version"]))


@pytest.mark.slow
def test_the_wheel_works_without_a_clone_and_without_internet(tmp_path: Path) -> None:
    clone = tmp_path / "clone"  # as a release is built: the build would walk through all environments of the tests
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{release.ROOT}", str(clone))
    wheel = release.build(clone, tmp_path / "dist")
    ran = list(release.try_out(wheel, tmp_path / "installed"))
    assert ran == [f"batchtrain {' '.join(words)}" for words in release.COMMANDS]
    assert (tmp_path / "installed/empty" / release.RECIPE / "config/pool.yaml").is_file()


@pytest.mark.usefixtures("_built")
def test_a_release_is_a_commit_a_tag_and_the_files_to_upload(checkout: Path) -> None:
    lines = list(release.release("9.8.7", "2027-01-31", root=checkout))
    assert lines[-1].startswith("tagged v9.8.7; publish it: `git push")
    assert git(checkout, "log", "-1", "--format=%s") == "Release 9.8.7"
    assert git(checkout, "describe", "--tags") == "v9.8.7"
    assert '__version__ = "9.8.7"' in (checkout / "batchtrain/version.py").read_text(encoding="utf-8")
    assert "## Unreleased\n\n## 9.8.7 (2027-01-31)\n\n" in (checkout / "CHANGELOG.md").read_text(encoding="utf-8")
    (wheel,) = (checkout / "dist").iterdir()
    assert '__version__ = "9.8.7"' in wheel.read_text(encoding="utf-8")


@pytest.mark.usefixtures("_built")
def test_a_dry_run_changes_nothing(checkout: Path) -> None:
    before = git(checkout, "rev-parse", "HEAD")
    assert list(release.release("9.8.7", "2027-01-31", root=checkout, dry_run=True))[-1].startswith("dry run")
    assert (git(checkout, "rev-parse", "HEAD"), git(checkout, "status", "--porcelain")) == (before, "")
    assert git(checkout, "tag") == ""
    assert not (checkout / "dist").exists()


@pytest.mark.usefixtures("_built")
def test_a_wheel_that_does_not_work_is_not_released(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "try_out", lambda _wheel, _folder: release._run("false"))
    with pytest.raises(release.NotReleased, match="`false` failed with exit code 1"):
        list(release.release("9.8.7", "2027-01-31", root=checkout))
    assert git(checkout, "tag") == ""


def test_everything_that_prevents_a_release_is_named_at_once(checkout: Path) -> None:
    git(checkout, "tag", "v0.0.1")
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 0.0.1\n\n- old\n", encoding="utf-8")
    with pytest.raises(release.NotReleased) as refused:
        list(release.release("0.0.1", "2027-01-31", root=checkout))
    version, changes, tag, changelog = str(refused.value).splitlines()
    assert "older than" in version
    assert "git status" in changes
    assert "v0.0.1 exists" in tag
    assert "describe what users notice" in changelog
