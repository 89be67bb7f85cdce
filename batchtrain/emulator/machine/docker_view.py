"""Translates requests of a node's own Docker for the one engine that all nodes share; pure.

A node sees only its own containers, networks and volumes, under the names that it gave them; the engine knows them with
a prefix of the node. The network of the host is that of the node, and a path of the node becomes a path of this
machine. All nodes share the images.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

from batchtrain.emulator.machine.run_options import INFINIBAND, MEMLOCK

Document = dict[str, Any]

OWNED = ("containers", "networks", "volumes")
COLLECTION = {
    "containers": ("json", "create", "prune"), "networks": ("", "create", "prune"), "volumes": ("", "create", "prune"),
}  # fmt: skip
"""What follows the name of a kind in a request about all of the kind."""
LISTED = frozenset(
    (("GET", "containers", "json"), ("GET", "networks", ""), ("GET", "volumes", ""), ("GET", "events", ""),
     ("POST", "containers", "prune"), ("POST", "networks", "prune"), ("POST", "volumes", "prune"))
)  # fmt: skip
"""Requests that take a filter."""
STREAMS = frozenset(("attach", "attach/ws", "logs", "stats", "wait", "export", "archive", "exec"))
"""What follows the name of a container if the answer is not a short document."""
ENGINES_OWN = frozenset(("bridge", "host", "none", "default"))
"""Networks that every engine has."""
_OF_MACHINE = "the nodes of the emulator share this machine's engine, whose"
REFUSED = {
    ("images", "prune"): f"{_OF_MACHINE} images are not theirs to prune; remove one by its name",
    ("build", "prune"): f"{_OF_MACHINE} build cache is not theirs to prune",
    ("swarm", ""): f"{_OF_MACHINE} swarm is not theirs to change",
    ("plugins", ""): f"{_OF_MACHINE} plugins are not theirs to change",
}
"""(kind, tail, or empty for all): requests that only the user of this machine may send, and why."""
OF_THE_NETWORK = ("Hostname", "Domainname", "MacAddress", "ExposedPorts")
OF_THE_HOSTS_NETWORK = ("PortBindings", "PublishAllPorts", "Dns", "DnsOptions", "DnsSearch", "ExtraHosts", "Links")
"""Properties that a container in the network of another may not set: the node has set them."""
_VERSION = re.compile(r"v[0-9.]+")


class Request(NamedTuple):
    """The first line of a request."""

    method: str
    version: str
    """`/v1.41`, or empty."""
    kind: str
    name: str
    """The name of the object; empty for requests about all of its kind."""
    tail: str
    query: tuple[tuple[str, str], ...] = ()

    @property
    def target(self) -> str:
        words = (quote(self.kind, safe=""), quote(self.name, safe=""), self.tail)
        path = "/".join([self.version, *(word for word in words if word)])
        return f"{path or '/'}?{urlencode(self.query)}" if self.query else path

    @property
    def is_short(self) -> bool:
        """Whether the answer is a short document, in which names are translated back."""
        return self.kind in OWNED and self.tail not in STREAMS

    @property
    def makes(self) -> bool:
        return self.method == "POST" and self.kind in OWNED and not self.name and self.tail == "create"


class Known(NamedTuple):
    """The containers and networks of a node: (id, names) of each."""

    containers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    networks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ids: Collection[str] = ()
    """Ids of objects that the node is known to have created, which need no look-up."""


class View(NamedTuple):
    """The Docker of one node."""

    prefix: str
    """Prefix of the names of everything that the node creates."""
    labels: Mapping[str, str]
    """Label of everything that the node creates, and of nothing else."""
    network: str
    """Id of the container with the network of the node."""
    on_machine: Callable[[str], str]
    """The path on this machine of a path of the node."""
    links_lead_to: tuple[str, ...] = ()
    """The directories of this machine to which the links in the node's `fsmounts` lead."""
    fsmounts: str = ""
    """The paths of these directories on the node."""
    gpus: bool = False
    """Whether the engine can give GPUs to containers."""
    has_device: Callable[[str], bool] = lambda path: True
    """Whether this machine has a device."""
    hidden_in: Callable[[str], str] = lambda path: ""
    """The relative path below a directory of this machine that must stay hidden; empty if there is none."""


