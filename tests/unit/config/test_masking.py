"""What no output shows, wherever it was written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from batchtrain.config import masking
from batchtrain.config.load import examine
from batchtrain.config.masking import masked_document, masked_line, masked_text, masked_yaml, secrets_in
from batchtrain.config.secret_names import is_secret
from batchtrain.config.types import Recipe, Secret, convert
from batchtrain.plan import plan_recipe
from batchtrain.plan.diff import Living, compare, wanted
from batchtrain.plan.render import as_document

KEY = "c2VjcmV0LWtleQ=="
LINK = "https://a.blob.core.windows.net/c/b?sv=2024&sig=abc%2Bdef%3D&se=2030"
TOLD: dict[str, Any] = {
    "directory": ".",
    "credentials": {"storage": {"s": {"account": "one", "account_key": KEY}}},
    "pool": {
        "id": "p",
        "vm_size": "STANDARD_D2S_V5",
        "vm_configuration": {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}},
        "resource_files": [{"blob_source": LINK, "file_path": "b"}],
    },
    "jobs": [{"id": "j", "tasks": [{"id": "t", "command": f"curl '{LINK}'", "environment_variables": {"K": KEY}}]}],
}


def recipe() -> Recipe:
    return convert(TOLD, Recipe)


def test_secrets_are_the_values_of_secret_properties_and_what_has_their_shape() -> None:
    assert secrets_in(recipe()) == (Secret(KEY), Secret("abc%2Bdef%3D"))


def test_a_signature_is_masked_and_the_rest_of_the_link_stays() -> None:
    assert masked_text(f'"{LINK}"') == '"https://a.blob.core.windows.net/c/b?sv=2024&sig=***&se=2030"'


def test_a_document_is_masked_at_every_depth() -> None:
    assert masked_document({"a": [{"b": f"x{KEY}y"}, 5]}, [Secret(KEY)]) == {"a": [{"b": "x***y"}, 5]}


def test_no_rendering_of_a_plan_shows_a_key_or_a_signature() -> None:
    whole = plan_recipe(recipe())
    for shown in (str(whole), repr(whole), whole._repr_html_(), msgspec.json.encode(as_document(whole)).decode()):
        assert KEY not in shown
        assert "abc%2Bdef" not in shown
        assert "sig=***" in shown


def test_the_request_itself_has_the_link_that_was_written() -> None:
    assert LINK.encode() in msgspec.json.encode(plan_recipe(recipe()).steps[0].body)


def test_a_comparison_shows_no_signature_of_either_side() -> None:
    whole = plan_recipe(recipe())
    planned = next(body for kind, _, body in wanted(whole) if kind == "pool")
    other = msgspec.json.decode(msgspec.json.encode(planned).replace(b"abc%2Bdef", b"ghi%2Bjkl"))
    told = str(compare(whole, Living(pools={"p": other})))
    assert "sig=" in told
    assert "abc%2B" not in told
    assert "ghi%2B" not in told


SAID = "not-for-your-eyes"


@pytest.mark.parametrize(("name", "secret"), [
    ("DB_PWD", True), ("ADMIN_PASS", True), ("WANDB_APIKEY", True), ("DEVOPS_PAT", True), ("apiKey", True),
    ("AZURE_STORAGE_CONNECTION_STRING", True), ("SENTRY_DSN", True), ("API_KEY_2", True), ("GIT_CREDENTIALS", True),
    ("PWD", False), ("OLDPWD", False), ("MAX_PASS", False), ("COMPASS", False), ("PATH", False),
    ("ACCESS_KEY_ID", False),
    ("HF_TOKEN", True), ("TOKEN", True), ("hf_token", True), ("X_API_KEY", True), ("DB_PASSWORD_FILE", True),
    ("SECRETS", True),
    ("TOKENS", False), ("KEYBOARD", False), ("MONKEY", False), ("TOKENIZERS_PARALLELISM", False), ("KEY_A", False),
])  # fmt: skip
def test_a_variable_is_secret_by_its_name(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_a_line_of_a_file_is_masked() -> None:
    assert masked_line(f"    HF_TOKEN: {SAID}") == "    HF_TOKEN: ***"
    assert masked_line("  ssh_public_key: path") == "  ssh_public_key: path"


def test_a_placeholder_of_ours_holds_no_secret() -> None:
    assert masking.variable("BATCHTRAIN_GIVEN_PASSWORD_0", "{{registry:x}}") == "{{registry:x}}"
    assert masking.variable("REGISTRY_PASSWORD", "{{registry:x}}") == "***"


@pytest.mark.parametrize(
    "written",
    [
        "{{X: 1, A_KEY: {value}, Y: 2}}",
        "\n  A_KEY: {value}  # why\n  Y: 2",
        "\n  A_KEY: '{value}, and'\n  Y: 2",
        '\n  "A_KEY": "{value}"\n  Y: 2',
        "\n  A_KEY: |\n    {value}\n    more\n  Y: 2",
        "\n  A_KEY: >-\n    {value}\n  Y: 2",
        "\n  A_KEY: some\n    {value}\n  Y: 2",
        "\n  A_KEY: &it {value}\n  Y: 2",
        "\r\n  A_KEY: |\r\n    {value}\r\n  Y: 2",
    ],
)
def test_a_secret_variable_of_a_file_is_masked_however_it_is_written(written: str) -> None:
    masked = masked_yaml(f"environment_variables: {written.format(value='zq')}\nid: j\n")
    document = yaml.safe_load(masked)
    assert "zq" not in masked
    variables = {**document["environment_variables"], "A_KEY": "***", "Y": 2}
    assert document == {"environment_variables": variables, "id": "j"}


def test_a_variable_is_masked_in_a_document_however_short_it_is() -> None:
    written = {"tasks": [{"environment_variables": {"A_KEY": "x", "B": "y"}, "key": "z"}]}
    masked = {"tasks": [{"environment_variables": {"A_KEY": "***", "B": "y"}, "key": "z"}]}
    assert masked_document(written) == masked


@pytest.mark.parametrize(("name", "value"), [("name", "value"), ("key", "value"), ("Key", "Value")])
def test_the_value_of_a_pair_is_masked_by_its_name(name: str, value: str) -> None:
    assert masked_document([{name: "DB_PWD", value: "x"}, {name: "B", value: "y"}]) == [
        {name: "DB_PWD", value: "***"},
        {name: "B", value: "y"},
    ]
    text = f"- {name}: DB_PWD\n  {value}: |\n    zq\n    zq\n- {{{value}: zq q, {name}: DB_PWD}}\n- {name}: a\n"
    masked = masked_yaml(text)
    assert "zq" not in masked
    assert [len(item) for item in yaml.safe_load(masked)] == [2, 2, 1]


def test_a_secret_name_elsewhere_in_a_file_or_a_document_is_masked_too() -> None:
    assert "zq" not in masked_yaml("metadata:\n  HF_TOKEN: zq\n  # A_KEY: zq\nenvironment_variables: {A_KEY: zq}\n")
    assert masked_document({"metadata": {"HF_TOKEN": "zq", "b": "y"}}) == {"metadata": {"HF_TOKEN": "***", "b": "y"}}


def test_a_secret_property_of_a_file_is_masked_and_json_stays_json() -> None:
    masked = masked_yaml('{"credentials": {"batch": {"account_key": "zq"}}, "environment_variables": {"a_key": "zq"}}')
    hidden = {"credentials": {"batch": {"account_key": "***"}}, "environment_variables": {"a_key": "***"}}
    assert msgspec.json.decode(masked) == hidden


def test_a_variable_of_a_request_is_masked_in_its_command_line() -> None:
    settings = [{"name": "A_KEY", "value": SAID}, {"name": "B", "value": "shown"}]
    masked = {"commandLine": "login ***", "environmentSettings": [{"name": "A_KEY", "value": "***"}, settings[1]]}
    document = {"commandLine": f"login {SAID}", "environmentSettings": settings}
    assert masking.masked_request(document) == masked


@pytest.mark.parametrize(("written", "masked"), [
    (f"note: hf_{'a1' * 20}\nid: x\n", "note: '***'\nid: x\n"),
    (f"note: hf_{'a1' * 20} it's mine\n", "note: '*** it''s mine'\n"),
    ("command: train --api-key zq --lr 1\n", "command: train --api-key *** --lr 1\n"),
    ("options: [--password, zq, --lr, '1']\n", "options: [--password, \"***\", --lr, '1']\n"),
    ("options:\n- --password\n- zq\n- x\n", 'options:\n- --password\n- "***"\n- x\n'),
    ("command: |-\n  export DB_PWD='zq'\n  train\n", "command: |-\n  export DB_PWD='***'\n  train\n"),
    ("# the old password: zq\n# api_key: zq or zr\nid: x\n", "# the old password: ***\n# api_key: ***\nid: x\n"),
    ("metadata: {api_key: zq, pwd: $PWD, a_key: b}\n", 'metadata: {api_key: "***", pwd: $PWD, a_key: "***"}\n'),
    (f"note: {KEY}\nother: x-{KEY}\n", "note: '***'\nother: x-***\n"),
])  # fmt: skip
def test_a_file_with_masks_is_the_same_yaml_but_for_them(written: str, masked: str) -> None:
    assert masked_yaml(written, [Secret(KEY)]) == masked
    assert masked_yaml(masked, [Secret(KEY)]) == masked
    assert yaml.safe_load(masked).keys() == yaml.safe_load(written).keys()


@pytest.mark.parametrize("written", [
    "ssh_private_key: keys/id_rsa\nssh_public_key_data: ssh-rsa AAAA\nkey: step\npassed_on: [a]\n",
    "environment_variables_keyvault_secret_id: https://v.vault.azure.net/secrets/x\npublic_key_pem: x\n",
    "customer_managed_key: {identity: x, key_url: https://v.vault.azure.net/keys/k}\nsigning_key: {file: x}\n",
])  # fmt: skip
def test_a_property_of_the_language_is_secret_only_by_its_type(written: str) -> None:
    assert masked_yaml(written) == written


@pytest.mark.parametrize(
    "form", ["pass\"w'o/rd=1", "pass\\\"w'o/rd=1", "pass\"w'\"'\"'o/rd=1", "pass%22w%27o%2Frd%3D1"]
)
def test_a_secret_is_found_as_json_a_shell_and_a_link_write_it(form: str) -> None:
    assert masked_text(f"a {form} b", [Secret("pass\"w'o/rd=1")]) == "a *** b"


def test_what_has_the_shape_of_a_secret_at_one_place_is_masked_at_every_other() -> None:
    task = {"id": "t", "command": "train --api-key zq81-one", "environment_variables": {"URL": "redis://:zq81-two@h"}}
    gang = {"num_instances": 2, "mpi": {"runtime": "mpich"}, "pre_execution_command": "export DB_PWD=zq81-three"}
    job = {"id": "j", "tasks": [task, {"id": "g", "command": "x", "multi_instance": gang}]}
    pool = {**TOLD["pool"], "additional_node_prep": {"commands": {"pre": ["login --token zq81-four"]}}}
    recipe = convert({**TOLD, "jobs": [job], "pool": pool}, Recipe)
    secrets = secrets_in(recipe, {"a.b": "AccountKey=zq81-five"})
    assert masked_text("zq81-one zq81-two zq81-three zq81-four zq81-five", secrets) == "*** *** *** *** ***"


def test_a_plan_with_secrets_shows_no_packed_files_and_one_without_shows_them() -> None:
    def shown(command: str) -> str:
        gang = {"num_instances": 2, "mpi": {"runtime": "mpich"}}
        task = {"id": "a_token", "command": command, "multi_instance": gang}
        pool = {**TOLD["pool"], "inter_node_communication_enabled": True, "vm_count": {"dedicated": 2}}
        plan = plan_recipe(convert({"directory": ".", "pool": pool, "jobs": [{"id": "j", "tasks": [task]}]}, Recipe))
        document = as_document(plan._replace(hidden=() if command == "train" else plan.hidden))
        assert "mpi" in document["launch"]["a_token"], "the name of a task says nothing about its launch"
        return msgspec.json.encode(document["steps"]).decode()

    assert " characters of the task's files" in shown("train --api-key zq81-one")
    assert " characters of the task's files" not in shown("train")


def test_a_message_about_a_value_shows_no_secret_of_it(tmp_path: Path) -> None:
    section = {"job_specifications": [{"id": "j", "priority": "--token zq81", "tasks": [{"id": "t", "command": "x"}]}]}
    found = examine(tmp_path, {"jobs.json": msgspec.json.format(msgspec.json.encode(section))})
    problems = [problem for problem in found.problems if "--token" in problem.message]
    assert problems
    assert "zq81" not in "".join(f"{problem.document}{problem.rendered()}" for problem in problems)


SHELL_AND_SERVICE = ("emulator", "launchers", "runtime")
"""Their texts are commands of a node and headers of an answer, which are masked as those of any other program."""


def messages(tree: ast.AST) -> Iterator[str]:
    """The texts of a module, with a word in place of each value; without docstrings."""
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.value


def test_no_message_of_the_package_looks_like_a_secret() -> None:
    folder = Path(masking.__file__).parents[1]
    files = (path for path in folder.rglob("*.py") if path.relative_to(folder).parts[0] not in SHELL_AND_SERVICE)
    texts = {text for path in files for text in messages(ast.parse(path.read_text())) if " " in text}
    assert len(texts) > 5000
    assert [text for text in texts if masked_text(text) != text] == []
