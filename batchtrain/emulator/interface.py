"""The small interface between the emulated service and what really runs a node's commands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

STORAGE_ACCOUNT = "batchtrainlocal"
"""The name of the account's own storage, which is its auto-storage too."""


class Package(NamedTuple):
    """A version of an application: unpacked to `applications/ID/VERSION` below a node's root."""

    application: str
    version: str

    @property
    def directory(self) -> str:
        return f"applications/{self.application}/{self.version}"


class Mount(NamedTuple):
    """A file system: `path` below `fsmounts` shows the directory `place` of the machine's data directory."""

    path: str
    place: str
    container: str = ""
    """The container of the account's own storage with the same files; empty for other file systems."""


class Login(NamedTuple):
    """Who asks a registry for its images. Its `repr` has no password."""

    server: str = ""
    """Empty for Docker Hub."""
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Login({self.server!r}, {self.username!r})"


class Containers(NamedTuple):
    """What a pool says of its containers."""

    images: tuple[str, ...] = ()
    """Fetched before a node is ready."""
    logins: tuple[Login, ...] = ()
    one_for_gangs: bool = False
    """The application command of a multi-instance task runs in the container of its coordination command."""


class BindMount(NamedTuple):
    """A directory of the node's that a container sees: `source` is Batch's word for it."""

    source: str
    read_only: bool = False


class Container(NamedTuple):
    """How a task runs in its image."""

    image: str
    options: str = ""
    """Batch's containerRunOptions: words for `docker create`."""
    image_directory: bool = False
    """It begins in the image's own working directory, not in the task's."""
    mounts: tuple[BindMount, ...] | None = None
    """What it sees of the node; None is all."""
    login: Login | None = None
    """For its registry, beside those of the pool."""


class Forward(NamedTuple):
    """An inbound endpoint: connections to the node's address and `frontend` port are forwarded to its `backend`
    port."""

    frontend: int
    backend: int


class NodeSpec(NamedTuple):
    """A node to boot."""

    pool_id: str
    node_id: str
    address: str
    """The node's own address, in 127.0.0.0/8 for process nodes."""
    hostname: str
    vm_size: str
    gpus: int = 0
    simulated: bool = False
    """It only keeps time; see `simulated`."""
    packages: tuple[Package, ...] = ()
    """Application packages of the pool."""
    mounts: tuple[Mount, ...] = ()
    """What stands for the pool's mounted file systems."""
    forwards: tuple[Forward, ...] = ()
    containers: Containers | None = None
    """Its tasks run in containers."""
    own_docker: bool = False
    """Its commands find a Docker Engine of the node's own."""
    service: tuple[str, int] | None = None
    """The address and port where the service listens on this machine."""


class NodeUp(NamedTuple):
    """A node that booted."""

    root: Path
    """Its directory on this machine; the files of the API are below it."""
    root_inside: str
    """The same directory as the node's processes see it (AZ_BATCH_NODE_ROOT_DIR); the same on all nodes of a
    pool where the kernel lets us mount."""
    environment: Mapping[str, str]
    """Node-wide environment every task of it starts from (PATH, HOME, the emulator's marker, MPI yielding)."""
    isolation: str
    """`namespaces` (own host name, process tree, mounts), `process` (plain processes) or `docker` (a network too)."""
    address: str = ""
    """The address that it has, where that is not the one it was given."""


class Download(NamedTuple):
    """One resource file: fetched from `url` to `path` below the run's resource directory."""

    url: str
    path: str
    mode: str = "0770"
    container: bool = False
    """`url` is a storage container's: all its blobs that begin with `prefix`, each below `path` by its own name."""
    own: bool = False
    """`url` is only the name of a container of the account's own storage."""
    prefix: str = ""


class StorageAccount(NamedTuple):
    """The storage account of the emulator. Its `repr` has no key."""

    account: str
    key: str
    endpoint: str
    """The URL of its blob service."""

    def __repr__(self) -> str:
        return f"StorageAccount({self.account!r}, {self.endpoint!r})"


