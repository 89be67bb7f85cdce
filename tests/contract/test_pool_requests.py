"""Whole pools, as they are sent: judged by the SDK's own models, and looked through for secrets."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from azure.batch import BatchClient

from batchtrain.client.late_values import Placeholders
from batchtrain.config.types import Recipe, convert
from batchtrain.errors import ServiceError
from batchtrain.plan import Plan, Step, plan_pool, render
from batchtrain.plan.pool import specification
from batchtrain.plan.wire import document
from batchtrain.records import Node
from batchtrain.records.events import PoolIdentified
from batchtrain.service import read, submit
from tests.judge import flaws
from tests.submitting import carry_out

pytestmark = pytest.mark.process

KEY = base64.b64encode(b"storage-secret").decode()
SECRETS = ("hub-secret", "apptainer-secret", KEY, "user-secret", "share-secret", "vault-secret", "private-secret")
IDENTITY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"


def recipe(directory: Path) -> Recipe:
    """A pool with nearly everything that can be said, and every kind of secret."""
    (directory / "key").write_text("private-secret")
    (directory / "me.pub").write_text("ssh-ed25519 AAAA me")
    (directory / "sign.asc").write_text("a public key")
    told = {
        "directory": str(directory),
        "credentials": {
            "storage": {"s": {"account": "acct", "account_key": KEY}},
            "docker_registry": {"hub": {"username": "u", "password": "hub-secret"}, "r.io": {"identity": IDENTITY}},
            "singularity_registry": {"s.io": {"username": "u", "password": "apptainer-secret"}},
            "user_accounts": {"al": {"password": "user-secret", "ssh_private_key": "key"}},
            "shares": {"c": {"username": "u", "password": "share-secret"}},
            "management": {"subscription_id": "u"},
            "batch": {"resource_group": "g"},
        },
        "settings": {"delay_docker_image_preload": True, "generated_sas_expiry_days": 7},
        "resources": {
            "docker_images": ["a/b:1", "mcr.microsoft.com/x"],
            "singularity_images": {
                "unsigned": [{"image": "oras://s.io/x"}],
                "signed": [{"image": "library://y", "signing_key": {"fingerprint": "AB", "file": "sign.asc"}}],
            },
            "volumes": {
                "shared_data_volumes": {
                    "b": {"volume_driver": "azureblob", "storage_account_settings": "s",
                          "azure_blob_container_name": "x"},
                    "i": {"volume_driver": "azureblob", "storage_account_settings": "s",
                          "azure_blob_container_name": "x", "identity": IDENTITY},
                    "f": {"volume_driver": "azurefile", "storage_account_settings": "s", "azure_file_share_name": "x"},
                    "n": {"volume_driver": "nfs", "source": "s:/x"},
                    "c": {"volume_driver": "cifs", "source": "//s/x"},
                    "l": {"volume_driver": "custom_linux_mount",
                          "fstab_entry": {"fs_spec": "s:/x", "fs_vfstype": "lustre"}},
                },
            },
        },
        "pool": {
            "id": "p",
            "display_name": "d",
            "vm_size": "STANDARD_D4S_V5",
            "vm_count": {"dedicated": 2},
            "vm_configuration": {
                "platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404", "native": True},
                "os_disk": {"ephemeral": True, "caching": "readonly", "size_gb": 64,
                            "storage_account_type": "standard_lrs", "security_encryption": "VMGuestStateOnly"},
                "data_disks": [{"lun": 0, "size_gb": 10, "caching": "none"}],
                "security_profile": {"security_type": "confidentialvm", "encryption_at_host": True, "secure_boot": True,
                                     "vtpm": True, "proxy_agent": {"imds": {"mode": "Audit"}}},
                "disk_encryption": {"targets": ["osdisk", "temporarydisk"]},
                "node_placement": "zonal",
                "extensions": [{"name": "n", "publisher": "p", "type": "t"}],
                "service_artifact": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/g"
                "/serviceArtifacts/a/vmArtifactsProfiles/p",
            },
            "resize_timeout": "00:10:00",
            "node_fill_type": "pack",
            "job_default_order": "none",
            "application_packages": [{"id": "app"}],
            "metadata": {"a": "b"},
            "user_accounts": [{"name": "al", "elevation_level": "admin", "uid": 7, "gid": 8}],
            "additional_node_prep": {
                "commands": {"pre": ["true"]},
                "environment_variables": {"A": "b"},
                "environment_variables_keyvault_secret_id": "https://v.vault.azure.net/secrets/s",
                "max_task_retries": 1,
            },
            "resource_files": [{"blob_source": "https://x/y", "file_path": "y", "file_mode": "0755"}],
            "input_data": {"azure_storage": [{"storage_account_settings": "s", "remote_path": "c/d"}]},
            "ssh": {"username": "al", "ssh_public_key": "me.pub", "allow_docker_access": True},
            "remote_access_control": {"allow": ["10.0.0.0/8"], "deny": ["*"]},
            "virtual_network": {"name": "v", "subnet": {"name": "s"}},
            "network": {"accelerated_networking": True, "ip_families": ["IPv4", "IPv6"],
                        "dynamic_vnet_assignment_scope": "none"},
            "upgrade_policy": {"mode": "rolling", "automatic_os": {"enabled": True},
                               "rolling": {"max_batch_instance_percent": 20, "pause_time_between_batches": "00:00:10"}},
        },
    }  # fmt: skip
    return convert(told, Recipe)


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The bodies of the pool's steps as they are sent."""
    told = recipe(tmp_path)
    monkeypatch.setattr("batchtrain.service.vault.mapping", lambda read, name: {"FROM_VAULT": "vault-secret"})
    values = Placeholders(told, directory=tmp_path)
    yield [(step.action, submit.filled(step.body, values.fill)) for step in plan_pool(told).steps]


