"""The init of a node: its frames, its process trees, how it starts programs and serves ssh sessions."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from batchtrain.emulator.machine import agent
from batchtrain.emulator.machine.agent import Agent, Channel, LaunchError, Login, Loop, Scope
from tests.waiting import GUARD

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}


def framed(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


# --- messages -------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        yield ours, theirs


def test_only_complete_frames_are_taken_off_a_buffer() -> None:
    buffer = bytearray(framed(b"one") + framed(b"") + framed(b"two")[:-1])
    assert list(agent.frames(buffer)) == [b"one", b""]
    assert buffer == framed(b"two")[:-1]
    buffer += b"o"
    assert list(agent.frames(buffer)) == [b"two"]
    assert buffer == b""
    assert list(agent.frames(bytearray(framed(b"")))) == [b""]


def test_a_channel_carries_messages_in_both_directions(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = Channel(pair[0]), Channel(pair[1])
    ours.send({"op": "run"})
    ours.send({"op": "end"})
    assert theirs.receive() == [{"op": "run"}, {"op": "end"}]
    theirs.send({"event": "up"})
    assert ours.wait() == {"event": "up"}


def test_a_message_that_comes_in_parts_is_awaited(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, whole = Channel(pair[0]), framed(b'{"op": "run"}')
    pair[1].sendall(whole[:6])
    assert ours.receive() == []
    pair[1].sendall(whole[6:])
    assert ours.wait() == {"op": "run"}


def test_the_end_of_a_stream_is_no_message(pair: tuple[socket.socket, socket.socket]) -> None:
    ours = Channel(pair[0])
    pair[1].close()
    assert ours.receive() is None
    assert ours.wait() is None
    ours.send({"event": "up"})  # nobody reads it, and that is no error


def test_an_agent_takes_no_ignored_signal_and_no_file_mode_from_its_machine(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket]
) -> None:
    handlers: dict[int, object] = {}
    masks: list[int] = []
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(os, "umask", masks.append)
    monkeypatch.setattr(sys, "argv", ["agent.py", str(pair[0].detach())])
    pair[1].close()
    agent._start()
    fixed = {signal.SIGKILL, signal.SIGSTOP}
    assert handlers.keys() == signal.valid_signals() - fixed - {signal.SIGPIPE, signal.SIGXFSZ}
    assert (set(handlers.values()), masks) == ({signal.SIG_DFL}, [0o022])


# --- where a node mounts --------------------------------------------------------------------------------------------


class Files:
    """The files of a node, of which only `/usr` exists; the first entries that are made fail."""

    def __init__(self, *failures: int) -> None:
        self.failures, self.entries = list(failures), ["usr"]

    def status(self, path: str) -> None:
        if path not in self.entries:
            raise FileNotFoundError(path)

    def make(self, path: str) -> None:
        if self.failures:
            raise OSError(self.failures.pop(), path)
        self.entries.append(path)

    def real(self, path: str) -> str:
        return path


def test_an_init_whose_parent_is_killed_before_it_has_its_number_ends() -> None:
    program = (
        "import os; from batchtrain.emulator.machine import agent; fork = os.fork\n"
        "os.fork = lambda: fork() and os._exit(0)\n"
        "agent._fork_init()"
    )
    subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=GUARD)  # until both end


@pytest.mark.parametrize(
    ("failures", "covered"), [([], []), ([errno.EROFS], ["usr"]), ([errno.EACCES], ["usr"]), ([errno.EPERM], ["usr"])]
)
def test_a_parent_that_cannot_be_changed_is_covered_where_it_exists(
    monkeypatch: pytest.MonkeyPatch, failures: list[int], covered: list[str]
) -> None:
    files, paths = Files(*failures), list[str]()
    monkeypatch.setattr(agent, "RootedPath", lambda root: files)
    monkeypatch.setattr(agent, "_cover_with_copy", lambda view, path: paths.append(path))
    assert agent._mount_point("/usr/share/x", is_directory=True) == "/usr/share/x"
    assert (paths, files.entries) == (covered, ["usr", "usr/share/x"])


def test_a_directory_is_shown_once_and_not_with_one_above_or_in_it() -> None:
    view, shown = object.__new__(agent.View), list[str]()
    view._data_dir, view._exposed = "/data", []
    view.mount = lambda path, target, *, read_only: shown.append(path)  # type: ignore[method-assign,assignment,misc]
    for path in ("/opt/mpi", "/opt/mpi", "/opt/mpi/lib", "/opt", "/opt/mpi2", "/data/x"):
        view.expose(path)
    assert shown == ["/opt/mpi", "/opt/mpi2", "/data/x"]


def test_another_failure_covers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "RootedPath", lambda root: Files(errno.ENOSPC))
    with pytest.raises(OSError, match="share") as failure:
        agent._mount_point("/usr/share/x", is_directory=True)
    assert failure.value.errno == errno.ENOSPC


@pytest.mark.parametrize("path", ["/proc/x", "/sys/a/b", "/dev/y"])
def test_nothing_is_mounted_in_what_belongs_to_the_kernel(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    files = Files()
    files.entries += ["proc", "sys", "dev"]
    monkeypatch.setattr(agent, "RootedPath", lambda root: files)
    with pytest.raises(OSError, match="belongs to the kernel"):
        agent._mount_point(path, is_directory=True)


# --- the process tree -----------------------------------------------------------------------------------------------


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """A shell and its child, which wait for the end of their stdin."""
    script = "exec 3<&0; cat <&3 & echo $!; wait"
    shell = subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shell.stdin and shell.stdout
    try:
        yield shell.pid, int(shell.stdout.readline())
    finally:
        shell.stdin.close()
        shell.kill()
        shell.wait()
        shell.stdout.close()


def test_descendants_come_parents_first_and_children_are_those_of_one_parent_only(family: tuple[int, int]) -> None:
    shell, child = family
    assert agent.descendants(shell) == agent.children(shell) == [child]
    everything, children = agent.descendants(os.getpid()), agent.children(os.getpid())
    assert everything.index(shell) < everything.index(child)
    assert os.getpid() not in everything
    assert shell in children and child not in children


def test_a_process_that_is_gone_has_no_parent_and_a_signal_to_it_counts_as_sent() -> None:
    assert agent._parent("0") == 0
    ended = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert agent._parent(str(ended.pid)) == 0, "a zombie"
    ended.wait()
    assert agent._signal(ended.pid, signal.SIGTERM)


def test_a_process_whose_first_thread_has_ended_has_its_parent_while_others_run() -> None:
    text = "import ctypes, threading; threading.Thread(target=input).start(); ctypes.CDLL(None).pthread_exit(None)"
    program = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE)
    stat = Path(f"/proc/{program.pid}/stat")
    while b") Z " not in stat.read_bytes():
        time.sleep(0.01)
    assert agent._parent(str(program.pid)) == os.getpid()
    program.communicate(b"\n")


def test_a_tree_is_killed_below_its_ancestor(family: tuple[int, int]) -> None:
    shell, child = family
    assert agent.kill_tree(shell)
    os.waitid(os.P_PID, shell, os.WEXITED | os.WNOWAIT)  # the shell ends because its child did
    assert child not in agent.descendants(os.getpid())
    assert agent.signal_tree(shell, signal.SIGTERM), "without a descendant, none refuses"


@pytest.mark.skipif(os.getuid() == 0, reason="root may signal everything")
def test_a_process_of_another_user_cannot_be_signalled() -> None:
    assert not agent._signal(1, signal.SIGCONT)


# --- starting programs ----------------------------------------------------------------------------------------------


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Starts a program in `tmp_path`; returns its exit code and what it wrote to stdout and stderr."""
    monkeypatch.chdir(tmp_path)  # `spawn` leaves the process in /

    def start(*program: str, **environment: str) -> tuple[int, str, str]:
        streams = [os.open(os.devnull, os.O_RDONLY)]
        streams += [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for name in ("out", "err")]
        try:
            pid = agent.spawn(
                list(program), ENVIRONMENT | environment, str(tmp_path), (streams[0], streams[1], streams[2])
            )
            status = os.waitpid(pid, 0)[1]
        finally:
            for stream in streams:
                os.close(stream)
        return agent.exit_code(status), (tmp_path / "out").read_text(), (tmp_path / "err").read_text()

    yield start


