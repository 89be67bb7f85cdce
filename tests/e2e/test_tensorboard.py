"""`batchtrain jobs tensorboard` shows the metrics of a job in the real TensorBoard."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import until

from .conftest import Shell, pool_file

POOL = pool_file("p")
JOBS = """\
job_specifications:
- id: j
  tasks:
  - id: train
    command: >-
      for step in 1 2 3; do echo "{\\"step\\": $step, \\"loss\\": 0.$step}"; done
"""
pytestmark = pytest.mark.process


@pytest.fixture
def trained(batchtrain: Shell, tmp_path: Path) -> Shell:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe/pool.yaml").write_text(POOL, encoding="utf-8")
    (tmp_path / "recipe/jobs.yaml").write_text(JOBS, encoding="utf-8")
    batchtrain.environment.update(BATCHTRAIN_LOCAL="1", BATCHTRAIN_CONFIGDIR=str(tmp_path / "recipe"))
    batchtrain("pool", "add")
    batchtrain("jobs", "add", "--follow")
    return batchtrain


@pytest.mark.framework
def test_tensorboard_has_the_curves_of_a_job_also_after_the_job_is_gone(
    trained: Shell, framework_environment: Callable[[str], Path]
) -> None:
    programs = framework_environment("tensorflow") / "bin"
    trained.environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    assert _tags(trained)
    trained("jobs", "del", "j", "--yes")
    assert _tags(trained)


def _tags(shell: Shell) -> bool:
    """Whether TensorBoard lists the loss of the task; ends TensorBoard by Ctrl-C."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    process = shell.start("jobs", "tensorboard", "j", "--port", str(port))

    def listed() -> bool:
        assert process.poll() is None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/data/plugin/scalars/tags") as answer:
                return "loss" in json.dumps(json.load(answer))
        except OSError:
            return False

    until(listed)
    process.send_signal(signal.SIGINT)
    process.communicate()
    return process.returncode in (0, 130)
