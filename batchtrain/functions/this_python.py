"""The environment of an image with the Python of this process, which a function needs on the emulator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from batchtrain.containers import make_environment, recipe_images
from batchtrain.emulator import mapped_images
from batchtrain.errors import UsageError
from batchtrain.service.connect import Account


def image_of_this_python(account: Account, image: str, say: Callable[[str], None]) -> str:
    """The name on the emulator of an environment with the packages of an image and the MAJOR.MINOR of this Python.

    It is the image itself, unless its environment has another Python: then that of a recipe's image is made once more,
    for this Python. say: receives the reason and the size, and each step. Raises UsageError, with the next step, for an
    environment that only the user can make, and NotMade.
    """
    home = Path(account.home)
    prefix = mapped_images.prefix_of(home, image) if account.emulated and account.home else None
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    version = make_environment.version_of(Path(prefix)) if prefix else this
    if version in ("", this):
        return image
    reason = f"the environment {prefix} of {image} has Python {version}, and this is Python {this}"
    steps = f"start this program with {prefix}/bin/python, after you have installed batchtrain there"
    try:
        name, environment = recipe_images.environment_of(image)
    except UsageError:
        make = f"`{sys.executable} -m venv PREFIX`, its packages, and `batchtrain emulator images map {image} PREFIX`"
        raise UsageError(f"{reason}, which a function needs: make one with {this} ({make}), or {steps}") from None
    if this not in (environment.pythons or (this,)):
        raise UsageError(f"{reason}, for which the packages of {name} do not exist: {steps}")
    name_here = f"{image}-python{this}"
    folder = make_environment.home(home, os.environ)
    plan = make_environment.intend(name, environment._replace(pythons=(this,)), folder)
    for line in () if plan.ready else (f"{reason}; one with Python {this} is made first", *plan.summary):
        say(line)
    make_environment.make(plan, say)
    mapped_images.map_image(home, name_here, plan.prefix)
    return name_here
