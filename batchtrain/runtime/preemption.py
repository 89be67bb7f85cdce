"""preemption.py [FILE PROCESS [SIGNAL [RANKS]]]: waits until Azure announces that this virtual machine is preempted.

It asks Azure's Instance Metadata Service for the scheduled events of the machine, every second. Then it prints one
line: {"node": "tvmps_…", "not_before": 1764000000.0} (seconds since 1970, UTC). With PROCESS it writes the line to FILE
instead, sends SIGNAL to every process below PROCESS except shells, and ends when PROCESS has ended. With RANKS, the
directory where rank.sh notes its ranks, these get SIGNAL, with the processes below them. The record of the attempt gets
the announcement as well (attempt.sh).

The emulator has no such service. It writes the same document to a file of the node. Standard library, Python 3.6 or
later.
"""

import calendar
import email.utils
import http.client
import json
import os
import signal
import sys
import time

HOST = "169.254.169.254"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
PATIENCE = 150
"""Seconds. The first request switches the events on, which takes up to two minutes."""
MOST = 1 << 20
"""Bytes of an answer that are read."""
UNREADABLE = (OSError, ValueError, http.client.HTTPException, AttributeError, OverflowError, RecursionError, TypeError)
"""Errors of an answer that is not there yet, is cut off, or is not that of the service; it is asked again."""
EMULATED = "volatile/scheduledevents.json"
"""Below the directory of an emulated node."""
SHELLS = ("bash", "sh", "dash", "ash", "busybox")


def announced(document: "dict[str, object]", name: str) -> "float | None":
    """When the machine of this name is preempted at the earliest; None for a document that does not say so."""
    events = document.get("Events")
    moments = [
        moment(event.get("NotBefore"))
        for event in (events if isinstance(events, list) else [])
        if event.get("EventType") == "Preempt" and (not name or name in event.get("Resources", []))
    ]
    return min(moments) if moments else None


def moment(text: "str | None") -> float:
    """`Mon, 19 Sep 2016 18:29:47 GMT`; an event that has begun has none."""
    fields = email.utils.parsedate(text or "")
    return float(calendar.timegm(fields)) if fields else time.time()


def asked(path: str) -> bytes:
    """The answer of the metadata service, past any proxy."""
    connection = http.client.HTTPConnection(HOST, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={"Metadata": "true"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"status {answer.status}")
        return answer.read(MOST)
    finally:
        connection.close()


def events() -> "tuple[bytes, str]":
    """The document of the scheduled events, and the machine's name in it; no name on an emulated node."""
    if not os.environ.get("BATCHTRAIN_EMULATED_NODE"):
        return asked(EVENTS), asked(NAME).decode().strip()
    with open(os.path.join(os.environ["AZ_BATCH_NODE_ROOT_DIR"], EMULATED), "rb") as file:
        return file.read(), ""


def wait(process: int) -> "float | None":
    """Until a preemption is announced, or the process has ended."""
    while not process or os.path.exists(f"/proc/{process}"):
        try:
            document, name = events()
            at = announced(json.loads(document.decode()), name)
            if at is not None:
                return at
        except UNREADABLE:
            pass
        time.sleep(1)
    return None


def write(path: str, line: str) -> None:
    with open(path + ".new", "w") as file:
        file.write(line + "\n")
    os.replace(path + ".new", path)


def note(node: str, at: float) -> None:
    """The announcement among the records of the attempt, if this node reaches their directory."""
    folder = os.environ.get("BATCHTRAIN_ATTEMPT_DIR", "")
    if not os.path.isdir(folder):
        return
    now, number = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), int(os.environ["BATCHTRAIN_ATTEMPT"])
    record = {"event": "preempted", "attempt": number, "time": now, "node": node, "not_before": at}
    try:
        write(os.path.join(folder, f"preempted.{node}.json"), json.dumps(record))
    except OSError:  # the volume is full or gone; the processes are told all the same
        pass


def ranks_in(directory: str) -> "list[int]":
    """The processes of the ranks of this node."""
    processes = []
    for name in os.listdir(directory):
        if name.endswith(".pid"):
            with open(os.path.join(directory, name)) as file:
                line = file.readline()
            if line.strip():  # else it is just being written, by a rank that starts
                processes.append(int(line))
    return processes


def tell(process: int, number: int, ranks: str) -> None:
    children: "dict[int, list[int]]" = {}
    names: "dict[int, str]" = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", errors="replace") as file:
                head, _, tail = file.read().rpartition(") ")
        except OSError:
            continue
        names[int(entry)] = head.partition("(")[2]
        children.setdefault(int(tail.split()[1]), []).append(int(entry))
    below = ranks_in(ranks) if ranks else list(children.get(process, []))
    for pid in below:
        below.extend(children.get(pid, []))
        if pid in names and names[pid] not in SHELLS:
            try:
                os.kill(pid, number)
            except OSError:  # it has ended
                pass


def main(arguments: "list[str]") -> None:
    process = int(arguments[1]) if arguments else 0
    at = wait(process)
    if at is None:
        return
    node = os.environ.get("AZ_BATCH_NODE_ID", "")
    note(node, at)
    line = json.dumps({"node": node, "not_before": at})
    if not arguments:
        os.write(1, line.encode() + b"\n")
        return
    write(arguments[0], line)
    number, ranks = (*arguments[2:], "", "")[:2]
    if number:
        tell(process, getattr(signal, number), ranks)


if __name__ == "__main__":
    main(sys.argv[1:])
