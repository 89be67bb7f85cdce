"""The documentation site: its pages for Python-Markdown, its navigation and the check of its links."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import environments, site


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
