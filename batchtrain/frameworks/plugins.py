"""Frameworks of other installed packages, found by the entry-point group `batchtrain.frameworks` (ADR 41).

The entry points are read at the first use of one, because this takes 40 ms.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from batchtrain.frameworks.base import Nodes

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "batchtrain.frameworks"


class UnusableFramework(ValueError):
    """The reason why a framework of another package, or its block, cannot be used."""


def usable(framework: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Nodes]]:
    """The blocks with these settings, by name, without those that cannot be used."""
    for name, settings in framework.items():
        with suppress(UnusableFramework):
            yield name, block(name, settings)


def block(name: str, settings: Mapping[str, Any]) -> Nodes:
    """The block of a framework with these settings. Raises UnusableFramework if there is no usable type of this name,
    and for settings that do not fit it."""
    kind = kind_or_fault(name)
    if isinstance(kind, str):
        raise UnusableFramework(kind)
    try:
        return msgspec.convert(settings, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UnusableFramework(f"the block of the framework `{name}`: {error}") from None


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # takes 40 ms with the search, needed only for a framework of a package

    return tuple(entry_points(group=GROUP))


@cache
def kind_or_fault(name: str) -> type[Nodes] | str:
    """The type of a framework's block; a text if no package or several have the name, or if the class is unusable."""
    points = [point for point in _entry_points() if point.name == name]
    if not points:
        others = ", ".join(sorted({f"`{point.name}`" for point in _entry_points()})) or "none"
        return (
            f"no package beside {sys.executable} has the entry point `{name}` in the group `{GROUP}`; install the"
            f" package, or correct the name. Known: {others}"
        )
    if len(points) > 1:
        return f"{' and '.join(map(_origin, points))} have the framework `{name}`; uninstall all but one"
    what = f"the framework `{name}` of {_origin(points[0])}"
    try:
        framework = points[0].load()
    except Exception as error:  # noqa: BLE001 - any code of another package
        return f"{what} cannot be imported: {type(error).__name__}: {error}; repair or uninstall the package"
    if not (isinstance(framework, type) and issubclass(framework, Nodes)):
        return f"{what} is no subclass of `batchtrain.frameworks.base.Nodes`; repair or uninstall the package"
    if missing := [attribute for attribute in ("name", "source", "variables") if not hasattr(framework, attribute)]:
        return f"{what} lacks {' and '.join(f'`{attribute}`' for attribute in missing)}; repair the package"
    if framework.name != name or not re.fullmatch("[a-z]+", name):
        return f"{what} has the name `{framework.name}`; both names must be the same, of the letters a to z"
    return framework


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version} ({point.value})" if point.dist else point.value
