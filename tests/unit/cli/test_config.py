"""`batchtrain config` as a person uses it: mistakes with their places, mended files, the merged view, older files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

POOL = """\
# yaml-language-server: $schema=pool.json
pool_specification:
  id: p
  vm_configuration:
    platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}
  vm_size: STANDARD_D4S_V55
  vm_count: {dedicated: 2}
  inter_node_communication_enabled: true
  vm_count: {dedicated: 3}
"""
JOBS = """\
job_specifications:
- id: my job
  auto_complete: "yes"
  priority: 5000
  max_wall_tme: 01:00:00
  tasks:
  - command: echo one
    priority: 3
    multi_instance:
      mpi: {runtime: openmpj, processes_per_node: 2}
  - {id: two, command: echo two}
"""
CONFIG = """\
global_resource:
  docker_images: []
"""
CREDENTIALS = "credentials:\n  batch: {account_service_url: https://a.b.batch.azure.com, account_key: aHVudGVyMg==}\n"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A directory with ten mistakes of ten kinds."""
    return written(tmp_path / "wrong", pool=POOL, jobs=JOBS, config=CONFIG, credentials=CREDENTIALS)


def written(place: Path, **files: str) -> Path:
    place.mkdir()
    for name, text in files.items():
        (place / f"{name}.yaml").write_text(text, encoding="utf-8")
    return place


def test_an_editor_gets_the_end_the_fix_and_the_page(wrong: Path, batchtrain: Any) -> None:
    found = json.loads(batchtrain("config", "validate", str(wrong), "-o", "json", code=2).stdout)["problems"]
    misspelt = next(problem for problem in found if problem["line"] == 5)
    assert (misspelt["endLine"], misspelt["endColumn"], misspelt["fix"]) == (5, 15, "max_wall_time")
    assert misspelt["see"] == "docs/reference/config.md#job_specifications"
    assert misspelt["path"] == "job_specifications[0].max_wall_tme"


def test_people_see_the_line_with_a_caret_under_the_word(wrong: Path, batchtrain: Any) -> None:
    said = batchtrain("config", "validate", str(wrong), code=2).stderr
    assert " 5 |   max_wall_tme: 01:00:00\n   |   ^^^^^^^^^^^^\n" in said
    assert "\x1b" not in said
    assert "aHVudGVyMg==" not in said


def test_fixing_answers_what_has_one_answer_and_says_so(wrong: Path, batchtrain: Any) -> None:
    said = batchtrain("config", "validate", str(wrong), "--fix", code=2).stderr
    assert (wrong / "jobs.yaml").read_text(encoding="utf-8") == JOBS.replace('"yes"', "true").replace(
        "max_wall_tme", "max_wall_time"
    ).replace("openmpj", "openmpi")
    assert (wrong / "pool.yaml").read_text(encoding="utf-8") == POOL
    assert "jobs.yaml:10:22: `openmpj` is now `openmpi` [value]" in said
    again = json.loads(batchtrain("config", "validate", str(wrong), "--fix", "-o", "json", code=2).stdout)
    assert again["mends"] == []


def test_the_merged_view_says_where_each_value_came_from(tmp_path: Path, batchtrain: Any) -> None:
    pool = POOL.replace("D4S_V55", "D4S_V5").replace("  vm_count: {dedicated: 3}\n", "")
    place = written(tmp_path / "right", pool=pool, credentials=CREDENTIALS)
    variables = {"BATCHTRAIN_SET": "pool_specification.task_slots_per_node=2"}
    words = (
        "config",
        "show",
        str(place),
        "--origin",
        "--set",
        "pool_specification.vm_count.low_priority=1",
        "--ignore",
    )
    shown = batchtrain(*words, "inter-node-mixed", environment=variables).stdout
    assert "  vm_size: STANDARD_D4S_V5  # pool.yaml:6\n" in shown
    assert "    low_priority: 1  # --set\n" in shown
    assert "  task_slots_per_node: 2  # BATCHTRAIN_SET\n" in shown
    assert "# default\n" in shown
    assert "aHVudGVyMg==" not in shown


def test_the_merged_view_is_json_on_request(tmp_path: Path, batchtrain: Any) -> None:
    pool = POOL.replace("D4S_V55", "D4S_V5").replace("  vm_count: {dedicated: 3}\n", "")
    place = written(tmp_path / "right", pool=pool, credentials=CREDENTIALS)
    shown = json.loads(batchtrain("config", "show", str(place), "--no-defaults", "--origin", "-o", "json").stdout)
    assert shown["values"]["pool_specification"]["vm_count"] == {"dedicated": 2}
    assert shown["origins"]["pool_specification"]["vm_count"] == {"dedicated": "pool.yaml:7"}
    assert shown["values"]["credentials"]["batch"]["account_key"] == "***"


