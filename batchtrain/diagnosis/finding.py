"""The result of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from batchtrain import markup
from batchtrain.diagnosis.record import Record
from batchtrain.errors import printable, shortened

SHOWN_OTHERS = 12
"""Further findings that are printed; JSON has all."""


class Finding(NamedTuple):
    """One cause that a rule recognised."""

    rule: str
    """The name of the rule; `unknown` if no rule fits."""
    subject: str
    """What it is about: `task train`, `node tvmps_…`, `pool gpu`, `job digits`."""
    cause: str
    evidence: str
    """The line of output or the service's message that proves it."""
    next_step: str


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """The findings about a job or a pool, the first cause first.

    who: the rank or task that failed first. lines: the last lines of its output.
    """

    subject: str
    state: str
    who: str
    findings: tuple[Finding, ...]
    lines: tuple[str, ...]
    record: Record

    def __str__(self) -> str:
        return "\n".join(self.rows())

    def __repr__(self) -> str:
        return str(self)

    def rows(self) -> list[str]:
        """The page as lines, without control characters of the tasks' output."""
        rows = [f"{self.subject}: {self.state}"]
        if not self.findings:
            rows.append("no known cause of a failure was found")
        for finding in self.findings[:1]:
            rows += ["", *_labelled(finding, self.who)]
        if self.lines:
            rows += ["", "last lines", *(f"  | {line}" for line in self.lines)]
        others = list(_grouped(self.findings[1:]))
        if others:
            rows += ["", "also"]
        rows += (f"  {text}" for text in others[:SHOWN_OTHERS])
        if len(others) > SHOWN_OTHERS:
            rows.append(f"  and {len(others) - SHOWN_OTHERS} more; `-o json` has them all")
        if self.record.unread:
            rows += ["", "not read", *(f"  {text}" for text in self.record.unread)]
        return [shortened(printable(row)) for row in rows]

    def _repr_html_(self) -> str:
        return markup.card(markup.pre(str(self)))


def _grouped(findings: Iterable[Finding]) -> Iterator[str]:
    """A sentence for each cause, with the subjects that it is about."""
    subjects: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        subjects.setdefault((finding.rule, finding.cause), []).append(finding.subject)
    for (rule, cause), names in subjects.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"{', '.join(names[:3])}{more}: {cause} [{rule}]"


def _labelled(finding: Finding, who: str) -> list[str]:
    rows = [f"cause  {finding.cause} [{finding.rule}]", f"where  {', '.join(filter(None, (finding.subject, who)))}"]
    if finding.evidence:
        rows.append(f"proof  {finding.evidence}")
    return [*rows, f"next   {finding.next_step}"]
