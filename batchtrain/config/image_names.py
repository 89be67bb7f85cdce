"""The names of container images: their syntax, their registry, and the names of copies in another registry."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from batchtrain.config.patterns import late

# distribution/reference: the grammar of a reference.
_COMPONENT = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_SERVER = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?")
_PATH = late(
    rf"{_COMPONENT}(?:/{_COMPONENT})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?"
    r"(?:@[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{32,})?"
)
HUB = "hub"
"""Docker Hub, as credentials.yaml names it."""


def is_name(text: str) -> bool:
    """Whether the name is `[SERVER/]PATH[:TAG][@DIGEST]` with the path in lower case, as container engines require."""
    server = server_of(text)
    return (server == HUB or _SERVER.fullmatch(server) is not None) and _PATH.fullmatch(_path(text)) is not None


def is_registry(text: str) -> bool:
    """Whether it can hold copies of images: `SERVER` or `SERVER/PATH`, with a server that is not Docker Hub."""
    name = f"{text.rstrip('/')}/x"
    return server_of(name) != HUB and is_name(name)


def below(registry: str, name: str) -> str:
    """The name of the copy of an image in another registry (SERVER or SERVER/PATH), with the same path, tag and
    digest."""
    return f"{registry.rstrip('/')}/{_path(name)}"


def server_of(name: str) -> str:
    """The registry of an image, as credentials.yaml names it (`hub` for Docker Hub)."""
    first, slash, _ = name.partition("/")
    return first if slash and (first == "localhost" or "." in first or ":" in first) else HUB


EXAMPLE = "example/"
"""The beginning of image names in recipes; the user's registry replaces it."""


def placeholders(images: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The image names that no registry has replaced, with their numbers: no node of an account can pull them."""
    return ((number, image) for number, image in enumerate(images) if image.startswith(EXAMPLE))


def publishing(directory: str) -> tuple[str, str]:
    """The commands after which nodes can pull the image of a recipe."""
    return "batchtrain config set registry NAME", f"batchtrain images build {shlex.quote(directory or '.')} --push"


def in_registry(data: Any, registry: str) -> Any:
    """The section with `example/…` replaced by a registry in its image names."""
    if isinstance(data, dict):
        return {key: _image_in(value, registry) if key in _IMAGES else in_registry(value, registry)
                for key, value in data.items()}  # fmt: skip
    return [in_registry(item, registry) for item in data] if isinstance(data, list) else data


_IMAGES = ("docker_image", "docker_images")


def _image_in(value: Any, registry: str) -> Any:
    if isinstance(value, list):
        return [_image_in(item, registry) for item in value]
    if isinstance(value, str) and value.startswith(EXAMPLE):
        return f"{registry}/{value.removeprefix(EXAMPLE)}"
    return value


def _path(name: str) -> str:
    server = server_of(name)
    return name if server == HUB else name.removeprefix(f"{server}/")
