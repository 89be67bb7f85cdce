"""What the table of VM images says."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest

from batchtrain.catalog import vm_images
from batchtrain.catalog.vm_images import IMAGES, RETIRED, SUPPORTED, Image


def named(publisher: str, offer: str, sku: str) -> Image:
    image = vm_images.find(publisher, offer, sku)
    assert image is not None, (publisher, offer, sku)
    return image


def test_the_old_recipe_s_image_is_found_as_it_was_written_and_is_retired() -> None:
    image = named("OpenLogic", "CentOS-HPC", "7.3")
    assert (image.node_agent, image.retired) == ("batch.node.centos 7", date(2024, 6, 30))
    assert image.replacement == "microsoft-dsvm:ubuntu-hpc:2404"


@pytest.mark.parametrize(
    ("reference", "agent"),
    [
        (("Canonical", "UbuntuServer", "16.04-LTS"), "batch.node.ubuntu 16.04"),
        (("Canonical", "UbuntuServer", "18.04-LTS"), "batch.node.ubuntu 18.04"),
        (("OpenLogic", "CentOS-HPC", "7.1"), "batch.node.centos 7"),
        (("OpenLogic", "CentOS-HPC", "7.6"), "batch.node.centos 7"),
        (("microsoft-azure-batch", "centos-container-rdma", "7-7"), "batch.node.centos 7"),
        (("microsoft-azure-batch", "ubuntu-server-container", "20-04-lts"), "batch.node.ubuntu 20.04"),
        (("MicrosoftWindowsServer", "WindowsServer", "2016-Datacenter-with-Containers"), "batch.node.windows amd64"),
        (("microsoft-dsvm", "ubuntu-hpc", "2204"), "batch.node.ubuntu 22.04"),
        (("almalinux", "almalinux-hpc", "9-hpc-gen2"), "batch.node.el 9"),
    ],
)
def test_each_image_names_its_node_agent(reference: tuple[str, str, str], agent: str) -> None:
    assert named(*reference).node_agent == agent


def test_an_unknown_image_is_none() -> None:
    assert vm_images.find("OpenLogic", "CentOS-HPC", "9.0") is None


def test_an_offer_is_not_found_by_another_that_begins_alike() -> None:
    assert named("openlogic", "centos", "7.6").capabilities == frozenset()


@pytest.mark.parametrize("image", SUPPORTED, ids=lambda image: f"{image.offer}-{image.sku}")
def test_a_supported_image_is_one_image(image: Image) -> None:
    assert "*" not in image.sku
    assert named(image.publisher, image.offer, image.sku) is image


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: f"{image.offer}-{image.sku}")
def test_a_replacement_is_a_supported_image_with_no_end_in_sight(image: Image) -> None:
    if not image.replacement:
        return
    replacement = named(*image.replacement.split(":"))
    assert replacement.retired is None
    assert replacement.os == image.os


def test_every_retired_image_has_its_day_and_a_replacement() -> None:
    assert [image for image in RETIRED if image.retired is None or not image.replacement] == []


def test_names_stand_in_lower_case_and_once() -> None:
    counted = Counter(image[:3] for image in IMAGES)
    assert [key for key, count in counted.items() if count > 1 or any(part != part.lower() for part in key)] == []


def test_capabilities_are_said_in_the_service_s_words() -> None:
    image = named("microsoft-dsvm", "ubuntu-hpc", "2404")
    assert vm_images.service_words(image.capabilities) == (
        "DockerCompatible", "Generation2VMImage", "NvidiaTeslaDriverInstalled", "SupportsRDMAOnly",
    )  # fmt: skip
    assert "rocm" not in " ".join(vm_images.service_words({"rocm", "docker"})).lower()
