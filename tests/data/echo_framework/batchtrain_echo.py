"""Echo, a framework of another package: its processes greet each other by variables."""

from typing import Annotated, ClassVar

from batchtrain.frameworks.base import LAUNCH, Nodes, Variable, says

ON_THE_NODE = """
from .base import Framework


class Echo(Framework):
    def variables(self, gang, process):
        return {
            "ECHO_PRIMARY": "%s:%d" % (gang.address, gang.port),
            "ECHO_RANK": "%d of %d" % (process.rank, len(gang.ranked)),
            "ECHO_GREETING": gang.spec.options["greeting"],
        }


FRAMEWORK = Echo()
"""


class EchoBlock(Nodes, frozen=True, kw_only=True):
    """Echo's processes on all nodes."""

    greeting: Annotated[str, says("The first word of each process.", LAUNCH)] = "hello"

    name: ClassVar[str] = "echo"
    source: ClassVar[str] = "Echo: variables"
    variables: ClassVar[tuple[Variable, ...]] = (
        Variable("ECHO_PRIMARY", "address and port of the primary", "all processes meet there"),
        Variable("ECHO_RANK", "number of the process, and how many there are", "each process has a number"),
        Variable("ECHO_GREETING", "the greeting", "the processes print it", option="greeting"),
    )
    passed_on: ClassVar[tuple[str, ...]] = ("greeting",)
    node_module: ClassVar[str] = ON_THE_NODE
