"""A corpus of configurations written for Batch Shipyard 3.9.1: each one validates and plans as it is, offline.

`tests/data/shipyard` holds a directory for every recipe family of Batch Shipyard, for its notebooks, and for files that
say every property it had. The vocabulary is theirs; ids, images, addresses and secrets are made up.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from batchtrain.config.load import load
from batchtrain.errors import ConfigError, PlanError
from batchtrain.plan import Plan, plan_recipe, render
from tests import judge

CORPUS = Path(__file__).resolve().parents[2] / "data" / "shipyard"
DIRECTORIES = sorted(path.name for path in CORPUS.iterdir())
SECRETS = ("not-a-real-", "not-A-real-", "bm90IGEgcmVhbCBrZXk")
"""What every made-up secret of the corpus begins with."""
PUBLIC_KEY = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB not-a-real-key"
"""A public key is no secret, and stands in a plan."""

FAMILIES = (
    "BLAST-CPU", "CNTK-CPU-Infiniband-IntelMPI", "CNTK-CPU-OpenMPI", "CNTK-GPU-Infiniband-IntelMPI", "CNTK-GPU-OpenMPI",
    "Caffe-CPU", "Caffe-GPU", "Caffe2-CPU", "Caffe2-GPU", "Chainer-CPU", "Chainer-GPU", "DiskSpd-Windows",
    "DotNet-Windows", "FFmpeg-GPU", "HPCG-Infiniband-IntelMPI", "HPLinpack-Infiniband-IntelMPI", "HPMLA-CPU-OpenMPI",
    "Keras+Theano-CPU", "Keras+Theano-GPU", "MXNet-CPU", "MXNet-GPU", "NAMD-GPU", "NAMD-Infiniband-IntelMPI",
    "NAMD-TCP", "OSUMicroBenchmarks-Infiniband-MVAPICH", "OpenFOAM-Infiniband-IntelMPI", "OpenFOAM-Infiniband-OpenMPI",
    "OpenFOAM-TCP-OpenMPI", "PyTorch-CPU", "PyTorch-GPU", "RNASeq-CPU", "RemoteFS-GlusterFS",
    "RemoteFS-GlusterFS+BatchPool", "RemoteFS-NFS", "Slurm+NFS", "TensorFlow-CPU", "TensorFlow-Distributed",
    "TensorFlow-GPU", "Torch-CPU", "Torch-GPU", "mpiBench-Infiniband-MPICH", "mpiBench-Infiniband-OpenMPI",
    "mpiBench-IntelMPI", "mpiBench-MPICH", "mpiBench-OpenMPI",
)  # fmt: skip
"""The recipe directories of Batch Shipyard 3.9.1."""

REFUSED = {"recurrence-of-several-tasks": "recurrence-tasks"}
"""What Batch has no way for any more, in `tests/data/shipyard-refused`: the rule that says so."""

UNSUPPORTED = (
    "copy-to-nodes", "file-share", "filter-approximate", "task-file-input", "transfer-options", "volume-gone",
)  # fmt: skip
"""Checks that refuse what a transfer meant and Batch cannot do; ignored here, because all else still works."""

OLD = {"image-retired", "size-retired"}
CONTAINERS = OLD | {"image-without-docker-old"}
EXPECTED: dict[str, tuple[int, set[str]]] = {
    "BLAST-CPU-blast": (2, CONTAINERS | {"offline-files", "link-unlimited"}),
    "BLAST-CPU-split": (1, CONTAINERS | {"storage-link", "link-unlimited"}),
    "CNTK-CPU-Infiniband-IntelMPI": (1, CONTAINERS | {"offline-count"}),
    "CNTK-CPU-OpenMPI-multinode": (1, CONTAINERS | {"offline-count"}),
    "CNTK-CPU-OpenMPI-singlenode": (1, CONTAINERS),
    "CNTK-GPU-Infiniband-IntelMPI": (1, CONTAINERS | {"image-gpu-driver", "offline-count"}),
    "CNTK-GPU-OpenMPI-multinode-multigpu": (1, CONTAINERS | {"image-gpu-driver", "offline-count"}),
    "CNTK-GPU-OpenMPI-singlenode-multigpu": (1, CONTAINERS | {"image-gpu-driver"}),
    "CNTK-GPU-OpenMPI-singlenode-singlegpu": (1, CONTAINERS | {"image-gpu-driver"}),
    "Caffe-CPU": (1, CONTAINERS),
    "Caffe-GPU": (1, CONTAINERS | {"image-gpu-driver"}),
    "Caffe2-CPU": (1, CONTAINERS),
    "Caffe2-GPU": (1, CONTAINERS | {"image-gpu-driver"}),
    "Chainer-CPU": (1, CONTAINERS),
    "Chainer-GPU": (1, CONTAINERS | {"image-gpu-driver"}),
    "DiskSpd-Windows": (1, {"containers-native", "size-retired"}),
    "DotNet-Windows": (1, {"containers-native", "size-retired"}),
    "FFmpeg-GPU": (1, CONTAINERS | {"image-gpu-driver", "placeholder"}),
    "HPCG-Infiniband-IntelMPI-docker": (1, CONTAINERS | {"mpi-ofa", "offline-count"}),
    "HPCG-Infiniband-IntelMPI-singularity": (1, OLD | {"mpi-ofa", "offline-count"}),
    "HPLinpack-Infiniband-IntelMPI-docker": (1, CONTAINERS | {"mpi-ofa", "offline-count"}),
    "HPLinpack-Infiniband-IntelMPI-singularity": (1, OLD | {"mpi-ofa", "offline-count"}),
    "HPMLA-CPU-OpenMPI": (1, CONTAINERS | {"offline-count", "placeholder"}),
    "Keras+Theano-CPU": (1, CONTAINERS),
    "Keras+Theano-GPU": (1, CONTAINERS | {"image-gpu-driver"}),
    "MXNet-CPU-multinode": (1, CONTAINERS | {"offline-count", "volume-driver"}),
    "MXNet-CPU-singlenode": (1, CONTAINERS),
    "MXNet-GPU-multinode": (
        1, CONTAINERS | {"gone", "image-gpu-driver", "offline-count", "volume-driver"},
    ),
    "MXNet-GPU-singlenode": (1, CONTAINERS | {"image-gpu-driver"}),
    "NAMD-GPU": (1, CONTAINERS | {"image-gpu-driver"}),
    "NAMD-Infiniband-IntelMPI": (1, CONTAINERS | {"offline-count"}),
    "NAMD-TCP": (1, CONTAINERS | {"offline-count"}),
    "OSUMicroBenchmarks-Infiniband-MVAPICH": (1, OLD),
    "OpenFOAM-Infiniband-IntelMPI": (1, CONTAINERS | {"gone", "offline-count"}),
    "OpenFOAM-Infiniband-OpenMPI": (1, CONTAINERS | {"gone", "offline-count"}),
    "OpenFOAM-TCP-OpenMPI": (1, CONTAINERS | {"gone", "offline-count"}),
    "PyTorch-CPU": (1, CONTAINERS),
    "PyTorch-GPU": (1, CONTAINERS | {"image-gpu-driver"}),
    "RNASeq-CPU": (3, CONTAINERS | {"environment-literal", "link-unlimited"}),
    "RemoteFS-GlusterFS": (0, {"elsewhere", "placeholder"}),
    "RemoteFS-GlusterFS+BatchPool": (0, CONTAINERS | {"elsewhere", "placeholder", "volume-driver"}),
    "RemoteFS-NFS": (0, {"elsewhere", "placeholder"}),
    "Slurm+NFS": (0, OLD | {"elsewhere", "gone", "placeholder", "pool-empty", "volume-driver"}),
    "TensorFlow-CPU-docker": (1, CONTAINERS | {"placeholder"}),
    "TensorFlow-CPU-docker-tb": (1, CONTAINERS),
    "TensorFlow-CPU-singularity": (1, OLD),
    "TensorFlow-Distributed-cpu": (1, CONTAINERS | {"offline-count"}),
    "TensorFlow-Distributed-gpu": (1, CONTAINERS | {"image-gpu-driver", "offline-count"}),
    "TensorFlow-GPU-docker": (1, CONTAINERS | {"image-gpu-driver"}),
    "TensorFlow-GPU-docker-tb": (1, CONTAINERS | {"image-gpu-driver"}),
    "TensorFlow-GPU-singularity": (1, OLD | {"image-gpu-driver"}),
    "Torch-CPU": (1, CONTAINERS),
    "Torch-GPU": (1, CONTAINERS | {"image-gpu-driver"}),
    "config-all": (0, {"files-absent", "gone", "registry-login", "volume-driver"}),
    "credentials-all": (0, {"gone"}),
    "credentials-all-keys": (0, {"gone"}),
    "jobs-all-docker": (
        5, CONTAINERS | {"gone", "image-gpu-driver", "image-rdma"},
    ),
    "jobs-all-singularity": (3, OLD),
    "jobs-docker-and-singularity": (2, CONTAINERS | {"host-task"}),
    "jobs-factories": (81, CONTAINERS | {"offline-files", "renamed"}),
    "jobs-factory-custom": (1, CONTAINERS | {"offline-custom"}),
    "jobs-merge-dependencies": (10, CONTAINERS | {"gone", "link-unlimited", "renamed"}),
    "jobs-merge-singularity": (4, OLD),
    "jobs-recurrence-autopool": (1, CONTAINERS | {"gone", "renamed"}),
    "mpiBench-Infiniband-MPICH": (1, CONTAINERS | {"offline-count"}),
    "mpiBench-Infiniband-OpenMPI": (1, CONTAINERS | {"offline-count"}),
    "mpiBench-IntelMPI-docker": (1, CONTAINERS | {"offline-count"}),
    "mpiBench-IntelMPI-singularity": (1, OLD | {"offline-count"}),
    "mpiBench-MPICH-docker": (1, CONTAINERS | {"offline-count"}),
    "mpiBench-MPICH-singularity": (1, OLD | {"offline-count"}),
    "mpiBench-OpenMPI-docker": (1, CONTAINERS | {"offline-count"}),
    "mpiBench-OpenMPI-singularity": (1, OLD | {"offline-count"}),
    "notebook-distributed": (1, CONTAINERS | {"image-gpu-driver", "offline-count"}),
    "notebook-keras-files": (1, CONTAINERS | {"files-absent", "image-gpu-driver"}),
    "notebook-model-selection": (4, CONTAINERS | {"image-gpu-driver", "link-unlimited"}),
    "notebook-single-gpu": (1, CONTAINERS | {"image-gpu-driver"}),
    "notebook-sweep": (12, CONTAINERS | {"image-gpu-driver", "link-unlimited"}),
    "pool-all-custom-image": (0, {"gone", "node-agent-retired", "renamed", "size-retired"}),
    "pool-all-custom-image-named-network": (
        0, {"image-managed", "network-by-name", "network-subscription", "node-agent-retired", "size-retired"},
    ),
    "pool-all-marketplace": (
        0, CONTAINERS | {"autoscale-empty", "gone", "link-unlimited", "login-system", "renamed"},
    ),
    "pool-all-windows": (0, {"size-retired"}),
    "pool-autoscale-formula": (0, OLD | {"autoscale-both"}),
    "pool-autoscale-pending": (0, OLD | {"renamed"}),
    "pool-autoscale-scenarios": (0, OLD),
    "pool-autoscale-weekday": (0, OLD),
    "pool-autoscale-weekend": (0, OLD),
    "pool-autoscale-workday": (0, OLD),
    "pool-autoscale-workday-offpeak": (0, OLD),
    "pool-image-batch-centos-rdma": (0, OLD),
    "pool-image-batch-ubuntu": (0, OLD | {"containers-native"}),
    "pool-image-centos-native": (0, CONTAINERS),
    "pool-image-debian": (0, OLD),
    "pool-image-windows-semiannual": (0, OLD),
}  # fmt: skip
"""How many tasks each directory plans, offline, and the rules that have something to say about it."""


@cache
def plan_of(name: str) -> Plan:
    return plan_recipe(load(CORPUS / name, ignore=UNSUPPORTED).recipe)


def bodies(plan: Plan, action: str) -> list[Any]:
    """What is asked by each step of an action."""
    return [step.document for step in plan.steps if step.action == action]


def filled(body: Any) -> Any:
    """A body with a moment where one is reckoned when the request is sent: a plan knows no clock."""
    if isinstance(body, dict):
        return {name: filled(value) for name, value in body.items()}
    if isinstance(body, list | tuple):
        return [filled(value) for value in body]
    return "2030-01-01T00:00:00Z" if str(body).startswith("{{expires:") else body


def tasks_of(plan: Plan) -> int:
    return sum(len(body.get("value", (body,))) for body in bodies(plan, "task.add"))


def test_every_recipe_family_is_there() -> None:
    missing = [family for family in FAMILIES if not any(name.startswith(family) for name in DIRECTORIES)]
    assert missing == []


def test_every_directory_has_its_expectation() -> None:
    assert sorted(EXPECTED) == DIRECTORIES


@pytest.mark.parametrize("name", DIRECTORIES)
def test_it_loads_and_the_sdk_knows_every_request_of_its_plan(name: str) -> None:
    for step in plan_of(name).steps:
        if step.action not in judge.NOT_OF_BATCH:
            assert judge.flaws(step.action, filled(step.document)) == []


@pytest.mark.parametrize("name", DIRECTORIES)
def test_it_plans_the_tasks_it_has_and_says_what_is_to_be_known(name: str) -> None:
    plan = plan_of(name)
    rules = {problem.rule for problem in plan.warnings} - {"image-registry"}  # their images have no other name here
    assert (tasks_of(plan), rules) == EXPECTED[name]


@pytest.mark.parametrize("name", DIRECTORIES)
def test_no_secret_of_it_reaches_a_message_or_a_plan(name: str) -> None:
    plan = plan_of(name)
    said = [*(problem.rendered() for problem in plan.warnings), str(plan), str(render.as_document(plan))]
    said.append(repr(load(CORPUS / name, ignore=UNSUPPORTED)))
    text = "\n".join(said).replace(PUBLIC_KEY, "")
    assert [secret for secret in SECRETS if secret in text] == []


def is_refused(name: str) -> bool:
    try:
        load(CORPUS / name)
    except ConfigError:
        return True
    return False


def test_what_a_transfer_cannot_do_any_more_is_refused() -> None:
    assert [name for name in DIRECTORIES if is_refused(name)] == [
        "MXNet-CPU-multinode", "MXNet-GPU-multinode", "config-all", "jobs-all-docker", "jobs-factories",
        "jobs-merge-dependencies", "notebook-model-selection", "pool-all-marketplace",
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_batch_has_no_way_for_is_refused_by_its_rule(name: str) -> None:
    with pytest.raises((ConfigError, PlanError), match=re.escape(f"[{REFUSED[name]}]")):
        plan_recipe(load(CORPUS.with_name("shipyard-refused") / name).recipe)


def test_a_recurrence_becomes_a_job_schedule() -> None:
    schedules = bodies(plan_of("jobs-recurrence-autopool"), "schedule.add")
    assert [body["id"] for body in schedules] == ["nightly", "every-five-minutes"]
