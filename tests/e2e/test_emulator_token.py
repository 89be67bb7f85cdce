"""`batchtrain emulator token` and the options of `emulator start` about https, as a user types them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

pytestmark = pytest.mark.process


def test_a_printed_token_opens_the_account_to_curl_s_like(batchtrain: Any) -> None:
    started = json.loads(batchtrain("emulator", "start", "--port", "0", "--https", "-o", "json").stdout)
    made = batchtrain("emulator", "token").stdout.strip()
    script = (
        "import os, urllib.request as u; print(u.urlopen(u.Request(os.environ['URL'], headers={'Authorization':"
        " 'Bearer ' + os.environ['TOKEN']})).status)"
    )
    said = batchtrain("emulator", "env").stdout
    url = f"{started['endpoint']}/pools?api-version=2025-06-01"
    shell = f"{said}\nTOKEN={made} URL='{url}' python3 -c \"{script}\""
    assert subprocess.run(["sh", "-c", shell], capture_output=True, text=True).stdout == "200\n"
