"""`batchtrain config plan --diff`: the plan against what exists."""

from __future__ import annotations

from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show
from batchtrain.client.client import connect
from batchtrain.config.types import Recipe
from batchtrain.errors import Differs
from batchtrain.plan import diff

DIFFERS = Differs.exit_code


def compared(recipe: Recipe, exit_code: bool) -> int:
    """Print what differs; returns the exit code."""
    client = connect(local=settings().local, credentials=recipe.credentials)
    resources = client.compare(recipe)
    differs = any(item.state != "same" for item in resources)
    if settings().output == "table":
        say(f"compared with {client.account.endpoint}")
    show({"differs": differs, "resources": list(resources)}, diff.as_text(resources))
    return DIFFERS if exit_code and differs else 0
