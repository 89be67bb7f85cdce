"""Which image goes with which size."""

from __future__ import annotations

import pytest

from batchtrain.catalog import fit, sizes, vm_images
from batchtrain.catalog.sizes import VmSize
from batchtrain.catalog.vm_images import IMAGES, Image


def size(name: str) -> VmSize:
    found = sizes.find(name)
    assert found is not None, name
    return found


def chosen(name: str, *, os: str = "linux", containers: bool = True, rdma: bool = False, like: str = "") -> str:
    """The image for a size, as offer:sku; empty where there is none."""
    needed = fit.needs(size(name), os=os, containers=containers, rdma=rdma)
    before = next((image for image in IMAGES if image.publisher == like), None)
    one = fit.image_for(IMAGES, needed, os=os, size=size(name), like=before)
    return ":".join(one[1:3]) if one is not None else ""


@pytest.mark.parametrize(
    ("name", "more", "image"),
    [
        ("ND96isr_H100_v5", {"rdma": True}, "ubuntu-hpc:2404"),
        ("ND96isr_MI300X_v5", {"rdma": True}, "ubuntu-hpc:2404-rocm"),
        ("ND40rs_v2", {"rdma": True}, "almalinux-hpc:8_10-hpc-v100-gen2"),
        ("HB120rs_v3", {"rdma": True, "containers": False}, "ubuntu-hpc:2404"),
        ("D4s_v5", {}, "ubuntu-hpc:2404"),
        ("D4s_v5", {"containers": False, "like": "canonical"}, "ubuntu-24_04-lts:server"),
        ("D4_v3", {"containers": False}, "ubuntu-24_04-lts:server-gen1"),
        ("D4_v3", {}, ""),
        ("D4s_v5", {"os": "windows"}, "windowsserver:2019-datacenter-with-containers"),
        ("D4s_v6", {"os": "windows"}, ""),
        ("D4ps_v5", {}, ""),
    ],
)
def test_the_image_of_a_size_does_all_that_is_needed(name: str, more: dict[str, bool], image: str) -> None:
    assert chosen(name, **more) == image  # type: ignore[arg-type]


def test_an_image_without_a_known_agent_is_not_proposed() -> None:
    linux = Image("a", "b", "c", "", "linux", vm_images.HPC)
    assert fit.image_for([linux], frozenset(), os="linux") is None


@pytest.mark.parametrize("family", ["A", "Av2", "D", "Dv2", "Dv3", "Ev3", "F", "G", "H", "NC", "NP", "NV", "A8-A11"])
def test_a_series_of_generation_1_starts_no_other_image(family: str) -> None:
    """Azure: Support for generation 2 VMs, the table of series."""
    one = next(size for size in sizes.SIZES if size.family == family)
    assert fit.only_generation_1(one)
    assert not fit.starts(one, vm_images.SUPPORTED[0])


@pytest.mark.parametrize("name", ["D4s_v3", "D4_v4", "E4s_v3", "B2ms", "GS1", "L8s_v2", "F4s", "D4s_v5", "NC4as_T4_v3"])
def test_a_series_of_both_generations_starts_both(name: str) -> None:
    both = [image for image in vm_images.SUPPORTED if image.offer == "ubuntu-24_04-lts"]
    assert [fit.starts(size(name), image) for image in both] == [True, True]
