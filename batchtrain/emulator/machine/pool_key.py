"""The key pair of the user _azbatch on the nodes of a pool, who logs in from node to node, as Batch creates it."""

from __future__ import annotations

import threading
from pathlib import Path

from batchtrain.emulator.machine.rooted_path import RootedPath
from batchtrain.state_files import write_atomically

LOGIN = "home/_azbatch"
HOME = f"volatile/{LOGIN}"
"""Stands for /home/_azbatch, in the directory of a node: its root has only the directories that Azure's has."""
NAME = "intra_pool_rsa"
BITS = 2048
_MAKING = threading.Lock()
"""The nodes of a pool boot at the same time."""


def install(keys: Path, node: RootedPath) -> None:
    """Put the keys of the pool, created in `keys` at the first use, into the home of a node's user. Blocks."""
    with _MAKING:
        if not (keys / NAME).exists():
            _make(keys)
    node.make(f"{HOME}/.ssh", 0o700)
    public = (keys / f"{NAME}.pub").read_bytes()
    for name, data, mode in (
        (NAME, (keys / NAME).read_bytes(), 0o600),
        (f"{NAME}.pub", public, 0o644),
        ("authorized_keys", public, 0o600),
    ):
        node.write(f"{HOME}/.ssh/{name}", data, mode)


def _make(keys: Path) -> None:
    # Only a pool with containers needs this slow import.
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = rsa.generate_private_key(public_exponent=65537, key_size=BITS)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b" batch-pool\n"
    keys.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(keys / f"{NAME}.pub", public, 0o644)
    write_atomically(keys / NAME, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), 0o600)
