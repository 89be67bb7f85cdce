"""When a gang stalls: nothing is printed or measured, and no GPU works. All limits that are set must run out."""

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
