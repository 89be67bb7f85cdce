"""Command lines of the documentation parse, also in blocks that no test can run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from batchtrain.cli.app import root

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```(?:sh|console|text)\n(.*?)^```", re.M | re.S)
ENDS = frozenset({"|", "||", "&&", ";", ">", ">>", "2>", "&"})
"""Words of the shell that end a command."""


def pages() -> Iterator[Path]:
    for top in ("README.md", "CONTRIBUTING.md", "docs", "docker", "recipes"):
        path = ROOT / top
        yield from [path] if path.is_file() else sorted(path.rglob("*.md"))


def command_lines(text: str) -> Iterator[list[str]]:
    """The words after `batchtrain` of each command line in the blocks of a page."""
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if match := re.match(r"(?:\$ )?(?:\w+=\S+ )*(?:\.venv/bin/)?batchtrain (.*)", line.strip()):
                yield list(_until_the_end(shlex.split(match[1], comments=True)))


def _until_the_end(words: list[str]) -> Iterator[str]:
    for word in words:
        if word in ENDS:
            return
        yield word.removesuffix(";").removesuffix(")")


def parse(words: list[str]) -> None:
    """Parse the words as the command line does, without running a command. Raises UsageError of click."""
    command: click.Command = root
    context = click.Context(root)
    while True:
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if not isinstance(command, click.Group):
            if rest:
                raise click.UsageError(f"{context.command_path} does not take {rest}")
            return
        if not rest:
            return
        name, below, words = command.resolve_command(context, rest)
        assert below is not None
        command, context = below, click.Context(below, info_name=name, parent=context)


def refusal(words: list[str]) -> str:
    """Why the command line refuses the words; empty if it takes them."""
    try:
        parse(words)
    except click.UsageError as error:
        return f"batchtrain {' '.join(words)}: {error.format_message()}"
    return ""


PAGES = [path for path in pages() if any(command_lines(path.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_line_of_a_page_has_a_command_and_options_that_exist(page: Path) -> None:
    wrong = map(refusal, command_lines(page.read_text(encoding="utf-8")))
    assert [text for text in wrong if text] == []


@pytest.mark.parametrize("line", ["jobs nosuch", "jobs list --nosuch", "runs show a b c"])
def test_a_line_that_the_command_line_refuses_is_noticed(line: str) -> None:
    assert refusal(line.split())


# --- every command ---------------------------------------------------------------------------------------------------


def every_command(command: click.Command, context: click.Context, words: tuple[str, ...] = ()) -> Iterator[str]:
    """The words of each command below a group."""
    if not isinstance(command, click.Group):
        yield " ".join(words)
        return
    for name in command.list_commands(context):
        _, member, _ = command.resolve_command(context, [name])
        assert member is not None
        yield from every_command(member, click.Context(member, info_name=name, parent=context), (*words, name))


def test_every_command_has_a_test_a_page_and_a_line_of_the_changelog() -> None:
    texts = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    tests = re.sub(r'",\s+"', '", "', texts)
    docs = "\n".join(path.read_text(encoding="utf-8") for path in pages())
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    missing = []
    for words in every_command(root, click.Context(root)):
        arguments, named = '", "'.join(words.split()), re.compile(rf"(?:`|batchtrain ){words}\b")
        if f'"{arguments}"' not in tests and not named.search(tests):
            missing.append(f"{words}: a test")
        where = {"a page": docs, "a change": changelog}
        missing += [f"{words}: {place}" for place, text in where.items() if not named.search(text)]
    assert missing == []