def test_a_program_writes_to_its_own_streams_in_its_directory(started: Any, tmp_path: Path) -> None:
    assert started("sh", "-c", "pwd; echo $A >&2; exit 3", A="b") == (3, f"{tmp_path}\n", "b\n")
    assert Path.cwd() == Path("/")


def test_a_program_has_a_session_of_its_own_and_default_signals(started: Any) -> None:
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN, "Python ignores it"
    code, text, _ = started("sh", "-c", "cut -d' ' -f6 /proc/$$/stat; echo $$; kill -PIPE $$")
    session, pid = text.split()
    assert session == pid
    assert code == 128 + signal.SIGPIPE


def program(path: Path, text: str, mode: int = 0o755) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def test_the_first_program_of_the_path_that_can_start_is_started(started: Any, tmp_path: Path) -> None:
    program(tmp_path / "a" / "tool", "#!/bin/sh\necho a\n", 0o644)
    program(tmp_path / "b" / "tool", "#!/bin/sh\necho b\n")
    program(tmp_path / "c" / "tool", "#!/bin/sh\necho c\n")
    assert started("tool", PATH=f"{tmp_path}/none:{tmp_path}/a:{tmp_path}/b:{tmp_path}/c")[1] == "b\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["no-such-tool"], "CommandProgramNotFound", "no-such-tool: no such program on the node"),
        (["a/none"], "CommandProgramNotFound", "a/none: no such program"),
        (["a/text"], "CommandLaunchFailed", "a/text: Permission denied"),
        (["a/lost"], "CommandLaunchFailed", "a/lost: its interpreter was not found"),
        (["sh", "a\0b"], "CommandLaunchFailed", "null"),
    ],
)
def test_a_program_that_does_not_start_has_a_reason(
    started: Any, tmp_path: Path, words: list[str], code: str, says: str
) -> None:
    program(tmp_path / "a" / "text", "x", 0o644)
    program(tmp_path / "a" / "lost", "#!/no/such/shell\n")
    with pytest.raises(LaunchError, match=says) as refusal:
        started(*words)
    assert refusal.value.code == code


