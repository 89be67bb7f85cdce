"""Edits that answer what has one answer, and touch nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from batchtrain import state_files
from batchtrain.config import document, fixes, load
from batchtrain.config.types import RENAMED, WRAPPED, Renamed, Wrapped

POOL = """\
# the nodes
pool_specification:   # all of them
  id: p
  vm_configuration:
    platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404', native: true}
  vm_size: 'STANDARD_D4S_V5'  # four cores
  vm_count: {dedicated: 2}
  inter_node_communication_enabled: true
"""
JOBS = "job_specifications:\n- {id: j, tasks: [{command: echo, docker_image: a/b}], allow_run_on_missing_image: true}\n"


def judge(files: fixes.Files) -> load.Examined:
    return load.examine(Path("somewhere"), files, most=10**9)


def fixed(text: str, name: str = "pool.yaml") -> str:
    done = fixes.fix({name: text.encode()}, judge)
    return done.files.get(name, text.encode()).decode()


ONE_ANSWER = {
    "a misspelt key": ("vm_size:", "vm_sise:"),
    "a key in camel case": ("inter_node_communication_enabled", "interNodeCommunicationEnabled"),
    "a misspelt key in a flow mapping": ("{dedicated: 2", "{dedicatd: 2"),
    "a misspelt section": ("pool_specification:", "pool_specifications:"),
    "a yes": ("enabled: true", "enabled: yes"),
    "a quoted on": ("enabled: true", 'enabled: "on"'),
    "a number with an underscore": ("dedicated: 2", "dedicated: 0_2"),
    "a number with spaces in quotes": ("dedicated: 2", "dedicated: ' 2 '"),
    "a number with a plus": ("dedicated: 2", "dedicated: +2"),
    "a quoted number": ("dedicated: 2", "dedicated: '2'"),
    "a quoted truth": ("enabled: true", 'enabled: "true"'),
    "a number with zeros": ("dedicated: 2", "dedicated: 002"),
}


@pytest.mark.parametrize("kind", ONE_ANSWER)
def test_what_has_one_answer_is_answered_and_the_rest_stays(kind: str) -> None:
    right, wrong = ONE_ANSWER[kind]
    assert fixed(POOL.replace(right, wrong)) == POOL


def test_text_keeps_its_quotes_though_it_looks_like_a_number() -> None:
    assert fixed(POOL + "  metadata: {a: '1'}\n") == POOL + "  metadata: {a: '1'}\n"
    assert fixed(POOL.replace("id: p", "id: '1'")) == POOL.replace("id: p", "id: '1'")


def test_a_renamed_property_gets_todays_name() -> None:
    text = POOL + "  max_tasks_per_node: 1 # one\n"
    assert fixed(text) == text.replace("max_tasks_per_node", "task_slots_per_node")


def test_a_value_of_an_enumeration_keeps_its_quotes() -> None:
    assert fixed(POOL + "  node_fill_type: 'PACK'\n") == POOL + "  node_fill_type: 'pack'\n"


def test_line_endings_and_the_mark_at_the_start_stay() -> None:
    content = b"\xef\xbb\xbf" + POOL.replace("vm_size", "vm_sise").replace("\n", "\r\n").encode()
    done = fixes.fix({"pool.yaml": content}, judge)
    assert done.files["pool.yaml"] == content.replace(b"vm_sise", b"vm_size")


def test_json_is_fixed_too() -> None:
    pool = '"id": "\\ud83d\\ude00", "vm_sise": "x", "inter_node_communication_enabled": "yes"'
    text = f'{{"pool_specification": {{\n\t{pool}}}}}'
    wanted = text.replace("vm_sise", "vm_size").replace('"yes"', "true")
    assert fixed(text, "pool.json") == wanted


def test_two_mistakes_one_below_the_other_are_both_fixed() -> None:
    text = POOL.replace("vm_count: {dedicated", "vm_cuont: {dedicatd")
    assert fixed(text) == POOL


def test_each_edit_is_reported_with_its_position_and_a_second_run_finds_nothing() -> None:
    done = fixes.fix({"pool.yaml": POOL.replace("vm_size", "vm_sise").encode()}, judge)
    assert [str(one) for one in done.applied] == ["pool.yaml:6:3: `vm_sise` is now `vm_size` [unknown-key]"]
    assert fixes.fix(done.files, judge).applied == ()


@pytest.mark.parametrize(
    "text",
    [
        POOL + "  vm_cuont: {}\n",  # vm_count stands there already
        POOL.replace("vm_count", "vm_cuont") + "  vm_coutn: {}\n",  # two for one
        POOL.replace("dedicated: 2", "dedicated: two"),
        POOL.replace("dedicated: 2", "dedicated: [2]"),
        POOL.replace("dedicated: 2", "dedicated: 9_999_999"),  # out of range even so
        POOL + "  max_tasks_per_node: 1\n  task_slots_per_node: 1\n",
        POOL + "  priority: 5\n",
    ],
)
def test_what_has_no_single_answer_is_left_alone(text: str) -> None:
    assert fixed(text) == text


def test_the_value_of_an_alias_is_fixed_once() -> None:
    text = "job_specifications:\n- id: j\n  tasks:\n  - &t {comand: echo}\n  - *t\n"
    assert fixed(text, "jobs.yaml") == text.replace("comand", "command")


def test_a_file_is_replaced_at_once_and_keeps_its_mode(tmp_path: Path) -> None:
    file, link = tmp_path / "pool.yaml", tmp_path / "link.yaml"
    file.write_text("a", encoding="utf-8")
    file.chmod(0o640)
    link.symlink_to(file)
    state_files.replace(link, b"b")
    assert link.is_symlink()
    assert file.read_bytes() == b"b"
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [link, file]


# --- migrate --------------------------------------------------------------------------------------------------------

OLD_POOL = """\
# written for Batch Shipyard
pool_specification:
  id: p
  vm_configuration:
    platform_image:
      publisher: OpenLogic  # CentOS
      offer: CentOS-HPC
      sku: 7.3
      version: 7.3.20171002
  vm_size: STANDARD_NC6
  vm_count: {dedicated: 2}
  inter_node_communication_enabled: true
  max_tasks_per_node: 1
