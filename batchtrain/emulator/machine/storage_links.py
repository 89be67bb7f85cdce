"""Signed addresses of the account's own storage."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from urllib.parse import urlencode

from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.machine.resource_files import STORAGE_VERSION

LIFE_SECONDS = 7 * 86_400


def container_url(account: StorageAccount, container: str) -> str:
    """A container's address, with an account SAS that permits everything in it."""
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + LIFE_SECONDS))
    fields = {"sp": "rwdlac", "ss": "b", "srt": "sco", "st": "", "se": end, "sip": "", "spr": "", "sv": STORAGE_VERSION}
    text = "\n".join([account.account, *fields.values(), "", ""])  # an empty encryption scope is the last line
    signature = hmac.new(base64.b64decode(account.key), text.encode(), hashlib.sha256).digest()
    query = {name: value for name, value in fields.items() if value}
    return f"{account.endpoint}/{container}?{urlencode({**query, 'sig': base64.b64encode(signature).decode()})}"
