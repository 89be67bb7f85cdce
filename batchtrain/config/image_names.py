"""The names of container images: whether one is a name at all, and which registry it comes from."""

from __future__ import annotations

import re

# distribution/reference: the grammar of a reference.
_COMPONENT = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_SERVER = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?")
_PATH = re.compile(
    rf"{_COMPONENT}(?:/{_COMPONENT})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?"
    r"(?:@[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{32,})?"
)
HUB = "hub"
"""Docker Hub, as credentials.yaml names it."""


def is_name(text: str) -> bool:
    """Whether it is `[SERVER/]PATH[:TAG][@DIGEST]`, the path in lower case, as container engines have it."""
    server = server_of(text)
    path = text if server == HUB else text.removeprefix(f"{server}/")
    return (server == HUB or _SERVER.fullmatch(server) is not None) and _PATH.fullmatch(path) is not None


def server_of(name: str) -> str:
    """The registry an image comes from, as credentials.yaml names it (`hub` for Docker Hub)."""
    first, slash, _ = name.partition("/")
    return first if slash and (first == "localhost" or "." in first or ":" in first) else HUB
