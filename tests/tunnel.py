"""An https proxy that leads some host names to a server on this machine, for programs that know no other name.

What a user does by `/etc/hosts` and port 443 needs neither here. TLS goes through it as it is.
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from socket import SHUT_WR, create_connection, socket


@contextmanager
def serve(names: Collection[str], to: tuple[str, int]) -> Iterator[str]:
    """The proxy's address. A host name that is not among `names` is refused."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            line = self.rfile.readline().decode("latin-1").split()
            while self.rfile.readline().strip():
                pass
            if len(line) < 2 or line[0] != "CONNECT" or line[1].partition(":")[0] not in names:
                self.wfile.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                return
            with create_connection(to) as server:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=_copy, args=(server, self.connection))
                back.start()
                _copy(self.connection, server)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{proxy.server_address[1]}"
        proxy.shutdown()
        thread.join()


def _copy(source: socket, target: socket) -> None:
    try:
        while part := source.recv(65_536):
            target.sendall(part)
        target.shutdown(SHUT_WR)
    except OSError:
        return  # one of the two has gone
