"""What a node's docker asks for, in the words of the engine that the nodes share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchtrain.emulator import task_environment
from batchtrain.emulator.machine.docker_view import (
    Known,
    Request,
    Unknown,
    View,
    body,
    needs_known,
    parse,
    refusal,
    translate,
    volumes,
)
from tests.emulation import Stage

HELD = "a" * 64
IDS = ("b" * 64, "c" * 64, "d" * 64)
KNOWN = Known(
    containers=((IDS[0], ("n1-train",)), (IDS[1], ("merry_engine",))),
    networks=((IDS[2], ("n1-mine",)),),
)
VIEW = View(
    prefix="n1-",
    labels={"emulator": "/data", "node": "n1"},
    network=HELD,
    on_machine=lambda path: path.replace("/mnt/tasks", "/data/nodes/n1"),
    links_lead_to=("/data/mounts",),
    fsmounts="/mnt/tasks/fsmounts",
)


def asked(method: str, target: str) -> Request:
    return translate(parse(method, target), VIEW, KNOWN)


def created(**more: Any) -> dict[str, Any]:
    return body(parse("POST", "/v1.41/containers/create"), {"Image": "a:1", **more}, VIEW, KNOWN)


def host(**more: Any) -> dict[str, Any]:
    found: dict[str, Any] = created(HostConfig=more)["HostConfig"]
    return found


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "wanted"),
    [
        ("GET", "/v1.41/containers/train/json", f"/v1.41/containers/{IDS[0]}/json"),
        ("POST", "/containers/merry_engine/stop?t=5", f"/containers/{IDS[1]}/stop?t=5"),
        ("DELETE", "/containers/bbbb", f"/containers/{IDS[0]}"),
        ("POST", f"/containers/{IDS[1]}/start", f"/containers/{IDS[1]}/start"),
        ("POST", "/containers/create?name=new", "/containers/create?name=n1-new"),
        ("POST", "/containers/create", "/containers/create"),
        ("POST", "/containers/train/rename?name=other", f"/containers/{IDS[0]}/rename?name=n1-other"),
        ("GET", "/networks/mine", f"/networks/{IDS[2]}"),
        ("GET", "/networks/bridge", "/networks/bridge"),
        ("DELETE", "/volumes/data", "/volumes/n1-data"),
        ("POST", "/commit?container=train&repo=a", f"/commit?container={IDS[0]}&repo=a"),
        ("GET", "/images/a:1/json", "/images/a:1/json"),
        ("GET", "/_ping", "/_ping"),
        ("POST", "/exec/0123/start", "/exec/0123/start"),
        ("GET", "/images/get?names=a&names=b%3A1", "/images/get?names=a&names=b%3A1"),
        ("POST", "/build?t=a&networkmode=host&t=b", f"/build?t=a&networkmode=container%3A{HELD}&t=b"),
        ("POST", "/build?networkmode=mine", f"/build?networkmode={IDS[2]}"),
        ("POST", "/build?networkmode=default", "/build?networkmode=default"),
        ("GET", "//%76%31.41//%63ontainers/%74rain//json", f"/v1.41/containers/{IDS[0]}/json"),
        ("GET", "/%63%0d%0a/x", "/c%0D%0A/x"),
    ],
)
def test_a_name_is_the_nodes_own(method: str, target: str, wanted: str) -> None:
    assert asked(method, target).target == wanted


@pytest.mark.parametrize(
    "target", ["/containers/other/json", "/networks/other", "//containers/other/json", f"/containers/{'e' * 64}/json"]
)
def test_what_the_node_does_not_have_is_not_there(target: str) -> None:
    with pytest.raises(Unknown):
        asked("GET", target)


def test_an_id_that_begins_several_means_none() -> None:
    both = Known(containers=(("e1" * 32, ()), ("e2" * 32, ())))
    with pytest.raises(Unknown):
        translate(parse("GET", "/containers/e/json"), VIEW, both)


@pytest.mark.parametrize("target", ["/containers/json", "/networks", "/volumes", "/events", "//containers//json"])
def test_a_list_is_of_what_has_the_nodes_labels(target: str) -> None:
    filters = json.loads(dict(asked("GET", target).query)["filters"])
    assert filters == {"label": {"emulator=/data": True, "node=n1": True}}


@pytest.mark.parametrize("given", ['{"label": {"x": true}, "name": {"a": true}}', '{"label": ["x"], "name": ["a"]}'])
def test_filters_that_were_given_stay(given: str) -> None:
    found = parse("GET", "/containers/json")._replace(query=(("filters", given),))
    filters = json.loads(dict(translate(found, VIEW, KNOWN).query)["filters"])
    assert filters == {"label": {"x": True, "emulator=/data": True, "node=n1": True}, "name": {"a": True}}


@pytest.mark.parametrize(
    ("key", "given", "wanted"),
    [
        ("name", "^train$", "^n1-train$"),
        ("name", "^/train$", "^/n1-train$"),
        ("name", "rai", "rai"),
        ("volume", "cache", "n1-cache"),
        ("volume", "/c", "/c"),
        ("network", "mine", IDS[2]),
        ("network", "host", "host"),
        ("since", "train", IDS[0]),
        ("ancestor", "a:1", "a:1"),
    ],
)
def test_a_filter_by_name_is_by_the_name_that_the_node_gave(key: str, given: str, wanted: str) -> None:
    found = parse("GET", "/containers/json")._replace(query=(("filters", json.dumps({key: [given]})),))
    assert needs_known(found)
    assert json.loads(dict(translate(found, VIEW, KNOWN).query)["filters"])[key] == {wanted: True}


def test_prunes_take_the_nodes_own_and_leave_the_machines_images() -> None:
    assert "node=n1" in dict(asked("POST", "/containers/prune").query)["filters"]
    assert "share this machine's engine" in refusal(parse("POST", "/v1.41/images/prune"))
    assert refusal(parse("POST", "/swarm/init"))
    assert refusal(parse("POST", "//%73warm/init")) and refusal(parse("POST", "/images/%70rune"))
    assert refusal(parse("DELETE", "/images/a:1")) == refusal(parse("GET", "/swarm")) == ""


def test_nothing_is_looked_up_for_ids_of_the_nodes_own_and_images() -> None:
    wait = parse("POST", f"/containers/{IDS[0]}/wait")
    assert needs_known(wait)
    assert not needs_known(wait, {IDS[0]})
    assert translate(wait, VIEW, Known(ids={IDS[0]})).name == IDS[0]
    assert not needs_known(parse("GET", "/images/json"))
    assert needs_known(parse("POST", "/containers/train/wait"))


# --- a container ----------------------------------------------------------------------------------------------------


def test_what_a_node_makes_has_its_labels() -> None:
    assert created(Labels={"own": "1"})["Labels"] == {"own": "1", "emulator": "/data", "node": "n1"}


def test_the_hosts_network_is_the_nodes() -> None:
    found = created(
        Hostname="own",
        ExposedPorts={"80/tcp": {}},
        NetworkingConfig={"EndpointsConfig": {"host": {}}},
        HostConfig={"NetworkMode": "host", "PortBindings": {"80/tcp": []}, "UTSMode": "host", "Memory": 5},
    )
    assert found["HostConfig"]["NetworkMode"] == f"container:{HELD}"
    assert found["HostConfig"]["Memory"] == 5
    assert found["HostConfig"]["UTSMode"] == ""
    assert not {"Hostname", "ExposedPorts", "NetworkingConfig"} & found.keys()
    assert "PortBindings" not in found["HostConfig"]


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [("", ""), ("default", "default"), ("none", "none"), ("mine", IDS[2]), ("container:train", f"container:{IDS[0]}")],
)
def test_another_network_stays_what_it_is(mode: str, wanted: str) -> None:
    found = created(
        HostConfig={"NetworkMode": mode}, NetworkingConfig={"EndpointsConfig": {mode: {}} if mode == "mine" else {}}
    )
    assert found["HostConfig"]["NetworkMode"] == wanted
    assert list(found["NetworkingConfig"]["EndpointsConfig"]) == ([IDS[2]] if mode == "mine" else [])


def test_a_path_of_the_node_is_one_of_this_machine() -> None:
    mount = {"Type": "bind", "Source": "/mnt/tasks/shared", "Target": "/s"}
    found = host(Binds=["/mnt/tasks/x:/y:ro", "/etc/nccl.conf:/etc/nccl.conf"], Mounts=[mount])
    assert found["Binds"] == ["/data/nodes/n1/x:/y:ro", "/etc/nccl.conf:/etc/nccl.conf"]
    assert found["Mounts"] == [{**mount, "Source": "/data/nodes/n1/shared"}]


@pytest.mark.parametrize("shown", ["/mnt/tasks", "/mnt/tasks/fsmounts", "/mnt/tasks/fsmounts/"])
def test_links_of_mounted_file_systems_lead_somewhere_in_a_container_too(shown: str) -> None:
    assert host(Binds=[f"{shown}:/x"])["Binds"][1:] == ["/data/mounts:/data/mounts"]
    assert host(Mounts=[{"Type": "bind", "Source": shown, "Target": "/x"}])["Binds"] == ["/data/mounts:/data/mounts"]


def test_a_named_volume_is_the_nodes_and_an_anonymous_one_stays() -> None:
    mount = {"Type": "volume", "Source": "data", "Target": "/d"}
    made = created(HostConfig={"Binds": ["cache:/c:ro", "/anonymous"], "Mounts": [mount]})
    assert made["HostConfig"]["Binds"] == ["n1-cache:/c:ro", "/anonymous"]
    assert made["HostConfig"]["Mounts"][0]["Source"] == "n1-data"
    assert made["HostConfig"]["Mounts"][0]["VolumeOptions"]["Labels"] == dict(VIEW.labels)
    assert volumes(made) == ("n1-cache",)


def test_infiniband_is_left_out_where_the_machine_has_none() -> None:
    asked = {
        "Devices": [{"PathOnHost": "/dev/infiniband"}, {"PathOnHost": "/dev/fuse"}],
        "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}, {"Name": "nofile", "Soft": 9, "Hard": 9}],
    }
    here = VIEW._replace(has_device=lambda path: path == "/dev/fuse")
    made = body(parse("POST", "/containers/create"), {"HostConfig": asked}, here, KNOWN)["HostConfig"]
    assert (made["Devices"], made["Ulimits"]) == (asked["Devices"][1:], asked["Ulimits"][1:])
    everywhere = host(**asked)
    assert (everywhere["Devices"], everywhere["Ulimits"]) == (asked["Devices"], asked["Ulimits"])


def test_gpus_are_left_out_where_the_engine_has_none_to_give() -> None:
    gpus = {"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}
    assert host(DeviceRequests=[gpus])["DeviceRequests"] == []
    with_gpus = body(
        parse("POST", "/containers/create"), {"HostConfig": {"DeviceRequests": [gpus]}}, VIEW._replace(gpus=True), KNOWN
    )
    assert with_gpus["HostConfig"]["DeviceRequests"] == [gpus]


def test_a_network_and_a_volume_are_made_under_names_of_the_node() -> None:
    for kind in ("networks", "volumes"):
        made = body(parse("POST", f"/{kind}/create"), {"Name": "mine"}, VIEW, KNOWN)
        assert made == {"Name": "n1-mine", "Labels": dict(VIEW.labels)}
    assert "Name" not in body(parse("POST", "/volumes/create"), {}, VIEW, KNOWN)


def test_a_container_is_connected_by_the_name_that_the_node_knows() -> None:
    made = body(parse("POST", "/networks/mine/connect"), {"Container": "train"}, VIEW, KNOWN)
    assert made == {"Container": IDS[0], "EndpointConfig": {"Aliases": ["train"]}}
    made = body(parse("POST", "/networks/mine/disconnect"), {"Container": "train"}, VIEW, KNOWN)
    assert made == {"Container": IDS[0]}


def test_containers_of_a_network_know_each_other_by_the_names_that_the_node_gave() -> None:
    asked = parse("POST", "/containers/create?name=db")
    ends = {"mine": {"Aliases": ["own"], "Links": ["train:t"]}}
    document = {"HostConfig": {"NetworkMode": "mine"}, "NetworkingConfig": {"EndpointsConfig": ends}}
    made = body(asked, document, VIEW, KNOWN)["NetworkingConfig"]["EndpointsConfig"]
    assert made == {IDS[2]: {"Aliases": ["own", "db"], "Links": ["train:t"]}}
    made = body(asked, {"HostConfig": {"NetworkMode": "mine"}}, VIEW, KNOWN)["NetworkingConfig"]["EndpointsConfig"]
    assert made == {IDS[2]: {"Aliases": ["db"]}}
    assert host(Links=["train:t", "merry_engine"])["Links"] == [f"{IDS[0]}:t", f"{IDS[1]}:merry_engine"]
    assert "NetworkingConfig" not in body(asked, {"HostConfig": {"NetworkMode": "none"}}, VIEW, KNOWN)


def test_a_volume_that_is_a_directory_of_the_nodes_is_the_nodes() -> None:
    options = {"type": "none", "o": "ro,bind", "device": "/mnt/tasks/shared"}
    made = body(parse("POST", "/volumes/create"), {"Name": "v", "DriverOpts": options}, VIEW, KNOWN)
    assert made["DriverOpts"] == {**options, "device": "/data/nodes/n1/shared"}
    mount = {"Type": "volume", "Source": "v", "Target": "/v", "VolumeOptions": {"DriverConfig": {"Options": options}}}
    assert host(Mounts=[mount])["Mounts"][0]["VolumeOptions"]["DriverConfig"]["Options"] == made["DriverOpts"]


# --- who gets one ---------------------------------------------------------------------------------------------------


def own_docker(metadata: list[Any]) -> bool:
    made = Stage()
    made.pool(1, metadata=metadata)
    return task_environment.node_spec(made.world, made.world.pools["pool"], made.nodes()[0]).own_docker


def test_nodes_of_a_pool_that_says_so_have_a_docker_of_their_own() -> None:
    assert own_docker([{"name": "batchtrain-docker", "value": "own"}])
    assert not own_docker([])
    assert not own_docker([{"name": "batchtrain-docker", "value": "none"}])


@pytest.mark.parametrize(
    "more",
    [{"Binds": ["/home:/h:ro"]}, {"Mounts": [{"Type": "bind", "Source": "/home", "Target": "/h/"}]}],
)
def test_a_directory_above_the_emulators_is_bound_with_that_covered(more: dict[str, Any]) -> None:
    view = VIEW._replace(hidden_in=lambda path: {"/home": "me/emulator"}.get(path, ""))
    request = parse("POST", "/v1.41/containers/create")
    found = body(request, {"Image": "a:1", "HostConfig": {**more, "Tmpfs": {"/run": ""}}}, view, KNOWN)["HostConfig"]
    assert found["Tmpfs"] == {"/run": "", "/h/me/emulator": ""}
    assert "Tmpfs" not in host(**more)
