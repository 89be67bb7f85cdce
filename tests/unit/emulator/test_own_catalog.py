from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from batchtrain.catalog import vm_images
from batchtrain.catalog.sizes import VmSize
from batchtrain.emulator import local_service, mapped_images, own_catalog, pools, server
from batchtrain.emulator.interface import Size
from tests.emulation import POOL, Stage

NEW = VmSize("Standard_Q12z_v9", "Q", 12, 4)
CORRECTED = VmSize("Standard_D2s_v3", "D", 4, 8)


def test_a_pool_of_an_unknown_size_is_refused_until_the_users_catalogue_has_it(stage: Stage, tmp_path: Path) -> None:
    stage.world.find_size = partial(own_catalog.size_of, tmp_path)
    body = {**POOL, "vmSize": "Standard_Q12z_v9"}
    assert stage.refusal(pools.create_pool, body=body).details["PropertyName"] == "vmSize"

    own_catalog.add(tmp_path, [NEW])
    assert stage.do(pools.create_pool, body=body).status == 201


def test_a_size_of_the_user_corrects_that_of_the_tables(tmp_path: Path) -> None:
    assert own_catalog.size_of(tmp_path, "standard_d2s_v3") == Size(2)
    own_catalog.add(tmp_path, [CORRECTED])
    own_catalog.add(tmp_path, [NEW])
    assert own_catalog.size_of(tmp_path, "standard_d2s_v3") == Size(4)


def test_an_image_of_the_user_is_replaced_by_one_of_the_same_name(tmp_path: Path) -> None:
    image = vm_images.EVERY[0]._replace(sku="mine")
    own_catalog.add(tmp_path, (), (image,))
    other = image._replace(node_agent="batch.node.ubuntu 99.04")
    own_catalog.add(tmp_path, (), (other,))
    assert own_catalog.images(tmp_path)[: -len(vm_images.EVERY)] == (other,)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ([], "is not there"),
        (["env/readme"], "is no environment: it has no bin directory"),
        (["env/bin/", "env/readme"], "is no environment: its bin directory is empty"),
        (["env/bin/python"], ""),
    ],
)
def test_a_directory_that_stands_for_an_image_has_programs(tmp_path: Path, files: list[str], problem: str) -> None:
    for name in files:
        path = tmp_path / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.touch()
    assert mapped_images.problem(tmp_path / "env") == problem


def test_images_are_mapped_beside_a_client_and_before_the_emulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_service, "_USED", {})
    local_service.use(tmp_path / "emulator")  # a client holds a lock of the directory
    assert not mapped_images.unmap(tmp_path / "emulator", "example/train")
    server.make_directory(tmp_path / "emulator")  # what the mapping left there is an emulator's


def test_images_of_the_catalogue_and_mapped_images_do_not_share_a_file(tmp_path: Path) -> None:
    mapped_images.map_image(tmp_path, "example/train", tmp_path)
    image = vm_images.EVERY[0]
    own_catalog.add(tmp_path, (), (image,))
    assert own_catalog.images(tmp_path)[0] == image
    assert list(mapped_images.list_images(tmp_path)) == ["example/train"]


def test_images_that_are_mapped_at_once_are_all_mapped_listed_and_unmapped(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: mapped_images.map_image(tmp_path, f"docker.io/a/{number}", tmp_path), range(40)))
    assert mapped_images.list_images(tmp_path)["docker.io/a/7"] == mapped_images.Mapped(tmp_path)
    assert len(mapped_images.list_images(tmp_path)) == 40
    assert mapped_images.prefix_of(tmp_path, "a/7:latest") == str(tmp_path)
    assert mapped_images.prefix_of(tmp_path, "a/7:2") is None
    assert [mapped_images.unmap(tmp_path, "a/7") for _ in range(2)] == [True, False]
