"""Rules about links to storage, which expire."""

from __future__ import annotations

from collections.abc import Callable

from batchtrain.config import link_life
from batchtrain.config.check.subject import Path, Subject
from batchtrain.config.check.table import CREDENTIALS, ERROR, JOBS, POOL, SETTINGS, WARNING, Found, Rule
from batchtrain.config.link_life import Need
from batchtrain.config.types import Recipe


def _short(subject: Subject) -> Found:
    return _faults(subject, link_life.too_short)


def _unlimited(subject: Subject) -> Found:
    return _faults(subject, lambda recipe, need: "" if need.scheduled else link_life.unlimited(recipe, need))


def _scheduled(subject: Subject) -> Found:
    return _faults(subject, lambda recipe, need: link_life.unlimited(recipe, need) if need.scheduled else "")


def _faults(subject: Subject, judge: Callable[[Recipe, Need], str]) -> Found:
    """The first fault of each property."""
    paths: set[Path] = set()
    for need in subject.links:
        if need.path not in paths and (message := judge(subject.recipe, need)):
            paths.add(need.path)
            yield need.path, message


_READS = (*SETTINGS, *CREDENTIALS, *POOL, *JOBS)
_KEYS = "Azure Storage: create a user delegation SAS; a key lives for 7 days at most"

RULES = (
    Rule("link-expiry", ERROR, _READS, "Links to storage are valid until the last attempt of the last task has ended.",
         _KEYS, _short),
    Rule("link-unlimited", WARNING, _READS, "Tasks that need a link to storage have a time limit.", _KEYS, _unlimited),
    Rule("schedule-links", WARNING, _READS, "Links to storage are valid as long as their schedule.", _KEYS, _scheduled),
)  # fmt: skip
