"""`batchtrain config explain`: the reasons of the requests that would be sent."""

from __future__ import annotations

from pathlib import Path

from batchtrain.cli.options import from_environment, settings
from batchtrain.cli.output import show
from batchtrain.cli.plan import examined, planned
from batchtrain.config import origin
from batchtrain.errors import UsageError
from batchtrain.plan import explain as explaining


def explain(path: str | None, directory: str | None) -> None:
    """Explain the plan: list its implicit settings with their reasons, or what a property becomes.

    PATH is a property or a block (job_specifications[0].tasks[0], vm_size), or the name of an implicit setting
    (infiniband). Without PATH, all implicit settings are listed. The directory may come first, as in the other
    commands.
    """
    if path is not None and Path(path).is_dir() and (directory is None or not Path(directory).is_dir()):
        path, directory = directory, path
    config = examined(directory)
    plan = planned(config.recipe)
    view = origin.view(config, environment=from_environment(settings().values))
    explanation = explaining.explain(plan, config.recipe, view.values, view.origins, path or "")
    if path and not explanation.decisions and not explanation.settings:
        hint = explaining.hint(plan, path, view.values)
        raise UsageError(f"nothing in this plan is called `{path}`. {hint}".rstrip())
    show(explanation, str(explanation) or "the plan has no implicit settings")
