"""Keys in the layers of an image, from what `docker save` writes."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from batchtrain.containers import layers

KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n"


def tar(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def found(files: dict[str, bytes]) -> list[str]:
    return list(layers.in_archive(io.BytesIO(tar(files))))


def test_a_layer_that_python_cannot_decompress_is_not_read_as_one_without_keys() -> None:
    with pytest.raises(tarfile.CompressionError, match="zstd"):
        found({"blobs/sha256/a": b"\x28\xb5\x2f\xfd of a key"})


@pytest.mark.parametrize(
    "name",
    ["etc/ssh/ssh_host_ed25519_key", "root/.ssh/id_rsa", "./home/a/.ssh/mine", "root/deploy.pem", "srv/id_ecdsa"],
)
def test_a_key_is_found_in_any_layer(name: str) -> None:
    first, second = tar({name: KEY}), tar({"etc/hostname": b"x"})
    assert found({"manifest.json": b"[]" * 400, "a/layer.tar": first, "b/layer.tar": second}) == [
        "/" + name.removeprefix("./")
    ]


def test_a_layer_may_be_packed() -> None:
    assert found({"blobs/sha256/a": gzip.compress(tar({"root/.ssh/id_rsa": KEY}))}) == ["/root/.ssh/id_rsa"]


def test_a_public_key_and_a_key_of_nobodys_are_no_finding() -> None:
    files = {
        "root/.ssh/id_rsa.pub": b"ssh-rsa AAAA",
        "usr/share/doc/openssl/test.pem": KEY,
        "etc/ssl/ca.pem": b"-----BEGIN CERTIFICATE",
    }
    assert found({"layer.tar": tar(files)}) == []
