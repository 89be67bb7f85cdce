"""Plans of a gang for each way to run it, each kind of size and each launch, as files to read, and what explains them.

A file of tests/golden/plans has the first size whole, and of each other one what differs from the most similar one.
BATCHTRAIN_UPDATE_GOLDEN=1 writes them anew.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from batchtrain.config import check
from batchtrain.config.types import Recipe
from batchtrain.frameworks.mpi import MPIS
from batchtrain.launchers.launch import Launch
from batchtrain.plan import Plan, explain, plan_jobs
from batchtrain.plan.render import FILE_MARK
from batchtrain.runtime.launch.environment import defaults_of, environment_of
from batchtrain.runtime.launch.frameworks import load
from batchtrain.runtime.launch.placing import plan as place
from batchtrain.runtime.launch.spec import Node, Spec
from tests.unit.launchers.test_mpi_decisions import FLAG, flags, variables
from tests.unit.plan import jobs

GOLDEN = Path(__file__).parents[2] / "golden" / "plans"
IMAGE, APPTAINER = "example/image:1", "docker://example/image:1"
SIZES = {
    "CPU": "STANDARD_D4DS_V5",
    "HB": "STANDARD_HB120RS_V3",
    "HBv4": "STANDARD_HB176RS_V4",
    "HBv5": "STANDARD_HB368RS_V5",
    "HX": "STANDARD_HX176RS",
    "K80": "STANDARD_NC24R",
    "T4": "STANDARD_NC64AS_T4_V3",
    "V100": "STANDARD_NC24RS_V3",
    "V100, EDR": "STANDARD_ND40RS_V2",
    "A100, one": "STANDARD_NC24ADS_A100_V4",
    "A100, four": "STANDARD_NC96ADS_A100_V4",
    "A100": "STANDARD_ND96ASR_V4",
    "H100": "STANDARD_ND96ISR_H100_V5",
    "MI300X": "STANDARD_ND96ISR_MI300X_V5",
    "H200": "STANDARD_ND96ISR_H200_V5",
    "GB200": "STANDARD_ND128ISR_NDR_GB200_V6",
    "GB300": "STANDARD_ND128ISR_GB300_V6",
}
TCP = {"HB, infiniband: false": "HB", "H100, infiniband: false": "H100"}
"""Sizes on which the user asks for tcp."""
EVERY_SIZE = (*SIZES, *TCP)
LAUNCHES: dict[str, dict[str, Any]] = {
    **{runtime: {"mpi": {"runtime": runtime, "processes_per_node": "auto"}} for runtime in MPIS},
    "pytorch": {"pytorch": {}},
}
MODES: dict[str, dict[str, dict[str, Any]]] = {
    "host": {},
    "native": {"task": {"docker_image": IMAGE}, "resources": {"docker_images": [IMAGE]}},
    "apptainer": {
        "task": {"singularity_image": APPTAINER},
        "resources": {"singularity_images": {"unsigned": [{"image": APPTAINER}]}},
    },
}
ROWS = list(itertools.product(MODES, LAUNCHES, SIZES))


def recipe(mode: str, launch: str, size: str) -> Recipe:
    made = MODES[mode]
    gang = {"num_instances": 2, **LAUNCHES[launch]}
    task = {"id": "t", "command": "python /data/train.py", "multi_instance": gang, **made.get("task", {})}
    task |= {"infiniband": False} if size in TCP else {}
    pool = {"vm_size": SIZES[TCP.get(size, size)], **made.get("pool", {})}
    return jobs.recipe(task=task, pool=pool, resources=made.get("resources", {}))


@cache
def plan(mode: str, launch: str, size: str) -> Plan:
    return plan_jobs(recipe(mode, launch, size))


# --- as a person reads them -----------------------------------------------------------------------------------------


def compact(mode: str, launch: str, size: str) -> list[str]:
    """A plan in parts: the request, what the nodes run without remarks, why, and what is warned of."""
    made = plan(mode, launch, size)
    return [
        *(f"request     {line}" for line in requested(jobs.sent_task(made))),
        *(part for name, text in texts(made).items() for part in shown(name, text)),
        *sorted(f"why         {one.what} = {one.value}: {one.because} [{one.rule}]" for one in made.implicit),
        *(f"warning     {one.message} [{one.rule}]" for one in made.warnings),
        *(f"{one.level:11} {one.message} [{one.rule}]" for one in check.run(recipe(mode, launch, size))),
    ]


def requested(sent: dict[str, Any]) -> Iterator[str]:
    """What a task asks of the service; the variables that carry its files are left out."""
    container = sent.get("containerSettings", {})
    for name, value in {**sent["userIdentity"]["autoUser"], **container}.items():
        if name != "containerRunOptions":
            yield f"{name} {value}"
    yield from (f"run option {option}" for option in options(container.get("containerRunOptions", "")))
    own = (one for one in sent.get("environmentSettings", ()) if not one["name"].startswith("BATCHTRAIN_FILES_"))
    yield from (f"variable {one['name']}={one['value']}" for one in own)


def options(text: str) -> list[str]:
    """Options with their values: a word that starts with a dash begins one."""
    found: list[str] = []
    for word in shlex.split(text):
        if word.startswith("-") or not found:
            found.append(word)
        else:
            found[-1] += f" {word}"
    return found


def texts(made: Plan) -> dict[str, str]:
    """The launch's texts by name, but for the parts that are the same in every launch."""
    [(_, whole)] = made.launch
    first, *files = whole.split(FILE_MARK)
    every, primary = first.split("# ---- the primary: the application command\n")
    named = {file.partition("\n")[0]: file.partition("\n")[2] for file in files}
    kept = ("inside-coordinate.sh", "inside-launch.sh", "apptainer.sh", "gang.json")
    return {"every node": every, "primary": primary} | {name: named[name] for name in kept if name in named}


