"""Horovod over gloo, whose ranks meet through a key-value server on the primary."""

import collections
import socket

from ..channel import Loop
from ..spec import LONGEST, Gang, LaunchError, Process, Values
from .base import Framework, sockets


class Horovod(Framework):
    def variables(self, gang: Gang, process: Process) -> Values:
        """Horovod counts `local` by host name, so it is the address of the node, which is unique."""
        rank, size = gang.cross(process)
        return {
            "HOROVOD_RANK": str(process.rank),
            "HOROVOD_SIZE": str(len(gang.ranked)),
            "HOROVOD_LOCAL_RANK": str(process.local_rank),
            "HOROVOD_LOCAL_SIZE": str(len(gang.local(process))),
            "HOROVOD_CROSS_RANK": str(rank),
            "HOROVOD_CROSS_SIZE": str(size),
            "HOROVOD_HOSTNAME": process.node.address,
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": gang.store[0],
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(gang.store[1]),
        }

    def defaults(self, gang: Gang, process: Process) -> Values:
        values = sockets(gang, process)
        if "GLOO_SOCKET_IFNAME" in values:
            values["HOROVOD_GLOO_IFACE"] = values["GLOO_SOCKET_IFNAME"]
        return values

    def serve(self, loop: Loop, gang: Gang) -> None:
        gang.store = Store(loop, gang).address


FRAMEWORK = Horovod()


class Scopes:
    """The state and the answers of the server: the part of HTTP that Horovod's ranks use.

    A scope is deleted when all of its ranks have deleted themselves (they meet again after a shutdown); from a scope
    that the ranks named themselves, only the key is deleted.
    """

    LARGEST = 16 << 20

    def __init__(self, sizes: "dict[str, int]") -> None:
        self.sizes = sizes
        self.values: "dict[str, dict[str, bytes]]" = collections.defaultdict(dict)
        self.left: "dict[str, set[str]]" = collections.defaultdict(set)

    def answer(self, request: bytes) -> "bytes | None":
        """The answer to `VERB /scope/key HTTP/1.x`, or None if the request is incomplete."""
        head, blank, body = request.partition(b"\r\n\r\n")
        if not blank:
            return None if len(head) < LONGEST else reply(400)
        lines = head.decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        length = fields.get("content-length") or "0"
        words = lines[0].split(" ")
        path = words[1].split("/", 2) if len(words) == 3 else []
        if len(path) != 3 or not length.isdigit() or int(length) > self.LARGEST:
            return reply(400)
        if len(body) < int(length):
            return None
        return self.do(words[0], path[1], path[2], body[: int(length)])

    def do(self, verb: str, scope: str, key: str, body: bytes) -> bytes:
        if verb == "GET":
            value = self.values[scope].get(key)
            return reply(404) if value is None else reply(200, value)
        if verb == "PUT":
            self.values[scope][key] = body
        elif verb == "DELETE":
            self.forget(scope, key)
        else:
            return reply(400)
        return reply(200)

    def forget(self, scope: str, key: str) -> None:
        if scope not in self.sizes:
            self.values[scope].pop(key, None)
            return
        self.left[scope].add(key)
        if len(self.left[scope]) >= self.sizes[scope]:
            self.values.pop(scope, None)
            self.left.pop(scope)


def scopes_of(gang: Gang) -> "dict[str, int]":
    """The three communicators of Horovod: the number of ranks in each."""
    sizes = {"global": len(gang.ranked)}
    for process in gang.ranked:
        sizes["local_" + process.node.address] = len(gang.local(process))
        sizes[f"cross_{process.local_rank}"] = gang.cross(process)[1]
    return sizes


class Store:
    """The sockets of the server, only on the address of the primary."""

    def __init__(self, loop: Loop, gang: Gang) -> None:
        self.loop = loop
        self.scopes = Scopes(scopes_of(gang))
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.listener.bind((gang.address, gang.port))
            self.listener.listen(512)
        except OSError as error:
            raise LaunchError(f"cannot listen on {gang.address}:{gang.port}: {error.strerror}") from None
        self.listener.setblocking(False)
        self.address: "tuple[str, int]" = self.listener.getsockname()
        loop.watch(self.listener.fileno(), self.accept)

    def accept(self) -> None:
        try:
            client = self.listener.accept()[0]
        except OSError:
            return
        client.setblocking(False)
        request = bytearray()
        self.loop.watch(client.fileno(), lambda: self.read(client, request))

    def read(self, client: socket.socket, request: bytearray) -> None:
        try:
            data = client.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        request += data
        answer = self.scopes.answer(bytes(request)) if data else b""
        if answer is None:
            return
        self.loop.forget(client.fileno())
        client.settimeout(1)
        try:
            client.sendall(answer)
        except OSError:  # the client asks again
            pass
        client.close()


def reply(status: int, body: bytes = b"") -> bytes:
    reason = {200: "OK", 400: "Bad Request", 404: "Not Found"}[status]
    return f"HTTP/1.0 {status} {reason}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
