"""Rules across properties and files: one small function per rule, each with a name, in one table. They read no files.

A rule reads a Recipe (and the catalogue) and yields findings with the path they are about. Every rule can be silenced
by its name, with `--ignore NAME` or `batchtrain.ignore_checks` in config.yaml. Each takes time linear in the number of
tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from batchtrain.config.candidates import candidates_of
from batchtrain.config.check import (
    accounts,
    capacity,
    containers,
    environment,
    frameworks,
    gangs,
    jobs,
    launches,
    links,
    networks,
    older,
    pools,
    preparation,
    shell_text,
    sources,
    storage,
    vm_images,
    windows,
)
from batchtrain.config.check.subject import Subject
from batchtrain.config.check.table import ERROR, INFO, CheckFinding, Found, Rule, findings
from batchtrain.config.travel import Survey
from batchtrain.config.types import Recipe

__all__ = ["RULES", "CheckFinding", "Found", "Rule", "run"]

RULES: tuple[Rule, ...] = (
    *accounts.RULES,
    *vm_images.RULES,
    *windows.RULES,
    *pools.RULES,
    *preparation.RULES,
    *networks.RULES,
    *storage.RULES,
    *links.RULES,
    *shell_text.RULES,
    *containers.RULES,
    *jobs.RULES,
    *gangs.RULES,
    *launches.RULES,
    *sources.RULES,
    *frameworks.RULES,
    *environment.RULES,
    *older.RULES,
    *capacity.RULES,
)
"""Every rule, by topic."""


def run(
    recipe: Recipe, broken: frozenset[str] = frozenset(), sources: Mapping[str, Survey] | None = None
) -> Iterator[CheckFinding]:
    """All findings, without the rules that need an unreadable section. A finding about an alternative of the pool is at
    the path of the alternative.

    broken: the names of such sections. sources: the survey of each `source`, by its name as written.
    """
    findings_of_pool = tuple(findings(RULES, Subject(recipe, sources), broken))
    yield from findings_of_pool
    texts = {(finding.rule, finding.message if finding.level == ERROR else "") for finding in findings_of_pool}
    for candidate in candidates_of(recipe)[1:]:
        for finding in findings(RULES, Subject(candidate.recipe, sources), broken):
            text = finding.message if finding.level == ERROR else ""
            if finding.level != INFO and (finding.rule, text) not in texts:
                yield finding._replace(path=candidate.path)