"""
OLD_CONFIG = "batch_shipyard: {storage_account_settings: link}\n"
OLD_JOBS = """\
job_specifications:
- id: j
  tasks:
  - command: echo
    multi_instance:
      num_instances: pool_specification_vm_count
      mpi: {runtime: intelmpi_ofa}  # with DAPL
"""
OLD = {"pool.yaml": OLD_POOL.encode(), "config.yaml": OLD_CONFIG.encode(), "jobs.yaml": OLD_JOBS.encode()}


def test_older_words_sizes_and_images_become_todays_and_comments_stay() -> None:
    done = fixes.migrate(OLD, judge)
    assert done.files["config.yaml"].decode() == "batchtrain: {storage_account_settings: link}\n"
    assert done.files["jobs.yaml"].decode() == OLD_JOBS.replace("intelmpi_ofa", "intelmpi-ofa").replace(
        "pool_specification_vm_count", "pool_specification_vm_count_dedicated"
    )
    pool = done.files["pool.yaml"].decode()
    assert "publisher: microsoft-dsvm  # CentOS\n" in pool
    assert "sku: '2404'\n      version: latest\n" in pool
    assert "vm_size: STANDARD_NC8AS_T4_V3\n" in pool
    assert "task_slots_per_node: 1\n" in pool
    assert pool.startswith("# written for Batch Shipyard\n")


def test_a_migrated_file_has_no_deprecated_names() -> None:
    rules = {problem.rule for problem in fixes.migrate(OLD, judge).left.problems}
    assert rules.isdisjoint({"renamed", "size-retired", "image-retired"})


PLAIN = "{publisher: Canonical, offer: UbuntuServer, sku: 16.04-LTS, version: latest}"


def migrated(image: str, size: str = "STANDARD_D2_V3", *, containers: bool = True, gang: bool = False) -> str:
    """The pool file after a migration; the files are one task's."""
    pool = POOL.replace("{publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404', native: true}", image)
    docker = ", docker_image: a/b" if containers else ""
    several = ", multi_instance: {num_instances: 2, mpi: {runtime: openmpi}}" if gang else ""
    jobs = f"job_specifications:\n- {{id: j, tasks: [{{command: echo{docker}{several}}}]}}\n"
    files = {"pool.yaml": pool.replace("STANDARD_D4S_V5", size).encode(), "jobs.yaml": jobs.encode()}
    return fixes.migrate(files, judge).files.get("pool.yaml", files["pool.yaml"]).decode()


