"""What of a pool's machines, network and sign-in Azure refuses, and so does the emulator."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.emulator import jobs, pools
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.tokens import SHARED_KEY, TOKEN
from batchtrain.emulator.world import World
from tests.emulation import POOL, call, machine, network

GROUP = "/subscriptions/s/resourceGroups/g/providers"
IMAGE = f"{GROUP}/Microsoft.Compute/galleries/g/images/i"
SUBNET = f"{GROUP}/Microsoft.Network/virtualNetworks/v/subnets/s"
ADDRESS = f"{GROUP}/Microsoft.Network/publicIPAddresses/a"
MARKETPLACE = {"publisher": "canonical", "offer": "0001-com-ubuntu-server-jammy", "sku": "22_04-lts"}


def make(signed_by: str = TOKEN, **more: object) -> World:
    world = World(seed="seed")
    pools.create_pool(world, call(body={**POOL, **more})._replace(signed_by=signed_by))
    return world


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (machine(imageReference={"virtualMachineImageId": "image"}), "InvalidPropertyValue", "of the form"),
        (
            machine(imageReference={"virtualMachineImageId": f"{GROUP}/Microsoft.Compute/images/i"}),
            "InvalidPropertyValue",
            "galleries",
        ),
        (
            machine(imageReference={"virtualMachineImageId": IMAGE, "publisher": "p"}),
            "InvalidPropertyValue",
            "mutually exclusive",
        ),
        (
            machine(imageReference={"communityGalleryImageId": "/c", "sharedGalleryImageId": "/s"}),
            "InvalidPropertyValue",
            "mutually exclusive",
        ),
        (machine(imageReference={"publisher": "p", "offer": "o"}), "MissingRequiredProperty", "imageReference/sku"),
        (
            machine(diskEncryptionConfiguration={"customerManagedKey": {"keyUrl": "https://v/keys/k/1"}}),
            "InvalidPropertyValue",
            "Pool Identity is required when using CustomerManagedKey.",
        ),
        (
            machine(extensions=[{"name": "n", "publisher": "Microsoft.Azure.Extensions", "type": "CustomScript"}]),
            "InvalidPropertyValue",
            "reserved for Batch",
        ),
        (network(subnetId=SUBNET.removesuffix("/subnets/s")), "InvalidPropertyValue", "of the form"),
        (network(publicIPAddressConfiguration={"ipAddressIds": ["a"]}), "InvalidPropertyValue", "of the form"),
        (network(publicIPAddressConfiguration={"ipAddressIds": [ADDRESS]}), "InvalidPropertyValue", "usermanaged"),
        (network(publicIPAddressConfiguration={"provision": "usermanaged"}), "InvalidPropertyValue", "usermanaged"),
    ],
)
def test_a_pool_that_azure_refuses_is_refused(more: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(Fault) as refusal:
        make(**more)
    assert refusal.value.code == code
    assert words in " ".join(refusal.value.details.values())


def test_a_pool_with_an_identity_may_have_a_key_of_its_customer() -> None:
    world = World()
    more = machine(
        diskEncryptionConfiguration={"customerManagedKey": {"keyUrl": "https://v/keys/k/1"}, "targets": ["osdisk"]}
    )
    pools.create_pool(world, call(body={**POOL, **more}), {"type": "UserAssigned", "userAssignedIdentities": []})
    assert world.pool("pool").record.spec["identity"]["type"] == "UserAssigned"


@pytest.mark.parametrize("version", ["", "/versions/1.0.0"])
def test_an_image_of_a_gallery_is_shown_as_it_was_given(version: str) -> None:
    reference = {"virtualMachineImageId": IMAGE + version}
    world = make(**machine(imageReference=dict(reference)))
    assert world.pool("pool").record.spec["virtualMachineConfiguration"]["imageReference"] == reference


def test_a_marketplace_image_is_the_latest_unless_its_version_is_named() -> None:
    world = make(**machine(imageReference=dict(MARKETPLACE)))
    image = world.pool("pool").record.spec["virtualMachineConfiguration"]["imageReference"]
    assert image == {**MARKETPLACE, "version": "latest"}


LINKED = [
    (network(subnetId=SUBNET), "Network"),
    (network(publicIPAddressConfiguration={"provision": "usermanaged", "ipAddressIds": [ADDRESS]}), "Network"),
    (machine(imageReference={"virtualMachineImageId": IMAGE}), "Compute"),
    (machine(imageReference={"sharedGalleryImageId": "/s"}), "Compute"),
    (machine(imageReference={"communityGalleryImageId": "/c"}), "Compute"),
]


@pytest.mark.parametrize(("more", "kind"), LINKED)
def test_a_pool_with_resources_outside_batch_needs_a_token(more: dict[str, Any], kind: str) -> None:
    with pytest.raises(Fault, match="AuthenticationFailed") as refusal:
        make(SHARED_KEY, **more)
    assert (refusal.value.status, refusal.value.details) == (
        403,
        {
            "AuthenticationErrorDetail": "The specified type of authentication SharedKey is not allowed when external"
            f" resources of type {kind} are linked."
        },
    )
    assert make(**more).pools


def test_so_does_a_job_whose_pool_is_made_for_it() -> None:
    pool = {name: value for name, value in {**POOL, **network(subnetId=SUBNET)}.items() if name != "id"}
    auto = {"poolLifetimeOption": "job", "pool": pool}
    body = {"id": "job", "poolInfo": {"autoPoolSpecification": auto}}
    with pytest.raises(Fault, match="AuthenticationFailed"):
        jobs.create_job(World(), call(body=body))
    world = World()
    jobs.create_job(world, call(body=body)._replace(signed_by=TOKEN))
    assert world.jobs


def test_a_malformed_id_is_told_before_the_sign_in() -> None:
    with pytest.raises(Fault, match="InvalidPropertyValue"):
        make(SHARED_KEY, **network(subnetId="x"))
