"""Starts processes, finds them again, and ends them."""

import collections
import os
import select
import signal
import time

from .kernel import text_of
from .spec import HERE, LONGEST, Values


def spawn(
    program: "list[str]",
    environment: "Values",
    directory: str,
    stdio: "tuple[int, int, int]",
    cpus: "list[int]",
    on_sigterm: int = signal.SIG_DFL,
) -> int:
    """A child in its own session. Our own descriptors close by themselves; its stdio must be above 2.

    on_sigterm: what SIGTERM does to it.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, on_sigterm)
        for target, source in enumerate(stdio):
            os.dup2(source, target)
        if cpus:
            os.sched_setaffinity(0, cpus)
        os.chdir(directory)
        values = {encoded(name): encoded(value) for name, value in environment.items()}
        os.execvpe(program[0], [encoded(word) for word in program], values)
    except BaseException as error:  # noqa: BLE001 - a forked child has no other way to tell
        os.write(2, "batchtrain: {}: {}\n".format(program[0], getattr(error, "strerror", error)).encode())
    os._exit(127)


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def own_environment() -> "Values":
    """Decode as UTF-8 in any locale, which may differ by node; all bytes survive."""
    return {decoded(name): decoded(value) for name, value in os.environb.items()}


def prepared(before: str, command: str) -> str:
    """A command with pre_execution_command before it in the same shell; files that it sources must exist."""
    if not before.strip():
        return command
    parts = quoted(os.path.join(HERE, "gang.sh"))
    text = """[ ! -r {0} ] || {{ . {0} && trap 'bt_check_source "$BASH_COMMAND"' DEBUG; }}
{1}

{{ bt_code=$?; trap - DEBUG; set +eu; }} 2>/dev/null
[ "$bt_code" -eq 0 ] || echo "batchtrain: warning: pre_execution_command ended with code $bt_code" >&2
{2}"""
    return text.format(parts, before.strip("\n"), command)


def quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def output_of(program: "list[str]", environment: "Values", directory: str, seconds: float) -> "tuple[int, bytes]":
    """(exit code, output) of a command that answers soon; it is killed at the time limit."""
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    pid = spawn(program, environment, directory, (null, writer, 2), [])
    os.close(writer)
    os.close(null)
    printed, deadline, left = b"", time.monotonic() + seconds, seconds
    while left > 0 and len(printed) < LONGEST and is_ready(reader, select.POLLIN, left):
        data = os.read(reader, 4096)
        if not data:
            break
        printed += data
        left = deadline - time.monotonic()
    else:
        os.killpg(pid, signal.SIGKILL)
    os.close(reader)
    return exit_code(os.waitpid(pid, 0)[1]), printed


def is_ready(fd: int, event: int, seconds: float = 0) -> bool:
    """Wait for data, or the end. Uses poll: select() supports no descriptor above 1023, which many nodes need."""
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(1000 * seconds))


def exit_code(status: int) -> int:
    """The exit code as a shell reports it: 128 plus the signal's number for a process that a signal ended."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def signal_of(code: int) -> int:
    """The signal that ended a process; 0 for none."""
    return code - 128 if 128 < code < 193 else 0


def ending(code: int) -> str:
    return f"was killed by signal {signal_of(code)}" if signal_of(code) else f"exited with code {code}"


def become_subreaper() -> None:
    """Make orphans of our processes our children, in any session. If the kernel cannot, the mark finds them."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        pass


SHELLS = ("bash", "sh", "dash", "ash", "busybox")


class Tree:
    """The processes of this machine, by parent."""

    def __init__(self) -> None:
        self.state: "dict[int, str]" = {}
        self.name: "dict[int, str]" = {}
        self.children: "dict[int, list[int]]" = collections.defaultdict(list)
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                self._read(int(entry))

    def _read(self, pid: int) -> None:
        head, _, tail = text_of(f"/proc/{pid}/stat").rpartition(") ")
        fields = tail.split(" ", 2)
        if len(fields) == 3 and fields[0] not in ("Z", "X"):
            self.state[pid], self.name[pid] = fields[0], head.partition("(")[2]
            self.children[int(fields[1])].append(pid)

    def below(self, pid: int) -> "list[int]":
        """All descendants, without zombies."""
        pids, at = list(self.children.get(pid, ())), 0
        while at < len(pids):
            pids.extend(self.children.get(pids[at], ()))
            at += 1
        return pids

    def programs(self, pid: int) -> "list[int]":
        """The process and its descendants, without shells, which a signal would end."""
        return [child for child in [pid, *self.below(pid)] if self.name.get(child, "") not in ("", *SHELLS)]

    def to_tell(self, pid: int) -> "list[int]":
        """The processes that get SIGTERM: the process, and the children of a shell, which passes no signal on."""
        pids = [pid]
        if self.name.get(pid) in SHELLS:
            for child in self.children.get(pid, ()):
                pids += self.to_tell(child)
        return pids


def marked(mark: str) -> "list[int]":
    """The processes with our mark in their environment, wherever they are."""
    wanted = b"\0BATCHTRAIN_GANG=" + mark.encode() + b"\0"
    pids: "list[int]" = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if wanted in b"\0" + file.read() + b"\0":
                        pids.append(int(entry))
            except OSError:
                continue
    return pids


def left_of(mark: str) -> "list[int]":
    """The remaining processes of the gang."""
    return Tree().below(os.getpid()) or marked(mark)


def send_signal(number: int, pid: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # it is gone, or belongs to another user now
        pass


def reap() -> "list[tuple[int, int]]":
    """(pid, status) of every child that has ended."""
    ended: "list[tuple[int, int]]" = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended.append((pid, status))
