"""Ray: a head, a worker on every other node, and the command that uses them."""

import os

from ..spec import Gang, Process, Values, address_of
from .base import Framework, sockets

RETRY_SECONDS = 2.0
"""Between two attempts of a worker to reach the head."""


class Ray(Framework):
    linger = 0.0  # its daemons never end by themselves

    def __init__(self) -> None:
        self.token = os.urandom(16).hex()

    def variables(self, gang: Gang, process: Process) -> Values:
        head = f"{gang.address}:{gang.port}"
        if process.role.name == "driver":
            return {"RAY_ADDRESS": head}
        is_head = process.role.name == "head"
        role = f"--head --port={gang.port} --include-dashboard=false" if is_head else f"--address={head}"
        return {"BATCHTRAIN_RAY": f"{role} {' '.join(daemon(gang, process))}"}

    def defaults(self, gang: Gang, process: Process) -> Values:
        """Without a token, any program that reaches a node could run code on it."""
        values = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}
        values["RAY_NUM_REDIS_GET_RETRIES"] = str(int(gang.spec.barrier / RETRY_SECONDS) + 1)
        return dict(sockets(gang, process), **values)


def daemon(gang: Gang, process: Process) -> "list[str]":
    """The resources of a node; workers use any free port, because emulated nodes share one machine."""
    return [
        "--block",
        f"--node-ip-address={address_of(process.node, gang.spec.options.get('interface'))}",
        f"--num-cpus={process.node.processes}",
        f"--num-gpus={len(process.node.gpus)}",
        "--min-worker-port=0",
        "--max-worker-port=0",
    ]


FRAMEWORK = Ray()
