"""Rules across properties and files: one small function a rule, each with a name, in one table; no reading.

A rule reads a Recipe (and the catalogue) and yields findings with the path they are about. Every rule can be silenced
by its name, with `--ignore NAME` or `batchtrain.ignore_checks` in config.yaml. All take time linear in the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.config.check import (
    accounts,
    containers,
    environment,
    frameworks,
    gangs,
    images,
    jobs,
    launches,
    networks,
    older,
    pools,
    preparation,
    storage,
    windows,
)
from batchtrain.config.check.subject import Subject
from batchtrain.config.check.table import Finding, Found, Rule, findings
from batchtrain.config.types import Recipe

__all__ = ["RULES", "Finding", "Found", "Rule", "run"]

RULES: tuple[Rule, ...] = (
    *accounts.RULES,
    *images.RULES,
    *windows.RULES,
    *pools.RULES,
    *preparation.RULES,
    *networks.RULES,
    *storage.RULES,
    *containers.RULES,
    *jobs.RULES,
    *gangs.RULES,
    *launches.RULES,
    *frameworks.RULES,
    *environment.RULES,
    *older.RULES,
)
"""Every rule, by topic."""


def run(recipe: Recipe, broken: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Every finding of every rule, but of those that read a section which could not be read.

    broken: names of such sections.
    """
    yield from findings(RULES, Subject(recipe), broken)
