"""The calls of a node go to the machine of its pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchtrain.emulator.interface import NodeSpec, Run
from batchtrain.emulator.machine.routing import RoutingMachine

RUN = Run("scope", "task", "true", {})
CALLS: dict[str, tuple[object, ...]] = {
    "run": (RUN,),
    "end": ("scope", 2.0),
    "shutdown": (),
    "remove": (),
    "send_logs": ("https://store/logs", "directory"),
    "login": (),
}


class Recorder:
    """A machine that writes down its calls."""

    plain_nodes = plain_nodes_remedy = ""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def has(self, node_id: str) -> bool:
        return node_id == "simulated"

    def login(self, *arguments: object) -> None:
        self.calls.append(("login", *arguments))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: object) -> None:
            self.calls.append((name, *arguments))

        return call


@pytest.fixture
def machines() -> tuple[RoutingMachine, Recorder, Recorder]:
    real, simulated = Recorder(), Recorder()
    return RoutingMachine(real, simulated), real, simulated  # type: ignore[arg-type]


Machines = tuple[RoutingMachine, Recorder, Recorder]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("node", ["real", "simulated"])
async def test_a_call_about_a_node_goes_to_its_machine_alone(machines: Machines, name: str, node: str) -> None:
    machine, real, simulated = machines
    answer = getattr(machine, name)(node, *CALLS[name])
    if name != "login":
        await answer
    calls = [(name, node, *CALLS[name])]
    assert (real.calls, simulated.calls) == ((calls, []) if node == "real" else ([], calls))


@pytest.mark.parametrize("simulates", [True, False])
async def test_a_node_boots_on_the_machine_of_its_pool(machines: Machines, *, simulates: bool) -> None:
    machine, real, simulated = machines
    spec = NodeSpec("pool", "node", "127.0.0.4", "host", "size", simulated=simulates)
    await machine.boot(spec, print)
    calls = [("boot", spec, print)]
    assert (real.calls, simulated.calls) == (([], calls) if simulates else (calls, []))


async def test_only_the_real_machine_has_files_and_storage_and_both_are_closed(machines: Machines) -> None:
    machine, real, simulated = machines
    await machine.sweep({"pool": {"node"}})
    await machine.storage()
    await machine.close()
    assert real.calls == [("sweep", {"pool": {"node"}}), ("storage",), ("close",)]
    assert simulated.calls == [("close",)]