def test_a_pool_of_containers_gets_an_image_with_an_engine_and_says_native() -> None:
    text = migrated(PLAIN, "STANDARD_D4S_V5")
    assert "{native: true, publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404', version: latest}" in text


def test_a_pool_without_containers_gets_a_plain_image() -> None:
    text = migrated(PLAIN, "STANDARD_D4S_V5", containers=False)
    assert "offer: ubuntu-24_04-lts, sku: server, version" in text
    assert "native" not in text


def test_a_pool_with_gpus_gets_an_image_with_their_driver() -> None:
    assert "offer: ubuntu-hpc" in migrated(PLAIN, "STANDARD_NC4AS_T4_V3", containers=False)


def test_a_pool_on_infiniband_gets_an_image_with_its_drivers() -> None:
    centos = "{publisher: OpenLogic, offer: CentOS, sku: '7.7', version: latest}"
    text = migrated(centos, "STANDARD_HB120RS_V3", containers=False, gang=True)
    assert "-hpc" in text


@pytest.mark.parametrize("size", ["STANDARD_HB120RS_V3", "STANDARD_D4S_V5"])
def test_an_hpc_image_becomes_the_next_one_with_its_agent(size: str) -> None:
    old = "{publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2204', node_agent: batch.node.ubuntu 22.04}"
    text = migrated(old, size, containers=False)
    assert "offer: ubuntu-hpc, sku: '2404', node_agent: batch.node.ubuntu 24.04" in text


def test_windows_with_containers_stays_so() -> None:
    windows = "{publisher: MicrosoftWindowsServer, offer: WindowsServerSemiAnnual, sku: Datacenter-Core-1709}"
    assert "with-containers" in migrated(windows, "STANDARD_D4S_V5")


@pytest.mark.parametrize("sku", ["2022-datacenter", "2016-datacenter"])
def test_a_retired_size_stays_if_no_image_starts_on_todays_size(sku: str) -> None:
    windows = f"{{publisher: microsoftwindowsserver, offer: windowsserver, sku: {sku}}}"
    assert "vm_size: 'STANDARD_NC24RS_V3'" in migrated(windows, "STANDARD_NC24RS_V3", containers=False)


def test_native_is_added_in_the_form_of_the_file_and_once() -> None:
    done = fixes.migrate({**OLD, "jobs.yaml": JOBS.encode()}, judge)
    pool = done.files["pool.yaml"].decode()
    assert "    platform_image:\n      native: true\n      publisher: microsoft-dsvm  # CentOS\n" in pool
    assert "pool.yaml:6:7: `native: true` is added [containers-native]" in [str(one) for one in done.applied]
    text = '{"pool_specification": {"vm_configuration": {"platform_image": {\n  "publisher": "x"}}, "id": "p"}}'
    parsed = document.parse("pool.json", text.encode())[0]
    path = ("pool_specification", "vm_configuration", "platform_image", "publisher")
    assert fixes._before(parsed, path, "native", "true").text == '"native": true,\n  '


@pytest.mark.parametrize("name", ["pool.yaml", "pool.json"])
def test_an_image_at_its_place_of_version_1_is_moved_replaced_and_native(name: str) -> None:
    """Each edit waits for the one that makes its place: a `native` at another level would break the file."""
    pool = '{"pool_specification": {\n"id": "p", "vm_size": "STANDARD_D2_V2", "vm_count": 2,\n"publisher": "Canonical",'
    pool += '\n"offer": "UbuntuServer",\n"sku": "16.04-LTS"\n}}\n'
    result = fixes.migrate({name: pool.encode(), "jobs.yaml": JOBS.encode()}, judge)
    image = '{"sku": "2404", "offer": "ubuntu-hpc", "native": true, "publisher": "microsoft-dsvm"}'
    assert f'"vm_configuration": {{"platform_image": {image}}}' in result.files[name].decode()
    assert [problem for problem in result.left.problems if problem.level == "error"] == []
    assert f'{name}:4:1: `"offer": "UbuntuServer"` is removed here [renamed]' in map(str, result.applied)


