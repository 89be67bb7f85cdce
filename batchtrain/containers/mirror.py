"""Copies images to another registry; sign-ins are neither in command lines nor in the user's own files."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from batchtrain.config.image_names import HUB, below, is_name
from batchtrain.config.types import RegistryCredentials, Secret
from batchtrain.containers.engine import WORDS, Engine
from batchtrain.errors import NotAllowed, UsageError
from batchtrain.service import registries

USERNAME, PASSWORD = "BATCHTRAIN_REGISTRY_USERNAME", "BATCHTRAIN_REGISTRY_PASSWORD"
"""A sign-in to the target registry without credentials.yaml."""
_HUB_KEY = "https://index.docker.io/v1/"


class Login(NamedTuple):
    """A sign-in to a registry."""

    username: str
    password: Secret


class Mirrored(NamedTuple):
    """An image and its copy."""

    image: str
    copy: str
    pinned: str
    """The copy by its digest. Empty if the engine does not report it."""


# --- names, pure ----------------------------------------------------------------------------------------------------


def copy_of(image: str, to: str) -> str:
    """The name of an image's copy below `to` (SERVER or SERVER/PATH). A digest without a tag becomes the tag, because a
    pushed image needs one. Raises UsageError if this is not the name of an image.
    """
    if not is_name(image):
        raise UsageError(
            f"`{image}` is not the name of an image ([SERVER/]PATH[:TAG][@DIGEST], the path in lower case)"
        )
    name, _, digest = below(to, image).partition("@")
    if digest and ":" not in name.rpartition("/")[2]:
        name = f"{name}:{digest.replace(':', '-')[:19]}"
    if not is_name(name):
        raise UsageError(
            f"`{name}` would not be the name of an image; write --to SERVER or SERVER/PATH, the path in lower case"
        )
    return name


def logins(
    credentials: Mapping[str, RegistryCredentials], environment: Mapping[str, str], target: str
) -> dict[str, Login]:
    """The sign-ins by server: from credentials.yaml, and for the target registry from the environment."""
    by_server = {
        HUB if server in ("docker.io", "index.docker.io") else server: Login(entry.username, entry.password)
        for server, entry in credentials.items()
        if entry.username and entry.password
    }
    username, password = environment.get(USERNAME, ""), environment.get(PASSWORD, "")
    if bool(username) != bool(password):
        raise UsageError(f"set both {USERNAME} and {PASSWORD}, or neither")
    if username and target not in by_server:
        by_server[target] = Login(username, Secret(password))
    return by_server


def settings(settings_of_user: Mapping[str, Any], sign_ins: Mapping[str, Login]) -> dict[str, Any]:
    """Docker's config.json with sign-ins added; their servers use no credential store."""
    entries = {_HUB_KEY if server == HUB else server: login for server, login in sign_ins.items()}
    auths = {key: registries.sign_in(*login) for key, login in entries.items()}
    return {
        **settings_of_user,
        "auths": {**settings_of_user.get("auths", {}), **auths},
        "credHelpers": {**settings_of_user.get("credHelpers", {}), **dict.fromkeys(auths, "")},
    }


# --- the engine -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def signed_in(engine: Engine, sign_ins: Mapping[str, Login]) -> Iterator[Engine]:
    """The engine with sign-ins, in a temporary directory that only this user can read. It includes the contexts,
    plug-ins and sign-ins of the user's own docker directory. Without sign-ins, the engine is unchanged.
    """
    if not sign_ins:
        yield engine
        return
    home = engine.environment.get("HOME") or str(Path.home())
    user_directory = Path(engine.environment.get("DOCKER_CONFIG") or Path(home, ".docker"))
    with tempfile.TemporaryDirectory(prefix="batchtrain-docker-") as folder:
        if user_directory.is_dir():
            for entry in user_directory.iterdir():
                if entry.name != "config.json":
                    Path(folder, entry.name).symlink_to(entry.resolve())
        file = Path(folder, "config.json")
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as config:
            json.dump(settings(_read(user_directory / "config.json"), sign_ins), config)
        yield engine.with_variables({"DOCKER_CONFIG": folder})


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    return config if isinstance(config, dict) else {}


def mirror(engine: Engine, image: str, copy: str, architecture: str, say: Callable[[str], None]) -> Mirrored:
    """Copy an image to another registry under the name `copy`; it is pulled first if the engine lacks it. Raises
    NotFound, or NotAllowed with the engine's message.
    """
    if engine.image(image) is None:
        say(f"pulling {image}")
        engine.fetch(image, architecture)
    existed = engine.image(copy) is not None
    try:
        _must(engine, "tag", image, copy)
        say(f"pushing {copy}")
        _must(engine, "push", "--quiet", copy)
        digests = (engine.image(copy) or {}).get("RepoDigests") or ()
        repository = copy.rpartition(":")[0] if "/" not in copy.rpartition(":")[2] else copy
        return Mirrored(image, copy, next((digest for digest in digests if digest.startswith(f"{repository}@")), ""))
    finally:
        if not existed:
            engine.ask("rmi", "--no-prune", copy)  # removes only the name of the copy


def _must(engine: Engine, *arguments: str) -> None:
    answer = engine.ask(*arguments, patience=None)
    if answer.code != 0:
        step = f"sign in: credentials.yaml (docker_registry), {USERNAME} and {PASSWORD}, or `docker login`"
        raise NotAllowed(
            f"`docker {' '.join(arguments)}` was refused: {answer.error[-WORDS:]}."
            f" Is the registry reachable? If so, {step}"
        )
