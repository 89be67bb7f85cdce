"""How a process of the gang ended: a record for the client, from which the message about it is printed."""

import json
import os
import signal
import time
from glob import glob

from .processes import ending, signal_of
from .spec import Any, Message, Node, Process

FILE = "ends.jsonl"
"""Beside the output of the ranks on the primary: a record on each line, that of the cause first, with its lines."""
ECHOED = 10
"""The last lines of the process that failed first that are printed again, if they stand no longer on the screen."""
LONGEST = 2000
"""Characters of a program's own message that a record keeps."""
ENDED_EARLY = "ended-early"
"""The cause in the record of a process that ended well while others ran."""
FULL = {"cgroup": "the memory limit of its container was reached", "node": "the memory of the node was full"}


class End:
    """The end of a process; words: how it ended, if its code does not tell all of it. memory: which memory was full
    (`cgroup`, `node`) when the kernel killed it. cause: a name for it, such as `stalled`. by_launcher: whether the
    launcher ended it, because another process had failed."""

    def __init__(
        self,
        label: str,
        rank: int,
        node: Node,
        code: int,
        words: str = "",
        memory: str = "",
        cause: str = "",
        by_launcher: bool = False,
    ) -> None:
        self.label, self.rank, self.node, self.code, self.memory = label, rank, node, code, memory
        self.cause, self.by_launcher = cause, by_launcher
        self.words = words or (memory and "{}, because {}".format(ending(code), FULL[memory]))

    def __str__(self) -> str:
        return f"{self.label} on {self.node} {self.words or ending(self.code)}"


class Failure:
    """A failure of the gang and its time; the earliest one is the cause. what: the end of a process, or a message."""

    def __init__(self, at: float, what: "End | str", code: int, process: int = -1) -> None:
        self.at, self.what, self.code, self.process = at, what, code, process
        self.printed: "list[str]" = []
        """The last lines that the process had printed when it failed."""
        self.calls: "list[str]" = []
        """The calls of a process that stalled, the last call first."""
        self.error: "Message" = {}
        """What the program wrote about its exception."""

    @property
    def lines(self) -> "list[str]":
        """What it printed last, and its calls."""
        return self.printed + [f"in {call}" for call in self.calls]

    def record(self, attempt: int) -> "Message":
        """Without what is unknown. A failure that is not the end of a process has a message only."""
        end: "Message" = {"rank": None, "process": ""}
        more: "Message" = {"ending": self.what}
        if isinstance(self.what, End):
            rank, node = self.what.rank, self.what.node
            end = {"rank": rank if rank >= 0 else None, "process": self.what.label}
            end.update(node=node.name, address=node.address)
            more = {"ending": self.what.words, "full_memory": self.what.memory, "cause": self.what.cause}
            more["by_launcher"] = self.what.by_launcher
        number = signal_of(self.code)
        if number:
            end.update(signal=number, signal_name=signal_name(number))
        else:
            end["exit_code"] = self.code
        end.update(time=iso(self.at), attempt=attempt)
        more.update(error=self.error, calls=self.calls)
        end.update((name, value) for name, value in more.items() if value)
        return end


def early(process: Process, at: float) -> Failure:
    """A process that exited with code 0 while others ran: a failure only if another one fails because of it."""
    words = ending(0) + " before the others"
    return Failure(at, End(process.label, process.rank, process.node, 0, words, cause=ENDED_EARLY), 0, process.id)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals
        return f"SIG{number}"


def iso(at: float) -> str:
    """A time of UTC in ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000000):06d}Z"


def attempt() -> int:
    """The number of this attempt of the task, from 1."""
    return int(os.environ.get("BATCHTRAIN_ATTEMPT", "1"))


def write(folder: str, failures: "list[Failure]") -> None:
    """The failures, the cause first, and then the other ends."""
    os.makedirs(folder, exist_ok=True)
    path, number = os.path.join(folder, FILE), attempt()
    records = [failure.record(number) for failure in failures]
    if failures[0].lines:
        records[0]["lines"] = failures[0].lines
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    os.replace(path + ".new", path)


def error_of(pattern: str) -> "Message":
    """The earliest error that a program wrote for torchelastic (`record`), in one of the files of this pattern."""
    errors = [error for error in map(read_error, glob(pattern)) if error]
    return min(errors, key=lambda error: error[0])[1] if errors else {}


def read_error(path: str) -> "tuple[float, Message] | None":
    """When it was written, and its content; the message is a text, or {"message": …, "extraInfo": {"timestamp": …}}."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            message: "Any" = json.load(file)["message"]
        error = {"file": path}
        if isinstance(message, dict):
            error["time"] = iso(float(message["extraInfo"]["timestamp"]))
            message = message["message"]
        error["message"] = str(message)[:LONGEST]
        return os.stat(path).st_mtime, error
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):  # a program wrote it
        return None
