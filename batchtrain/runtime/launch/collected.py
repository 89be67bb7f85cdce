"""Keeps the output and metrics of other nodes on the primary: the service uploads only these, and nodes get lost."""

import contextlib
import os

from .spec import Gang

MOST = 64 << 20
"""Bytes of a file that are kept."""
FILES = (".stdout.txt", ".stderr.txt")
MEASURED = ".metrics.jsonl"


class Collected:
    """The files of the processes of other nodes, named as on their own nodes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.names: "dict[int, str]" = {}
        self.sizes: "dict[str, int]" = {}

    def begin(self, gang: Gang) -> None:
        """Each process has files of its output, as on its own node; what an earlier attempt left is removed."""
        self.names = {process.id: process.file for process in gang.processes if process.node.index}
        for name in self.names.values():
            path = os.path.join(self.folder, name)
            with contextlib.suppress(OSError):
                for ending in FILES:
                    open(path + ending, "wb").close()
                os.unlink(path + MEASURED)

    def take(self, process: int, ending: str, data: bytes) -> None:
        """A full disk ends no training: the rest is left out."""
        if process not in self.names:
            return
        name = self.names[process] + ending
        size = self.sizes.get(name, 0)
        self.sizes[name] = size + len(data)
        try:
            with open(os.path.join(self.folder, name), "ab") as file:
                file.write(data[: max(MOST - size, 0)])
        except OSError:
            self.sizes[name] = MOST