def test_the_first_failure_of_the_path_is_reported(started: Any, tmp_path: Path) -> None:
    program(tmp_path / "a" / "tool", "#!/no/such/shell\n")
    program(tmp_path / "b" / "tool", "x", 0o644)
    with pytest.raises(LaunchError, match="a/tool: its interpreter"):
        started("tool", PATH=f"{tmp_path}/a:{tmp_path}/b")
    with pytest.raises(LaunchError, match="b/tool: Permission denied"):
        started("tool", PATH=f"{tmp_path}/b:{tmp_path}/a")


@pytest.mark.parametrize(("status", "code"), [(0, 0), (1 << 8, 1), (255 << 8, 255), (9, 137), (15, 143)])
def test_an_exit_code_is_that_of_a_shell(status: int, code: int) -> None:
    assert agent.exit_code(status) == code


def test_a_child_that_ended_is_reaped_with_its_status() -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert agent.exit_code(agent.reap()[0][pid]) == 7


# --- a node's sessions ----------------------------------------------------------------------------------------------


@pytest.fixture
def signals() -> Iterator[None]:
    """A loop takes the signals of its process."""
    handler = signal.getsignal(signal.SIGCHLD)
    yield
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, handler)


@pytest.mark.usefixtures("signals")
def test_a_loop_waits_for_its_deadline_and_without_one_for_ever() -> None:
    waits = Loop(lambda: None)
    assert waits._timeout() is None
    waits.deadline = 0.0
    assert waits._timeout() == 0, "it has passed"
    waits.deadline = time.monotonic() + 1000
    assert 990_000 < (waits._timeout() or 0) <= 1_000_001


@pytest.mark.usefixtures("signals")
def test_a_loop_serves_its_readers_its_children_and_its_deadline(pair: tuple[socket.socket, socket.socket]) -> None:
    class Ended(Exception):
        pass

    events: list[str] = []

    def stop() -> None:
        events.append("deadline")
        raise Ended

    def read() -> None:
        events.append(pair[0].recv(10).decode())
        loop.forget(pair[0].fileno())
        os.kill(os.getpid(), signal.SIGCHLD)

    def child() -> None:
        events.append("child")
        loop.deadline = 0.0

    loop = Loop(child)
    loop.on_deadline = stop
    loop.watch(pair[0].fileno(), read)
    pair[1].send(b"data")
    with pytest.raises(Ended):
        loop.run()
    assert events == ["data", "child", "deadline"]
    assert loop.deadline is None


