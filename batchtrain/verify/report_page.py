"""A report as a page to paste. Pure."""

from __future__ import annotations

from batchtrain.verify.probe import DIFFERS, HOLDS, NOT_ASKED
from batchtrain.verify.verification import Report


def page(report: Report) -> str:
    """The report in Markdown: first what could not be deleted, then what differs with the files that depend on it."""
    counts = ", ".join(f"{report.count(word)} {word}" for word in (HOLDS, DIFFERS, NOT_ASKED))
    lines = [f"# {report.size} in {report.region}, {report.date}", ""]
    lines.append(f"batchtrain {report.batchtrain}, {report.nodes} nodes: {counts}.")
    if report.leftovers:
        lines += ["\n## Not deleted\n", *(f"- {text}" for text in report.leftovers)]
    for word in (DIFFERS, NOT_ASKED, HOLDS):
        if rows := [row for row in report.judgements if row.judgement == word]:
            lines.append(f"\n## {word.capitalize()}\n")
            lines.append("| area | probe | detail | code that depends on it |\n|---|---|---|---|")
        for row in rows:
            detail = row.detail.replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {row.area} | {row.probe} | {detail} | {row.code} |")
    return "\n".join(lines) + "\n"
