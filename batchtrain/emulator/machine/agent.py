"""The init of one emulated node: starts its runs and its ssh sessions, reaps, and ends everything it started.

Started by `process.py` as `python -I -S agent.py FD NODE`. It runs with no `sys.path`: standard library only, and
`rooted_path.py`, which lies beside it. It knows nothing of Batch: requests contain programs, directories and
environments.

The rules it keeps:

* When the control socket FD reaches its end (the machine closed it, or died), the node ends: in a process namespace
  the kernel kills all of it with its init, otherwise every descendant is killed before the agent exits.
* Every scope has a supervisor, a fork of the agent that is a *subreaper*: whatever a run leaves behind, daemons in
  sessions of their own included, becomes a child of its supervisor and of no other process. A scope without children is
  a scope without processes.
* Nothing waits for the end of a stream (an orphan may hold it open for ever) and nothing polls on a clock.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time

if __name__ == "__main__":
    sys.path.append(os.path.dirname(__file__))  # appended, so that no file there hides a module of Python
    from rooted_path import RootedPath, is_below  # type: ignore[import-not-found, unused-ignore]  # the same file
else:
    from batchtrain.emulator.machine.rooted_path import RootedPath, is_below

# Type checkers take this name as true; importing `typing` would cost a third of the start-up time of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

    Message = dict[str, Any]

# --- the kernel -------------------------------------------------------------------------------------------------

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 24, 36
ESCAPES = {"dac_read_search": 2, "sys_module": 16, "sys_rawio": 17, "sys_ptrace": 19, "sys_admin": 21, "mknod": 27,
           "perfmon": 38, "bpf": 39, "checkpoint_restore": 40}  # fmt: skip
"""Capabilities (capabilities(7)) that let root leave its mounts or enter the agent."""
KERNEL = ("dev", "proc", "sys")
"""Top-level directories that stay writable."""
SERVANTS = ("/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/systemd/private",
            "/run/dbus/system_bus_socket")  # fmt: skip
"""Sockets of programs that run commands outside of the node on request, which no task may reach."""

_libc = ctypes.CDLL(None, use_errno=True)


def _kernel(call: str, *arguments: object) -> None:
    """One libc call; OSError with the call's name when it fails."""
    if getattr(_libc, call)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encode = os.fsencode
    try:
        _kernel(
            "mount", encode(source), encode(target), kind and encode(kind), ctypes.c_ulong(flags), data and encode(data)
        )
    except OSError as error:
        raise OSError(error.errno, f"mount {target}: {os.strerror(error.errno or 0)}") from None


def _bind(source: str, target: str) -> None:
    _mount(source, target, None, MS_BIND | MS_REC)


def enter_network(path: str) -> None:
    """Join a network namespace that another process holds open. Only root may. An empty path changes nothing."""
    if path:
        fd = os.open(path, os.O_RDONLY)
        try:
            _kernel("setns", fd, CLONE_NEWNET)
        finally:
            os.close(fd)


def enter_namespaces(boot: Message) -> View:
    """Leave the machine's mounts, host name, IPC and process tree; the next fork becomes pid 1 of the new tree.

    An ordinary user gets these only inside a user namespace, where it is mapped to itself, so files keep their owner
    and programs see the same uid as outside. `setgroups` must be denied before the kernel takes a gid map.
    """
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID
    uid, gid = os.getuid(), os.getgid()
    _kernel("unshare", flags | (CLONE_NEWUSER if boot["user_namespace"] else 0))
    if boot["user_namespace"]:
        for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            _write(f"/proc/self/{file}", text)
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    socket.sethostname(boot["hostname"])
    return View(boot)


