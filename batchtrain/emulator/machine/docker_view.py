"""What a node's own Docker is: requests to the engine that all nodes share, put into that engine's words; pure.

A node sees its own containers, networks and volumes alone, under the names that it gave them; their real names begin
with a prefix of the node's. The host's network is the node's, a path of the node is one of this machine's. Images are
everybody's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

Document = dict[str, Any]

OWNED = ("containers", "networks", "volumes")
COLLECTION = {
    "containers": ("json", "create", "prune"), "networks": ("", "create", "prune"), "volumes": ("", "create", "prune"),
}  # fmt: skip
"""What follows a kind's name where all of the kind is meant, not one."""
LISTED = frozenset(
    (("GET", "containers", "json"), ("GET", "networks", ""), ("GET", "volumes", ""), ("GET", "events", ""),
     ("POST", "containers", "prune"), ("POST", "networks", "prune"), ("POST", "volumes", "prune"))
)  # fmt: skip
"""Requests that take a filter."""
STREAMS = frozenset(("attach", "attach/ws", "logs", "stats", "wait", "export", "archive", "exec"))
"""What follows one container's name where the answer is not a short document."""
ENGINES_OWN = frozenset(("bridge", "host", "none", "default"))
"""Networks that every engine has."""
_OF_MACHINE = "the nodes of the emulator share this machine's engine, whose"
REFUSED = {
    ("images", "prune"): f"{_OF_MACHINE} images are not theirs to prune; remove one by its name",
    ("build", "prune"): f"{_OF_MACHINE} build cache is not theirs to prune",
    ("swarm", ""): f"{_OF_MACHINE} swarm is not theirs to change",
    ("plugins", ""): f"{_OF_MACHINE} plugins are not theirs to change",
}
"""(kind, what follows, or empty for all of it): what only this machine's user may ask for, and why."""
OF_THE_NETWORK = ("Hostname", "Domainname", "MacAddress", "ExposedPorts")
OF_THE_HOSTS_NETWORK = ("PortBindings", "PublishAllPorts", "Dns", "DnsOptions", "DnsSearch", "ExtraHosts", "Links")
"""What a container that joins another's network may not say: the node has said it."""
_WHOLE_ID = re.compile("[0-9a-f]{64}")


class Asked(NamedTuple):
    """A request's first line."""

    method: str
    version: str
    """`/v1.41`, or empty."""
    kind: str
    name: str
    """Of the one that is meant; empty where all of its kind are."""
    tail: str
    query: tuple[tuple[str, str], ...] = ()

    @property
    def target(self) -> str:
        words = (self.kind, quote(self.name, safe=""), self.tail)
        path = "/".join([self.version, *(word for word in words if word)])
        return f"{path or '/'}?{urlencode(self.query)}" if self.query else path

    @property
    def is_short(self) -> bool:
        """Its answer is a short document, in which names are given back as the node knows them."""
        return self.kind in OWNED and self.tail not in STREAMS

    @property
    def makes(self) -> bool:
        return self.method == "POST" and self.kind in OWNED and not self.name and self.tail == "create"


class Known(NamedTuple):
    """What a node has: (id, names) of each."""

    containers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    networks: tuple[tuple[str, tuple[str, ...]], ...] = ()


class View(NamedTuple):
    """One node's Docker."""

    prefix: str
    """Before the name of whatever the node makes."""
    labels: Mapping[str, str]
    """On whatever it makes, and on nothing else."""
    network: str
    """Id of the container that has the node's network."""
    on_machine: Callable[[str], str]
    """A path of the node's as one of this machine's."""
    links_lead_to: str = ""
    """A directory of this machine to which links of the node's `fsmounts` lead; empty where there is none."""
    fsmounts: str = ""
    """Where the node sees those."""
    gpus: bool = False
    """The engine can give containers GPUs."""


class Unknown(Exception):
    """A container or network that the node does not have; the message is as the engine says it."""


