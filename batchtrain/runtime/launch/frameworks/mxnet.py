"""MXNet: ps-lite's scheduler, servers and workers."""

import socket

from ..spec import Gang, Process, Values, address_of
from .base import Framework


class Mxnet(Framework):
    gpus = "each"
    linger = 5.0

    def variables(self, gang: Gang, process: Process) -> Values:
        """The scheduler of ps-lite sorts workers by the text of their host, highest first, and then by port. So each
        worker gets its port from us, and an address in a form that sorts like our ranks: hexadecimal, with one more
        zero per node."""
        interface = gang.spec.options.get("interface")
        address = socket.inet_aton(address_of(process.node, interface)).hex().lstrip("0")
        values = {
            "DMLC_ROLE": process.role.name,
            "DMLC_PS_ROOT_URI": gang.address,
            "DMLC_PS_ROOT_PORT": str(gang.port),
            "DMLC_NUM_SERVER": str(len(gang.of("server"))),
            "DMLC_NUM_WORKER": str(len(gang.of("worker"))),
            "DMLC_NODE_HOST": "0x{}{}".format("0" * process.node.index, address),
        }
        if interface:
            values["DMLC_INTERFACE"] = interface
        if process.role.name in ("worker", "server"):
            values[f"DMLC_{process.role.name.upper()}_ID"] = str(process.index)
        return values

    def defaults(self, gang: Gang, process: Process) -> Values:
        verbose = gang.spec.options.get("verbose")
        return dict({} if verbose is None else {"PS_VERBOSE": str(verbose)}, PORT=str(process.port))


FRAMEWORK = Mxnet()
