"""Rules about links to storage, which expire."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from batchtrain.config import link_life
from batchtrain.config.check.subject import Path, Subject
from batchtrain.config.check.table import CREDENTIALS, ERROR, JOBS, POOL, SETTINGS, WARNING, Found, Rule
from batchtrain.config.link_life import Need
from batchtrain.config.types import Recipe


def _unlimited(recipe: Recipe, need: Need, *, scheduled: bool) -> str:
    return link_life.unlimited(recipe, need) if need.scheduled is scheduled else ""


def _faults(judge: Callable[[Recipe, Need], str], subject: Subject) -> Found:
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
         _KEYS, partial(_faults, link_life.too_short)),
    Rule("link-unlimited", WARNING, _READS, "Tasks that need a link to storage have a time limit.", _KEYS,
         partial(_faults, partial(_unlimited, scheduled=False))),
    Rule("schedule-links", WARNING, _READS, "Links to storage are valid as long as their schedule.", _KEYS,
         partial(_faults, partial(_unlimited, scheduled=True))),
)  # fmt: skip
