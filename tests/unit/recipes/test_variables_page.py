"""The page of environment variables says what launches and the emulator set."""

from __future__ import annotations

import re

import pytest

from batchtrain.frameworks import FRAMEWORKS
from batchtrain.runtime.launch.environment import environment_of
from tests import environments, variables_page
from tests.unit.runtime.test_framework_variables import GENERAL, gangs

SOURCES = sorted((environments.ROOT / "batchtrain" / "emulator").glob("*.py"))


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_process_has_the_variables_of_the_page(name: str) -> None:
    listed = {name for names in variables_page.EVERY_PROCESS for name in names.split(", ")}
    listed |= {"AZ_BATCH_HOST_LIST", "AZ_BATCHAI_MPI_MASTER_NODE", "AZUREML_CR_NODE_RANK"}
    told = {told for gang in gangs(name) for process in gang.processes for told in environment_of(gang, process)}
    general = {one for one in told if GENERAL.fullmatch(one) and not re.fullmatch(r"BATCHTRAIN_\w+_HOSTS", one)}
    assert general - {one for one in general if one in FRAMEWORKS[name].why_reserved()} <= listed | {"BATCHTRAIN_RAY"}


def test_what_the_emulator_sets_for_tasks_is_on_the_page() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    named = set(re.findall(r'"(AZ_BATCH_[A-Z_]+[A-Z])"', text))
    assert named
    assert named - {"AZ_BATCH_APP_PACKAGE_ID_VERSION"} <= set(variables_page.BATCH)
