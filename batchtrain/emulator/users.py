"""User accounts of single nodes, and log-in settings; pure.

An account is a name with an expiry time. It cannot be used to log in, because a node runs no sshd. Its password and key
are not stored.
"""

from __future__ import annotations

from urllib.parse import quote

from batchtrain.emulator import documents, endpoints, nodes, wire
from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.records import Document, Node
from batchtrain.emulator.reply import Call, Reply, data_service_id, element
from batchtrain.emulator.world import Deadline, World

MOST_CHARACTERS = 20
LIFE = wire.DAY
"""The lifetime of an account without an expiry time."""
OPEN_TO_USERS = ("idle", "running")
"""States in which a node's accounts can be changed."""
REACHED_BY_USERS = (*OPEN_TO_USERS, "offline", "starting", "waitingforstarttask", "starttaskfailed")
"""States in which a node's log-in settings are available."""


def create_user(world: World, call: Call) -> Reply:
    document = call.read("BatchNodeUserCreateOptions")
    entry, node = _open(world, call)
    name = document["name"]
    if not 1 <= len(name) <= MOST_CHARACTERS or not name.isprintable() or "/" in name or ":" in name:
        raise invalid_property("name", name, f"A user's name has 1 to {MOST_CHARACTERS} characters.")
    if name in node.users:
        raise Fault("NodeUserExists")
    _keep(world, node, name, document, call.now)
    url = f"{documents.node_url(call.base, entry.record.id, node.id)}/users/{quote(name)}"
    return Reply(201, headers={"Location": url, "DataServiceId": url})


def replace_user(world: World, call: Call) -> Reply:
    document = call.read("BatchNodeUserReplaceOptions")
    _, node = _open(world, call)
    _keep(world, node, _known(node, call), document, call.now)
    return Reply(200, headers=data_service_id(call))


def delete_user(world: World, call: Call) -> Reply:
    _, node = _open(world, call)
    del node.users[_known(node, call)]
    world.save_node(node)
    return Reply(200)


def _open(world: World, call: Call) -> tuple[PoolEntry, Node]:
    entry, node = world.node(*call.path[:2])
    if node.state not in OPEN_TO_USERS:
        raise nodes.refusal(node)
    return entry, node


def _known(node: Node, call: Call) -> str:
    name = call.path[2]
    if name not in node.users:
        raise Fault("NodeUserNotFound")
    return name


def _keep(world: World, node: Node, name: str, document: Document, now: int) -> None:
    expiry = wire.parse_timestamp(document["expiryTime"]) if "expiryTime" in document else now + LIFE
    if expiry <= now:
        raise invalid_property("expiryTime", document["expiryTime"], "The time must be in the future.")
    node.users = {**node.users, name: expiry}
    world.add_deadline(Deadline(expiry, node.seq, "user", node.id))
    world.save_node(node)


def time_up(world: World, deadline: Deadline, now: int) -> None:
    """Remove expired accounts."""
    if node := world.find_node(deadline.key):
        node.users = {name: expiry for name, expiry in node.users.items() if expiry > now}
        world.save_node(node)


def remote_login_settings(world: World, call: Call) -> Reply:
    """The log-in address of a node."""
    entry, node = world.node(*call.path)
    if node.state not in REACHED_BY_USERS:
        raise nodes.refusal(node)
    return element("remoteloginsettings", call.base, endpoints.login(entry, node))