def test_the_sdk_knows_every_key_and_type_of_what_is_sent(filled: list[tuple[str, dict[str, Any]]]) -> None:
    assert [action for action, _ in filled] == ["pool.add", "node.user"]
    assert [flaw for action, body in filled for flaw in flaws(action, body)] == []


def test_no_secret_is_in_the_plan_and_each_is_in_what_is_sent(
    tmp_path: Path, filled: list[tuple[str, dict[str, Any]]]
) -> None:
    made = plan_pool(recipe(tmp_path))
    planned = str(made) + msgspec.json.encode(render.as_document(made)).decode()
    sent = msgspec.json.encode(filled).decode()
    assert [secret for secret in SECRETS if secret in planned] == []
    assert [secret for secret in SECRETS if secret not in sent] == []


def test_nothing_is_left_open_in_what_is_sent(filled: list[tuple[str, dict[str, Any]]]) -> None:
    assert "{{" not in msgspec.json.encode(filled).decode()


def test_the_sdk_knows_every_key_of_a_pool_that_belongs_to_a_job(tmp_path: Path) -> None:
    own = document(specification(recipe(tmp_path)))
    auto = {"poolLifetimeOption": "job", "pool": own}
    assert flaws("job.add", {"id": "j", "poolInfo": {"autoPoolSpecification": auto}}) == []


def test_the_login_is_made_on_every_node_and_brought_up_to_date_where_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def ask(client: object, method: str, path: str, operation: str, body: Any = None, **_: Any) -> None:
        asked.append((method, path, body))
        if method == "POST" and "/n1/" in path:
            raise ServiceError("there", operation=operation, code="NodeUserExists")

    monkeypatch.setattr(submit, "ask", ask)
    monkeypatch.setattr(read, "nodes", lambda *_: (Node("n0", "idle"), Node("n1", "idle")))
    step = Step("node.user", "p", {"name": "al", "isAdmin": True, "password": "x"})
    service: Any = None
    (event,) = carry_out(service, Plan((step,)))
    assert asked == [
        ("POST", "/pools/p/nodes/n0/users", step.body),
        ("POST", "/pools/p/nodes/n1/users", step.body),
        ("PUT", "/pools/p/nodes/n1/users/al", {"password": "x"}),
    ]
    assert event.text == "user al can log in on 2 nodes of pool p"


def test_a_step_that_is_no_request_to_batch_is_handed_on(client: BatchClient) -> None:
    step = Step("pool.identity", "p", {"identities": ["i"]})
    others = {"pool.identity": lambda step: PoolIdentified("p", "done")}
    assert [event.text for event in carry_out(client, Plan((step,)), others=others)] == ["done"]
