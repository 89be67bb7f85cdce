"""Storage links on the emulator: they mean its own storage, and no account of credentials.yaml; pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from batchtrain.config.types import Credentials, Recipe

NOT_LOCAL = frozenset({"storage-link", "image-registry"})
"""Checks that do not apply to the emulator: it stores a large `source` itself, has a storage account, and pulls no
image of a recipe."""


def without_accounts(recipe: Recipe) -> Recipe:
    """The recipe with the emulator's storage in place of every account of credentials.yaml."""
    if not recipe.credentials.storage:
        return recipe
    credentials = replace(recipe.credentials, storage={})
    return replace(recipe, credentials=credentials, replaced_accounts=account_names(recipe.credentials))


def account_names(credentials: Credentials) -> Mapping[str, str]:
    """Storage link -> the name of its account."""
    return {link: entry.account for link, entry in credentials.storage.items()}


def meaning(accounts: Mapping[str, str], *, real: bool) -> str:
    """Where links lead with --local. accounts: what credentials.yaml has for them."""
    links = ", ".join(f"`{link}`" for link in accounts)
    names = ", ".join(dict.fromkeys(accounts.values()))
    if real:
        return f"storage: {links} means the account {names}: inputs are read there, and `output_data` is written there"
    other_way = f"`--real-storage` (`real_storage`) uses the account {names}"
    return f"storage: {links} means the storage of this machine; {other_way}"


def overlaps(prefix: str, others: Iterable[str]) -> bool:
    """Whether `link/container/path` is above or below one of the others."""
    return any(other.startswith(prefix) or prefix.startswith(other) for other in others)


def empty(places: Sequence[str], accounts: Mapping[str, str], files: Iterable[str], directory: str) -> str:
    """Why a recipe cannot start that reads `link/container/path` without a blob. accounts: that --real-storage would
    use; files: where the `global_resources.files` of the directory go."""
    link = places[0].partition("/")[0]
    command = f"ingress {shlex.quote(directory)}" if overlaps(places[0], files) else f"sync ./DIR {places[0]}"
    other = f", or use the account {accounts[link]} (`--real-storage`, `real_storage`)" if link in accounts else ""
    return (
        f"the tasks read {' and '.join(places)}, and the storage of this machine has nothing there; bring the files"
        f" with `batchtrain data {command} --local`{other}"
    )