def test_a_native_that_is_off_is_switched_on() -> None:
    assert "native: true}" in migrated(PLAIN.replace("}", ", native: false}"), "STANDARD_D4S_V5")


def test_what_a_new_gpu_wants_of_programs_is_left_to_the_person() -> None:
    (note,) = fixes.migrate(OLD, judge).notes
    assert note.message.startswith("STANDARD_NC8AS_T4_V3 is in place of STANDARD_NC6. It needs a framework built for")
    assert (note.rule, note.line) == ("size-retired", 10)


def test_a_size_comes_with_both_prices_and_one_that_costs_more_than_twice_is_left_with_its_image() -> None:
    edits = {fix.old: str(fix) for fix in fixes.migrate(OLD, judge).applied}
    assert "`STANDARD_NC8AS_T4_V3`: 0.75 USD an hour instead of 0.90 USD" in edits["STANDARD_NC6"]
    dear = OLD_POOL.replace("STANDARD_NC6", "STANDARD_NC24R")
    result = fixes.migrate({**OLD, "pool.yaml": dear.encode()}, judge)
    assert result.files["pool.yaml"].decode() == dear.replace("max_tasks_per_node", "task_slots_per_node")
    (problem,) = (problem for problem in result.left.problems if problem.rule == "size-retired")
    assert "5.6 times the price, so choose a size yourself" in problem.message


def test_a_size_without_gpus_leaves_nothing_to_say() -> None:
    pool = OLD_POOL.replace("STANDARD_NC6", "STANDARD_HC44rs")
    assert fixes.migrate({**OLD, "pool.yaml": pool.encode()}, judge).notes == ()


@pytest.mark.parametrize("pool", [POOL, POOL.replace("vm_count", "vm_cuont")], ids=["current names", "a mistake"])
def test_migrating_leaves_current_names_and_mistakes_alone(pool: str) -> None:
    assert fixes.migrate({"pool.yaml": pool.encode(), "jobs.yaml": JOBS.encode()}, judge).files == {}


def test_a_difference_masks_secrets() -> None:
    shown = fixes.difference({"a": b"x: 1\npassword: hunter2\n"}, {"a": b"y: 1\npassword: hunter2\n"})
    assert "+y: 1" in shown.splitlines()
    assert "hunter2" not in shown


OLDER_SHAPES = {
    "a number for a mapping": ("pool.yaml", "vm_count: 2  # two", "vm_count: {dedicated: 2}  # two"),
    "a list for a mapping": (
        "pool.yaml",
        "additional_node_prep_commands:\n  - echo a  # first\n  - echo b\n  id: p",
        "additional_node_prep:\n    commands:\n      post:\n      - echo a  # first\n      - echo b\n  id: p",
    ),
    "a list of one item for a mapping": (
        "pool.yaml",
        "additional_node_prep_commands:\n  - echo a\n  id: p",
        "additional_node_prep:\n    commands:\n      post:\n      - echo a\n  id: p",
    ),
    "a list for a mapping that has other properties": (
        "pool.yaml",
        "additional_node_prep_commands:\n  - echo a\n  - 'echo: b'\n  additional_node_prep: {max_task_retries: 1}",
        'additional_node_prep: {commands: {"post": ["echo a", "echo: b"]}, max_task_retries: 1}',
    ),
    "a mapping that is deeper today": (
        "pool.yaml",
        "additional_node_prep_commands:\n    pre:\n    - echo a\n  id: p",
        "additional_node_prep:\n    commands:\n      pre:\n      - echo a\n  id: p",
    ),
    "properties of a mapping of today": (
        "pool.yaml",
        "publisher: a  # whose\n  offer: b\n  sku: '1'\n  id: p",
        "vm_configuration: {platform_image: {sku: '1', offer: b, publisher: a}}  # whose\n  id: p",
    ),
    "the same in JSON": (
        "pool.json",
        '"publisher": "a", "offer": "b", "sku": "1"',
        '"vm_configuration": {"platform_image": {"sku": "1", "offer": "b", "publisher": "a"}}',
    ),
    "a key below an older key": (
        "pool.yaml",
        "ssh_docker_tunnel:\n    username: u\n    generate_tunnel_script: true",
        "ssh:\n    username: u\n    generate_tunnel_script: true",  # which has no effect under either name
    ),
    "a value with another word": ("jobs.yaml", "- gpu: true", "- gpus: all"),
    "an older word in JSON": ("jobs.json", '"gpu": false', '"gpus": "disable"'),
    "a key that is two today": (
        "jobs.yaml",
        "- input_data:\n      azure_storage:\n      - file_share: a\n        destination: b",
        "- input_data:\n      azure_storage:\n      - is_file_share: true\n        remote_path: a\n"
        "        local_path: b",
    ),
    "a key that is deeper today, in lists": (
        "config.yaml",
        "singularity_images:\n    signed:\n    - {image: a, key_fingerprint: f, key_file: /k}",
        "singularity_images:\n    signed:\n    - {image: a, signing_key: {file: /k, fingerprint: f}}",
    ),
    "texts for mappings": (
        "config.yaml",
        "singularity_images: [a, b]",
        "singularity_images: {unsigned: [{image: a}, {image: b}]}",
    ),
}
SECTION_OF = {"pool": "pool_specification", "jobs": "job_specifications", "config": "global_resources"}


