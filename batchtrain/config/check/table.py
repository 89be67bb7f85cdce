"""The types of rules and findings, and the function that runs all rules; no rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from typing import NamedTuple

from batchtrain.config.check.subject import POOL as POOL
from batchtrain.config.check.subject import Path, Subject

Found = Iterator[tuple[Path, str]]
"""The findings of a rule's function: paths and messages."""

ERROR, WARNING, INFO = "error", "warning", "info"
"""error: the service refuses it, or it can never work; warning: it works, but probably not as intended; info: a
remark."""

JOBS = ("job_specifications",)
BOTH = (*POOL, *JOBS)
"""The sections of the pool and of the jobs."""
GLOBAL = ("global_resources",)
ALL = (*GLOBAL, *BOTH)
SETTINGS = ("batchtrain",)
CREDENTIALS = ("credentials",)
REPLICATION = ("data_replication",)


class CheckFinding(NamedTuple):
    """A finding of a rule at one path."""

    rule: str
    level: str
    path: Path
    message: str


class Rule(NamedTuple):
    """A named check: its level, the sections it reads, its requirement in one sentence, the source of the requirement,
    and the function (None if the loader or the planner reports it). apart: it reads each section by itself."""

    name: str
    level: str
    reads: tuple[str, ...]
    sentence: str
    source: str
    find: Callable[[Subject], Found] | None = None
    apart: bool = False

    def needs(self, sections: Set[str]) -> Set[str]:
        """Those of some sections without which its findings may be wrong."""
        return frozenset() if self.apart else sections & frozenset(self.reads)


def findings(rules: Iterable[Rule], subject: Subject, broken: frozenset[str]) -> Iterator[CheckFinding]:
    """All findings, without the rules that need an unreadable section."""
    for rule in rules:
        if rule.find is None or rule.needs(broken):
            continue
        for path, message in rule.find(subject):
            yield CheckFinding(rule.name, rule.level, path, message)
