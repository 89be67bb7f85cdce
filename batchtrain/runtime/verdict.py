"""Reports which network NCCL used between the nodes, from its own log lines.

The node launcher takes `read` on each node and `judge` on the primary; after an MPI's run gang.sh collects them and
runs

    python3 verdict.py FILE...    a file of each node: its name, then NCCL's lines, each after its file's name and `:`

It travels with the task: one file, the standard library alone, Python 3.6 and later. The lines are those of NCCL 2.4
to 2.32 and RCCL (net_ib.cc, net_socket.cc, transport/net.cc, init.cc).
"""

import json
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Heard = dict[str, Any]

MOST = 4 << 20
"""Bytes to read from the file of a process; its network is in the first of them."""

LINE = re.compile(r"NCCL (?:INFO|WARN) (.*)")
SENT = re.compile(r"\[(send|receive)\] via NET/([^/]+)/")
CHOSEN = re.compile(r"Using network (.+)|Assigned NET plugin (.+) to comm")
CARDS = re.compile(r"([\w.-]+:\d+)/(?:IB|RoCE)")
DIRECT = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for HCA")
RANK = re.compile(r"\brank (\d+) nranks (\d+) .*Init COMPLETE")
SLOW = "Socket"
REASONS = (
    ("libibverbs", "put libibverbs and its providers (rdma-core) into the image"),
    (
        "NET/IB : No device found",
        "see that the process has /dev/infiniband (a container needs --device=/dev/infiniband), that NCCL_IB_HCA names"
        " ports of the node, and that NCCL_IB_DISABLE is not set",
    ),
    ("NET/Socket : Using", "see that NCCL_NET and NCCL_IB_DISABLE are not set, and that NCCL's own plug-in fits it"),
)
"""Signs of a process without InfiniBand in a line, the most specific first, with the advice."""


# === on a node ======================================================================================================


def read(folder: str) -> "list[Heard]":
    """What each process of a node noted in a file `nccl.*` of this folder."""
    processes = []
    for name in sorted(os.listdir(folder)):
        if name.startswith("nccl."):
            with open(os.path.join(folder, name), "rb") as file:
                processes.append(hear(file.read(MOST).decode("utf-8", "replace").split("\n")))
    return processes


def hear(lines: "Iterable[str]") -> "Heard":
    """One process: its rank in the largest communicator, its network, its cards, and the lines about faults."""
    sent, chosen, direct, why = set(), "", "", {}  # type: set[str], str, str, dict[str, str]
    heard = {"rank": -1, "cards": [], "warnings": []}  # type: Heard
    most, through_gpus, received = 0, False, False
    for line in lines:
        match = LINE.search(line)
        if not match:
            continue
        text = match.group(1).strip()
        if "NCCL WARN" in line and text not in heard["warnings"]:
            heard["warnings"].append(text)
        way = SENT.search(text)
        if way:
            sent.add(way.group(2))
            through_gpus = through_gpus or "GDRDMA" in text
            received = received or way.group(1) == "receive"
        match = CHOSEN.search(text)
        chosen = (match.group(1) or match.group(2)).strip() if match else chosen
        if text.startswith("NET/IB : Using"):
            heard["cards"] = sorted(set(CARDS.findall(text)))
        match = DIRECT.search(text)
        direct = match.group(1) if match and direct != "Enabled" else direct
        match = RANK.search(text)
        if match and int(match.group(2)) > most:
            heard["rank"], most = int(match.group(1)), int(match.group(2))
        for sign, _ in REASONS:
            if sign in text:
                why.setdefault(sign, text)
    heard["network"] = SLOW if SLOW in sent else min(sent) if sent else chosen
    # Where GPUs have no NVLink, NCCL receives through them and sends from the node's memory (NCCL_NET_GDR_READ).
    known = direct and (direct == "Disabled" or not sent)
    heard["direct"] = through_gpus if through_gpus or received else direct == "Enabled" if known else None
    heard["why"] = next((why[sign] for sign, _ in REASONS if sign in why), "")
    heard["warnings"] = heard["warnings"][:2]
    return heard


# === on the primary =================================================================================================


def judge(nodes: "list[tuple[str, list[Heard]]]") -> "list[tuple[str, bool]]":
    """Sentences for the user, each with whether it is a warning of what made the gang slow: NCCL's own warnings, which
    also went to the files, and last its network.

    nodes: the name of each ("node tvm-2 (10.0.0.5)"), and the notes of its processes.
    """
    every = [(node, heard) for node, processes in nodes for heard in processes]
    words = [("NCCL on {}: {}".format(of(*pair), text), False) for pair in every for text in pair[1]["warnings"]][:6]
    known = [pair for pair in every if pair[1]["network"]]
    slow = [pair for pair in known if pair[1]["network"] == SLOW]
    if slow:
        return [*words, (slowly(slow, len(known)), True)]
    return [*words, fast(known)] if known else words


def slowly(slow: "list[tuple[str, Heard]]", count: int) -> str:
    """The first process with a reason represents all."""
    pair = next((pair for pair in slow if pair[1]["why"]), slow[0])
    why = pair[1]["why"]
    advice = next((advice for sign, advice in REASONS if sign in why), REASONS[-1][1])
    return 'NCCL used {} on an RDMA pool ({}{}; {} of {} processes): {}'.format(
        SLOW, of(*pair), f': "{why}"' if why else "", len(slow), count, advice
    )  # fmt: skip


def fast(known: "list[tuple[str, Heard]]") -> "tuple[str, bool]":
    networks = " and ".join(sorted({heard["network"] for _, heard in known}))
    text = "NCCL used " + networks
    cards = {
        node: len({card for other, heard in known if other == node for card in heard["cards"]}) for node, _ in known
    }
    least, most = min(cards.values()), max(cards.values())
    if most:
        text += f" on {most} HCA{'s' * (most > 1)}"
    without = [pair for pair in known if pair[1]["direct"] is False]
    if without:
        text += " without GPUDirect RDMA ({}): data goes through the nodes' memory; is nvidia_peermem loaded?".format(
            of(*without[0])
        )
    elif any(heard["direct"] for _, heard in known):
        text += " with GPUDirect RDMA"
    if least < most:
        node = min(cards, key=lambda node: cards[node])
        text += f"; on {node} only {least}: is a port down there?"
    return text, least < most


def of(node: str, heard: "Heard") -> str:
    return "{}, rank {}".format(node, heard["rank"]) if heard["rank"] >= 0 else node


def collected(text: str) -> "tuple[str, list[Heard]]":
    """Parses a file that gang.sh copied from a node."""
    node, _, rest = text.partition("\n")
    files = {}  # type: dict[str, list[str]]
    for line in rest.split("\n"):
        name, _, note = line.partition(":")
        files.setdefault(name, []).append(note)
    return node, [hear(lines) for name, lines in sorted(files.items()) if name]


def main(stream: str, *paths: str) -> int:
    """Print the sentences of files that gang.sh collected, and add the warnings to stream.jsonl."""
    nodes = []
    for path in paths:
        with open(path, "rb") as file:
            nodes.append(collected(file.read().decode("utf-8", "replace")))
    for sentence, is_warning in judge([node for node in nodes if node[0]]):
        os.write(2, "batchtrain: {}{}\n".format("warning: " * is_warning, sentence).encode("utf-8", "replace"))
        if is_warning:
            with open(stream, "a", encoding="utf-8") as file:
                file.write(json.dumps({"warning": sentence}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
