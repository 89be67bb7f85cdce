"""The interface between the emulated service and the machine that runs the commands of nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

SIMULATED = "batchtrain-nodes"
"""Metadata item: with the value `simulated`, nodes of the pool run no commands."""
NO_WINDOWS = (
    "The image of the pool is a Windows one, but the nodes of the emulator are Linux: commands of Windows, such as"
    f" `cmd /c`, cannot run here. Use simulated nodes (metadata of the pool: `{SIMULATED}: simulated`), which accept"
    " any command and only take the time of its `sleep`, or use a Linux image."
)

STORAGE_ACCOUNT = "batchtrainlocal"
"""The name of the account's own storage, which is its auto-storage too."""


class Size(msgspec.Struct, frozen=True):
    """The properties of a VM size."""

    cores: int = 0
    gpus: int = 0


DEFAULT, DISPLAY_NAME, ALLOW_UPDATES = "default", "display_name", "allow_updates"
"""Settings of an application: the version of references without one, the name that people see, and whether an active
package can be replaced."""


class PackageFiles(Protocol):
    """Changes the applications and their packages in the data directory."""

    def add(self, application: str) -> None:
        """Create an application, if it does not exist."""

    def remove(self, application: str) -> None:
        """Delete an application."""

    def setting(self, application: str, name: str) -> str:
        """A setting of an application; empty if it has none."""

    def set(self, application: str, name: str, value: str) -> None:
        """Change a setting of an application; an empty value removes it."""

    def versions(self, application: str) -> dict[str, int]:
        """The versions of an application, and when each was activated; 0 for one that is not active."""

    def announce(self, application: str, version: str) -> None:
        """Create a package without content."""

    async def keep(self, application: str, version: str, parts: AsyncIterator[bytes]) -> None:
        """Store the content of a package, which is not active yet."""

    def activate(self, application: str, version: str, now: int) -> bool:
        """Make the content of a package active. Returns False if it has none."""

    def remove_version(self, application: str, version: str) -> None:
        """Delete a package."""


class Package(NamedTuple):
    """A version of an application, unpacked to `applications/ID/VERSION` below a node's root."""

    application: str
    version: str

    @property
    def directory(self) -> str:
        return f"applications/{self.application}/{self.version}"


class Mount(NamedTuple):
    """A mounted file system: `path` below `fsmounts` shows `directory` of the machine's data directory."""

    path: str
    directory: str
    container: str = ""
    """The container of the account's own storage with the same files; empty for other file systems."""


class Login(NamedTuple):
    """A registry's credentials. The `repr` has no password."""

    server: str = ""
    """Empty for Docker Hub."""
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Login({self.server!r}, {self.username!r})"


class Containers(NamedTuple):
    """The container settings of a pool."""

    images: tuple[str, ...] = ()
    """Images that are pulled before a node is ready."""
    logins: tuple[Login, ...] = ()
    one_for_gangs: bool = False
    """The application command of a multi-instance task runs in the container of its coordination command."""


class BindMount(NamedTuple):
    """A directory of the node that is mounted into a container; `source` is Batch's name for it."""

    source: str
    read_only: bool = False


class Container(NamedTuple):
    """How a task runs in its image."""

    image: str
    options: str = ""
    """Batch's containerRunOptions: options for `docker create`."""
    image_directory: bool = False
    """Whether the task starts in the image's working directory instead of its own."""
    mounts: tuple[BindMount, ...] | None = None
    """The directories of the node that are mounted; None for all."""
    login: Login | None = None
    """Credentials of the image's registry, in addition to those of the pool."""


class Forward(NamedTuple):
    """An inbound endpoint: connections to the node's address and `frontend` port are forwarded to `backend`."""

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
    """The node runs no commands; see `simulated`."""
    windows: bool = False
    """The image of its pool is a Windows one."""
    packages: tuple[Package, ...] = ()
    """Application packages of the pool."""
    mounts: tuple[Mount, ...] = ()
    """The directories in place of the pool's mounted file systems."""
    forwards: tuple[Forward, ...] = ()
    containers: Containers | None = None
    """The node's tasks run in containers."""
    service: tuple[str, int] | None = None
    """The address and port of the service on this machine."""


class NodeUp(NamedTuple):
    """A node that has booted."""

    root: Path
    """Its directory on this machine; the files of the API are below it."""
    root_inside: str
    """Its path as the node's processes see it; the same on all nodes of a pool if the kernel allows mounts."""
    environment: Mapping[str, str]
    """The node's environment, from which every task starts (PATH, HOME, the emulator's marker, MPI yielding)."""
    isolation: str
    """`namespaces` (own host name, processes, mounts), `process` (plain) or `docker` (own network, too)."""
    address: str = ""
    """The node's address, if it differs from the requested one."""


class Download(NamedTuple):
    """One resource file: downloaded from `url` to `path` below the run's resource directory."""

    url: str
    path: str
    mode: str = "0770"
    container: bool = False
    """`url` is that of a storage container: its blobs with the prefix are downloaded by their names below `path`."""
    own: bool = False
    """`url` is only the name of a container of the account's own storage."""
    prefix: str = ""


