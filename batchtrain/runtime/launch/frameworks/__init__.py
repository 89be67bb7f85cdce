"""One file for each framework; only the one that the gang needs travels."""

import importlib
import re

from ..spec import LaunchError
from .base import Framework


def load(name: str) -> Framework:
    """The framework in gang.json. Raises LaunchError if its file did not travel."""
    try:
        if not re.fullmatch("[a-z]+", name):
            raise ImportError(name)
        framework: "Framework" = importlib.import_module("." + name, __package__).FRAMEWORK
    except ImportError as error:
        raise LaunchError(f"framework `{name}` is unknown to this launcher: {error}") from None
    return framework
