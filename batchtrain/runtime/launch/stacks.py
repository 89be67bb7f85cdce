"""stacks.py NAME: prints the stacks of the Python processes that have this variable with the value it has here, a line
of JSON for each process.

py-spy reads them where it is on the PATH of the process. Otherwise the process writes them by itself, at the signal
that registered_stacks.py has registered. Python 3.6, standard library only.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

SIGNAL = 64
FILE = "/tmp/batchtrain-stacks-"
PATIENCE = 2.0
"""Seconds in which a process writes, or py-spy reads."""
PAUSE = 0.05
LONGEST = 64 << 10
"""Most bytes of the stacks of a process."""
WRAPPER = re.compile(r".* \((?:.*/\.batchtrain/|.*\brunpy(?:\.py|>):).*")
"""A call that only leads to the program: of batchtrain, or of Python's runpy."""


def main(name: str) -> None:
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            values = variables(pid)
            if pid != os.getpid() and values.get(name) == os.environ[name]:
                tell(pid, values)


def variables(pid: int) -> "dict[str, str]":
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = file.read().decode("utf-8", "replace").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def tell(pid: int, values: "dict[str, str]") -> None:
    """Print the stacks of a process that has any: the calls of each thread, the last call and the main thread first."""
    threads = spied(pid, values) or written(pid)
    if threads:
        print(json.dumps({"rank": rank(values), "pid": pid, "program": program(pid), "threads": threads}), flush=True)


def rank(values: "dict[str, str]") -> str:
    """As torchrun numbers it; else as its file of metrics is named."""
    file = os.path.basename(values.get("BATCHTRAIN_METRICS", "")).split(".")[0]
    return values.get("RANK") or (file[5:] if file.startswith("rank-") else file)


def program(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().decode("utf-8", "replace").replace("\0", " ").strip()[:200]


def spied(pid: int, values: "dict[str, str]") -> "list[list[str]]":
    """What py-spy says; empty without it, and for a process that it cannot read."""
    path = shutil.which("py-spy", path=values.get("PATH", ""))
    if path is None or "python" not in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
        return []
    try:
        line = [path, "dump", "--pid", str(pid)]
        result = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return threads_in(result.stdout, r"    (.+)", '"MainThread"')


def written(pid: int) -> "list[list[str]]":
    """What the process writes at the signal; empty if it has not registered for it, or does not answer."""
    text = b""
    for path in files(pid) if catches(pid) else ():
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            os.kill(pid, SIGNAL)
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline and len(text) < LONGEST:
                time.sleep(PAUSE)
                data = file.read()
                if text and not data:
                    break
                text += data
    threads = threads_in(text, r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
    return threads[::-1]  # the main one is last


def threads_in(text: bytes, frame: str, main: str = "") -> "list[list[str]]":
    """The calls of each thread below its head. main: what the head of the main thread has."""
    threads: "list[list[str]]" = []
    calls: "list[str]" = []
    for line in text[:LONGEST].decode("utf-8", "replace").splitlines():
        call = re.fullmatch(frame, line)
        if call:
            named = call.groupdict()
            calls.append("{function} ({file}:{line})".format(**named) if named else call.group(1))
        elif "hread " in line:
            calls = []
            threads.insert(0 if main and main in line else len(threads), calls)
    for calls in threads:
        while len(calls) > 1 and WRAPPER.fullmatch(calls[-1]):
            calls.pop()
    return [calls for calls in threads if calls]


def catches(pid: int) -> bool:
    """Whether the signal has a handler: it would end the process otherwise."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        masks = [line.split()[1] for line in file if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (SIGNAL - 1) & 1)


def files(pid: int) -> "list[str]":
    folder = f"/proc/{pid}/fd/"
    return [folder + fd for fd in os.listdir(folder) if is_ours(folder + fd)]


def is_ours(path: str) -> bool:
    try:
        return FILE in os.readlink(path)
    except OSError:
        return False


if __name__ == "__main__":
    main(sys.argv[1])
