"""A key pair for logins. Imported with the first one, because cryptography takes 0.1 s."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)


class KeyPair(NamedTuple):
    """The files of a key pair: the private key, and the public key with `.pub` at the end."""

    private: Path

    def public_key(self) -> str:
        """The public key of the private key."""
        key = load_ssh_private_key(self.private.read_bytes(), None).public_key()
        return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()

    def make(self) -> None:
        """Create the pair. Replaces no private key."""
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
        public_file = self.private.with_name(f"{self.private.name}.pub")
        self.private.parent.mkdir(parents=True, exist_ok=True)
        public_file.unlink(missing_ok=True)  # of a private key that is gone
        for path, content, mode in ((self.private, private, 0o600), (public_file, public, 0o644)):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
