"""relay.py PORT: on an emulated node, connects stdin, which is a socket, with a port of the node."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading

CHUNK = 1 << 16


def main(port: int) -> None:
    """Copy in both directions until both sides have ended."""
    near = socket.socket(fileno=0)
    try:
        far = socket.create_connection(("127.0.0.1", port))
    except OSError as error:
        sys.exit(f"port {port} of the node: {error.strerror}")
    inward = threading.Thread(target=_carry, args=(near, far))
    inward.start()
    _carry(far, near)
    inward.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # one side is gone
        while data := source.recv(CHUNK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(int(sys.argv[1]))