def parse(method: str, target: str) -> Asked:
    """Read a request's target."""
    path, _, query = target.partition("?")
    found = re.fullmatch(r"(/v[0-9.]+)?/(.*)", path)
    version, words = (found[1] or "", found[2].split("/")) if found else ("", [path])
    kind, rest = words[0], words[1:]
    pairs = tuple(parse_qsl(query, keep_blank_values=True))
    if kind not in OWNED or "/".join(rest) in COLLECTION[kind]:
        return Asked(method, version, kind, "", "/".join(rest), pairs)
    return Asked(method, version, kind, unquote(rest[0]), "/".join(rest[1:]), pairs)


def refusal(asked: Asked) -> str:
    """Why a node may not ask for this; empty where it may."""
    if asked.method == "GET":
        return ""
    return REFUSED.get((asked.kind, asked.tail)) or REFUSED.get((asked.kind, ""), "")


def needs_known(asked: Asked) -> bool:
    """Whether names in a request must be looked up."""
    if asked.kind in ("containers", "networks") and asked.name:
        return not _WHOLE_ID.fullmatch(asked.name) or asked.tail in ("connect", "disconnect")
    return (asked.makes and asked.kind == "containers") or asked.kind == "commit"


def translate(asked: Asked, view: View, known: Known) -> Asked:
    """A request for the engine. Raises Unknown."""
    name = _name(asked, view, known)
    query = dict(asked.query)
    if (asked.method, asked.kind, asked.tail) in LISTED and not asked.name:
        query["filters"] = _filtered(query.get("filters", ""), view)
    if query.get("name") and asked.kind == "containers" and asked.tail in ("create", "rename"):
        query["name"] = view.prefix + query["name"].lstrip("/")
    if asked.kind == "commit" and "container" in query:
        query["container"] = _container(query["container"], view, known)
    return asked._replace(name=name, query=tuple(query.items()))


def _name(asked: Asked, view: View, known: Known) -> str:
    if not asked.name or _WHOLE_ID.fullmatch(asked.name):
        return asked.name
    if asked.kind == "containers":
        return _container(asked.name, view, known)
    if asked.kind == "networks":
        return _network(asked.name, view, known)
    return view.prefix + asked.name


def _container(name: str, view: View, known: Known) -> str:
    found = _find(name.lstrip("/"), view, known.containers)
    if not found:
        raise Unknown(f"No such container: {name}")
    return found


def _network(name: str, view: View, known: Known) -> str:
    if name in ENGINES_OWN:
        return name
    found = _find(name, view, known.networks)
    if not found:
        raise Unknown(f"network {name} not found")
    return found


