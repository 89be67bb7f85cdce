"""An HTTP server in a thread of the tests, whose answers a function sends."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from batchtrain.emulator.trust import Certificates

Handler = http.server.BaseHTTPRequestHandler


def send(handler: Handler, status: int, content: bytes, **headers: str) -> None:
    """Send an answer with a body. headers: `_` for `-`."""
    handler.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(content))}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)


@contextmanager
def serving(answer: Callable[[Handler], None], certificates: Certificates | None = None) -> Iterator[str]:
    """The URL of a server that runs, over https if there are certificates."""

    class Answers(Handler):
        protocol_version, wbufsize = "HTTP/1.1", -1  # an answer in two packets would wait for the client
        do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = lambda handler: answer(handler)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.daemon_threads = True
        if certificates:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates.certificate, certificates.private_key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"{'https' if certificates else 'http'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