@pytest.mark.parametrize("kind", OLDER_SHAPES)
def test_a_shape_of_an_older_version_is_rewritten_in_place(kind: str) -> None:
    name, older, today = OLDER_SHAPES[kind]
    stem, _, suffix = name.partition(".")
    section = SECTION_OF[stem]
    frame = f"{section}:\n  #\n" if suffix == "yaml" else f'{{"{section}": {{#}}}}'
    frame = frame.replace("{#}", "[{#}]") if stem == "jobs" else frame
    before, after = frame.replace("#", older, 1), frame.replace("#", today, 1)
    result = fixes.migrate({name: before.encode()}, judge)
    assert result.files[name].decode() == after
    assert "renamed" not in {problem.rule for problem in result.left.problems}
    assert all(edit.old or edit.new for edit in result.applied)


LISTS = {"job_specifications", "tasks", "azure_storage", "files", "signed", "unsigned"}


@pytest.mark.parametrize("rule", [*RENAMED, *WRAPPED], ids=lambda rule: ".".join(rule.path))
@pytest.mark.parametrize("flow", [False, True])
def test_no_renamed_property_is_left_after_a_migration(rule: Renamed | Wrapped, flow: bool) -> None:
    data: Any = ["a"] if isinstance(rule, Wrapped) and rule.kind is list else "a"
    for number, step in reversed(list(enumerate(rule.path))):
        data = {step: data} if step != "*" else [data] if rule.path[number - 1] in LISTS else {"x": data}
    text = yaml.safe_dump(data, default_flow_style=flow)
    result = fixes.migrate({"pool.yaml": text.encode()}, judge)
    assert "renamed" not in {problem.rule for problem in result.left.problems}


def test_what_a_migration_leaves_is_shown_in_the_new_file() -> None:
    text = POOL.replace("vm_count: {dedicated: 2}", "vm_count: 2").replace("'STANDARD_D4S_V5'", "STANDARD_NC6")
    result = fixes.migrate({"pool.yaml": f"{text}  unknown_word: 1\n".encode()}, judge)
    lines = result.files["pool.yaml"].decode().splitlines()
    left = [*result.notes, *result.left.problems]
    assert {problem.rule for problem in left} >= {"size-retired", "unknown-key"}
    assert [problem.source for problem in left] == [lines[problem.line - 1] for problem in left]


def test_older_words_of_any_number_of_tasks_are_rewritten() -> None:
    older = "job_specifications:\n- id: j\n  tasks:\n" + "  - {command: echo, gpu: true}\n" * 60
    result = fixes.migrate({"jobs.yaml": older.encode()}, judge)
    assert result.files["jobs.yaml"].decode() == older.replace("gpu: true", "gpus: all")
