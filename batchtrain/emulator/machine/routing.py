"""Several kinds of machines behind one interface: the pool of a node selects the kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from batchtrain.emulator.interface import Exit, Machine, NodeLogin, NodeSpec, NodeUp, Run, StorageAccount
from batchtrain.emulator.machine.simulated import SimulatedMachine


class RoutingMachine:
    """Sends the calls of each node to its machine."""

    def __init__(self, real: Machine, simulation: SimulatedMachine) -> None:
        self.real, self.simulated = real, simulation
        self.plain_nodes, self.plain_nodes_remedy = real.plain_nodes, real.plain_nodes_remedy

    def _of(self, node_id: str) -> Machine:
        return self.simulated if self.simulated.has(node_id) else self.real

    async def boot(self, spec: NodeSpec, on_lost: Callable[[str], None]) -> NodeUp:
        return await (self.simulated if spec.simulated else self.real).boot(spec, on_lost)

    async def run(self, node_id: str, run: Run) -> Exit:
        return await self._of(node_id).run(node_id, run)

    async def end(self, node_id: str, scope: str, grace: float = 0.0) -> None:
        await self._of(node_id).end(node_id, scope, grace)

    async def upload(self, node_id: str, run: Run) -> None:
        await self._of(node_id).upload(node_id, run)

    async def shutdown(self, node_id: str) -> None:
        await self._of(node_id).shutdown(node_id)

    async def remove(self, node_id: str) -> None:
        await self._of(node_id).remove(node_id)

    async def sweep(self, node_ids: Mapping[str, Collection[str]]) -> None:
        await self.real.sweep(node_ids)

    async def send_logs(self, node_id: str, container_url: str, directory: str) -> None:
        await self._of(node_id).send_logs(node_id, container_url, directory)

    def login(self, node_id: str) -> NodeLogin:
        return self._of(node_id).login(node_id)

    async def storage(self) -> StorageAccount:
        return await self.real.storage()

    async def close(self) -> None:
        await self.simulated.close()
        await self.real.close()
