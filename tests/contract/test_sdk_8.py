"""azure-batch 8.0 and 9.0 (service versions of 2019 and 2020), which Batch Shipyard and its like are built on."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator.serving import Emulator
from tests import environments
from tests.contract.conftest import raw

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "sdk_8.py"
NOT_ASKED_FOR: dict[str, str] = {
    "pool": "application_licenses application_package_references auto_scale_evaluation_interval auto_scale_formula"
    " auto_scale_run certificate_references cloud_service_configuration mount_configuration network_configuration"
    " resize_errors start_task user_accounts",
    "node": "errors recent_tasks start_task start_task_info",
    "job": "common_environment_settings display_name job_manager_task job_preparation_task job_release_task metadata"
    " network_configuration previous_state previous_state_transition_time",
    "job.execution_info": "end_time scheduling_error terminate_reason",
    "task.execution_info": "container_info failure_info last_requeue_time last_retry_time",
}
"""What the models rightly lack: nobody gave it, and nothing of the kind happened."""
WHOLE = (
    "pool.stats", "pool.stats.usage_stats", "pool.stats.resource_stats", "pool.task_scheduling_policy",
    "node.node_agent_info", "node counts", "node counts.dedicated", "node counts.low_priority", "task counts",
    "job.stats", "job.constraints", "task.stats", "task.constraints", "task.node_info", "all jobs", "all pools",
    "all pools.usage_stats", "all pools.resource_stats",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("sdk", "version"), [("8", "2019-08-01.10.0"), ("9", "2020-03-01.11.0")])
def test_an_old_sdk_finds_its_models_whole(emulator: Emulator, sdk: str, version: str) -> None:
    saw = run(sdk, emulator)
    assert saw["api version"] == version
    assert {name: saw["missing"][name] for name in WHOLE} == {name: [] for name in WHOLE}
    for name, missing in NOT_ASKED_FOR.items():
        assert saw["missing"][name] == missing.split()
    assert (saw["slots"], saw["disk"], saw["certificates"]) == (
        2,
        "premium_lrs",
        None,
    )  # recorded: only after an update
    assert saw["listed"] == [["pool", 2, None]]
    assert (saw["idle"], saw["counts"], saw["all jobs"]) == (1, [0, 0, 2, 1, 1], [1, 1])


def run(sdk: str, emulator: Emulator) -> Any:
    """What the script saw with an SDK on its own Python; the test is skipped, with the reason, where there is none."""
    try:
        python = environments.prefix(f"azure-batch-{sdk}") / "bin" / "python"
    except environments.Missing as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [python, SCRIPT, emulator.endpoint, emulator.account, emulator.key],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["job", "pool"])
def test_statistics_of_the_account_are_there_until_2022(emulator: Emulator, kind: str) -> None:
    status, _, document = raw(emulator, "GET", f"/lifetime{kind}stats?api-version=2022-10-01.16.0")
    assert (status, document["url"]) == (200, f"{emulator.endpoint}/lifetime{kind}stats")
    status, _, document = raw(emulator, "GET", f"/lifetime{kind}stats?api-version=2023-05-01.17.0")
    assert (status, document["code"]) == (404, "ResourceNotFound")
