"""Storage links on the emulator: they mean its own storage, and no account of credentials.yaml; pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from batchtrain.config.types import Credentials, Recipe


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
    return f"storage: {links} means the storage of this machine; --real-storage uses the account {names}"


def empty(containers: tuple[tuple[str, str], ...], accounts: Mapping[str, str]) -> str:
    """Why a recipe cannot start that reads containers without a blob. accounts: that --real-storage would use."""
    places = " and ".join(f"{link}/{container}" for link, container in containers)
    link, container = containers[0]
    other = f", or add --real-storage to use the account {accounts[link]}" if link in accounts else ""
    return (
        f"the tasks read {places}, and the storage of this machine has nothing there; bring the files with"
        f" `batchtrain data sync ./DIR {link}/{container} --local`{other}"
    )
