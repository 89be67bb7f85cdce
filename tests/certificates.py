"""A certificate authority for one test: a certificate for this machine, and the authority's own to trust."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from batchtrain.emulator import certificates
from batchtrain.emulator.trust import Certificates


def issue(place: Path) -> Certificates:
    """An authority, and a certificate of it for 127.0.0.1 and localhost."""
    return certificates.issue(place, certificates.ALWAYS, datetime.now(timezone.utc))
