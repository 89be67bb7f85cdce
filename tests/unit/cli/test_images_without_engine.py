"""`batchtrain images` where there is no engine, or no docker command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import needs

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    "command", [("build", "base"), ("check", "a/b:1"), ("mirror", "a/b:1", "--to", "x.y"), ("save", "a/b:1", "f.tar")]
)
def test_without_an_engine_it_is_said_how_to_get_one(batchtrain: Any, command: tuple[str, ...]) -> None:
    needs.program("docker")
    said = batchtrain("images", *command, code=5, environment={"DOCKER_HOST": "unix:///no/engine"}).stderr
    assert "no container engine answers" in said
    assert "DOCKER_HOST" in said
    assert "?." not in said


def test_without_the_docker_command_it_is_said_what_to_install(batchtrain: Any, tmp_path: Path) -> None:
    said = batchtrain("images", "check", "a/b:1", code=2, environment={"PATH": str(tmp_path)}).stderr
    assert "no `docker` command on PATH" in said


def test_the_images_and_their_bases_are_listed_without_an_engine(batchtrain: Any) -> None:
    assert "horovod-pytorch" in batchtrain("images", "list").stdout
    assert "@sha256:" in batchtrain("images", "list", "--bases").stdout


def test_an_unknown_image_is_refused_before_an_engine_is_looked_for(batchtrain: Any) -> None:
    said = batchtrain("images", "build", "openmip", code=2, environment={"DOCKER_HOST": "unix:///no/engine"}).stderr
    assert "did you mean openmpi" in said
