"""What a rule is, what it finds, and how all of them are run; no rule stands here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from batchtrain.config.check.subject import Path, Subject

Found = Iterator[tuple[Path, str]]
"""Places and what is wrong there, from a rule's function."""

ERROR, WARNING, INFO = "error", "warning", "info"
"""error: the service refuses it, or it can never work; warning: it works, but hardly as meant; info: worth knowing."""

POOL = ("pool_specification",)
JOBS = ("job_specifications",)
GLOBAL = ("global_resources",)
SETTINGS = ("batchtrain",)
CREDENTIALS = ("credentials",)
REPLICATION = ("data_replication",)


class Finding(NamedTuple):
    """What a rule has to say about one place."""

    rule: str
    level: str
    path: Path
    message: str


class Rule(NamedTuple):
    """A named check: its level, the sections it reads, what it asks for in a sentence, where that is known from, and
    the function; None where the loader or a planner finds it."""

    name: str
    level: str
    reads: tuple[str, ...]
    sentence: str
    source: str
    find: Callable[[Subject], Found] | None = None


def findings(rules: Iterable[Rule], subject: Subject, broken: frozenset[str]) -> Iterator[Finding]:
    """Every finding of every rule, but of those that read a section which could not be read."""
    for rule in rules:
        if rule.find is None or broken.intersection(rule.reads):
            continue
        for path, message in rule.find(subject):
            yield Finding(rule.name, rule.level, path, message)
