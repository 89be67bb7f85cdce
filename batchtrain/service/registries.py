"""Credentials of container registries in the format of Docker's own files."""

from __future__ import annotations

import base64

from batchtrain.config.types import Secret


def sign_in(username: str, password: Secret) -> dict[str, str]:
    """The entry of one registry below `auths` in Docker's config.json."""
    return {"auth": base64.b64encode(f"{username}:{password.reveal()}".encode()).decode()}
