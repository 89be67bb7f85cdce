"""`batchtrain data sync` to a directory of this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from batchtrain.cli import data
from batchtrain.cli.storage_accounts import Remote
from batchtrain.errors import NotFound

from .blob_server import BlobServer, serve


def test_a_source_that_is_not_there_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text("x")
    monkeypatch.setattr(data, "settings", lambda: SimpleNamespace(confirm=lambda question: None, verbose=False))
    monkeypatch.setattr(data, "_show", lambda *tallies: None)
    with (
        serve(BlobServer()) as storage,
        pytest.raises(NotFound, match="link/box/typo does not exist; `batchtrain data list link/box` lists its blobs"),
    ):
        data._down(Remote(storage, "link", "box", "typo"), tmp_path, delete=True)
    assert (tmp_path / "mine").exists()
