"""An update judges what it sends, not what the pool has had since it was created."""

from __future__ import annotations

from typing import Any

from batchtrain.emulator import jobs, pools
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.tokens import TOKEN
from batchtrain.emulator.versions import NEWEST
from batchtrain.emulator.world import USER_SUBSCRIPTION, Application
from tests.contract import wire_properties
from tests.emulation import POOL, Stage, call
from tests.unit.emulator.test_meaning import ACCEPTED
from tests.unit.emulator.test_pools_of_resource_manager import ask

METADATA = [{"name": "a", "value": "b"}]


def later_world(body: dict[str, Any]) -> Stage:
    """A pool in a world whose packages, images and sizes of its creation are gone."""
    stage = Stage()
    stage.world.allocation = USER_SUBSCRIPTION  # the only mode with disk encryption sets
    stage.world.applications = lambda: (Application("app", ("1",), "1"),)
    identity = {"type": "UserAssigned", "userAssignedIdentities": []}
    request = call(body={**body, "id": "p"})._replace(revision=NEWEST, signed_by=TOKEN)
    pools.create_pool(stage.world, request, identity)
    stage.world.applications, stage.world.images = tuple, tuple
    stage.world.find_size = lambda name: None
    return stage


def test_the_metadata_of_every_pool_can_be_changed_after_what_it_refers_to_is_gone() -> None:
    created = [case.body for case in wire_properties.cases() if case.operation == "create_pool"]
    assert len(created) > 100
    for body in [*created, *({**POOL, **change} for change in ACCEPTED)]:
        try:
            stage = later_world(body)
        except Fault as fault:
            assert fault.status == 501, (fault, body)
            continue
        before = stage.world.pool("p").record.spec
        assert stage.do(pools.update_pool, "p", body={"metadata": METADATA}).status == 200, body
        assert ask(stage, "PATCH", {"properties": {"metadata": METADATA}}).status == 200, body
        assert stage.world.pool("p").record.spec == {**before, "metadata": METADATA}
        assert stage.do(pools.update_pool, "p", body={"taskSlotsPerNode": 2}).status == 200, body
        replacement = {"metadata": [], "applicationPackageReferences": []}
        assert stage.do(pools.replace_pool_properties, "p", body=replacement).status == 204, body


def test_the_metadata_of_a_job_can_be_changed_whatever_a_later_rule_says_of_its_tasks() -> None:
    stage = Stage()
    stage.job(jobPreparationTask={"commandLine": "true"})
    record = stage.world.job("job").record
    record.spec["jobPreparationTask"]["environmentSettings"] = [{"name": "A=B", "value": "c"}]
    assert stage.do(jobs.update_job, "job", body={"metadata": METADATA}).status == 200