def shown(name: str, text: str) -> Iterator[str]:
    """A text's blocks without remarks; of gang.json what a process is told, and what it runs."""
    if name == "gang.json":
        yield from spec_lines(json.loads(text))
        return
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
        if lines:
            yield "\n".join((f"{name}:", *(f"    {line}" for line in lines)))


def spec_lines(spec: dict[str, Any]) -> Iterator[str]:
    for role in spec["roles"]:
        yield f"process     {role['name']}, {spec['processes_per_node']} a node: {role['command']}"
    yield from (f"process     {name}={value}" for name, value in spec["environment"].items())
    yield from (f"infiniband  {name}={value}" for name, value in spec["rdma_environment"].items())
    rest = {name: value for name, value in spec["options"].items() if value is not None}
    yield f"process     {json.dumps({'rdma': spec['rdma'], **rest})}"


def page(mode: str, launch: str) -> str:
    """Each size as what differs from the most similar plan before it, on the host or in this file."""
    parts = {f"{size} on the host": sized("host", launch, size) for size in EVERY_SIZE if mode != "host"}
    sections = [f"==== {mode}, {launch}"]
    for size in EVERY_SIZE:
        own = sized(mode, launch, size)
        base = min(parts, key=lambda name: len({*own} ^ {*parts[name]}), default="")
        like = parts.get(base, [])
        sections += [f"==== {size}: {SIZES[TCP.get(size, size)]}{f', like {base} but' if base else ''}"]
        sections += [f"without     {beginning(part)}" for part in like if part not in own]
        sections += [*(part for part in own if part not in like), ""]
        parts[size] = own
    return "\n".join(sections)


def beginning(part: str) -> str:
    """Enough of a part to recognise it: of a text its first two lines."""
    lines = [line.strip() for line in part.splitlines()[:2]]
    return textwrap.shorten(" ".join(lines), 90, placeholder=" ...")


