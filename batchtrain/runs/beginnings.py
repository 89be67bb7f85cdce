"""Where a run comes from: its project, its commit, and the run whose checkpoints it continues."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.config.projects import ProjectFile, project_of
from batchtrain.config.types import Recipe
from batchtrain.errors import UsageError
from batchtrain.plan.lineage import Commit, Lineage, Resume

if TYPE_CHECKING:
    from batchtrain.runs.directory import RunDirectory


class Beginning(NamedTuple):
    """Where the tasks with checkpoints begin; by default they continue the run before."""

    fresh: bool = False
    """Anew, although there are checkpoints."""
    resume: RunDirectory | None = None
    """From the checkpoints of this run, which may be of another project."""


def training_jobs(recipe: Recipe) -> frozenset[str]:
    """The jobs whose tasks keep checkpoints."""
    return frozenset(
        job.id
        for job in recipe.jobs
        if any(task.checkpoint is not None for task in (*job.tasks, job.merge_task) if task is not None)
    )


def lineage_of(recipe: Recipe, beginning: Beginning | None = None) -> Lineage | None:
    """What the tasks of a recipe receive; None without checkpoints. Raises UsageError for a beginning that the recipe
    cannot have."""
    resume, jobs = resume_of(recipe, beginning), training_jobs(recipe)
    if not jobs:
        return None
    commit = commit_of(Path(recipe.directory)) or Commit("", False)
    return Lineage(jobs, commit.id, commit.dirty, beginning is not None and beginning.fresh, resume)


def resume_of(recipe: Recipe, beginning: Beginning | None) -> Resume | None:
    """The run that a beginning continues, if it names one. Raises UsageError for a beginning that the recipe cannot
    have."""
    jobs = training_jobs(recipe)
    fresh, run = beginning or Beginning()
    if fresh and run:
        raise UsageError("`fresh` starts anew, and `resume` continues a run; give one of them")
    if not jobs and (fresh or run):
        wish = "fresh" if fresh else "resume"
        raise UsageError(
            f"`{wish}` is about checkpoints, and no task of {recipe.directory} has `checkpoint`;"
            " `--checkpoints NAME` gives a script one. Without it, copy what a run left in runs/RUN/outputs beside"
            " the program, and run it again (`batchtrain help checkpoints`)"
        )
    if run is None:
        return None
    record = run.record()
    if not record.project:
        raise UsageError(f"run {record.id} does not say where its checkpoints are: it has no task with `checkpoint`")
    if record.job not in jobs and len(jobs) > 1:
        raise UsageError(f"run {record.id} is of job {record.job}, and this recipe has {', '.join(sorted(jobs))}")
    job = record.job if record.job in jobs else min(jobs)
    return Resume(record.id, f"{record.project}/{record.job.replace(':', '_')}", job)


def copied_from(recipe: Recipe) -> ProjectFile | None:
    """The project from which the directory of a recipe with checkpoints was copied; None for any other."""
    return project_of(recipe.directory).copied if training_jobs(recipe) else None


def commit_of(repository: Path) -> Commit | None:
    """The git commit of a directory; None if git or the repository is missing."""
    description = git(repository, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*").strip()
    return Commit(description.removesuffix("-dirty"), description.endswith("-dirty")) if description else None


def git(repository: Path, *words: str, stdin: str = "") -> str:
    """What a git command prints; empty if git or the repository is missing. stdin: its input."""
    try:
        return subprocess.run(
            ["git", "-C", str(repository), *words], input=stdin.encode(), capture_output=True, timeout=5, check=True
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
