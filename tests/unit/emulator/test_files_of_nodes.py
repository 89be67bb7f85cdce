"""What the machine of process nodes does with their files on this machine, and with processes that are left over."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import time
from pathlib import Path

import pytest

from batchtrain.emulator.interface import NodeSpec
from batchtrain.emulator.machine import marked_processes, process
from batchtrain.emulator.machine.resource_files import DownloadError

SPEC = NodeSpec("pool", "node", "10.1.2.3", "Node0", "standard_d2_v3")


def test_what_is_to_be_deleted_gets_another_name_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "pool").mkdir()
    away = process._renamed(tmp_path / "pool")
    assert list(tmp_path.iterdir()) == [away]
    assert away.name.startswith(".gone-")
    assert process._renamed(tmp_path / "none") == tmp_path / "none"
    assert f"{tmp_path}/none belongs to nothing and cannot be moved away: [Errno 2]" in caplog.text


def test_directories_links_and_files_are_deleted_but_not_what_a_link_leads_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder").chmod(0o500)
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "file").touch()
    process._delete_each([tmp_path / name for name in ("folder", "link", "file", "none")])
    assert list(tmp_path.iterdir()) == [kept]
    assert (kept / "file").exists()


def test_a_program_is_written_anew_only_where_its_text_changed(tmp_path: Path) -> None:
    path = tmp_path / "ssh"
    process._write_program(path, "#!/bin/sh\necho a\n")
    first = path.stat()
    process._write_program(path, "#!/bin/sh\necho a\n")
    assert path.stat().st_ino == first.st_ino
    process._write_program(path, "#!/bin/sh\necho b\n")
    assert subprocess.check_output([path]) == b"b\n"
    assert list(tmp_path.iterdir()) == [path]


def test_the_link_of_a_node_is_replaced(tmp_path: Path) -> None:
    pool = process._Pool(tmp_path, "pool")
    for address in ("10.0.0.4", "10.0.0.5"):
        pool.admit(SPEC._replace(address=address))
    assert (pool.peers / "node0").readlink() == Path("10.0.0.5")


def test_the_links_of_an_interpreter_are_followed_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "middle").symlink_to("real")
    (tmp_path / "first").symlink_to(tmp_path / "middle")
    assert [path.name for path in process._links(tmp_path / "first")] == ["first", "middle", "real"]
    assert list(process._links(tmp_path / "none")) == []


def test_a_command_line_is_split_as_a_shell_does() -> None:
    assert process._program("sh -c 'a b'") == ["sh", "-c", "a b"]
    assert process._program(" ", may_be_empty=True) == []
    for line, code in ((" ", "CommandProgramNotFound"), ("'", "CommandLaunchFailed")):
        with pytest.raises(DownloadError) as refusal:
            process._program(line)
        assert refusal.value.code == code


def test_the_names_of_a_pools_nodes_are_known_as_long_as_they_are_in_it(tmp_path: Path) -> None:
    pool = process._Pool(tmp_path, "pool")
    other = SPEC._replace(node_id="other", address="10.1.2.4", hostname="node1")
    for spec in (SPEC, other):
        pool.admit(spec)
    assert (pool.peers / "node0").readlink() == Path("10.1.2.3")
    assert (pool.peers / "@other").readlink() == Path("10.1.2.4")
    lines = pool.hosts.read_text().splitlines()
    assert lines[0] == "127.0.0.1 localhost"
    assert {"10.1.2.3 Node0", "10.1.2.4 node1"} < set(lines)
    pool.dismiss(SPEC._replace(address="10.9.9.9"))
    assert (pool.peers / "node0").is_symlink(), "the node has booted again since"
    pool.dismiss(SPEC)
    assert {path.name for path in pool.peers.iterdir()} == {"node1", "@other"}
    assert "Node0" not in pool.hosts.read_text()
    assert pool.hosts.read_text().endswith("\n")


def test_batchs_user_is_known_where_etc_passwd_can_have_it(tmp_path: Path) -> None:
    pool = process._Pool(tmp_path, "pool")
    assert pool.user("/with:colon") is None
    assert pool.user("/mnt/node") == "_azbatch"
    entry, *others = (tmp_path / "machine/pool/passwd").read_text().splitlines()
    assert entry == f"_azbatch:x:{os.getuid()}:{os.getgid()}::/mnt/node/volatile/home/_azbatch:/bin/bash"
    assert others == Path("/etc/passwd").read_text().splitlines()


def test_a_network_without_name_servers_of_its_own_has_the_machines_file(tmp_path: Path) -> None:
    assert process._Pool(tmp_path, "pool").resolver(SPEC, "") == []


async def test_a_message_of_an_agent_is_read_by_its_length() -> None:
    reader = asyncio.StreamReader()
    for body in (b'{"a": 1}', b'{"b": 2}'):
        reader.feed_data(struct.pack("!I", len(body)) + body)
    assert [await process._receive(reader), await process._receive(reader)] == [{"a": 1}, {"b": 2}]


# --- processes that are left over -----------------------------------------------------------------------------------


def test_processes_with_the_marker_of_a_node_are_killed_and_no_others() -> None:
    marker = f"BATCHTRAIN_TEST_NODE={os.getpid()}-{time.monotonic_ns()}"
    name, _, value = marker.partition("=")
    processes = [
        subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, env={name: text}) for text in (value, f"{value}x", value)
    ]
    marked_processes.kill(marker)
    processes[1].communicate()
    assert [ended.wait() for ended in processes] == [-9, 0, -9]
    for ended in processes:
        if ended.stdin:
            ended.stdin.close()
    marked_processes.kill(marker)  # none is left


def test_the_end_of_a_process_is_awaited() -> None:
    waiting = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    marked_processes._wait_for_end(waiting.pid, 0.0)
    assert waiting.poll() is None
    assert waiting.stdin
    waiting.stdin.close()
    marked_processes._wait_for_end(waiting.pid, 60.0)
    assert waiting.poll() == 0, "it returned because the process ended"
    marked_processes._wait_for_end(waiting.pid, 60.0)


def test_a_process_that_a_signal_ended_was_killed() -> None:
    for command, killed in (("kill -KILL $$", True), ("exit 1", False), ("exit 0", False)):
        assert process._was_killed(subprocess.Popen(["/bin/sh", "-c", command])) is killed