class StorageAccount(NamedTuple):
    """The storage account of the emulator. Its `repr` has no key."""

    account: str
    key: str
    endpoint: str
    """The URL of its blob service."""

    @property
    def connection_string(self) -> str:
        """As SDKs and `az storage` take it; it contains the key."""
        protocol = self.endpoint.partition(":")[0]
        return (
            f"DefaultEndpointsProtocol={protocol};AccountName={self.account};AccountKey={self.key};"
            f"BlobEndpoint={self.endpoint};"
        )

    def __repr__(self) -> str:
        return f"StorageAccount({self.account!r}, {self.endpoint!r})"


class StorageMissing(Exception):
    """There is no storage on this machine; the message says why and what to do."""


class Upload(NamedTuple):
    """One output file request: files that match `pattern` are uploaded to a container if the condition holds."""

    pattern: str
    """Relative to `wd`; `$NAME` is expanded."""
    container_url: str
    """Including a signature that allows writing."""
    path: str = ""
    """The blob's name for a pattern without wildcards, otherwise the prefix of the names."""
    condition: str = "taskcompletion"
    """tasksuccess, taskfailure or taskcompletion."""
    headers: tuple[tuple[str, str], ...] = ()


class Run(NamedTuple):
    """One command on one node. Runs of the same `scope` belong together: a task instance's coordination command, its
    application command, and their background processes. They have one supervisor and end together by `Machine.end`."""

    scope: str
    directory: str
    """Relative to the node's root, e.g. `workitems/job/job-1/task`. It contains `wd/`, stdout.txt and stderr.txt; a
    second run of a scope appends to these."""
    command_line: str
    """As in Batch: split by shell quoting rules, run without a shell, variables not expanded."""
    environment: Mapping[str, str]
    """Complete, except for the node's environment."""
    downloads: tuple[Download, ...] = ()
    downloads_to: str = "wd"
    """`wd` for a task's own resource files, `` for common resource files (the task's root directory)."""
    image: str | None = None
    elevated: bool = False
    packages: tuple[Package, ...] = ()
    """Unpacked on the node before the command starts."""
    uploads: tuple[Upload, ...] = ()
    """Uploaded after the command has ended by itself."""
    container: Container | None = None
    """Container settings of `image`, on nodes with containers."""
    stays: bool = False
    """Whether its background processes live until the scope ends: a coordination command."""


class Exit(NamedTuple):
    """How a run ended: an exit code, or a failure of the machine with Batch's code."""

    code: int | None
    failure: str | None = None
    """Batch failure code (CommandProgramNotFound, BlobNotFound, ContainerInvalidImage, TaskEnded, …) or None."""
    message: str = ""
    category: str = "UserError"
    container: Mapping[str, str] | None = None
    """The wire's containerInfo."""


UPLOAD_FAILED = "FileUpload"
"""The prefixes of the failure codes of output files. Such a failure is never retried."""


class NodeLost(Exception):
    """The node died during a run (its process tree is gone)."""


class CodedError(Exception):
    """What failed, with the failure code of Batch."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NodeUnfit(CodedError):
    """A node cannot become usable: `code` is Batch's, such as ApplicationPackageError."""


class NodeLogin(NamedTuple):
    """Programs of this machine, as words, that reach a node: `ssh` takes what follows the host, `relay` a port."""

    ssh: tuple[str, ...]
    """Ends with the host; options of ssh may follow, then the command."""
    relay: tuple[str, ...]
    """A command for the node that connects its stdin, a socket, with the port given as its last word."""


class Machine(Protocol):
    """Drives real nodes. Every method may be called concurrently for different nodes; all use one event loop."""

    plain_nodes: str
    """Why nodes are plain processes of this machine; empty if they are not."""
    plain_nodes_remedy: str
    """How to change that."""

    async def boot(self, spec: NodeSpec, on_lost: Callable[[str], None]) -> NodeUp:
        """Boot a node. `on_lost(node_id)` is called once if the node dies without `shutdown`. Raises NodeUnfit."""

    async def run(self, node_id: str, run: Run) -> Exit:
        """Run one command to its end. Raises NodeLost if the node dies meanwhile."""

    async def end(self, node_id: str, scope: str, grace: float = 0.0) -> None:
        """End every process of a scope: SIGTERM, and SIGKILL after `grace` seconds. Returns when none is left."""

    async def upload(self, node_id: str, run: Run) -> None:
        """Send the output files of a command that was ended from outside; nothing if the node is gone."""

    async def shutdown(self, node_id: str) -> None:
        """End a node and all its processes; idempotent. Its directory is kept."""

    async def remove(self, node_id: str) -> None:
        """Shut the node down and delete its directory."""

    async def sweep(self, node_ids: Mapping[str, Collection[str]]) -> None:
        """Delete the directories of all pools and nodes except these: node ids by pool id."""

    async def send_logs(self, node_id: str, container_url: str, directory: str) -> None:
        """Upload the logs of a node below `directory` of a storage container."""

    def login(self, node_id: str) -> NodeLogin:
        """How this machine runs commands on a node. Raises NodeLost if it is not up."""

    async def storage(self) -> StorageAccount:
        """The account's own storage, started at its first use. Raises StorageMissing."""

    async def close(self) -> None:
        """Shut down every node."""