def _find(name: str, view: View, among: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    """By its name, which the node may have given or the engine; else by the beginning of its id."""
    listed = tuple(among)
    for wanted in (view.prefix + name, name):
        for number, names in listed:
            if wanted in names:
                return number
    begun = [number for number, _ in listed if number.startswith(name)]
    return begun[0] if len(begun) == 1 else ""


def _filtered(text: str, view: View) -> str:
    """The filters of a request, and the node's own. Both forms of them that the engine takes are understood."""
    try:
        told = json.loads(text) if text else {}
    except ValueError:
        return text  # the engine says what is wrong with it
    filters = {key: dict.fromkeys(values, True) for key, values in told.items()}
    own = {f"{name}={value}": True for name, value in view.labels.items()}
    return json.dumps({**filters, "label": {**filters.get("label", {}), **own}})


def known_of(containers: Iterable[Document], networks: Iterable[Document]) -> Known:
    """From the engine's lists."""
    return Known(
        tuple((one["Id"], tuple(name.lstrip("/") for name in one.get("Names") or ())) for one in containers),
        tuple((one["Id"], (one["Name"],)) for one in networks),
    )


# --- bodies ---------------------------------------------------------------------------------------------------------


def takes_body(asked: Asked) -> bool:
    """Whether something in a request's body is the node's."""
    return asked.makes or (asked.kind == "networks" and asked.tail in ("connect", "disconnect"))


def body(asked: Asked, document: Document, view: View, known: Known) -> Document:
    """A request's body for the engine. Raises Unknown."""
    if not asked.makes:
        return {**document, "Container": _container(document.get("Container", ""), view, known)}
    labelled = {**document, "Labels": {**(document.get("Labels") or {}), **view.labels}}
    if asked.kind == "containers":
        return _created(labelled, view, known)
    return {**labelled, "Name": view.prefix + document["Name"]} if document.get("Name") else labelled


def volumes(document: Document) -> tuple[str, ...]:
    """The named volumes that a container's translated body binds: those the engine would make without a label."""
    sources = (one.partition(":")[0] for one in _host(document).get("Binds") or () if ":" in one)
    return tuple(source for source in sources if not source.startswith("/"))


def _host(document: Document) -> Document:
    return document.get("HostConfig") or {}


def _created(document: Document, view: View, known: Known) -> Document:
    host = _host(document)
    binds = [_bind(one, view) for one in host.get("Binds") or ()]
    mounts = [_mount(one, view) for one in host.get("Mounts") or ()]
    if view.links_lead_to and _shows_fsmounts(host, view):
        binds.append(f"{view.links_lead_to}:{view.links_lead_to}")
    fitted = {
        **host,
        "Binds": binds,
        "Mounts": mounts,
        "VolumesFrom": [_from(one, view, known) for one in host.get("VolumesFrom") or ()],
        **{mode: _mode(host[mode], view, known) for mode in ("PidMode", "IpcMode") if host.get(mode)},
        **({"UTSMode": ""} if host.get("UTSMode") == "host" else {}),
        **({} if view.gpus else {"DeviceRequests": [one for one in host.get("DeviceRequests") or () if not _gpu(one)]}),
    }
    return _joined({**document, "HostConfig": fitted}, view, known)


def _joined(document: Document, view: View, known: Known) -> Document:
    """The host's network is the node's; another is what it was, by its id."""
    host = _host(document)
    mode = host.get("NetworkMode") or ""
    if mode != "host":
        ends = (document.get("NetworkingConfig") or {}).get("EndpointsConfig") or {}
        named = {_network(name, view, known): end for name, end in ends.items()}
        more = {"NetworkingConfig": {"EndpointsConfig": named}} if named else {}
        return {**document, "HostConfig": {**host, "NetworkMode": _mode(mode, view, known, network=True)}, **more}
    kept = {key: value for key, value in host.items() if key not in OF_THE_HOSTS_NETWORK}
    outer = {key: value for key, value in document.items() if key not in (*OF_THE_NETWORK, "NetworkingConfig")}
    return {**outer, "HostConfig": {**kept, "NetworkMode": f"container:{view.network}"}}


def _mode(mode: str, view: View, known: Known, *, network: bool = False) -> str:
    kind, colon, name = mode.partition(":")
    if kind == "container" and colon:
        return f"container:{_container(name, view, known)}"
    return _network(mode, view, known) if network and mode else mode


def _bind(text: str, view: View) -> str:
    """`source:target[:options]`; an anonymous volume has no source."""
    source, colon, rest = text.partition(":")
    if not colon:
        return text
    return f"{view.on_machine(source) if source.startswith('/') else view.prefix + source}{colon}{rest}"


def _mount(mount: Document, view: View) -> Document:
    source = mount.get("Source", "")
    if mount.get("Type") == "bind":
        return {**mount, "Source": view.on_machine(source)}
    if mount.get("Type") != "volume" or not source:
        return mount
    options = mount.get("VolumeOptions") or {}
    labelled = {**options, "Labels": {**(options.get("Labels") or {}), **view.labels}}
    return {**mount, "Source": view.prefix + source, "VolumeOptions": labelled}


def _shows_fsmounts(host: Document, view: View) -> bool:
    shown = [one.partition(":")[0] for one in host.get("Binds") or ()]
    shown += [one.get("Source", "") for one in host.get("Mounts") or () if one.get("Type") == "bind"]
    return any(f"{view.fsmounts}/".startswith(f"{source.rstrip('/')}/") for source in shown)


def _from(text: str, view: View, known: Known) -> str:
    name, colon, rest = text.partition(":")
    return f"{_container(name, view, known)}{colon}{rest}"


def _gpu(request: Document) -> bool:
    return request.get("Driver") == "nvidia" or any("gpu" in each for each in request.get("Capabilities") or ())
