"""Sends recorded exchanges (BATCHTRAIN_RECORD) to the emulator: `python -m tests.replay DIR` prints each difference in
status, headers, keys and values, and exits with 11 if there is one.

Ids of nodes, times, ETags, addresses and ids of requests differ between any two accounts, so only their presence is
compared. States change with time: a GET is repeated until it answers as recorded. Of a GET that was recorded several
times, only the last answer is compared whole.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
import requests

from batchtrain.emulator import tokens, wire
from batchtrain.emulator.server import Settings, Status, clock
from batchtrain.emulator.serving import Emulator
from batchtrain.service.recording import HEADERS, Exchange

DIFFERS = 11
PATIENCE = 20.0
"""Seconds for which a GET is repeated."""
ACCOUNTS_OWN = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+Z|0x[0-9A-F]+|\w{3}, \d\d \w{3} \d{4} .*GMT|tvmps_[0-9a-f]{64}_[dp]|(?:\d+\.){3}\d+"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|P[0-9T].*"
)
"""Texts that differ between any two accounts, and durations that were measured."""
NODE = re.compile(r"tvmps_[0-9a-f]{64}_[dp]")
MADE_UP = frozenset({"odata.nextLink", "hostname", "publicFQDN", "scaleSetVmResourceId", "exactVersion", "version"})
"""Properties whose values the emulator makes up."""


ANYTHING = "*"
"""In place of an answer that another one replaced."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    document: Any


Send = Callable[[Exchange], Answer]


def exchanges(directory: Path) -> Iterator[Exchange]:
    """The recorded exchanges in their order."""
    for path in sorted(directory.glob("*.json")):
        yield msgspec.json.decode(path.read_bytes(), type=Exchange)


def replay(recorded: Iterable[Exchange], send: Send, patience: float = PATIENCE) -> Iterator[str]:
    """Each difference between the recorded answers and those of `send`, with its request."""
    nodes: dict[str, str] = {}
    every_exchange = list(recorded)
    last = {_question(exchange): index for index, exchange in enumerate(every_exchange)}
    for index, exchange in enumerate(every_exchange):
        here = _with_nodes(exchange, nodes)
        if here.verb == "GET" and last[_question(exchange)] != index:
            here = msgspec.structs.replace(here, answer=ANYTHING)
        until = time.monotonic() + patience
        answer = send(here)
        while here.verb == "GET" and list(differences(here, answer)) and time.monotonic() < until:
            time.sleep(0.1)
            answer = send(here)
        nodes |= dict(_same_nodes(exchange.answer, answer.document))
        for difference in differences(here, answer):
            yield f"{exchange.verb} {exchange.path}: {difference}"


def _question(exchange: Exchange) -> tuple[str, ...]:
    return exchange.verb, exchange.path, urlencode(sorted(exchange.query.items()))


def differences(exchange: Exchange, answer: Answer) -> Iterator[str]:
    """What of an answer is not as recorded."""
    if exchange.status != answer.status:
        yield f"status: {exchange.status} recorded, {answer.status} here"
    headers = {name: value for name, value in answer.headers.items() if name in HEADERS}
    yield from _objects(exchange.headers, headers, "header ")
    if exchange.answer != ANYTHING:
        yield from _values(exchange.answer, answer.document, "")


def _objects(recorded: dict[str, Any], here: dict[str, Any], path: str) -> Iterator[str]:
    for name in dict.fromkeys((*recorded, *here)):
        if name not in here or name not in recorded:
            yield f"{path}{name}: {'only recorded' if name in recorded else 'only here'}"
        elif name not in MADE_UP:
            yield from _values(recorded[name], here[name], f"{path}{name}")


def _values(recorded: Any, here: Any, path: str) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(here, dict):
        yield from _objects(recorded, here, f"{path}/" if path else "")
    elif isinstance(recorded, list) and isinstance(here, list) and len(recorded) == len(here):
        for index, pair in enumerate(zip(recorded, here, strict=True)):
            yield from _values(*pair, f"{path}[{index}]")
    elif _plain(recorded) != _plain(here):
        yield f"{path}: {recorded!r} recorded, {here!r} here"


def _plain(value: Any) -> Any:
    """A value without what differs between any two accounts."""
    return ACCOUNTS_OWN.sub("*", value) if isinstance(value, str) else value


def _same_nodes(recorded: Any, here: Any) -> Iterator[tuple[str, str]]:
    """The ids of recorded nodes, and those of the nodes in their place."""
    text, other = msgspec.json.encode(recorded).decode(), msgspec.json.encode(here).decode()
    return zip(dict.fromkeys(NODE.findall(text)), dict.fromkeys(NODE.findall(other)), strict=False)


def _with_nodes(exchange: Exchange, nodes: dict[str, str]) -> Exchange:
    text = msgspec.json.encode(exchange).decode()
    return msgspec.json.decode(NODE.sub(lambda match: nodes.get(match[0], match[0]), text), type=Exchange)


def sender(status: Status | Emulator) -> Send:
    """Sends a request to an emulator, signed with a token, and waits for the answer."""
    session = requests.Session()
    session.trust_env = False

    def send(exchange: Exchange) -> Answer:
        token = tokens.issue(status.key, status.account, wire.AUDIENCE, clock())
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json; odata=minimalmetadata"}
        url = f"{status.endpoint}{exchange.path}?{urlencode(exchange.query)}"
        text = msgspec.json.encode(exchange.body).decode() if exchange.body is not None else ""
        body = text.replace("{base}", status.endpoint) if text else None
        response = session.request(exchange.verb, url, data=body, headers=headers, timeout=60)
        received = {name.lower(): value.replace(status.endpoint, "{base}") for name, value in response.headers.items()}
        is_json = received.get("content-type", "").startswith("application/json") and response.text
        document = msgspec.json.decode(response.text.replace(status.endpoint, "{base}")) if is_json else None
        return Answer(response.status_code, received, document)

    return send


def main(directory: Path) -> int:
    """Replay a recording on a new emulator."""
    with tempfile.TemporaryDirectory() as home, Emulator(Settings(Path(home) / "emulator", port=0)) as status:
        found = list(replay(exchanges(directory), sender(status)))
    print("\n".join(found) or "no difference")
    return DIFFERS if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
