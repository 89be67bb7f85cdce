"""`doctor` and `catalog refresh` as a person starts them: on the embedded service, and signed in by token over https
against stand-ins for Entra ID and Azure Resource Manager."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from batchtrain.emulator import server, tokens, wire
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests import management
from tests.certificates import issue
from tests.emulation import FakeMachine
from tests.management import Answers, Management

from .conftest import pool_file

pytestmark = pytest.mark.process

POOL = pool_file("train", size="STANDARD_D4S_V5", vm_count="{dedicated: 30}")


def results(printed: str) -> dict[str, str]:
    return {one["check"]: one["result"] for one in json.loads(printed)}


class Azure(NamedTuple):
    """A Batch account behind https and tokens, with what stands for Azure around it."""

    batch: Emulator
    around: Management
    answers: Answers
    environment: dict[str, str]
    directory: Path


@pytest.fixture
def azure(tmp_path: Path) -> Iterator[Azure]:
    certificates = issue(tmp_path / "certificates")
    settings = Settings(tmp_path / "batch", port=0, certificate=certificates.certificate,
                        private_key=certificates.private_key)  # fmt: skip

    def token(scope: str) -> str:
        assert scope.endswith("/.default")
        return tokens.issue(batch.key, "batchtrain", wire.AUDIENCE, server.clock())

    with Emulator(settings, FakeMachine.open) as batch:
        answers = management.answers("127.0.0.1")
        with management.serve(answers, certificates) as around:
            answers.update(management.entra("tenant", around.endpoint, token))
            directory = tmp_path / "recipe"
            directory.mkdir()
            (directory / "pool.yaml").write_text(POOL)
            (directory / "credentials.yaml").write_text(
                "credentials:\n"
                "  aad:\n"
                f"    authority_url: {around.endpoint}\n"
                "    directory_id: tenant\n"
                "    application_id: app\n"
                "    auth_key: s3cret\n"
                f"  batch: {{account_service_url: '{batch.endpoint}', account: batchtrain}}\n"
                "  management:\n"
                f"    aad: {{endpoint: '{around.endpoint}'}}\n"
            )
            environment = {"BATCHTRAIN_CA": str(certificates.ca), "XDG_CONFIG_HOME": str(tmp_path / "config")}
            yield Azure(batch, around, answers, environment, directory)


def test_the_embedded_service_is_checked_as_far_as_it_goes(batchtrain: Any, root: Path) -> None:
    found = results(batchtrain("doctor", str(root / "recipes" / "mpi4py-MPICH"), "--local", "-o", "json").stdout)
    assert {name for name, result in found.items() if result == "ok"} == {
        "account", "clock", "pools", "jobs", "image", "registry", "VM size", "cost", "isolation",
    }  # fmt: skip
    assert {found[name] for name in ("account settings", "region", "quota", "spot quota")} == {"not checked"}


def test_signed_in_by_token_everything_is_checked(batchtrain: Any, azure: Azure) -> None:
    done = batchtrain("doctor", str(azure.directory), "-o", "json", code=4, environment=azure.environment)
    found = results(done.stdout)
    assert [name for name, result in found.items() if result != "ok"] == ["quota"]  # 120 cores of 100
    assert "signed in by client secret" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_other_commands_sign_in_by_the_same_token(batchtrain: Any, azure: Azure) -> None:
    done = batchtrain("pool", "list", "--configdir", str(azure.directory), environment=azure.environment)
    assert "no pools" in done.stderr


def test_refresh_writes_what_the_tables_lack_and_the_next_command_knows_it(batchtrain: Any, azure: Azure) -> None:
    def run(*words: str, code: int = 0) -> str:
        done = batchtrain(*words, "--configdir", str(azure.directory), environment=azure.environment, code=code)
        printed: str = done.stdout
        return printed

    run("catalog", "sizes", "ND256isr_R300_v7", code=3)
    assert "Standard_ND256isr_R300_v7, Standard_D2_v2" in run("catalog", "refresh")
    shown = json.loads(run("catalog", "sizes", "ND256isr_R300_v7", "-o", "json"))
    assert [(size["cores"], size["gpus"], size["rdma"]) for size in shown] == [(256, 8, "sr-iov")]
    run("catalog", "refresh")  # its own file is replaced without a question


def test_refresh_asks_before_it_replaces_what_a_person_wrote(batchtrain: Any, azure: Azure, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("sizes: []\n")
    words = ("catalog", "refresh", "--to", str(mine), "--configdir", str(azure.directory))
    assert "was not made by this command" in batchtrain(*words, code=2, environment=azure.environment).stderr
    assert mine.read_text() == "sizes: []\n"
    batchtrain(*words, "-y", environment=azure.environment)
    assert mine.read_text().startswith("# made by `batchtrain catalog refresh`")
