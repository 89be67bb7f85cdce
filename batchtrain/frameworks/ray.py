"""Ray: a cluster on all nodes, the user's command once on the primary, and the end of both together.

Source: Ray, Launching an On-Premise Cluster (`ray start`) and ray.init (RAY_ADDRESS); measured with Ray 2.60 on CPUs.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from batchtrain.frameworks.base import (
    COMMAND,
    SOCKETS,
    BlockFault,
    FrameworkRule,
    Nodes,
    Role,
    Runner,
    Scripts,
    Variable,
)

_OWN_CLUSTER = re.compile(r"(?<![\w./-])ray\s+(start|up|submit|stop)\b")
_START = Runner("ray", "ray.scripts.scripts", ("start", "$BATCHTRAIN_RAY", ">/dev/null"), takes_command=False)
"""Shows stderr, and hides stdout, which has hints that do not apply here."""
_READY = """
import os, sys, time, ray
wanted, end = int(os.environ["BATCHTRAIN_NODES"]), time.monotonic() + {seconds:g}
while True:
    try:
        ray.init(log_to_driver=False, logging_level="CRITICAL")
        here = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
        why = "%d of %d nodes joined the Ray cluster (%s)" % (len(here), wanted, ", ".join(sorted(here)))
        if len(here) == wanted: sys.exit(ray.shutdown())
        ray.shutdown()
    except Exception as error: why = "the Ray cluster does not answer: %s" % error
    if time.monotonic() > end: sys.exit("batchtrain: %s in {seconds:g} s" % why)
    time.sleep(0.1)
"""
"""Ends when every node has joined the cluster."""


class RayBlock(Nodes, frozen=True, kw_only=True):
    """Ray: a head on the primary, a worker on every other node, and the command once, against the cluster."""

    name: ClassVar[str] = "ray"
    source: ClassVar[str] = "Ray: ray start, RAY_ADDRESS"
    scripts: ClassVar[Scripts] = Scripts(imports=("ray",), level=2, image="ray", packages=("ray",))
    each: ClassVar[int | str] = "nproc"
    why_each: ClassVar[str] = "the tasks of Ray share the cores of the node"
    variables: ClassVar[tuple[Variable, ...]] = (
        Variable("RAY_ADDRESS", "the head's address, for the command", "ray.init() connects to the cluster by it"),
        Variable("RAY_AUTH_MODE", "token", "without it, every program that reaches a node could run code", keeps=True),
        Variable("RAY_AUTH_TOKEN", "a new one for each launch", "only the nodes of this cluster have it", keeps=True),
        Variable("RAY_NUM_REDIS_GET_RETRIES", "`barrier_seconds` at 2 s each", "a worker would wait 40 s for the head",
                 keeps=True),
        Variable("RAY_USAGE_STATS_ENABLED", "0", "Ray would send usage statistics", keeps=True),
        *SOCKETS,
    )  # fmt: skip
    rules: ClassVar[tuple[FrameworkRule, ...]] = (
        FrameworkRule("ray-launch", "A command under `ray` does not start a cluster.", "Ray: ray start"),
    )

    @property
    def threads(self) -> bool:
        """Ray sets it for its workers, by the CPUs of their task."""
        return False

    def roles(self, command: str, instances: int) -> tuple[Role, ...]:
        ready = _READY.format(seconds=self.barrier_seconds)
        worker = Role("worker", command, per_node=1, ranked=False, decides=False, runner=_START)
        return (
            worker._replace(name="head", per_node=None, total=1, placement="primary", instead_of="worker"),
            worker,
            Role("driver", command, total=1, placement="primary", gpus=False, ranked=False, first=ready),
        )

    def faults(self, command: str, instances: int | None) -> Iterator[BlockFault]:
        yield from super().faults(command, instances)
        if match := _OWN_CLUSTER.search(command):
            text = (
                f"`ray {match[1]}` in the command: `ray` of multi_instance starts and ends the cluster; write the"
                " program alone, such as `python train.py`, which calls `ray.init()`"
            )
            yield BlockFault("ray-launch", COMMAND, text)
