"""The values of a plan's placeholders, resolved when a request is sent: secrets, links, keys and times.

A plan contains none of them. Nothing is read or created before the first request that needs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from batchtrain.config.types import AccountSecret, Credentials, Recipe, RegistryCredentials, Secret, StorageCredentials
from batchtrain.errors import UsageError
from batchtrain.plan import wire_times
from batchtrain.plan.wire import Placeholder
from batchtrain.service import entra, vault
from batchtrain.storage import blob, large_source
from batchtrain.storage.blob import Connect, Own

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

    from batchtrain.client.login_keys import KeyPair
    from batchtrain.config.travel import LargeSource

Value = TypeVar("Value", bound=str | Secret)

KEY_NAME = "id_ed25519_batchtrain"
"""The name of a key pair that batchtrain creates."""


class Placeholders:
    """Fills the placeholders of one recipe's plans."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        directory: Path | None = None,
        ca: str | None = None,
        own: Own | None = None,
    ) -> None:
        """directory: the base of relative paths. ca: a file of certificates that sign-ins trust. own: the emulator's
        storage account."""
        self._recipe, self._now, self._ca, self._own = recipe, now, ca, own
        self._here = directory or Path.cwd()
        self._kinds: Mapping[str, Callable[[str], str | Secret]] = {
            "registry": self._registry,
            "singularity": self._singularity,
            "sas": self._link,
            "storage": self._storage,
            "user": self._user,
            "share": self._share,
            "keyvault": lambda secret: json.dumps(vault.mapping(vault.reader(recipe.credentials, ca=ca), secret)),
            "ssh": self._public_key,
            "file": lambda path: self._read(path, "signing_key.file"),
            "management": self._management,
            "expires": lambda span: wire_times.after(span, self._now()),  # `P30D`: that many days from now
        }

    def fill(self, placeholder: Placeholder) -> str | Secret:
        """The value of a placeholder. Raises UsageError, with the next step, if the files do not have the value."""
        return self._kinds[placeholder.kind](placeholder.name)

    # --- credentials ------------------------------------------------------------------------------------------------

    @cached_property
    def _credentials(self) -> Credentials:
        """The credentials with the values of Key Vault."""
        return vault.resolved(self._recipe.credentials, ca=self._ca)

    def _registry(self, server: str) -> Secret:
        login = self._credentials.docker_registry.get(server) or RegistryCredentials()
        return _given(login.password, f"the registry `{server}` has no password", f"docker_registry.{server}")

    def _singularity(self, server: str) -> Secret:
        login = self._credentials.singularity_registry.get(server) or RegistryCredentials()
        path = f"singularity_registry.{server}"
        _given(login.username, f"the registry `{server}` has no user name", path)
        return _given(login.password, f"the registry `{server}` has no password", path)

    def _user(self, reference: str) -> str | Secret:
        name, _, what = reference.rpartition(":")
        user = self._credentials.user_accounts.get(name) or AccountSecret()
        section = f"user_accounts.{name}"
        if what == "ssh_private_key":
            path = _given(user.ssh_private_key, f"the user `{name}` has no private key", section)
            return self._read(path, f"{section}.ssh_private_key")
        login = self._recipe.pool.rdp if self._recipe.pool else None
        password = user.password or (login.password if login and login.username == name else None)
        return _given(password, f"the user `{name}` has no password", section)

    def _share(self, reference: str) -> str | Secret:
        alias, _, what = reference.rpartition(":")
        share = self._credentials.shares.get(alias) or AccountSecret()
        value: str | Secret | None = share.username if what == "username" else share.password
        if not value:
            value = self._in_options(alias, what)
        return _given(value, f"the share `{alias}` has no {what}", f"shares.{alias}")

    def _in_options(self, alias: str, what: str) -> str | None:
        """The login inside the mount options, as in older files; it never appears in a plan."""
        volume = self._recipe.resources.volumes.shared_data_volumes.get(alias)
        if volume is None:
            return None
        entry = volume.fstab_entry.fs_mntops.split(",") if volume.fstab_entry else []
        options = dict(option.split("=", 1) for option in (*volume.mount_options, *entry) if "=" in option)
        return options.get(what) or options.get({"username": "user", "password": "pass"}[what])

    def _management(self, what: str) -> str:
        management, batch = self._credentials.management, self._credentials.batch
        value, path = batch.resource_group if batch else None, "batch.resource_group"
        if what == "subscription_id":
            value, path = management.subscription_id if management else None, "management.subscription_id"
        return _given(value, "the network is given only by name", path, "or `arm_subnet_id`")

    # --- storage ----------------------------------------------------------------------------------------------------

    @cached_property
    def connect(self) -> Connect:
        """Clients of the storage accounts, which sign in by key or, without a key, by Entra ID."""

        def sign_in() -> TokenCredential:
            return entra.credential(entra.storage_sign_in(self._credentials), ca=self._ca)

        return blob.accounts(self._account, sign_in)

    def upload(self, path: str, data: bytes | LargeSource) -> bool:
        """Put bytes or a source at `link/container/name`, unless the blob exists: names are derived from the content.
        Returns whether they were sent."""
        link, container, name = blob.place_of(path)
        storage = self.connect(link)
        if blob.exists(storage, container, name):
            return False
        if isinstance(data, bytes):
            blob.upload(storage, container, name, data)
        else:
            large_source.send(storage, container, name, data)
        return True

    def _link(self, reference: str) -> str:
        """`link/container[/blob][?write&days=N]` as a URL with a signature; `put` in place of `write` cannot read."""
        path, _, query = reference.partition("?")
        options = dict(option.partition("=")[::2] for option in query.split("&"))
        days = int(options["days"]) if options.get("days") else None
        link, container, name = blob.place_of(path)
        client, account = self.connect(link), self._account(link)
        if name:
            return blob.link(client, account, container, name, days=days)
        reads, writes = "put" not in options, not options.keys().isdisjoint(("put", "write"))
        return blob.container_link(client, account, container, read=reads, write=writes, days=days)

    def _storage(self, reference: str) -> str | Secret:
        link, _, what = reference.rpartition(":")
        account = self._account(link)
        if what == "account":
            return account.account
        if what == "files":
            return account.files_url
        return _given(account.account_key, f"the storage account `{link}` has no key", f"storage.{link}")

    def _account(self, link: str) -> StorageCredentials:
        if self._own is not None and link not in self._recipe.credentials.storage:
            return self._own()  # no vault is asked for the emulator's own
        return blob.account_of(self._credentials, link, self._own)

    # --- keys and files ---------------------------------------------------------------------------------------------

    def _public_key(self, path: str) -> str:
        """The public key at a path; without a path, the key of a pair that is created once and never overwritten."""
        if path:
            return self._read(path, "ssh.ssh_public_key").strip()
        private = self.key_pair()
        public = private.with_name(f"{private.name}.pub")
        return public.read_text(encoding="ascii").strip() if public.is_file() else _pair(private).public_key()

    def key_pair(self) -> Path:
        """The private key of the login, if batchtrain creates it; an existing pair is kept."""
        login = self._recipe.pool.ssh if self._recipe.pool else None
        path = self._here / Path(login.generated_file_export_path if login else ".").expanduser() / KEY_NAME
        if not path.exists():
            _pair(path).make()
        return path

    def _read(self, path: str, setting: str) -> str:
        """A text file below the directory of the recipe, otherwise below the working directory."""
        file = Path(path).expanduser()
        for base in (Path(self._recipe.directory), self._here):
            if (base / file).is_file():
                return (base / file).read_text(encoding="utf-8")
        raise UsageError(f"`{setting}` names {path}, which is not a file here or in {self._recipe.directory}")


def _given(value: Value | None, missing: str, path: str, other: str = "") -> Value:
    if not value:
        raise UsageError(f"{missing}; write `{path}` in credentials.yaml{f', {other}' if other else ''}")
    return value


def _pair(private: Path) -> KeyPair:
    from batchtrain.client.login_keys import KeyPair  # 0.1 s, and only for a login

    return KeyPair(private)