OLD_POOL = """\
pool_specification:
  id: p  # as ever
  vm_configuration:
    platform_image: {publisher: OpenLogic, offer: CentOS-HPC, sku: '7.3'}
  vm_size: STANDARD_NC6
  vm_count: {dedicated: 2}
  inter_node_communication_enabled: true
  max_tasks_per_node: 1
"""


def test_migrating_shows_a_difference_and_writes_on_request(tmp_path: Path, batchtrain: Any) -> None:
    place = written(tmp_path / "old", pool=OLD_POOL, config="batch_shipyard: {storage_account_settings: a}\n")
    done = batchtrain("config", "migrate", str(place))
    shown = done.stdout
    assert "-  vm_size: STANDARD_NC6\n" in shown
    assert "`STANDARD_NC8AS_T4_V3`: 0.75 USD an hour instead of 0.90 USD" in done.stderr
    assert "+  task_slots_per_node: 1" in shown
    assert (place / "pool.yaml").read_text(encoding="utf-8") == OLD_POOL
    batchtrain("config", "migrate", str(place), "--write")
    pool = (place / "pool.yaml").read_text(encoding="utf-8")
    assert "  id: p  # as ever\n" in pool
    assert "STANDARD_NC6" not in pool
    assert (place / "config.yaml").read_text(encoding="utf-8").startswith("batchtrain: {")
    assert "nothing to change" in batchtrain("config", "migrate", str(place)).stderr


def test_migrating_lists_every_warning_that_its_own_changes_cause(tmp_path: Path, batchtrain: Any) -> None:
    more = (
        "  additional_node_prep_commands: {pre: [yum install -y wget]}\n  gpu: {nvidia_driver: {source: 'https://d'}}\n"
    )
    told = batchtrain("config", "migrate", str(written(tmp_path / "old", pool=OLD_POOL + more))).stderr
    left = told.split("left for you:")[1]
    assert "[image-gpu-driver]" in left and "[package-manager]" in left


def test_validating_older_files_names_the_command_that_replaces_what_is_older(tmp_path: Path, batchtrain: Any) -> None:
    place = written(tmp_path / "old", pool=OLD_POOL, config="batch_shipyard: {storage_account_settings: a}\n")
    assert f"batchtrain config migrate {place} --write` replaces" in batchtrain("config", "validate", str(place)).stderr
    batchtrain("config", "migrate", str(place), "--write")
    assert "config migrate" not in batchtrain("config", "validate", str(place)).stderr


def test_files_of_other_parts_of_batch_shipyard_are_answered(tmp_path: Path, batchtrain: Any) -> None:
    place = written(tmp_path / "old", pool=OLD_POOL, fs="remote_fs: {}\n", slurm="slurm: {}\n")
    found = json.loads(batchtrain("config", "validate", str(place), "-o", "json").stdout)["problems"]
    elsewhere = [(Path(p["file"]).name, p["line"], p["level"]) for p in found if p["rule"] == "elsewhere"]
    assert elsewhere == [("fs.yaml", 1, "warning"), ("slurm.yaml", 1, "warning")]


def test_nobody_needs_credentials_offline(tmp_path: Path, batchtrain: Any) -> None:
    credentials = (
        "credentials:\n  batch: {account_service_url: 'https://<account>.<region>.batch.azure.com', account_key: ''}\n"
        "  storage: {link: {account: '', account_key: YOUR_KEY}}\n"
    )
    pool = POOL.replace("D4S_V55", "D4S_V5").replace("  vm_count: {dedicated: 3}\n", "")
    jobs = "job_specifications: [{id: j, tasks: [{command: echo}]}]\n"
    place = written(tmp_path / "right", pool=pool, jobs=jobs, credentials=credentials)
    shown = json.loads(batchtrain("config", "validate", str(place), "-o", "json").stdout)
    places = [(problem["line"], problem["column"]) for problem in shown["problems"] if problem["rule"] == "placeholder"]
    assert (2, 32) in places
    assert {line for line, _ in places} == {2, 3}


def test_import_writes_a_recipe_and_names_what_it_lacks(batchtrain: Any, tmp_path: Path) -> None:
    machine = {
        "imageReference": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"},
        "nodeAgentSKUId": "batch.node.ubuntu 24.04",
    }
    pool = {"id": "p", "vmSize": "STANDARD_D2S_V5", "virtualMachineConfiguration": machine, "targetDedicatedNodes": 1}
    for name, document in (("pool", {**pool, "applicationPackageReferences": [{"applicationId": "a"}]}),
                           ("tasks", [{"id": "t", "commandLine": "/bin/sh -c true"}])):  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    files = (str(tmp_path / "pool.json"), str(tmp_path / "tasks.json"))
    made = batchtrain("config", "import", *files, "--to", str(tmp_path / "recipe"))
    assert made.stdout == f"wrote pool.yaml, jobs.yaml to {tmp_path / 'recipe'}\n"
    assert "pool.json: applicationPackageReferences: a recipe brings programs by `source`" in made.stderr
    batchtrain("config", "validate", str(tmp_path / "recipe"))
