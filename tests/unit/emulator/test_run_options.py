"""containerRunOptions are read as docker reads them, and made to fit a node that is a container itself."""

from __future__ import annotations

import pytest

from batchtrain.emulator.machine.run_options import Fitted, Node, Refused, fit, options

NODE = Node("n0de", lambda path: path.replace("/mnt/tasks", "/data/node"), lambda path: path == "/dev/null")


def arguments(text: str) -> tuple[str, ...]:
    return fit(text, NODE).arguments[1:]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("--shm-size=1g", [("--shm-size", "1g")]),
        ("--shm-size 1g --rm", [("--shm-size", "1g"), ("--rm", None)]),
        ("-e A='b c' -eX=1", [("--env", "A=b c"), ("--env", "X=1")]),
        ("-it -v /a:/b", [("--interactive", None), ("--tty", None), ("--volume", "/a:/b")]),
        ("--privileged=true --ulimit memlock=-1:-1", [("--privileged", "true"), ("--ulimit", "memlock=-1:-1")]),
        ("--env -p", [("--env", "-p")]),
        ("", []),
    ],
)
def test_options_are_read_as_docker_reads_them(text: str, read: list[tuple[str, str | None]]) -> None:
    assert list(options(text)) == read


@pytest.mark.parametrize("text", ["image", "--", "-d", "--volume", "-v", "--label 'x"])
def test_what_docker_create_would_not_take_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        list(options(text))


def test_a_call_for_help_is_no_container() -> None:
    with pytest.raises(Refused, match="--help"):
        fit("--help", NODE)


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("", "container:n0de"),
        ("--net=host", "container:n0de"),
        ("--network host", "container:n0de"),
        ("--network=container:other", "container:n0de"),
        ("--network=none", "none"),
    ],
)
def test_a_container_joins_the_nodes_network_as_it_would_its_hosts(text: str, network: str) -> None:
    assert fit(text, NODE).arguments == (f"--network={network}",)


@pytest.mark.parametrize(
    "text",
    ["-p 80:80", "--publish=80", "-P", "--hostname=a", "-h a", "--name x", "--dns=1.1.1.1", "--device=/dev/none"],
)
def test_options_that_belong_to_the_node_are_ignored_with_a_reason(text: str) -> None:
    fitted = fit(f"{text} --init", NODE)
    assert fitted.arguments[1:] == ("--init",)
    ((option, reason),) = fitted.left_out
    assert option in {f"{name}={value}" if value is not None else name for name, value in options(text)}
    assert reason


def test_a_device_of_this_machine_stays() -> None:
    assert arguments("--device=/dev/null:/dev/zero:r") == ("--device=/dev/null:/dev/zero:r",)


def test_locked_memory_is_for_infiniband_and_left_out_where_there_is_none() -> None:
    text = "--ulimit memlock=-1:-1 --ulimit nofile=9"
    assert arguments(text) == ("--ulimit=nofile=9",)
    with_it = NODE._replace(has_device=lambda path: path == "/dev/infiniband")
    assert fit(text, with_it).arguments[1:] == ("--ulimit=memlock=-1:-1", "--ulimit=nofile=9")


def test_removing_the_container_is_the_services_own_matter() -> None:
    assert fit("--rm", NODE) == Fitted(("--network=container:n0de",))


def test_the_entry_point_is_returned_separately() -> None:
    assert fit("--entrypoint python3", NODE).entrypoint == "python3"
    assert fit("--entrypoint=", NODE).entrypoint == ""
    assert fit("", NODE).entrypoint is None


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("-v /mnt/tasks/shared:/x:ro", "--volume=/data/node/shared:/x:ro"),
        ("-v named:/x", "--volume=named:/x"),
        ("-v /anonymous", "--volume=/anonymous"),
        ("--mount type=bind,src=/mnt/tasks,dst=/x", "--mount=type=bind,src=/data/node,dst=/x"),
        ("--mount type=volume,src=/mnt/tasks,dst=/x", "--mount=type=volume,src=/mnt/tasks,dst=/x"),
        ("--env-file /mnt/tasks/e", "--env-file=/data/node/e"),
    ],
)
def test_a_path_of_the_nodes_is_found_on_the_machine(text: str, bind: str) -> None:
    assert arguments(text) == (bind,)


@pytest.mark.parametrize(
    ("text", "bind", "volumes"),
    [
        ("-v named:/x:ro", "--volume=n1-named:/x:ro", ("n1-named",)),
        ("--mount type=volume,src=named,dst=/x", "--mount=type=volume,src=n1-named,dst=/x", ("n1-named",)),
        ("--mount source=named,dst=/x", "--mount=source=n1-named,dst=/x", ("n1-named",)),
        ("-v /anonymous", "--volume=/anonymous", ()),
        ("-v /a:/b", "--volume=/a:/b", ()),
        ("--mount type=tmpfs,dst=/x", "--mount=type=tmpfs,dst=/x", ()),
    ],
)
def test_a_volume_is_the_nodes_own(text: str, bind: str, volumes: tuple[str, ...]) -> None:
    fitted = fit(text, NODE._replace(prefix="n1-"))
    assert (fitted.arguments[1:], fitted.volumes) == ((bind,), volumes)


def hiding(path: str) -> str:
    return {"/": "home/me/emulator", "/home": "me/emulator"}.get(path, "")


@pytest.mark.parametrize(
    ("text", "cover"),
    [
        ("-v /home:/h", "/h/me/emulator"),
        ("-v /:/host/:ro", "/host/home/me/emulator"),
        ("--mount type=bind,source=/home,target=/h", "/h/me/emulator"),
        ("--mount type=bind,src=/home,dst=/h,readonly", "/h/me/emulator"),
    ],
)
def test_a_directory_above_the_emulators_is_bound_with_that_covered(text: str, cover: str) -> None:
    found = fit(text, NODE._replace(hidden_in=hiding)).arguments
    assert found[2:] == (f"--mount=type=tmpfs,destination={cover}",)


@pytest.mark.parametrize("text", ["-v /data:/h", "-v home:/h", "--mount type=volume,source=home,target=/h"])
def test_nothing_is_covered_where_nothing_is_hidden(text: str) -> None:
    assert len(fit(text, NODE._replace(hidden_in=hiding)).arguments) == 2


@pytest.mark.parametrize("text", ["--pid=host", "--pid=container:a", "--ipc container:a", "--volumes-from=a"])
def test_other_nodes_containers_and_this_machines_processes_are_left_out(text: str) -> None:
    found = fit(text, NODE)
    assert (found.arguments[1:], len(found.left_out)) == ((), 1)
