"""The result of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from batchtrain import markup
from batchtrain.diagnosis.evidence import Evidence
from batchtrain.errors import Finding, printable, shortened

SHOWN_OTHERS = 12
"""Further findings that are printed; JSON has all."""


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
    evidence: Evidence

    def __str__(self) -> str:
        return "\n".join(self.rows())

    def __repr__(self) -> str:
        return str(self)

    @property
    def first(self) -> Finding | None:
        """The first cause, with the rank or task that failed first; None if no cause was found."""
        if not self.findings:
            return None
        subject = self.findings[0].subject
        return self.findings[0]._replace(subject=f"{subject}, {self.who}" if self.who else subject)

    def rows(self) -> list[str]:
        """The page as lines, without control characters of the tasks' output."""
        rows = [f"{self.subject}: {self.state}"]
        if not self.findings:
            job = self.evidence.job
            rows.append("no task has failed" if job and not job.failed else "no known cause of a failure was found")
        rows += self.evidence.progress
        if self.first:
            rows += ["", *self.first.card()]
        if self.lines:
            rows += ["", "last lines", *(f"  | {line}" for line in self.lines)]
        if others := list(_grouped(self.findings[1:])):
            rows += ["", "also", *(f"  {text}" for text in others[:SHOWN_OTHERS])]
        if len(others) > SHOWN_OTHERS:
            rows.append(f"  and {len(others) - SHOWN_OTHERS} more; `-o json` has them all")
        if self.evidence.unread:
            rows += ["", "not read", *(f"  {text}" for text in self.evidence.unread)]
        return [shortened(printable(row)) for row in rows]

    def _repr_html_(self) -> str:
        return markup.card(markup.pre(str(self)))


def _grouped(findings: Iterable[Finding]) -> Iterator[str]:
    """A sentence for each cause, with the subjects that it is about."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.kind, []).append(finding)
    for alike in groups.values():
        more = f" and {len(alike) - 3} more" if len(alike) > 3 else ""
        yield f"{', '.join(each.subject for each in alike[:3])}{more}: {alike[0].headline}"
