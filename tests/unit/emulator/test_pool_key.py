"""The key pair with which the nodes of a pool log in to each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.emulator.machine import pool_key
from batchtrain.emulator.machine.rooted_path import RootedPath


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool whose two nodes have their keys."""
    folder = tmp_path_factory.mktemp("pool")
    for name in "ab":
        (folder / name).mkdir()
        pool_key.install(folder / "machine" / "ssh", RootedPath(folder / name))
    return folder


def ssh(pool: Path, node: str) -> Path:
    return pool / node / "volatile/home/_azbatch/.ssh"


def test_a_private_key_of_the_pool_opens_the_door_of_each_node(pool: Path) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

    key = load_ssh_private_key((ssh(pool, "a") / "intra_pool_rsa").read_bytes(), None)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b" batch-pool\n"
    for node in "ab":
        assert (ssh(pool, node) / "authorized_keys").read_bytes() == public
        assert (ssh(pool, node) / "intra_pool_rsa.pub").read_bytes() == public
    assert getattr(key, "key_size", 0) == 2048


def test_the_nodes_of_a_pool_share_one_key(pool: Path) -> None:
    private = {(ssh(pool, node) / "intra_pool_rsa").read_bytes() for node in "ab"}
    assert private == {(pool / "machine/ssh/intra_pool_rsa").read_bytes()}


def test_sshd_accepts_the_modes_of_the_files(pool: Path) -> None:
    for folder in (ssh(pool, "a"), pool / "machine" / "ssh"):
        assert folder.stat().st_mode & 0o777 == 0o700
        modes = {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}
        assert modes.pop("authorized_keys", 0o600) == 0o600
        assert modes == {"intra_pool_rsa": 0o600, "intra_pool_rsa.pub": 0o644}