@cache
def sized(mode: str, launch: str, size: str) -> list[str]:
    """A plan in parts, without the name of its size."""
    name = re.compile(SIZES[TCP.get(size, size)], re.IGNORECASE)
    return [name.sub("SIZE", part) for part in compact(mode, launch, size)]


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("mode", MODES)
def test_the_plans_are_as_they_were_read_last(mode: str, launch: str) -> None:
    path, now = GOLDEN / f"{mode}.{launch}.txt", page(mode, launch)
    if os.environ.get("BATCHTRAIN_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(now)
    assert path.read_text() == now


# --- as they are explained ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "launch", "size"), ROWS)
def test_every_implicit_setting_is_explained(mode: str, launch: str, size: str) -> None:
    made = plan(mode, launch, size)
    told = str(explain.explain(made, recipe(mode, launch, size), {}, {}))
    missing = [one for one in unwritten(made) if not mentions(told, one)]
    assert not missing


def mentions(told: str, one: str) -> bool:
    """A variable by its name, or a flag or option as it is."""
    if one.startswith("BATCHTRAIN_"):
        return "BATCHTRAIN_*" in told
    ways = (one, one.replace("=", " = ", 1))
    return any(re.search(rf"(?<![\w-]){re.escape(way)}(?![\w-])", told) for way in ways)


def unwritten(made: Plan) -> Iterator[str]:
    """Each option, flag and variable of a plan; the task has none of its own."""
    sent = jobs.sent_task(made)
    yield from options(sent.get("containerSettings", {}).get("containerRunOptions", ""))
    found = texts(made)
    if "gang.json" in found:
        yield from process_variables(json.loads(found["gang.json"]))
    else:
        launched = Launch("", found.get("inside-launch.sh", found["primary"]))
        yield from flags(launched) | variables(launched)
    engine = found["every node"] if "inside-launch.sh" in found else ""
    yield from re.findall(FLAG, "".join(re.findall(r"^bt_start_gang (?:.*\\\n)*.*", engine, re.MULTILINE)))
    yield from re.findall(FLAG, found.get("apptainer.sh", "").partition('exec "$runtime"')[2])


def process_variables(spec: dict[str, Any]) -> set[str]:
    """What the node launcher gives a process, on two nodes like those that are asked for."""
    facts = {
        "processes": 1,
        "ports": list(range(20000, 20010)),
        "interfaces": {"eth0": "10.0.0.4"},
        "gpus": ["0"] if spec["environment"].get("CUDA_DEVICE_ORDER") else [],
        "infiniband": {"ports": "mlx5_ib0:1", "key": "0x1"},
        "files": [value for value in spec["environment"].values() if value.startswith("/")],
        "cores": 4,
    }
    nodes = [Node(index, "10.0.0.4", facts) for index in range(2)]
    gang = place(Spec(spec), nodes, load(spec["framework"]))
    tell = (environment_of, defaults_of)
    return {name for process in gang.processes for told in tell for name in told(gang, process)}


FRAMEWORKS: dict[str, dict[str, Any]] = {
    "torchrun": {"pytorch": {"launcher": "torchrun", "rendezvous": "c10d", "max_restarts": 1}},
    "tensorflow": {"tensorflow": {"mode": "parameter_server", "evaluator": True}},
    "mxnet": {"mxnet": {"verbose": 1, "interface": "eth0"}},
    **{name: {name: {}} for name in ("accelerate", "horovod", "deepspeed", "jax", "ray")},
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_variable_of_every_framework_is_explained(name: str, size: str) -> None:
    gang = {"num_instances": 2, **FRAMEWORKS[name]}
    asked = jobs.recipe(task={"command": "python t.py", "multi_instance": gang}, pool={"vm_size": SIZES[size]})
    made = plan_jobs(asked)
    told = str(explain.explain(made, asked, {}, {}))
    spec = json.JSONDecoder().raw_decode(made.launch[0][1].partition(f"{FILE_MARK}gang.json\n")[2])[0]
    assert [one for one in process_variables(spec) if not mentions(told, one)] == []


def test_what_is_looked_for_is_there() -> None:
    assert {"--nv", "--bind", "--mca"} <= set(unwritten(plan("apptainer", "openmpi", "H100")))
    assert {"NCCL_TOPO_FILE", "CUDA_VISIBLE_DEVICES", "RANK"} <= set(unwritten(plan("native", "pytorch", "H100")))


def test_no_plan_shows_the_files_it_carries() -> None:
    assert "H4sI" not in "".join(page(mode, launch) for mode in MODES for launch in LAUNCHES)
