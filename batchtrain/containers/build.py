"""Runs the builds of `images.py`, or the build of the user's own Dockerfile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from batchtrain.containers.engine import Engine
from batchtrain.containers.images import Step
from batchtrain.errors import ServiceError


class Built(NamedTuple):
    """An image that was built."""

    image: str
    id: str
    size: int
    """Bytes, unpacked."""


def run(
    engine: Engine, steps: Sequence[Step], say: Callable[[str], None], *, network: str = "", fresh: bool = False
) -> Built:
    """Run the builds in order. network: the network of the build commands. fresh: pull the first base again.

    Raises ServiceError if a build fails; the images of earlier builds are kept.
    """
    for number, step in enumerate(steps, 1):
        say(f"{number} of {len(steps)}: {step.tag}" + (f" on {step.base}" if step.base else ""))
        engine.follow(*step.words(network=network, fresh=fresh and number == 1))
    image = engine.image(steps[-1].tag)
    if image is None:
        raise ServiceError(
            f"{steps[-1].tag} was built but is not on the engine; does the builder store its images elsewhere?"
        )
    return Built(steps[-1].tag, str(image.get("Id", "")), int(image.get("Size") or 0))