def test_a_login_is_a_frame_with_three_streams(pair: tuple[socket.socket, socket.socket]) -> None:
    login, body = Login(pair[0]), framed(b"10.0.0.5\x004711\0echo a\0b")
    socket.send_fds(pair[1], [body[:5]], [0, 1, 2])
    assert login.receive() is None
    pair[1].send(body[5:])
    assert login.receive() == ("10.0.0.5", "4711", "echo a\0b")
    streams = login.stdio()
    assert len(set(streams)) == 3
    assert not any(os.get_inheritable(stream) for stream in streams)
    login.close_stdio()
    for stream in streams:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(stream)
    login.finish(7)
    assert pair[1].recv(10) == b"\x07"
    assert pair[1].recv(10) == b"", "the session ends with its status"


def test_a_login_whose_client_is_gone_ends(pair: tuple[socket.socket, socket.socket]) -> None:
    login = Login(pair[0])
    pair[1].close()
    with pytest.raises(EOFError):
        login.receive()
    login.finish(7)


class Node:
    """An agent, with the machine's end of its control socket and its log-in socket."""

    def __init__(self, folder: Path, **environment: str) -> None:
        ours, theirs = socket.socketpair()
        self.control, self.folder = Channel(ours), folder
        boot = {"environment": {"HOME": str(folder), **ENVIRONMENT, **environment}, "address": "10.0.0.4"}
        self.login_socket = agent._listen(str(folder), "10.0.0.4")
        self.agent = Agent(Channel(theirs), boot, self.login_socket, None)

    def session(self, command: str) -> tuple[int, str]:
        """The status of a session, and its output."""
        with socket.socket(socket.AF_UNIX) as client, (self.folder / "out").open("w+") as out:
            client.connect(str(self.folder / "10.0.0.4"))
            socket.send_fds(client, [framed(f"10.0.0.5\x004711\0{command}".encode())], [0, out.fileno(), 2])
            self.agent._on_connection()
            (login,) = [fd for fd in self.agent._loop._readers if fd != self.agent._loop._woken]
            self.agent._loop._readers[login]()
            for pid in list(self.agent._sessions):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            self.agent._on_child()
            return client.recv(10)[0], (self.folder / "out").read_text()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals: None) -> Iterator[Node]:
    monkeypatch.chdir(tmp_path)
    yield (node := Node(tmp_path))
    node.login_socket.close()


def test_a_session_runs_in_the_home_with_the_environment_of_the_node(node: Node) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - one call that opens one directory
    code, text = node.session("pwd; echo $SSH_CLIENT; echo $SSH_CONNECTION; exit 5")
    assert len(os.listdir("/proc/self/fd")) == before, "the streams of the session are its own"  # noqa: PTH208
    assert (code, text) == (5, f"{node.folder}\n10.0.0.5 4711 22\n10.0.0.5 4711 10.0.0.4 22\n")


def test_a_session_that_a_signal_ends_or_whose_shell_does_not_start_has_sshs_own_status(node: Node) -> None:
    assert node.session("kill -KILL $$")[0] == 255
    node.agent._boot["environment"]["SHELL"] = "/no/such/shell"
    assert node.session("true") == (255, "")


def test_a_client_that_leaves_before_its_command_is_forgotten(node: Node) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(node.folder / "10.0.0.4"))
        node.agent._on_connection()
    (login,) = [fd for fd in node.agent._loop._readers if fd != node.agent._loop._woken]
    node.agent._loop._readers[login]()
    assert login not in node.agent._loop._readers


class Refusing:
    """A view that can show and mount nothing."""

    def expose(self, path: str) -> None:
        raise OSError(errno.EPERM, f"{path} is not shown")

    def mount(self, source: str, target: str, *, read_only: bool) -> None:
        raise OSError(errno.EPERM, f"{source} is not mounted at {target}, {read_only}")

    def unmount(self, target: str) -> None:
        raise OSError(errno.EINVAL, target)