class Unknown(Exception):
    """A container or network that the node does not have; the message is that of the engine."""


def parse(method: str, target: str) -> Request:
    """Read a request's target."""
    path, _, query = target.partition("?")
    words = [word for word in path.split("/") if word]  # the engine would normalize it in the same way
    version = f"/{unquote(words.pop(0))}" if words and _VERSION.fullmatch(unquote(words[0])) else ""
    kind, rest = unquote(words[0]) if words else "", words[1:]
    pairs = tuple(parse_qsl(query, keep_blank_values=True))
    if kind not in OWNED or "/".join(rest) in COLLECTION[kind]:
        return Request(method, version, kind, "", "/".join(rest), pairs)
    return Request(method, version, kind, unquote(rest[0]), "/".join(rest[1:]), pairs)


def refusal(request: Request) -> str:
    """Why a node may not send this request; empty if it may."""
    if request.method == "GET":
        return ""
    return REFUSED.get((request.kind, unquote(request.tail))) or REFUSED.get((request.kind, ""), "")


def needs_known(request: Request, ids: Collection[str] = ()) -> bool:
    """Whether names in a request must be looked up; `ids` are those of objects that the node created."""
    if request.kind in ("containers", "networks") and request.name:
        return request.name not in ids or request.tail in ("connect", "disconnect")
    if (request.method, request.kind, request.tail) in LISTED:
        return any(name == "filters" for name, _ in request.query)
    return (request.makes and request.kind == "containers") or request.kind in ("build", "commit")


def translate(request: Request, view: View, known: Known) -> Request:
    """A request for the engine. Raises Unknown."""
    name = _name(request, view, known)
    query, changed = dict(request.query), {}
    if (request.method, request.kind, request.tail) in LISTED and not request.name:
        changed["filters"] = _filtered(query.get("filters", ""), request.kind, view, known)
    if query.get("name") and request.kind == "containers" and request.tail in ("create", "rename"):
        changed["name"] = view.prefix + query["name"].lstrip("/")
    if request.kind == "commit" and "container" in query:
        changed["container"] = _container(query["container"], view, known)
    if request.kind == "build" and query.get("networkmode"):
        changed["networkmode"] = _mode(query["networkmode"], view, known, network=True)
    return request._replace(name=name, query=_with(request.query, changed))


