"""A task's files through storage: a real Azurite, the real blob SDK, a link that only reads, on both nodes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from .conftest import wait_until

ROOT = Path(__file__).resolve().parents[2]
AZURITE = "azurite@3.37.0"
KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # Azurite's own, public
)

pytestmark = [pytest.mark.slow, pytest.mark.mpi, pytest.mark.process]


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The blob endpoint of an Azurite; installed below .cache/ at first use."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed, and Azurite comes from npm")
    home = ROOT / ".cache" / "azurite"
    home.mkdir(parents=True, exist_ok=True)
    program = home / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"
    with FileLock(home / "lock"):
        if not program.exists():
            subprocess.run(["npm", "install", "--silent", "--prefix", home, AZURITE], check=True)
    ports = [free_port() for _ in range(3)]
    words = [f"--{kind}Port={port}" for kind, port in zip(("blob", "queue", "table"), ports, strict=True)]
    location = tmp_path_factory.mktemp("azurite")
    process = subprocess.Popen(
        ["node", program, "--silent", "--skipApiVersionCheck", "--loose", f"--location={location}", *words]
    )
    try:
        assert wait_until(lambda: answers(ports[0]), 30)
        yield f"http://127.0.0.1:{ports[0]}/devstoreaccount1"
    finally:
        process.kill()  # its servers close at once, the process itself takes its time
        process.wait(10)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as knock:
        return knock.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def recipe(azurite: str, tmp_path: Path) -> Path:
    """The MPICH recipe with a storage account, and more source than a request could carry."""
    place = Path(shutil.copytree(ROOT / "recipes" / "mpi4py-MPICH", tmp_path / "recipe"))
    config = place / "config" / "config.yaml"
    config.write_text(
        config.read_text(encoding="utf-8") + "batchtrain: {storage_account_settings: link}\n", encoding="utf-8"
    )
    (place / "config" / "credentials.yaml").write_text(
        "credentials:\n  storage:\n    link:\n      account: devstoreaccount1\n"
        f"      account_key: {KEY}\n      endpoint: {azurite}\n",
        encoding="utf-8",
    )
    (place / "src" / "large.bin").write_bytes(os.urandom(400_000))
    return place


def test_every_instance_gets_files_too_large_for_a_request(recipe: Path, trained: Any) -> None:
    command = "job_specifications[0].tasks[0].command=wc -c $AZ_BATCH_TASK_SHARED_DIR/large.bin"
    done = trained("run", str(recipe), "--local", "--set", command)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["400000"] * 4


def test_a_plan_shows_neither_the_key_nor_a_link(recipe: Path, trained: Any) -> None:
    shown = trained("config", "plan", str(recipe), "-o", "json").stdout
    assert KEY not in shown
    assert "sig=" not in shown
    assert "{{sas:link/batchtrain-files/" in shown
