"""What `docker save` writes is read while it runs; a command that fails leaves no archive."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from batchtrain.containers import archives, layers
from batchtrain.containers.engine import Engine
from batchtrain.errors import ServiceError

pytestmark = pytest.mark.process


def docker(folder: Path, save: str) -> Engine:
    """A docker command that has every image."""
    program = folder / "docker"
    program.write_text(f'#!/bin/sh\ncase "$1" in image) echo "[{{}}]" ;; save) {save} ;; esac\n')
    program.chmod(0o755)
    return Engine(str(program), os.environ)


def test_images_are_saved_to_a_compressed_archive(tmp_path: Path) -> None:
    archives.save(docker(tmp_path, "printf layers"), ["me/x:1"], tmp_path / "x.tar.gz")
    assert gzip.decompress((tmp_path / "x.tar.gz").read_bytes()) == b"layers"


def test_a_save_that_fails_leaves_nothing_and_says_what_docker_said(tmp_path: Path) -> None:
    engine = docker(tmp_path, "printf half; echo no space >&2; exit 3")
    with pytest.raises(ServiceError, match="`docker save` ended with code 3: no space"):
        archives.save(engine, ["me/x:1"], tmp_path / "x.tar")
    with pytest.raises(ServiceError, match="`docker save` ended with code 3: no space"):
        layers.keys(engine, "me/x:1")
    assert [path.name for path in tmp_path.iterdir()] == ["docker"]


def test_a_save_whose_archive_cannot_be_written_is_ended(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        archives.save(docker(tmp_path, "exec sleep 600"), ["me/x:1"], tmp_path / "docker" / "x.tar")
