"""The documentation site: its pages for Python-Markdown, its navigation and the check of its links."""

from __future__ import annotations

import contextlib
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests import environments, screenshots, site


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("staged")
    site.stage(folder)
    return folder


def test_the_navigation_has_every_page_of_the_documentation(staged: Path) -> None:
    assert list(site.unnamed(staged)) == []


def test_the_site_describes_every_command_and_check(staged: Path) -> None:
    commands = (staged / "docs/reference/commands.md").read_text(encoding="utf-8")
    checks = (staged / "docs/reference/checks.md").read_text(encoding="utf-8")
    assert "### batchtrain jobs task reactivate\n" in commands
    assert "| `account-url` | error |" in checks


def test_a_block_below_an_item_of_a_list_stays_below_it() -> None:
    page = "Steps:\n1. First:\n\n   ```sh\n   a\n     b\n   ```\n   * Deeper.\n\nEnd.\n"
    below = "    ```sh\n    a\n      b\n    ```\n    * Deeper.\n"
    assert site.indented(page) == f"Steps:\n\n1. First:\n\n{below}\nEnd.\n"


def test_a_link_that_leads_nowhere_and_a_file_of_another_server_are_faults(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h2 id="here"><a href="#here"></a><a href="b.html#gone"></a><a href="c.html">')
    (tmp_path / "b.html").write_text('<script src="https://cdn.example/x.js"></script><a href="https://example.org">')
    assert list(site.broken(tmp_path)) == [
        "a.html: broken link b.html#gone",
        "a.html: broken link c.html",
        "b.html loads https://cdn.example/x.js",
    ]


def test_without_chromium_the_build_says_so_and_keeps_the_committed_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dashboard-task.png").write_bytes(b"committed")
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    monkeypatch.setattr(screenshots, "emulated_batch", contextlib.nullcontext)
    site.take_pictures(tmp_path)
    reasons = ("chromium is not installed", "Playwright is not installed")
    assert capsys.readouterr().err.startswith(
        tuple(f"the committed pictures are shown: {reason}" for reason in reasons)
    )
    assert (tmp_path / "dashboard-task.png").read_bytes() == b"committed"


@pytest.mark.browser
def test_the_build_takes_the_pictures_of_pages_light_and_dark_of_the_block_and_of_a_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two pages: `tests/e2e/test_dashboard.py` looks at each of them."""
    names = ("overview", "run")
    monkeypatch.setattr(screenshots, "take", partial(screenshots.take, pages=names))
    site.take_pictures(tmp_path)
    pages = {f"dashboard-{name}{scheme}.png" for name in names for scheme in ("", "-dark")}
    terminal = {"first-run.svg"} if shutil.which("tmux") else set()
    expected = {*pages, *terminal, "notebook-run.png", "live-block-80.svg", "live-block-40.svg"}
    assert {file.name for file in tmp_path.iterdir()} == expected
    assert f"![{min(pages)[:-4]}](images/{min(pages)})" in "\n".join(site._pictures(tmp_path))


@pytest.mark.framework
@pytest.mark.process
def test_the_site_is_built_without_a_warning_and_has_no_broken_link(tmp_path: Path) -> None:
    try:
        python = environments.prefix("site") / "bin" / "python"
    except environments.Missing as missing:
        pytest.skip(str(missing))
    built = site.build(tmp_path, python)
    assert "tvmps" in (built / "search.json").read_text(encoding="utf-8")
    assert 'id="batchtrain.Client.run"' in (built / "reference" / "python.html").read_text(encoding="utf-8")
