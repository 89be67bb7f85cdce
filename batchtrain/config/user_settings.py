"""The settings of this user: a small YAML file in the user's configuration directory, such as ~/.config/batchtrain."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec
import yaml

from batchtrain import state_files
from batchtrain.config import document
from batchtrain.config.catalog_file import user_directory
from batchtrain.config.image_names import is_name
from batchtrain.config.schema import did_you_mean
from batchtrain.errors import DamagedState, UsageError

NAME = "settings.yaml"
MONTH = "budget.month"


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What runs may cost, in the currency of the catalogue; None without a limit."""

    month: float | None = None
    """In a calendar month (UTC)."""


class UserSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings for every recipe of this user."""

    registry: str = ""
    """The registry, optionally with a path, that has the images of recipes; it replaces `example` in their names."""
    prices_url: str = ""
    """The URL that `catalog refresh --prices` reads; by default that of Azure's public Retail Prices API."""
    budget: Budget = Budget()

    @property
    def texts(self) -> dict[str, str]:
        """The settings by the names that `config set` takes; empty texts for those that are not set."""
        month = self.budget.month
        return {
            "registry": self.registry,
            "prices_url": self.prices_url,
            MONTH: "" if month is None else f"{month:.15g}",
        }


def is_for_emulator(local: bool | None, environment: Mapping[str, str] | None = None) -> bool:
    """Whether the emulator is meant: by the caller, else by BATCHTRAIN_LOCAL."""
    return _chosen(local, "BATCHTRAIN_LOCAL", environment)


def is_storage_real(real: bool | None, environment: Mapping[str, str] | None = None) -> bool:
    """Whether the emulator uses the storage accounts of credentials.yaml: by the caller, else by
    BATCHTRAIN_REAL_STORAGE."""
    return _chosen(real, "BATCHTRAIN_REAL_STORAGE", environment)


def _chosen(choice: bool | None, variable: str, environment: Mapping[str, str] | None) -> bool:
    text = (os.environ if environment is None else environment).get(variable, "")
    return text.strip().lower() in ("1", "true", "yes", "on") if choice is None else choice


def file(environment: Mapping[str, str] | None = None) -> Path:
    """The path of the settings file, which may not exist."""
    return user_directory(os.environ if environment is None else environment) / NAME


def load(environment: Mapping[str, str] | None = None) -> UserSettings:
    """The user's settings. Raises DamagedState if the file cannot be read."""
    path = file(environment)
    try:
        content = state_files.content(path)
        yaml, problems = document.parse(str(path), content.strip() or b"{}")
        if problems:
            raise msgspec.ValidationError(problems[0].message)
        settings = msgspec.convert(yaml.data or {}, UserSettings, strict=False)  # numbers come as they are written
        for name, value in settings.texts.items():
            checked(name, value)
    except (FileNotFoundError, NotADirectoryError):
        return UserSettings()
    except (*state_files.UNREADABLE, UsageError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        command = f"rm -r {shlex.quote(str(path))}"
        raise DamagedState(f"{path}: {reason}. Correct the file, or delete it: `{command}`") from None
    return settings


def checked(name: str, value: str) -> str:
    """The value of a setting. Raises UsageError if there is no such setting, or if it cannot have the value."""
    if name not in (names := tuple(UserSettings().texts)):
        hint = did_you_mean(name, names) or f"The settings are: {', '.join(names)}."
        raise UsageError(f"there is no setting called `{name}`. {hint}")
    text = value.strip().rstrip("/")
    if name == MONTH:
        if text and not _is_amount(text):
            raise UsageError(f"`{value}` is not a budget; write an amount such as 500, in the catalogue's currency")
    elif name == "prices_url":
        if text and not text.startswith(("https://", "http://")):
            raise UsageError(f"`{value}` is not a URL; write one that begins with https://")
    elif text and not is_name(f"{text}/image:tag"):
        raise UsageError(f"`{value}` is not a registry; write SERVER, SERVER/PATH, or a user of Docker Hub")
    return text


def _is_amount(text: str) -> bool:
    try:
        return 0 <= float(text) < float("inf")
    except ValueError:
        return False


def store(name: str, value: str, environment: Mapping[str, str] | None = None) -> Path:
    """Change one setting; an empty value removes it. Raises UsageError."""
    texts = {key: text for key, text in (load(environment).texts | {name: checked(name, value)}).items() if text}
    path = file(environment)
    path.parent.mkdir(parents=True, exist_ok=True)
    data: dict[str, object] = dict(texts)
    if month := texts.get(MONTH):
        del data[MONTH]
        data["budget"] = {"month": float(month)}
    state_files.replace(path, (yaml.safe_dump(data) if data else "{}\n").encode())
    return path
