"""A probe: one assumption about Azure, what is observed of it, and how the observation is judged. Pure.

What cannot be read is never judged as holding: a value that is missing, that has another form than the probe says, or
that the judgement cannot be made of, is *could not be asked*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from batchtrain.catalog.sizes import VmSize
from batchtrain.launchers.variables import GRAPH_FAMILY, LAUNCH_FILES

HOLDS, DIFFERS, NOT_ASKED = "holds", "differs", "could not be asked"
HAND = "answers"
"""The part of the observations that a user takes by hand."""
SERVICE = "service"
"""The part that requests of the client observe."""
POOLS = "pools"
"""The part that says how each pool came to its nodes: the code of its failure, or an empty text."""
REBOOTS = "reboots"
"""The part that says of each pool with an unusable node whether it could be rebooted."""
UNREAD = "unread"
"""The key of an observation that failed; its value is the reason."""
Observations = Mapping[str, Any]
"""By part: of a task its `nodes` (by node) and its `gang`, each by name; of requests and answers the value by name."""


class Need(NamedTuple):
    """What a size must have for a probe."""

    text: str
    fits: Callable[[VmSize], bool]


ANY = Need("any size", lambda size: True)
INFINIBAND = Need("a size with InfiniBand", lambda size: size.hcas > 0)
NVIDIA = Need("a size with NVIDIA GPUs", lambda size: size.gpu_vendor == "nvidia")
AMD = Need("a size with AMD GPUs", lambda size: size.gpu_vendor == "amd")
V100 = Need("Standard_ND40rs_v2", lambda size: size.name == "Standard_ND40rs_v2")
A100 = Need("a size of NC A100 v4", lambda size: size.family == GRAPH_FAMILY)
SMALL = Need("a size without GPUs and InfiniBand", lambda size: not size.gpus and not size.hcas)
RTX_SHARE = Need(
    "a size with a part of an RTX PRO 6000",
    lambda size: size.gpu_model == "RTX PRO 6000 BSE" and (size.gpu_memory_gib or 0) < 96,
)
LAUNCH_FILE = Need("a size for which Azure has an NCCL launch file", lambda size: size.family in LAUNCH_FILES)
TOPOLOGY = Need("an ND size with NVIDIA GPUs", lambda size: size.gpu_vendor == "nvidia" and size.hcas > 1)


class Probe(NamedTuple):
    """One assumption."""

    name: str
    assumption: str
    source: str
    steps: str
    """How a user verifies it by hand."""
    reads: str
    """The observation: TASK/nodes/NAME, TASK/gang/NAME, service/NAME or answers/NAME."""
    holds: Callable[[Any], bool]
    right: Any
    wrong: Any
    """A recorded or documented answer that differs."""
    unread: Any
    """An answer of which nothing follows."""
    code: str
    """The files of batchtrain that depend on it, separated by spaces."""
    shape: Any = dict[str, Any]
    """The type of the observation, of each node."""
    needs: Need = ANY
    not_local: str = ""
    """Why the emulator cannot answer."""
    why_by_hand: str = ""
    """Why no program asks it; empty for one that `verify` asks."""

    @property
    def part(self) -> str:
        """The task that observes it, or one of the other parts."""
        return self.reads.partition("/")[0]


def by_hand(name: str, assumption: str, source: str, steps: str, *, why: str, code: str, not_local: str) -> Probe:
    """A probe that no task and no request makes: the user answers `true` or `false` (`verify --answers FILE`). why: the
    reason."""
    return Probe(
        name, assumption, source, steps, f"{HAND}/{name}", bool, shape=bool, right=True, wrong=False, unread="unclear",
        code=code, not_local=not_local, why_by_hand=why,
    )  # fmt: skip


class Area(NamedTuple):
    """A group of probes, as the page shows it."""

    name: str
    title: str
    introduction: str
    probes: tuple[Probe, ...]


class Judgement(NamedTuple):
    """A probe's answer."""

    area: str
    probe: str
    judgement: str
    detail: str
    """What was observed if it differs, and why it could not be asked."""
    code: str
    """The files that depend on it, if it differs."""


class Unread(Exception):
    """Nothing follows from an observation; the reason."""


def judge(area: Area, probe: Probe, observations: Observations, size: VmSize, *, local: bool) -> Judgement:
    """Judge every value of a probe: one that differs decides, and all must be read for it to hold."""
    if local and probe.not_local:
        return Judgement(area.name, probe.name, NOT_ASKED, f"not on the emulator: {probe.not_local}", "")
    if not probe.needs.fits(size):
        return Judgement(area.name, probe.name, NOT_ASKED, f"needs {probe.needs.text}, and {size.name} is none", "")
    try:
        values = _values(probe, observations)
    except Unread as unread:
        return Judgement(area.name, probe.name, NOT_ASKED, str(unread), "")
    answers = {node: _judged(probe, value) for node, value in values.items()}
    node = next((node for word in (DIFFERS, NOT_ASKED) for node in answers if answers[node][0] == word), "")
    judgement, detail = answers.get(node, (HOLDS, ""))
    code = probe.code if judgement == DIFFERS else ""
    return Judgement(area.name, probe.name, judgement, f"{node}{detail}" if judgement != HOLDS else "", code)


def _judged(probe: Probe, value: Any) -> tuple[str, str]:
    try:
        return (HOLDS, "") if holds(probe, value) else (DIFFERS, _brief(value))
    except Unread as unread:
        return NOT_ASKED, str(unread)


def holds(probe: Probe, value: Any) -> bool:
    """Whether one value agrees with the assumption. Raises Unread."""
    if isinstance(value, Mapping) and UNREAD in value:
        raise Unread(str(value[UNREAD]))
    try:
        result = probe.holds(msgspec.convert(value, probe.shape))
    except (msgspec.ValidationError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Unread(f"{_brief(value)} is not what was expected: {error}") from None
    if result is not True and result is not False:
        raise Unread(f"nothing follows from {_brief(value)}")
    return result


def _values(probe: Probe, observations: Observations) -> dict[str, Any]:
    """The values by the node that shows them. Raises Unread if there are none."""
    part, *names = probe.reads.split("/")
    if part not in observations:
        raise Unread(f"by hand: {probe.steps}" if part == HAND else f"{part} was not observed")
    value = observations[part]
    if isinstance(value, Mapping) and UNREAD in value:
        raise Unread(str(value[UNREAD]))
    if names[0] == "nodes":
        nodes = value.get("nodes") or {}
        if not nodes:
            raise Unread(f"no node of {part} answered")
        return {f"{node}: ": values if UNREAD in values else values.get(names[1]) for node, values in nodes.items()}
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            raise Unread(f"by hand: {probe.steps}" if part == HAND else f"{probe.reads} was not observed")
        value = value[name]
    return {"": value}


def _brief(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) < 300 else f"{text[:299]}…"