class StorageMissing(Exception):
    """There is no storage on this machine; the message says why and what to do."""


class Upload(NamedTuple):
    """One output file request: what matches `pattern` goes to a storage container when its condition holds."""

    pattern: str
    """Relative to `wd`, `$NAME` expanded."""
    container_url: str
    """With the signature that may write there."""
    path: str = ""
    """The blob's name for a pattern without wildcards, else what the names begin with."""
    condition: str = "taskcompletion"
    """tasksuccess, taskfailure or taskcompletion."""
    headers: tuple[tuple[str, str], ...] = ()


class Run(NamedTuple):
    """One command on one node.

    Runs of the same `scope` belong together (a task instance's coordination and application command, with all
    they left in the background): they share one supervisor and end together with `Machine.end`.
    """

    scope: str
    directory: str
    """Relative to the node's root, e.g. `workitems/job/job-1/task`; `wd/`, stdout.txt and stderr.txt are made in it.
    A second run of a scope appends to the same stdout.txt and stderr.txt."""
    command_line: str
    """As Batch takes it: split by shell quoting rules, run without a shell, variables not expanded."""
    environment: Mapping[str, str]
    """Complete, except for what the node-wide environment gives."""
    downloads: tuple[Download, ...] = ()
    downloads_to: str = "wd"
    """`wd` for a task's own resource files, `` for common resource files (the task's root directory)."""
    image: str | None = None
    elevated: bool = False
    packages: tuple[Package, ...] = ()
    """Unpacked on the node before the command starts."""
    uploads: tuple[Upload, ...] = ()
    """Carried out when the command has ended by itself."""
    container: Container | None = None
    """More of `image`, for a node with containers."""
    stays: bool = False
    """What it leaves in the background lives on until the scope ends: a coordination command."""


class Exit(NamedTuple):
    """How a run ended: an exit code, or a failure of the machine's with Batch's own code."""

    code: int | None
    failure: str | None = None
    """Batch failure code (CommandProgramNotFound, BlobNotFound, ContainerInvalidImage, TaskEnded, …) or None."""
    message: str = ""
    category: str = "UserError"
    container: Mapping[str, str] | None = None
    """The wire's containerInfo."""


UPLOAD_FAILED = "FileUpload"
"""What the failure codes of output files begin with: such a failure is not tried again, whatever the exit code."""


class NodeLost(Exception):
    """The node died under a run (its process tree is gone)."""


class NodeUnfit(Exception):
    """A node that cannot become usable: `code` is Batch's, such as ApplicationPackageError."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Machine(Protocol):
    """Drives real nodes. Every method may be called concurrently for different nodes; all are on one event loop."""

    plain_nodes: str
    """Why its nodes are plain processes of this machine, and what changes that; empty where they are not."""

    async def boot(self, spec: NodeSpec, lost: Callable[[str], None]) -> NodeUp:
        """Bring a node up; `lost(node_id)` is called once if it dies without `shutdown` having been asked.

        Raises NodeUnfit.
        """

    async def run(self, node_id: str, run: Run) -> Exit:
        """Run one command to its end. Raises NodeLost when the node dies meanwhile."""

    async def end(self, node_id: str, scope: str, grace: float = 0.0) -> None:
        """End every process of a scope: SIGTERM, after `grace` seconds SIGKILL, until none is left."""

    async def shutdown(self, node_id: str) -> None:
        """End a node and everything on it; idempotent. Its directory stays."""

    async def remove(self, node_id: str) -> None:
        """Shut down and delete the node's directory."""

    async def sweep(self, known: Mapping[str, Collection[str]]) -> None:
        """Delete the directories of all pools and nodes but these: the ids of each pool's nodes by its own."""

    async def send_logs(self, node_id: str, container_url: str, directory: str) -> None:
        """Upload what there is to read of a node, below `directory` of a storage container."""

    async def storage(self) -> StorageAccount:
        """The account's own storage, started at its first use. Raises StorageMissing."""

    async def close(self) -> None:
        """Shut down every node."""