def test_what_a_node_cannot_show_is_written_to_its_log(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.agent._expose({"path": "/env", "id": 3})
    assert (node.control.wait(), capsys.readouterr().err) == ({"event": "exposed", "id": 3}, "")  # it sees everything
    node.agent._view = Refusing()  # type: ignore[assignment]
    node.agent._expose({"path": "/env", "id": 4})
    assert node.control.wait() == {"event": "exposed", "id": 4}
    assert "/env is not shown" in capsys.readouterr().err


def test_what_a_node_cannot_mount_is_answered_with_the_reason(node: Node) -> None:
    node.agent._view = Refusing()  # type: ignore[assignment]
    node.agent._mount({"source": "/a", "target": "/b", "read_only": True, "id": 5})
    answer = node.control.wait()
    assert answer is not None
    assert answer.pop("failure").endswith("/a is not mounted at /b, True")
    assert answer == {"event": "mounted", "id": 5}
    node.agent._unmount({"target": "/b", "id": 6})
    assert node.control.wait() == {"event": "unmounted", "id": 6}


class Stopped(Exception):
    """The process would end now."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What a starting agent asks of the kernel, which it does not do."""
    steps: list[tuple[object, ...]] = []

    def step(name: str, result: object = None) -> None:
        monkeypatch.setattr(agent, name, lambda *arguments: steps.append((name, *arguments)) or result)

    for name, result in (("_listen", "socket"), ("enter_network", None), ("enter_namespaces", "view"),
                         ("_fork_init", 4711), ("become_init", None), ("_kernel", None)):  # fmt: skip
        step(name, result)

    class Serving:
        def __init__(self, _control: object, boot: dict[str, object], login_socket: object, view: object) -> None:
            steps.append(("Agent", boot.get("pid"), login_socket, view))

        def serve(self) -> None:
            raise Stopped

    monkeypatch.setattr(agent, "Agent", Serving)
    return steps


BOOT = {"peers": "/peers", "address": "10.0.0.4", "network": "/netns", "isolation": "namespaces"}


def test_a_node_listens_and_joins_its_network_before_it_leaves_the_machine(
    steps: list[tuple[object, ...]], pair: tuple[socket.socket, socket.socket]
) -> None:
    boot = dict(BOOT)
    with pytest.raises(Stopped):
        agent.main(Channel(pair[0]), boot)
    assert [step[0] for step in steps] == [
        "_listen", "enter_network", "enter_namespaces", "_fork_init", "become_init", "Agent",
    ]  # fmt: skip
    assert steps[:2] == [("_listen", "/peers", "10.0.0.4"), ("enter_network", "/netns")]
    assert steps[-1] == ("Agent", 4711, "socket", "view")


def test_a_plain_node_becomes_the_parent_of_its_orphans(
    steps: list[tuple[object, ...]], pair: tuple[socket.socket, socket.socket]
) -> None:
    with pytest.raises(Stopped):
        agent.main(Channel(pair[0]), {**BOOT, "isolation": "process"})
    assert steps[2:] == [
        ("_kernel", "prctl", agent.PR_SET_CHILD_SUBREAPER, 1), ("Agent", None, "socket", None),
    ]  # fmt: skip


def test_a_node_that_cannot_start_says_why(
    steps: list[tuple[object, ...]], pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Mock(side_effect=Stopped)
    monkeypatch.setattr(agent, "become_init", Mock(side_effect=OSError(errno.EPERM, "no namespaces")))
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(Stopped):
        agent.main(Channel(pair[0]), dict(BOOT))
    answer = Channel(pair[1]).wait()
    assert answer is not None
    assert answer.pop("message").endswith("no namespaces")
    assert answer == {"event": "failed", "id": 0, "code": ""}
    end.assert_called_once_with(1)


def test_a_supervisor_that_was_killed_takes_the_exit_codes_of_its_runs_with_it(
    node: Node, pair: tuple[socket.socket, socket.socket]
) -> None:
    supervisor = subprocess.Popen(["/bin/true"])
    scope = Scope(Channel(pair[0]), supervisor.pid)
    scope.runs, scope.enders = {1}, [2]
    node.agent._scopes["task"] = scope
    node.agent._supervisors.add(supervisor.pid)
    node.agent._loop.watch(pair[0].fileno(), lambda: None)
    Channel(pair[1]).send({"event": "exit", "id": 9, "code": 0})
    node.agent._on_scope("task", scope)
    assert node.control.wait() == {"event": "exit", "id": 9, "code": 0}
    pair[1].close()
    node.agent._on_scope("task", scope)
    assert node.control.receive() == [{"event": "exit", "id": 1, "code": 137}, {"event": "ended", "id": 2}]
    assert node.agent._scopes == {}
    assert node.agent._supervisors == set()
    supervisor.returncode = 0  # the agent has reaped it


def test_a_process_of_a_session_is_known_by_its_environment() -> None:
    for name, is_of_session in (("SSH_CONNECTION", True), ("XSSH_CONNECTION", False)):
        command = [sys.executable, "-c", "print(flush=True); input()"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={name: "a"})
        assert process.stdout is not None and process.stdout.readline()  # from here on the kernel shows its environment
        assert agent._is_of_a_session(process.pid) is is_of_session
        process.communicate(b"\n")
    assert not agent._is_of_a_session(process.pid), "it is gone"


def test_the_log_in_socket_of_a_node_replaces_that_of_its_last_start(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    agent._listen(str(folder), "10.0.0.4").close()
    with closing(agent._listen(str(folder), "10.0.0.4")):
        assert (folder / "10.0.0.4").is_socket()


PROBE = """
import sys
from batchtrain.emulator.machine import agent
def become_init(boot):
    if sys.argv[1] == "fails": raise OSError(13, "not allowed")
agent.enter_namespaces, agent.become_init = lambda boot: None, become_init
agent.probe({})
"""


@pytest.mark.parametrize(("init", "outcome"), [("starts", (0, "")), ("fails", (1, "not allowed\n"))])
def test_a_probe_reports_the_error_of_the_init(init: str, outcome: tuple[int, str]) -> None:
    run = subprocess.run([sys.executable, "-c", PROBE, init], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == outcome


# --- forks ----------------------------------------------------------------------------------------------------------

INIT = """
import os, sys
from batchtrain.emulator.machine import agent
parent = os.getpid()
pid = agent._fork_init()
print(pid == os.getpid(), os.getppid() == parent, flush=True)
os.close(int(sys.argv[1]))
input()
os.kill(pid, 9) if sys.argv[2] == "signal" else os._exit(7)
"""


def python(code: str, *arguments: str, keep: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, str(keep), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=(keep,))


@pytest.mark.parametrize(("ending", "code"), [("exit", 7), ("signal", 137)])
def test_the_parent_of_an_init_keeps_no_file_open_and_ends_as_its_child_does(ending: str, code: int) -> None:
    reader, writer = os.pipe()
    with python(INIT, ending, keep=writer) as process, open(reader, "rb") as pipe:
        os.close(writer)
        assert process.stdout is not None
        assert process.stdout.readline() == "True True\n"
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        is_closed = poll.poll(1000 * GUARD)
        is_waiting = process.poll() is None
        process.communicate("\n")
    assert is_closed, "the child has closed its end, and the parent has none"
    assert is_waiting
    assert process.returncode == code


SUPERVISOR = """
import os, socket, sys
from batchtrain.emulator.machine import agent
if sys.argv[2:]:
    agent.Supervisor.serve = lambda supervisor: None
os.open(os.devnull, os.O_RDONLY)
agent._supervise(socket.socket(fileno=int(sys.argv[1])))
"""


def test_a_supervisor_keeps_the_socket_of_its_scope_only(pair: tuple[socket.socket, socket.socket]) -> None:
    with python(SUPERVISOR, keep=pair[1].fileno()) as process:
        pair[1].close()
        channel = Channel(pair[0])
        run = {"op": "run", "id": 1, "scope": "s", "program": ["no-such"], "environment": {}}
        channel.send({**run, "root": "/no such root", "directory": "task"})
        answer = channel.wait()
        files = [file.readlink() for file in Path(f"/proc/{process.pid}/fd").iterdir()]
        pair[0].close()
    assert answer is not None and (answer["event"], answer["id"]) == ("failed", 1)
    assert Path(os.devnull) not in files
    assert process.returncode == 0


def test_a_supervisor_whose_loop_ends_is_a_failure(pair: tuple[socket.socket, socket.socket]) -> None:
    with python(SUPERVISOR, "ends", keep=pair[1].fileno()) as process:
        process.communicate()
    assert process.returncode == 1
