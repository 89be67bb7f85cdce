"""A report as a page to paste. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.verify.probe import DIFFERS, HOLDS, NOT_ASKED
from batchtrain.verify.verification import Report


def page(report: Report) -> str:
    """The report in Markdown: first what could not be deleted, then what differs with the files that depend on it."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {report.size} in {report.region}, {report.date}"
    yield ""
    counts = ", ".join(f"{report.count(word)} {word}" for word in (HOLDS, DIFFERS, NOT_ASKED))
    yield f"batchtrain {report.batchtrain}, {report.nodes} nodes: {counts}."
    if report.leftovers:
        yield "\n## Not deleted\n"
        yield from (f"- {text}" for text in report.leftovers)
    for word in (DIFFERS, NOT_ASKED, HOLDS):
        rows = [row for row in report.judgements if row.judgement == word]
        if rows:
            yield f"\n## {word.capitalize()}\n"
            yield "| area | probe | detail | code that depends on it |\n|---|---|---|---|"
            for row in rows:
                yield f"| {row.area} | {row.probe} | {_cell(row.detail)} | {row.code} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