class View:
    """The root of a node: the files of this machine, read-only, without its /tmp and the emulator's data directory.

    Each node has its own /tmp: a script would take a common one for shared storage. Open MPI's daemons name their
    directories there by pid, so a daemon would refuse the directory of another with the same pid. The data directory
    holds the key of the account, and files of other nodes and pools. Mount points are directories of file systems in
    memory, so none appears on this machine.
    """

    def __init__(self, boot: Message) -> None:
        self._data_dir = data_dir = boot["data_dir"]
        self._machine = os.open("/", os.O_PATH | os.O_DIRECTORY)
        self._exposed: list[str] = []
        self._mount_points: dict[str, str] = {}
        """By path of the node: the same path without links."""
        own_tmp = os.open(boot["tmp"], os.O_PATH)
        new_root = "/tmp"  # the only directory of this machine that is not part of the new root
        _mount("tmpfs", new_root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
        _show_entries(self._machine, new_root, leave_out="tmp")
        _make_read_only(new_root, (f"{new_root}/{name}" for name in KERNEL))
        os.makedirs(f"{new_root}/tmp")
        for path in ("/tmp", "/var/tmp"):
            if os.path.isdir(f"{new_root}{path}"):
                _bind(_by_fd(own_tmp), f"{new_root}{path}")
        os.close(own_tmp)
        os.makedirs(f"{new_root}{data_dir}", exist_ok=True)
        _kernel("pivot_root", os.fsencode(new_root), os.fsencode(f"{new_root}{data_dir}"))
        os.chdir("/")
        _mount("tmpfs", data_dir, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")  # covers the machine's root, too
        for path in sorted(boot["visible_paths"]):
            self.expose(path)
        for servant in filter(os.path.exists, SERVANTS):
            _bind("/dev/null", servant)
        if os.path.isdir(session := f"/run/user/{os.getuid()}"):
            _mount("tmpfs", session, "tmpfs", MS_NOSUID | MS_NODEV, "mode=700,size=1m")
        for source, target, read_only in boot["binds"]:
            self.mount(source, target, read_only=read_only)

    def expose(self, path: str) -> None:
        """Show a directory of this machine at its own path; returns if it, or a directory above or in it, is shown."""
        has_shown = any(is_below(other, path) for other in (self._data_dir, *self._exposed))
        if not has_shown and not any(is_below(path, other) for other in self._exposed):
            self.mount(path, path, read_only=True)
            self._exposed.append(path)

    def unmount(self, target: str) -> None:
        _kernel("umount2", os.fsencode(self._mount_points.pop(target)), MNT_DETACH)

    def mount(self, source: str, target: str, *, read_only: bool) -> None:
        """Mount a file or directory of this machine, whose path has no links, at a path of the node."""
        machine_path = f"{_by_fd(self._machine)}{source}"
        mount_point = _mount_point(target, is_directory=os.path.isdir(machine_path))
        _bind(machine_path, mount_point)
        self._mount_points[target] = mount_point
        if is_below(self._data_dir, source.rstrip("/")):
            _mount("tmpfs", f"{mount_point}/{self._data_dir[len(source) :]}", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m")
        if read_only:
            _make_read_only(mount_point)


def _by_fd(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _show_entries(original: int, target: str, leave_out: str = "") -> None:
    """Show each entry of a directory in an empty directory."""
    with os.scandir(_by_fd(original)) as entries:
        for entry in entries:
            source, path = f"{_by_fd(original)}/{entry.name}", f"{target}/{entry.name}"
            if entry.name == leave_out:
                continue
            if entry.is_symlink():
                os.symlink(os.readlink(source), path)
                continue
            if entry.is_dir():
                os.mkdir(path)
            else:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
            _bind(source, path)


def _make_read_only(path: str, exceptions: Iterable[str] = ()) -> None:
    """The mounts at and below a path. The kernel accepts a change only with the existing flags of a mount."""
    writable = tuple(f"{exception}/" for exception in exceptions)
    flags = {"nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC}
    with open("/proc/self/mountinfo", "rb") as file:
        mounts = [line.split()[4:6] for line in file]
    for name, options in mounts:
        mount_point = os.fsdecode(name)
        for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            mount_point = mount_point.replace(code, letter)
        words = options.decode().split(",")
        is_below = mount_point.startswith(f"{path}/") and not f"{mount_point}/".startswith(writable)
        if "ro" in words or not (is_below or (mount_point == path and not writable)):
            continue
        flags_to_keep = sum(flag for word, flag in flags.items() if word in words)
        with contextlib.suppress(FileNotFoundError, PermissionError):  # below a directory that this user cannot enter
            _mount("none", mount_point, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags_to_keep)


def _mount_point(path: str, *, is_directory: bool) -> str:
    """The path, without links, of a directory or file of the node; it is created if it is missing. If its parent is
    read-only, a file system in memory with the same entries covers the parent first."""
    view, inside = RootedPath("/"), path.strip("/")
    nearest = inside.rpartition("/")[0]
    if not _exists(view, inside):
        while not _exists(view, nearest):
            nearest = nearest.rpartition("/")[0]
        if f"{nearest}/".startswith(tuple(f"{name}/" for name in KERNEL)):
            raise OSError(errno.EROFS, f"{path} cannot be made: /{nearest} belongs to the kernel")
        try:
            _make_entry(view, inside, is_directory)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            _cover_with_copy(view, nearest)
            _make_entry(view, inside, is_directory)
    return f"/{view.real(inside).lstrip('/')}"


def _exists(view: RootedPath, path: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        view.status(path)
        return True
    return False


def _make_entry(view: RootedPath, path: str, is_directory: bool) -> None:
    view.make(path if is_directory else path.rpartition("/")[0])
    if not is_directory:
        os.close(view.append(path))


def _cover_with_copy(view: RootedPath, path: str) -> None:
    original = view.directory(path)
    mode = os.fstat(original).st_mode & 0o7777
    directory = view.real(path)
    _mount("tmpfs", directory, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode:o}")
    _show_entries(original, directory)
    os.close(original)


def become_init(boot: Message) -> None:
    """Pid 1 of the new tree: has its own /proc and /dev/shm, and dies with the launcher that waits for it."""
    _kernel("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if os.path.isdir("/dev/shm"):
        _mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    # The nodes share abstract sockets, which programs name by pid: no pid may exist on two nodes.
    with contextlib.suppress(OSError):
        _write("/proc/sys/kernel/ns_last_pid", str(boot["first_pid"]))
    for number in ESCAPES.values():  # no process that this one starts has them, root or not; it keeps its own
        with contextlib.suppress(OSError):  # this kernel does not have it
            _kernel("prctl", PR_CAPBSET_DROP, number, 0, 0, 0)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


# --- messages ---------------------------------------------------------------------------------------------------


class Channel:
    """Messages over a stream socket: four bytes of length, then JSON."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._buffer = bytearray()

    def send(self, message: Message) -> None:
        """The reader notices a peer that is gone: it sees the end of the stream."""
        body = json.dumps(message).encode()
        with contextlib.suppress(OSError):
            self.socket.sendall(struct.pack("!I", len(body)) + body)

    def receive(self) -> list[Message] | None:
        """The messages that one read completes; None at the end of the stream."""
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            return None
        self._buffer += data
        return [json.loads(body) for body in frames(self._buffer)]

    def wait(self) -> Message | None:
        """The first message, or None at the end of the stream."""
        while (messages := self.receive()) is not None:
            if messages:
                return messages[0]
        return None


def frames(buffer: bytearray) -> Iterable[bytes]:
    """Take the complete frames off the front of a buffer."""
    while len(buffer) >= 4:
        end = 4 + struct.unpack_from("!I", buffer)[0]
        if len(buffer) < end:
            return
        body = bytes(buffer[4:end])
        del buffer[:end]
        yield body


class Loop:
    """Calls back when a descriptor is readable, a child changed, or the one deadline passed."""

    def __init__(self, on_child: Callable[[], None]) -> None:
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._on_child = on_child
        self.deadline: float | None = None
        self.on_deadline: Callable[[], None] = lambda: None
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.watch(self._woken, self._drain)

    def watch(self, fd: int, reader: Callable[[], None]) -> None:
        self._readers[fd] = reader
        self._poll.register(fd, select.POLLIN)

    def forget(self, fd: int) -> None:
        del self._readers[fd]
        self._poll.unregister(fd)

    def run(self) -> NoReturn:
        while True:
            for fd, _ in self._poll.poll(self._timeout()):
                if fd in self._readers:
                    self._readers[fd]()
            if self.deadline is not None and time.monotonic() >= self.deadline:
                self.deadline = None
                self.on_deadline()

    def _timeout(self) -> int | None:
        return None if self.deadline is None else max(0, int((self.deadline - time.monotonic()) * 1000) + 1)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 512):
                pass
        self._on_child()


# --- the process tree -------------------------------------------------------------------------------------------


def descendants(ancestor: int) -> list[int]:
    """Every living process below `ancestor`, parents first, as /proc has it now."""
    below: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            below.setdefault(_parent(entry), []).append(int(entry))
    pids = list(below.get(ancestor, ()))
    for pid in pids:
        pids.extend(below.get(pid, ()))
    return pids


def children(parent: int) -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _parent(entry) == parent]


def _parent(pid: str) -> int:
    """The parent of a process; 0 if it is gone. The name of a program may contain `)`: the last one ends it. A process
    whose first thread has ended is a zombie with other threads."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if not fields or (fields[0], fields[17]) == (b"Z", b"1") else int(fields[1])


def signal_tree(ancestor: int, number: int) -> bool:
    """Signal every descendant. Returns False if there are some and none may be signalled (they are another user's)."""
    allowed = [_signal(pid, number) for pid in descendants(ancestor)]
    return any(allowed) or not allowed


def _signal(pid: int, number: int) -> bool:
    """Returns False if this user may not signal it; a process that is gone counts as signalled."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True


def kill_tree(ancestor: int) -> bool:
    """Freeze, then kill: a stopped tree cannot escape by forking. A process that escapes between two reads of /proc
    becomes a child of the subreaper when its parent dies; the next call, after this death, finds it."""
    signal_tree(ancestor, signal.SIGSTOP)
    return signal_tree(ancestor, signal.SIGKILL)


def reap() -> tuple[dict[int, int], bool]:
    """(status by pid of the children that ended, whether any child is left)."""
    statuses: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return statuses, False
        if pid == 0:
            return statuses, True
        statuses[pid] = status


def end_everything() -> None:
    """Kill every descendant until none is left (or only another user's are)."""
    while reap()[1] and kill_tree(os.getpid()):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


# --- starting programs ------------------------------------------------------------------------------------------


class LaunchError(Exception):
    """A program that did not start; `code` is the failure code of Batch."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def spawn(program: list[str], environment: dict[str, str], directory: str | int, stdio: tuple[int, int, int]) -> int:
    """Start a program in its own session and return its pid once it really runs (its exec succeeded).

    posix_spawn borrows this process's memory instead of copying its page tables, at a third of a fork's price; the
    child begins where its parent stands.
    """
    os.chdir(directory)
    try:
        return _spawn(program, environment, stdio)
    except ValueError as error:  # the argument contains a NUL
        raise LaunchError("CommandLaunchFailed", str(error)) from None
    finally:
        os.chdir("/")


_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these two signals, and exec would pass that on."""


def _spawn(program: list[str], environment: dict[str, str], stdio: tuple[int, int, int]) -> int:
    """Like execvpe, but distinguishes a file that cannot start from a program that does not exist."""
    name, failure = program[0], ""
    actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(stdio)]
    folders = [""] if "/" in name else environment.get("PATH", os.defpath).split(":")
    for folder in folders:
        file = os.path.join(folder, name)
        try:
            return os.posix_spawn(file, program, environment, file_actions=actions, setsid=True, setsigdef=_IGNORED)
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.exists(file):
                failure = failure or f"{file}: its interpreter was not found ({error.strerror})"
        except OSError as error:
            failure = failure or f"{file}: {error.strerror}"
    if failure:
        raise LaunchError("CommandLaunchFailed", failure)
    raise LaunchError("CommandProgramNotFound", f"{name}: no such program on the node")


def exit_code(status: int) -> int:
    """The exit code as a shell reports it: 128 + n for a program that signal n ended."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


# --- a scope's supervisor ---------------------------------------------------------------------------------------


class Supervisor:
    """Runs the programs of one scope. It exits when it is asked to end them and none is left."""

    def __init__(self, sock: socket.socket) -> None:
        _kernel("prctl", PR_SET_CHILD_SUBREAPER, 1)
        self._agent = Channel(sock)
        self._runs: dict[int, int] = {}
        self._ending = False
        self._killing = False
        self._loop = Loop(self._on_child)
        self._loop.on_deadline = self._kill
        self._loop.watch(sock.fileno(), self._on_message)

    def serve(self) -> NoReturn:
        self._loop.run()

    def _on_message(self) -> None:
        messages = self._agent.receive()
        if messages is None:
            end_everything()
            os._exit(0)
        for message in messages:
            if message["op"] == "run":
                self._run(message)
            else:
                self._end(message["grace"])

    def _run(self, run: Message) -> None:
        try:
            self._runs[self._start(run)] = run["id"]
        except (LaunchError, OSError) as error:
            code = error.code if isinstance(error, LaunchError) else "CommandLaunchFailed"
            self._agent.send({"event": "failed", "id": run["id"], "code": code, "message": str(error)})

    def _start(self, run: Message) -> int:
        """A container's task may have put links into the node's directory, which this user may follow further."""
        node, directory = RootedPath(run["root"]), run["directory"]
        fds: list[int] = []
        try:
            fds.append(os.open(os.devnull, os.O_RDONLY))
            fds.append(node.append(f"{directory}/stdout.txt"))
            fds.append(node.append(f"{directory}/stderr.txt"))
            fds.append(node.directory(f"{directory}/wd"))
            return spawn(run["program"], run["environment"], fds[3], (fds[0], fds[1], fds[2]))
        finally:
            for fd in fds:
                os.close(fd)

    def _end(self, grace: float) -> None:
        self._ending = True
        self._on_child()  # usually no process is left and this was the end
        signal_tree(os.getpid(), signal.SIGTERM)
        signal_tree(os.getpid(), signal.SIGCONT)  # a stopped process receives its SIGTERM only when it continues
        self._loop.deadline = time.monotonic() + grace
        self._on_child()

    def _kill(self) -> None:
        self._killing = True
        self._on_child()

    def _on_child(self) -> None:
        statuses, any_left = reap()
        for pid, status in statuses.items():
            if pid in self._runs:
                self._agent.send({"event": "exit", "id": self._runs.pop(pid), "code": exit_code(status)})
        if not self._ending:
            return
        if not any_left or (self._killing and not kill_tree(os.getpid())):
            os._exit(0)


class Scope:
    """The agent's end of the connection to a supervisor."""

    def __init__(self, channel: Channel, supervisor: int) -> None:
        self.channel = channel
        self.supervisor = supervisor
        self.runs: set[int] = set()
        self.enders: list[int] = []
        """Requests that are answered when the supervisor is gone, after its last process."""


# --- an ssh session ---------------------------------------------------------------------------------------------


class Login:
    """A connection of the `ssh` stand-in: three descriptors, then one frame `client NUL port NUL command`."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._stdio: list[int] = []
        self._buffer = bytearray()

    def receive(self) -> tuple[str, str, str] | None:
        """(client address, its port, command), or None if more is to come. Raises EOFError if the client is gone."""
        data, fds, _, _ = socket.recv_fds(self.socket, 1 << 16, 3)
        for fd in fds:  # they arrive inheritable: the daemon of another session would keep these streams open
            os.set_inheritable(fd, False)
        self._stdio += fds
        if not data:
            raise EOFError
        self._buffer += data
        for body in frames(self._buffer):
            client, port, command = os.fsdecode(body).split("\0", 2)
            return client, port, command
        return None

    def stdio(self) -> tuple[int, int, int]:
        stdin, stdout, stderr = self._stdio
        return stdin, stdout, stderr

    def close_stdio(self) -> None:
        for fd in self._stdio:
            os.close(fd)
        self._stdio = []

    def finish(self, status: int) -> None:
        """The client may be dead: sshd without a terminal keeps the session, and so does this."""
        with contextlib.suppress(OSError):
            self.socket.sendall(bytes([status]))
        self.socket.close()


# --- the agent --------------------------------------------------------------------------------------------------


class Agent:
    """One node. Answers the machine on the control socket and the `ssh` stand-ins on the node's own socket."""

    def __init__(self, control: Channel, boot: Message, login_socket: socket.socket, view: View | None) -> None:
        self._control = control
        self._boot = boot
        self._view = view
        self._scopes: dict[str, Scope] = {}
        self._supervisors: set[int] = set()
        self._sessions: dict[int, Login] = {}
        self._killing = False
        """A supervisor was killed, and its processes are not yet gone."""
        self._loop = Loop(self._on_child)
        self._login_socket = login_socket

    def serve(self) -> NoReturn:
        self._loop.watch(self._control.socket.fileno(), self._on_control)
        self._loop.watch(self._login_socket.fileno(), self._on_connection)
        gc.collect()
        gc.freeze()  # supervisors are forks: pages that the garbage collector does not touch stay shared
        self._control.send({"event": "up", "id": 0, "pid": self._boot.get("pid", os.getpid())})
        self._loop.run()

    def _on_control(self) -> None:
        messages = self._control.receive()
        if messages is None:
            if os.getpid() != 1:  # the kernel kills a process namespace together with its init
                end_everything()
            os._exit(0)
        for message in messages:
            _OPERATIONS[message["op"]](self, message)

    def _expose(self, message: Message) -> None:
        try:
            if self._view is not None:
                self._view.expose(message["path"])
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
        self._control.send({"event": "exposed", "id": message["id"]})

    def _mount(self, message: Message) -> None:
        assert self._view is not None  # the machine asks only nodes with namespaces
        failure = ""
        try:
            self._view.mount(message["source"], message["target"], read_only=message["read_only"])
        except OSError as error:
            failure = str(error)
        self._control.send({"event": "mounted", "id": message["id"], "failure": failure})

    def _unmount(self, message: Message) -> None:
        assert self._view is not None
        with contextlib.suppress(OSError):
            self._view.unmount(message["target"])
        self._control.send({"event": "unmounted", "id": message["id"]})

    # runs

    def _run(self, message: Message) -> None:
        name = message["scope"]
        if name not in self._scopes:
            self._scopes[name] = self._supervise(name)
        self._scopes[name].runs.add(message["id"])
        self._scopes[name].channel.send(message)

    def _end(self, message: Message) -> None:
        """The name of the scope is free at once: a run that comes while the old processes end gets a new supervisor."""
        scope = self._scopes.pop(message["scope"], None)
        if scope is None:
            self._control.send({"event": "ended", "id": message["id"]})
            return
        scope.enders.append(message["id"])
        _signal(scope.supervisor, signal.SIGCONT)  # a task's `kill -STOP -1` stops its supervisor too
        scope.channel.send(message)

    def _supervise(self, name: str) -> Scope:
        parent_end, child_end = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            _supervise(child_end)
        child_end.close()
        self._supervisors.add(pid)
        scope = Scope(Channel(parent_end), pid)
        self._loop.watch(parent_end.fileno(), lambda: self._on_scope(name, scope))
        return scope

    def _on_scope(self, name: str, scope: Scope) -> None:
        messages = scope.channel.receive()
        if messages is None:
            self._forget(name, scope)
            return
        for message in messages:
            scope.runs.discard(message["id"])
            self._control.send(message)

    def _forget(self, name: str, scope: Scope) -> None:
        """The supervisor is gone, and with it the scope. If it was killed, the exit codes of its runs are lost."""
        self._loop.forget(scope.channel.socket.fileno())
        scope.channel.socket.close()
        if self._scopes.get(name) is scope:
            del self._scopes[name]
        for run in scope.runs:
            self._control.send({"event": "exit", "id": run, "code": 128 + signal.SIGKILL})
        with contextlib.suppress(ChildProcessError):  # its socket ends before its children become children of the agent
            os.waitpid(scope.supervisor, 0)
        self._supervisors.discard(scope.supervisor)
        if not scope.enders:
            self._kill_orphans()
        for request in scope.enders:
            self._control.send({"event": "ended", "id": request})

    def _kill_orphans(self) -> None:
        """The processes of a killed supervisor; their children become visible when they die."""
        others = self._supervisors | self._sessions.keys()
        # A daemon that an ssh session started is also a child of the agent, and continues.
        orphans = [pid for pid in children(os.getpid()) if pid not in others and not _is_of_a_session(pid)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in orphans:
                _signal(pid, number)
                signal_tree(pid, number)
        self._killing = bool(orphans)

    # ssh sessions

    def _on_connection(self) -> None:
        login = Login(self._login_socket.accept()[0])
        self._loop.watch(login.socket.fileno(), lambda: self._on_login(login))

    def _on_login(self, login: Login) -> None:
        try:
            request = login.receive()
        except (EOFError, OSError, ValueError):
            self._loop.forget(login.socket.fileno())
            login.close_stdio()
            login.socket.close()
            return
        if request is not None:
            self._loop.forget(login.socket.fileno())
            self._start_session(login, *request)

    def _start_session(self, login: Login, client: str, port: str, command: str) -> None:
        """As sshd does: the user's shell in the home directory, with the environment of the node and nothing of the
        caller's. Without a command, the shell reads its commands from stdin."""
        environment = dict(self._boot["environment"])
        environment["SSH_CLIENT"] = f"{client} {port} 22"
        environment["SSH_CONNECTION"] = f"{client} {port} {self._boot['address']} 22"
        shell = environment["SHELL"]
        program = [shell, "-c", command] if command else [shell]
        try:
            pid = spawn(program, environment, environment["HOME"], login.stdio())
            self._sessions[pid] = login
        except (LaunchError, OSError, ValueError) as error:
            print(f"ssh session: {error}", file=sys.stderr, flush=True)
            login.finish(255)
        finally:
            login.close_stdio()

    def _on_child(self) -> None:
        """Ends sessions. The channel reports the end of a supervisor; any other process was an orphan of the node."""
        for pid, status in reap()[0].items():
            login = self._sessions.pop(pid, None)
            if login is not None:
                login.finish(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 255)
        if self._killing:
            self._kill_orphans()


_OPERATIONS = {"run": Agent._run, "end": Agent._end, "expose": Agent._expose, "mount": Agent._mount,
               "unmount": Agent._unmount}  # fmt: skip


def _is_of_a_session(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0SSH_CONNECTION=" in b"\0" + file.read()
    except OSError:
        return False


def _listen(folder: str, address: str) -> socket.socket:
    """The socket of the node. It is bound through the descriptor of the folder: a unix address has at most 107 bytes,
    and the path of a data directory may be longer."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        login_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address, dir_fd=fd)
        login_socket.bind(f"/proc/self/fd/{fd}/{address}")
        login_socket.listen(256)
        return login_socket
    finally:
        os.close(fd)


def _supervise(sock: socket.socket) -> NoReturn:
    """A fork of the agent. It must not keep the agent's sockets open; their ends would go unnoticed."""
    try:
        keep = sock.detach()
        _close(_open_files() - {keep})
        Supervisor(socket.socket(fileno=keep)).serve()
    finally:
        os._exit(1)


def _open_files() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2}


def _close(fds: set[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):  # one descriptor was that of the listing
            os.close(fd)


# --- start ------------------------------------------------------------------------------------------------------


def probe(boot: Message) -> NoReturn:
    """Try all that a node with namespaces needs from this kernel; exit 0, or 1 with the reason on stdout."""
    status = 0
    try:
        enter_namespaces(boot)
        if pid := os.fork():
            status = exit_code(os.waitpid(pid, 0)[1])
        else:
            become_init(boot)
    except OSError as error:
        print(error.strerror, flush=True)
        status = 1
    os._exit(status)


def main(control: Channel, boot: Message) -> NoReturn:
    """Become the node that `boot` describes, or report why not."""
    view = None
    try:
        # Before the sockets of the pool become read-only for the node.
        login_socket = _listen(boot["peers"], boot["address"])
        enter_network(boot["network"])
        if boot["isolation"] == "namespaces":
            view = enter_namespaces(boot)
            boot["pid"] = _fork_init()
            become_init(boot)
        else:
            _kernel("prctl", PR_SET_CHILD_SUBREAPER, 1)
        agent = Agent(control, boot, login_socket, view)
    except OSError as error:
        control.send({"event": "failed", "id": 0, "code": "", "message": str(error)})
        os._exit(1)
    agent.serve()


def _fork_init() -> int:
    """Fork the init of the node: only a child can be pid 1 of the new tree. The child returns, with its pid as the
    machine sees it.

    The parent stays, without the control socket, as the child that the machine waits for. It exits when the kernel has
    killed the last process of the tree. It reads what it must close before the fork: the child mounts its own /proc
    over the one that both see, and the parent does not exist in the new one.
    """
    fds = _open_files()
    writer, reader = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        writer.close()  # only then the end of a parent that was killed is seen
        number = reader.recv(16)
        if not number:
            os._exit(1)
        return int(number)
    writer.send(str(pid).encode())
    _close(fds)
    os._exit(exit_code(os.waitpid(pid, 0)[1]))


def _start() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        signal.signal(number, signal.SIG_DFL)  # a shell's background job ignores SIGINT, and exec would pass that on
    os.umask(0o022)
    control = Channel(socket.socket(fileno=int(sys.argv[1])))
    control.socket.set_inheritable(False)
    boot = control.wait()
    if boot is None:
        return
    if boot["op"] == "probe":
        probe(boot)
    main(control, boot)


if __name__ == "__main__":
    _start()
