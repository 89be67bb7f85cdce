"""When a gang stalls: nothing is printed or measured, and no GPU works. All limits that are set must run out."""

import contextlib
import json
import os
import time

from .spec import Callable, Gang, Message, Process

CODE = 124
"""The exit code of a gang that stalled, as of `timeout`."""
LOOKS = 20
"""How often the shortest limit is checked before it can run out."""


class Stall:
    """What the primary heard of its processes and of the GPUs of its nodes."""

    def __init__(self, limits: "Message", clock: "Callable[[], float]" = time.monotonic) -> None:
        self.clock = clock
        self.silent = limits.get("silent")
        self.idle = limits.get("idle")
        """Seconds; None without this limit."""
        self.below = limits.get("below", 0.0)
        """The percentage of a node's GPUs below which it idles."""
        self.last_output: "dict[int, float]" = {}
        self.working: "dict[int, float]" = {}
        """When each node was last seen with GPUs that work; a node that sends no samples is missing."""
        self.gang: "Gang | None" = None

    @property
    def pause(self) -> float:
        """Seconds between two looks; 0 without limits."""
        return min([limit for limit in (self.silent, self.idle) if limit], default=0) / LOOKS

    def begin(self, gang: Gang) -> None:
        self.gang = gang
        self.last_output = dict.fromkeys([process.id for process in gang.processes], self.clock())

    def note(self, process: int) -> None:
        """The process printed or measured something, or ended."""
        self.last_output[process] = self.clock()

    def sampled(self, node: int, percent: float) -> None:
        """The GPUs of a node work so much. The first sample begins its time."""
        if percent >= self.below or node not in self.working:
            self.working[node] = self.clock()

    def first(self, alive: "dict[int, Process]") -> "tuple[Process, str] | None":
        """The process that stood still first, and in words what it did; None while the gang works."""
        now = self.clock()
        words: "list[str]" = []
        if self.gang is None or not alive:
            return None
        if self.silent:
            if now - max(self.last_output.values()) < self.silent:
                return None
            words.append("no process printed anything for {:g} s".format(self.silent))
        if self.idle:
            nodes = {process.node.index for process in alive.values()}
            if not nodes <= set(self.working) or now - max(self.working[node] for node in nodes) < self.idle:
                return None
            words.append("the GPUs of all nodes were below {:g} % for {:g} s".format(self.below, self.idle))
        since = self.last_output if self.silent else {p.id: self.working[p.node.index] for p in alive.values()}
        process = alive[min(sorted(alive), key=lambda identity: since[identity])]
        seconds = now - since[process.id]
        return process, "stalled first, {:.0f} s ago: {}".format(seconds, ", and ".join(words))


class Stacks:
    """What the Python processes of a gang that stalled do, from the nodes that answer in time."""

    FILE = "stacks.jsonl"
    """In the folder of the ranks on the primary: a record of each process on a line."""
    SECONDS = 8.0

    def __init__(self, nodes: int, process: Process, then: "Callable[[list[str]], None]") -> None:
        """then: gets what the main thread of the process does, the last call first."""
        self.missing, self.process, self.then = nodes, process, then
        self.records: "list[Message]" = []
        self.ended = False

    def take(self, node: str, lines: "list[str]") -> None:
        """The answer of a node; its last line may be cut off."""
        for line in lines:
            with contextlib.suppress(ValueError):
                self.records.append(dict(json.loads(line), node=node))
        self.missing -= 1
        if not self.missing:
            self.end()

    def end(self) -> None:
        """The last node has answered, or the time is over."""
        if not self.ended:
            self.ended = True
            of_process = [record for record in self.records if record["rank"] == str(self.process.rank)]
            self.then(of_process[0]["threads"][0] if of_process else [])

    def write(self, folder: str) -> None:
        with open(os.path.join(folder, self.FILE), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in self.records)