def _with(query: tuple[tuple[str, str], ...], changed: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """A name may occur several times (`docker save a b`, `docker build -t a -t b`); all its values are kept."""
    given = {name for name, _ in query}
    kept = ((name, changed.get(name, value)) for name, value in query)
    return (*kept, *((name, value) for name, value in changed.items() if name not in given))


def _name(request: Request, view: View, known: Known) -> str:
    if not request.name or request.name in known.ids:
        return request.name
    if request.kind == "containers":
        return _container(request.name, view, known)
    if request.kind == "networks":
        return _network(request.name, view, known)
    return view.prefix + request.name


def _container(name: str, view: View, known: Known) -> str:
    container = _find(name.lstrip("/"), view, known.containers)
    if not container:
        raise Unknown(f"No such container: {name}")
    return container


def _network(name: str, view: View, known: Known) -> str:
    if name in ENGINES_OWN:
        return name
    network = _find(name, view, known.networks)
    if not network:
        raise Unknown(f"network {name} not found")
    return network


def _find(name: str, view: View, among: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    """By its name, which the node or the engine gave; else by the beginning of its id."""
    listed = tuple(among)
    for wanted in (view.prefix + name, name):
        for number, names in listed:
            if wanted in names:
                return number
    begun = [number for number, _ in listed if number.startswith(name)]
    return begun[0] if len(begun) == 1 else ""


def _filtered(text: str, kind: str, view: View, known: Known) -> str:
    """The filters of a request, and the label of the node. Accepts both forms that the engine accepts."""
    try:
        given = json.loads(text) if text else {}
    except ValueError:
        return text  # the engine reports the fault
    filters = {key: {_filter(key, kind, value, view, known): True for value in values} for key, values in given.items()}
    own = {f"{name}={value}": True for name, value in view.labels.items()}
    return json.dumps({**filters, "label": {**filters.get("label", {}), **own}})


def _filter(key: str, kind: str, value: str, view: View, known: Known) -> str:
    """A filter that names an object of the node, translated. A name is a pattern, and any part of it matches."""
    if key == "name" and (begun := re.match(r"\^(/\??)?", value)):
        return f"{begun[0]}{view.prefix}{value[begun.end() :]}"
    if key == "volume" and not value.startswith("/"):
        return view.prefix + value
    if key == "network":
        return value if value in ENGINES_OWN else _find(value, view, known.networks) or value
    if key in ("before", "since", "container") and kind != "images":
        return _find(value, view, known.containers) or value
    return value


def known_of(containers: Iterable[Document], networks: Iterable[Document]) -> Known:
    """From the engine's lists."""
    return Known(
        tuple(
            (container["Id"], tuple(name.lstrip("/") for name in container.get("Names") or ()))
            for container in containers
        ),
        tuple((network["Id"], (network["Name"],)) for network in networks),
    )


# --- bodies ---------------------------------------------------------------------------------------------------------


def takes_body(request: Request) -> bool:
    """Whether the body of a request needs a translation."""
    return request.makes or (request.kind == "networks" and request.tail in ("connect", "disconnect"))


def body(request: Request, document: Document, view: View, known: Known) -> Document:
    """The body of a request for the engine. Raises Unknown."""
    if not request.makes:
        return _connected(document, request.tail, view, known)
    labelled = {**document, "Labels": {**(document.get("Labels") or {}), **view.labels}}
    if request.kind == "containers":
        return _created(labelled, dict(request.query).get("name", ""), view, known)
    if labelled.get("DriverOpts"):
        labelled["DriverOpts"] = _driven(labelled["DriverOpts"], view)
    return {**labelled, "Name": view.prefix + document["Name"]} if document.get("Name") else labelled


def volumes(document: Document) -> tuple[str, ...]:
    """The named volumes in the translated body of a container: the engine would create them without a label."""
    sources = (bind.partition(":")[0] for bind in _host(document).get("Binds") or () if ":" in bind)
    return tuple(source for source in sources if not source.startswith("/"))


def _host(document: Document) -> Document:
    return document.get("HostConfig") or {}


def _connected(document: Document, tail: str, view: View, known: Known) -> Document:
    container = _container(document.get("Container", ""), view, known)
    names = next((names for number, names in known.containers if number == container), ())
    given = [name.removeprefix(view.prefix) for name in names if name.startswith(view.prefix)]
    if tail != "connect" or not given:
        return {**document, "Container": container}
    return {**document, "Container": container, "EndpointConfig": _called(document.get("EndpointConfig"), given[0])}


def _called(end: Document | None, name: str) -> Document:
    """The end point of a container in a network, where other containers find it by the name that the node gave it."""
    return {**(end or {}), "Aliases": [*((end or {}).get("Aliases") or ()), name]} if name else end or {}


def _created(document: Document, name: str, view: View, known: Known) -> Document:
    host = _host(document)
    binds = [_bind(bind, view) for bind in host.get("Binds") or ()]
    mounts = [_mount(mount, view) for mount in host.get("Mounts") or ()]
    if _shows_fsmounts(host, view):
        binds += [f"{directory}:{directory}" for directory in view.links_lead_to]
    covers = {**(host.get("Tmpfs") or {}), **_covers(binds, mounts, view)}
    fitted = {
        **host,
        "Binds": binds,
        "Mounts": mounts,
        **({"Tmpfs": covers} if covers else {}),
        "VolumesFrom": [_from(source, view, known) for source in host.get("VolumesFrom") or ()],
        **({"Links": _links(host["Links"], view, known)} if host.get("Links") else {}),
        **{mode: _mode(host[mode], view, known) for mode in ("PidMode", "IpcMode") if host.get(mode)},
        **({"UTSMode": ""} if host.get("UTSMode") == "host" else {}),
        "Devices": [device for device in host.get("Devices") or () if view.has_device(device.get("PathOnHost", ""))],
        **({} if view.has_device(INFINIBAND) else {"Ulimits": _without_memlock(host)}),
        **(
            {}
            if view.gpus
            else {"DeviceRequests": [request for request in host.get("DeviceRequests") or () if not _gpu(request)]}
        ),
    }
    return _joined({**document, "HostConfig": fitted}, name, view, known)


def _without_memlock(host: Document) -> list[Document]:
    """Remove the limit as in the run options of a native pool: it is for InfiniBand, and an engine without privileges
    fails with it."""
    return [limit for limit in host.get("Ulimits") or () if limit.get("Name") != MEMLOCK]


def _joined(document: Document, name: str, view: View, known: Known) -> Document:
    """The network of the host becomes that of the node; any other is found by its id."""
    host = _host(document)
    mode = host.get("NetworkMode") or ""
    if mode != "host":
        real = _mode(mode, view, known, network=True)
        ends = (document.get("NetworkingConfig") or {}).get("EndpointsConfig") or {}
        named = {_network(network, view, known): end for network, end in ends.items()}
        if any(number == real for number, _ in known.networks):
            named[real] = _called(named.get(real), name.lstrip("/"))
        more = {"NetworkingConfig": {"EndpointsConfig": named}} if named else {}
        return {**document, "HostConfig": {**host, "NetworkMode": real}, **more}
    kept = {key: value for key, value in host.items() if key not in OF_THE_HOSTS_NETWORK}
    outer = {key: value for key, value in document.items() if key not in (*OF_THE_NETWORK, "NetworkingConfig")}
    return {**outer, "HostConfig": {**kept, "NetworkMode": _mode(mode, view, known, network=True)}}


def _links(links: Iterable[str], view: View, known: Known) -> list[str]:
    """`name[:alias]` in the default network of the engine; other networks use the names that `_called` gives."""
    pairs = (link.partition(":") for link in links)
    return [f"{_container(name, view, known)}:{alias or name}" for name, _, alias in pairs]


def _mode(mode: str, view: View, known: Known, *, network: bool = False) -> str:
    kind, colon, name = mode.partition(":")
    if kind == "container" and colon:
        return f"container:{_container(name, view, known)}"
    if network and mode == "host":
        return f"container:{view.network}"
    return _network(mode, view, known) if network and mode else mode


def _covers(binds: Iterable[str], mounts: Iterable[Document], view: View) -> dict[str, str]:
    """Empty file systems over the hidden parts of bound directories."""
    pairs = [(source, rest.partition(":")[0]) for source, _, rest in (bind.partition(":") for bind in binds)]
    pairs += [(mount.get("Source", ""), mount.get("Target", "")) for mount in mounts if mount.get("Type") == "bind"]
    hidden = ((target, view.hidden_in(source)) for source, target in pairs if source.startswith("/"))
    return {f"{target.rstrip('/')}/{relative}": "" for target, relative in hidden if relative}


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
    if driver := options.get("DriverConfig"):
        labelled["DriverConfig"] = {**driver, "Options": _driven(driver.get("Options") or {}, view)}
    return {**mount, "Source": view.prefix + source, "VolumeOptions": labelled}


def _driven(options: Document, view: View) -> Document:
    """Options of a local volume: a volume that is another name of a directory binds a path of the node."""
    device = options.get("device", "")
    binds = "bind" in options.get("o", "").split(",") and device.startswith("/")
    return {**options, "device": view.on_machine(device)} if binds else options


def _shows_fsmounts(host: Document, view: View) -> bool:
    shown = [bind.partition(":")[0] for bind in host.get("Binds") or ()]
    shown += [mount.get("Source", "") for mount in host.get("Mounts") or () if mount.get("Type") == "bind"]
    return any(f"{view.fsmounts}/".startswith(f"{source.rstrip('/')}/") for source in shown)


def _from(text: str, view: View, known: Known) -> str:
    name, colon, rest = text.partition(":")
    return f"{_container(name, view, known)}{colon}{rest}"


def _gpu(request: Document) -> bool:
    return request.get("Driver") == "nvidia" or any("gpu" in each for each in request.get("Capabilities") or ())
