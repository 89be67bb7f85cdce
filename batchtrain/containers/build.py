"""Running the builds of `images.py`, or that of a directory with a Dockerfile of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from batchtrain.containers.engine import Engine
from batchtrain.containers.images import Step
from batchtrain.errors import ServiceError


class Built(NamedTuple):
    """An image that was made."""

    image: str
    id: str
    size: int
    """Bytes, unpacked."""


def run(
    engine: Engine, steps: Sequence[Step], say: Callable[[str], None], *, network: str = "", fresh: bool = False
) -> Built:
    """Build one after the other. network: of the builds' commands; fresh: the first base is pulled anew.

    Raises ServiceError when a build fails; those before it stay, and are not built again.
    """
    for number, step in enumerate(steps, 1):
        say(f"{number} of {len(steps)}: {step.tag}" + (f" on {step.base}" if step.base else ""))
        engine.follow(*step.words(network=network, fresh=fresh and number == 1))
    image = engine.image(steps[-1].tag)
    if image is None:
        raise ServiceError(
            f"{steps[-1].tag} was built and is not on the engine; does this builder keep its images elsewhere?"
        )
    return Built(steps[-1].tag, str(image.get("Id", "")), int(image.get("Size") or 0))
