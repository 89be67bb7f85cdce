"""The certificates that clients of an emulator over https must trust: files, variables and names."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from pathlib import Path
from typing import NamedTuple

FOLDER = "certificates"
VARIABLES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Variables of Python's clients: a file with all trusted authorities."""
_NAME = re.compile(r"(?:\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")


class Certificates(NamedTuple):
    """Files of a server's certificate: the certificate, its key, and what a client must trust."""

    certificate: Path
    private_key: Path
    ca: Path
    """The authority's certificate alone, for clients that add it to what they trust."""
    bundle: Path
    """The same with the usual authorities, for clients that use this file instead of their own."""
    usual: Path
    """The usual authorities alone: the user's own file, or those of certifi."""

    @property
    def variables(self) -> dict[str, str]:
        """Variables that make Python's and JavaScript's clients trust the server."""
        return {**dict.fromkeys(VARIABLES, str(self.bundle)), "NODE_EXTRA_CA_CERTS": str(self.ca)}


def of(data_dir: Path) -> Certificates:
    """The directory of an emulator's certificates."""
    files = ("certificate.pem", "private-key.pem", "ca.pem", "bundle.pem", "usual.pem")
    return Certificates(*(data_dir / FOLDER / name for name in files))


def checked(name: str) -> str:
    """A host name in lower case, or an address. Raises ValueError."""
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name))
    if not _NAME.fullmatch(name.lower()) or len(name) > 253:
        raise ValueError(f"`{name}` is not a host name; one looks like NAME.REGION.batch.azure.com")
    return name.lower()


def loopback(host: str) -> bool:
    """Whether a host name always means this machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
