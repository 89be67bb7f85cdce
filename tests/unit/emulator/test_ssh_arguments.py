"""The ssh stand-in reads a command line as OpenSSH's client does."""

from __future__ import annotations

import pytest

from batchtrain.emulator.machine.ssh import Usage, parse


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


@pytest.mark.parametrize("words", [[], ["-x"], ["-p"], ["host", "-o"]])
def test_a_line_without_a_host_or_an_options_value_is_refused(words: list[str]) -> None:
    with pytest.raises(Usage):
        parse(words)
