"""The ssh stand-in reads a command line as OpenSSH's client does, and what it asks a node's socket for."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from batchtrain.emulator.machine.ssh import Usage, main, own_address, parse


@pytest.mark.parametrize(
    ("words", "host", "port", "command"),
    [
        ("host", "host", "22", ""),
        ("host hostname -f", "host", "22", "hostname -f"),
        ("-x host cmd", "host", "22", "cmd"),
        ("-p 23 host cmd", "host", "23", "cmd"),
        ("-p23 host cmd", "host", "23", "cmd"),
        ("host -p 23 cmd -p 24", "host", "23", "cmd -p 24"),
        ("host -o ConnectTimeout=10 true", "host", "22", "true"),
        ("-oBatchMode=yes -o Port=23 host cmd", "host", "23", "cmd"),
        ("-xqp 23 host cmd", "host", "23", "cmd"),
        ("-l root -i key -F config host cmd", "host", "22", "cmd"),
        ("root@10.0.0.4 cmd", "10.0.0.4", "22", "cmd"),
        ("-- host cmd", "host", "22", "cmd"),
        ("host -- -x cmd", "host", "22", "-x cmd"),
        ("ssh://root@host:23 cmd", "host", "23", "cmd"),
        ("-tt host cmd", "host", "22", "cmd"),
    ],
)
def test_options_are_read_before_and_after_the_host(words: str, host: str, port: str, command: str) -> None:
    request = parse(words.split())
    assert (request.host, request.port, request.command) == (host, port, command)


def test_words_of_the_command_are_joined_and_not_quoted_again() -> None:
    assert parse(["host", "sh", "-c", "echo  a; echo $B"]).command == "sh -c echo  a; echo $B"


def test_n_takes_stdin_away_and_f_sends_it_to_the_background() -> None:
    assert parse(["-n", "host", "cmd"]).no_stdin
    assert not parse(["-n", "host", "cmd"]).background
    assert parse(["-f", "host", "cmd"]).background


@pytest.mark.parametrize("words", ["-oPort=23 host", "-o Port=23 host", "-p 23 -o Port=24 host", "ssh://host:23/"])
def test_the_first_port_counts(words: str) -> None:
    assert parse(words.split()).port == "23"


@pytest.mark.parametrize("words", [[], ["-x"], ["-p"], ["host", "-o"]])
def test_a_line_without_a_host_or_an_options_value_is_refused(words: list[str]) -> None:
    with pytest.raises(Usage):
        parse(words)


# --- a login --------------------------------------------------------------------------------------------------------


@pytest.fixture
def peers(tmp_path: Path) -> str:
    """The folder of the sockets of a pool, as the node 10.0.0.4 sees it."""
    (tmp_path / os.uname().nodename.lower()).symlink_to("10.0.0.4")
    return str(tmp_path)


@contextmanager
def node(peers: str, address: str, answer: bytes) -> Iterator[list[tuple[str, list[os.stat_result]]]]:
    """A node that answers one login; yields its bodies, and what the three descriptors are."""
    logins: list[tuple[str, list[os.stat_result]]] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 3)
            assert int.from_bytes(data[:4], "big") == len(data) - 4
            logins.append((data[4:].decode(), [os.fstat(descriptor) for descriptor in descriptors]))
            for descriptor in descriptors:
                os.close(descriptor)
            with suppress(BrokenPipeError):  # a client in the background is gone
                connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{peers}/{address}")
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield logins
        thread.join()


@pytest.mark.parametrize("host", ["10.0.0.5", "root@10.0.0.5."])
def test_a_login_sends_the_command_with_its_own_descriptors_and_returns_its_status(peers: str, host: str) -> None:
    with node(peers, "10.0.0.5", b"\7") as logins:
        assert main(peers, [host, "echo", "a  b"]) == 7
    ((body, descriptors),) = logins
    assert body == f"10.0.0.4\0{40000 + os.getpid() % 20000}\0echo a  b"
    assert [status.st_ino for status in descriptors] == [os.fstat(number).st_ino for number in range(3)]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_login_to_this_node_goes_to_its_own_address(peers: str, host: str) -> None:
    with node(peers, "10.0.0.4", b"\0") as logins:
        assert main(peers, [host, "true"]) == 0
    assert len(logins) == 1


@pytest.fixture
def piped_stdin() -> Iterator[None]:
    """The standard input of this process is a pipe."""
    former, (reader, writer) = os.dup(0), os.pipe()
    os.dup2(reader, 0)
    yield
    os.dup2(former, 0)
    for descriptor in (former, reader, writer):
        os.close(descriptor)


@pytest.mark.usefixtures("piped_stdin")
@pytest.mark.parametrize(("options", "is_empty"), [([], False), (["-n"], True), (["-f"], True)])
def test_a_login_without_stdin_gets_an_empty_one(
    peers: str, monkeypatch: pytest.MonkeyPatch, options: list[str], *, is_empty: bool
) -> None:
    monkeypatch.setattr(os, "fork", lambda: 0)
    with node(peers, "10.0.0.5", b"\0") as logins:
        assert main(peers, [*options, "10.0.0.5", "cat"]) == 0
    assert (logins[0][1][0].st_rdev == Path(os.devnull).stat().st_rdev) == is_empty


@pytest.mark.parametrize(("pid", "answer", "status"), [(0, b"\7", 7), (4711, b"\7", 0)])
def test_only_the_child_of_a_login_in_the_background_waits_for_its_end(
    peers: str, monkeypatch: pytest.MonkeyPatch, pid: int, answer: bytes, status: int
) -> None:
    monkeypatch.setattr(os, "fork", lambda: pid)
    with node(peers, "10.0.0.5", answer):
        assert main(peers, ["-f", "10.0.0.5", "true"]) == status


def test_a_node_that_goes_during_a_login_is_an_error_of_ssh(peers: str, capsys: pytest.CaptureFixture[str]) -> None:
    with node(peers, "10.0.0.5", b""):
        assert main(peers, ["10.0.0.5", "true"]) == 255
    assert capsys.readouterr().err == "Connection to 10.0.0.5 closed by remote host.\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nowhere true", "ssh: Could not resolve hostname nowhere: Name or service not known\n"),
        ("-p 23 10.0.0.9 true", "ssh: connect to host 10.0.0.9 port 23: No route to host\n"),
        ("10.0.0.6 true", "ssh: connect to host 10.0.0.6 port 22: Connection refused\n"),
        ("-L 80:a:80 10.0.0.5", "ssh: -L does not exist on an emulated node: ssh only runs commands on nodes of the"),
        ("-p", "option requires an argument -- p"),
    ],
)
def test_what_a_login_cannot_do_is_said_as_ssh_says_it(
    peers: str, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    (Path(peers) / "10.0.0.6").touch()
    assert main(peers, words.split()) == 255
    assert capsys.readouterr().err.startswith(message)


def test_the_version_is_no_login(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("/nowhere", ["-V"]) == 0
    assert "stand-in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        ("orted -mca ess env", True),
        ("cd /x; /opt/bin/prted", True),
        ("PRTE_PREFIX=/opt/mpi; export PRTE_PREFIX; /opt/mpi/bin/prted --daemonize", True),
        ("hydra_pmi_proxy --control-port 1", False),
        ("cat prted.log", False),
        ("echo ported", False),
    ],
)
def test_open_mpi_is_refused_between_nodes_that_share_a_host_name(
    peers: str, command: str, starts: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCHTRAIN_EMULATED_PLAIN", "no namespaces")
    if starts:
        assert main(peers, ["10.0.0.5", *command.split()]) == 255
        assert "they are plain processes of this machine (no namespaces)" in capsys.readouterr().err
        return
    with node(peers, "10.0.0.5", b"\0") as logins:
        assert main(peers, ["10.0.0.5", *command.split()]) == 0
    assert len(logins) == 1


def test_nodes_that_share_a_host_name_know_their_address_by_their_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_address(str(tmp_path)) == "127.0.0.1"
    (tmp_path / "@n1").symlink_to("10.0.0.7")
    monkeypatch.setenv("BATCHTRAIN_EMULATED_NODE", "/data/nodes/n1")
    assert own_address(str(tmp_path)) == "10.0.0.7"
