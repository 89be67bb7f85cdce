"""The key of an account in a file of its data directory."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

from batchtrain import state_files


def ensure(path: Path) -> str:
    """The key, created at the first use and readable by its owner only. Raises DamagedState."""
    if not path.exists():
        state_files.write_atomically(path, base64.b64encode(secrets.token_bytes(64)).decode() + "\n", 0o600)
    key = read(path)
    path.chmod(0o600)
    return key


def read(path: Path) -> str:
    """The key. Raises FileNotFoundError, DamagedState."""
    try:
        key = state_files.content(path).decode("ascii").strip()
        if not base64.b64decode(key, validate=True):
            raise ValueError("it is empty")
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        reason = error if isinstance(error, OSError) else ValueError("it is no key in base64")
        raise state_files.damaged(path, reason, "the next start makes a new key") from None
    return key
