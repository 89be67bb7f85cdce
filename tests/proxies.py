"""Proxy settings of an environment, whose proxy counts connections and answers nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

WORD = "hidden-word"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
NAMES = tuple(name for upper in VARIABLES for name in (upper, upper.lower()))
SETTINGS = (
    {"http_proxy": "http"},
    {"HTTP_PROXY": "http"},
    {"https_proxy": "http", "HTTPS_PROXY": "http"},
    {"ALL_PROXY": "http"},
    {"all_proxy": "socks5h"},
    {"http_proxy": "socks5", "NO_PROXY": "example.org"},
    {"HTTP_PROXY": "http", "https_proxy": "http", "all_proxy": "socks5h", "no_proxy": "example.org,.example.net"},
)
"""Variables with the scheme of their proxy, or with the hosts that need none."""


class Proxy:
    """A proxy with a login in each of its URLs."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def environment(self, setting: dict[str, str]) -> dict[str, str]:
        """The variables of a setting."""
        where = f"//me:{WORD}@127.0.0.1:{self._listener.getsockname()[1]}"
        return {name: value if name.lower() == "no_proxy" else f"{value}:{where}" for name, value in setting.items()}

    def used(self) -> bool:
        """Whether a program has connected to it."""
        try:
            self._listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@contextmanager
def proxy() -> Iterator[Proxy]:
    """A proxy of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield Proxy(listener)
