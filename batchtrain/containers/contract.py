"""The image contract of docker/README.md as checks of the facts about an image. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from batchtrain.errors import FAIL, NOT_CHECKED, OK, WARN, Check

ANY, MPI, FRAMEWORK, SINGLE = "any", "mpi", "framework", "single"
PURPOSES = (ANY, MPI, FRAMEWORK, SINGLE)
"""The purpose of an image: any gang, a gang of mpirun, a gang of the node launcher, or a task on one node."""

LARGE = 15 * 10**9
"""Maximum bytes of an image without a warning."""
OLDEST_BASH = (4, 2)
"""The minimum version for the launch texts."""
OLDEST_PYTHON = (3, 6)
"""The minimum version for the node launcher."""
TOOLS = ("tee", "grep", "sort")
"""Programs that the launch texts call."""
ROOT = ("", "root", "0", "root:root", "0:0")


class Outside(NamedTuple):
    """The engine's data about an image that does not run."""

    name: str
    system: str
    architecture: str
    user: str
    entrypoint: tuple[str, ...]
    size: int
    """Bytes, unpacked."""


class Inside(NamedTuple):
    """The output of `probe.sh` in the image."""

    user: str = ""
    bash: str = ""
    ssh: str = ""
    ssh_keygen: str = ""
    tools: tuple[str, ...] = ()
    """The TOOLS that exist."""
    python: str = ""
    mpirun: str = ""
    mpi: str = ""
    """The first line of `mpirun --version`."""
    libraries: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    library_path: str = ""
    sshd: str = ""
    refuses: str = ""
    """Why sshd did not start."""
    listens: str = ""
    login: tuple[str, ...] = ()
    """The output of a login over ssh: `in`, then the paths of mpirun and python3."""
    locked: str = ""
    """Why the login failed."""


class Looked(NamedTuple):
    """All facts about an image."""

    outside: Outside
    inside: Inside | None = None
    """None if its shell could not be run."""
    why_not: str = ""
    passes: bool | None = None
    """Whether the entry point runs a task's command; None without an entry point, or if it was not tried."""
    layer_keys: tuple[str, ...] | None = None
    """Private keys in any layer; None if the layers were not read."""


_KEYS = {"ssh-keygen": "ssh_keygen", "library": "libraries", "key": "keys"}
_MANY = ("libraries", "keys", "login", "tools")


def inside(text: str) -> Inside:
    """Parses the output of the probe."""
    many: dict[str, list[str]] = {name: [] for name in _MANY}
    once: dict[str, str] = {}
    for line in text.splitlines():
        name, tab, value = line.partition("\t")
        field = _KEYS.get(name, name)
        if not tab or not value:
            continue
        if name in TOOLS:
            many["tools"].append(name)
        elif field in many:
            many[field].append(value)
        elif field in Inside._fields:
            once[field] = value
    return Inside(**once, **{name: tuple(values) for name, values in many.items()})  # type: ignore[arg-type]  # by _MANY


def checks(looked: Looked, *, purpose: str = ANY, architecture: str = "amd64") -> tuple[Check, ...]:
    """Checks an image against the contract, for a purpose and the nodes' architecture."""
    outside, seen = looked.outside, looked.inside
    first = (_architecture(outside, architecture), _user(outside), _entrypoint(outside, looked.passes))
    if seen is None:
        step = "use an image with a shell" if outside.architecture == architecture else "correct the architecture first"
        shell = Check("shell", FAIL, looked.why_not or "it could not be run", step)
        keys = () if looked.layer_keys is None else (_keys(Inside(), looked.layer_keys),)
        return (*first, shell, *keys, _size(outside))
    gang = purpose != SINGLE
    return (
        *first,
        _bash(seen, gang),
        *(_ssh(seen) if gang else ()),
        _keys(seen, looked.layer_keys),
        *(_launch(seen, purpose) if gang else ()),
        _cuda(seen),
        *((_infiniband(seen),) if gang else ()),
        _size(outside),
    )


# --- the image as the engine has it ---------------------------------------------------------------------------------


def _architecture(outside: Outside, wanted: str) -> Check:
    text = f"{outside.system}/{outside.architecture}"
    if text == f"linux/{wanted}":
        return Check("architecture", OK, text)
    step = f"build it with --platform linux/{wanted}, or pull that variant of it"
    return Check("architecture", FAIL, f"{text}; the nodes are linux/{wanted}", step)


def _user(outside: Outside) -> Check:
    if outside.user in ROOT:
        return Check("user", OK, "root")
    text = f"{outside.user}: sshd only accepts root, and root owns the files of the task"
    return Check("user", FAIL, text, "end the Dockerfile with USER root")


def _entrypoint(outside: Outside, passes: bool | None) -> Check:
    if not outside.entrypoint:
        return Check("entry point", OK, "none")
    words = " ".join(outside.entrypoint)
    if passes:
        return Check("entry point", OK, f"{words}; it runs its arguments")
    if passes is None:
        return Check("entry point", NOT_CHECKED, words)
    return Check(
        "entry point", FAIL, f"{words}: it does not run a task's command", "write ENTRYPOINT [] in the Dockerfile"
    )


def _size(outside: Outside) -> Check:
    text = f"{outside.size / 1e9:.2f} GB unpacked"
    if outside.size <= LARGE:
        return Check("size", OK, text)
    return Check("size", WARN, f"{text}; every node fetches and unpacks it", "remove what only builds need")


# --- the image from inside ------------------------------------------------------------------------------------------


def _bash(seen: Inside, gang: bool) -> Check:
    missing = [tool for tool in TOOLS if tool not in seen.tools]
    if not seen.bash:
        return Check("bash", FAIL, "there is none; tasks are bash scripts", "install bash")
    if _version(seen.bash) < OLDEST_BASH:
        return Check("bash", FAIL, f"{seen.bash}; tasks need 4.2", "take a newer base")
    if missing and gang:
        return Check("bash", FAIL, f"{seen.bash}, but no {', '.join(missing)}", "install coreutils and grep")
    return Check("bash", OK, seen.bash)


def _ssh(seen: Inside) -> tuple[Check, ...]:
    client = [name for name, path in (("ssh", seen.ssh), ("ssh-keygen", seen.ssh_keygen)) if not path]
    text = f"no {' and no '.join(client)} on PATH: mpirun starts the ranks of other nodes with it"
    first = Check("ssh", FAIL, text, "install openssh-client") if client else Check("ssh", OK, seen.ssh)
    return (first, _sshd(seen), _login(seen))


def _sshd(seen: Inside) -> Check:
    if not seen.sshd:
        return Check("sshd", FAIL, "there is no /usr/sbin/sshd", "install openssh-server")
    if not seen.listens:
        refuses = seen.refuses or "it did not start"
        return Check("sshd", FAIL, f"`/usr/sbin/sshd -p 23` fails: {refuses}", "correct its configuration")
    return Check("sshd", OK, "/usr/sbin/sshd -p 23 starts")


def _login(seen: Inside) -> Check:
    if not seen.listens:
        return Check("login", NOT_CHECKED, "there is no sshd to log in to")
    if not seen.ssh or not seen.ssh_keygen:
        return Check("login", NOT_CHECKED, "there is no ssh client")
    if not seen.login:
        reason = seen.locked or "it was not tried: no key could be made"
        step = "sshd_config: `PermitRootLogin prohibit-password`; root's account must not be locked"
        return Check("login", FAIL, f"root is not let in by key on port 23: {reason}", step)
    if seen.mpirun and seen.mpirun not in seen.login:
        reason = f"a login does not find {seen.mpirun}; Open MPI gets its path; your own programs do not find it"
        return Check("login", WARN, reason, "sshd_config: `SetEnv PATH=...` with the image's PATH")
    return Check("login", OK, "root by key on port 23")


def _keys(seen: Inside, layers: tuple[str, ...] | None) -> Check:
    keys = tuple(dict.fromkeys((*seen.keys, *(layers or ()))))
    if not keys:
        return Check("keys", OK, "none in the files" if layers is None else "none in any layer")
    few = ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
    step = "delete them in the RUN that made them; the container makes host keys, and the pool the keys of logins"
    return Check("keys", FAIL, f"every user who can pull the image has {few}", step)


def _launch(seen: Inside, purpose: str) -> tuple[Check, ...]:
    python, mpi = _python(seen), _mpi(seen)
    if purpose == MPI:
        return (mpi, python._replace(result=WARN) if python.result == FAIL else python)
    if purpose == FRAMEWORK:
        return (python, mpi._replace(result=WARN) if mpi.result == FAIL else mpi)
    if FAIL in (python.result, mpi.result) and python.result != mpi.result:
        python, mpi = (check._replace(result=WARN) if check.result == FAIL else check for check in (python, mpi))
    return (mpi, python)


def _mpi(seen: Inside) -> Check:
    libraries = [path for path in seen.libraries if _file(path).startswith("libmpi.so")]
    if not seen.mpirun:
        text = f"no mpirun on PATH, but {libraries[0]}" if libraries else "no mpirun on PATH"
        return Check("mpi", FAIL, text, "install an MPI, or name its launcher in mpi.executable_path")
    text = f"{seen.mpi or 'of an unknown version'} ({seen.mpirun})"
    if not libraries:
        return Check(
            "mpi", WARN, f"{text}, but no libmpi.so", "programs of the ranks must bring the same MPI's library"
        )
    roots = {_root(path) for path in libraries}
    if len(roots) > 1:
        step = "use one MPI per image, or set LD_LIBRARY_PATH to that of the launcher"
        return Check("mpi", WARN, f"{text}; libmpi.so in {', '.join(sorted(roots))}", step)
    return Check("mpi", OK, f"{text}, {_file(max(libraries, key=len))}")


def _python(seen: Inside) -> Check:
    if not seen.python:
        text = "no python3; MPI tasks work without it, but the blocks of frameworks need 3.6"
        return Check("python", FAIL, text, "install python3")
    if _version(seen.python) < OLDEST_PYTHON:
        return Check("python", FAIL, f"{seen.python}; the node launcher needs 3.6", "install a newer python3")
    return Check("python", OK, seen.python)


def _cuda(seen: Inside) -> Check:
    drivers = [path for path in seen.libraries if _is_driver(path)]
    if drivers:
        step = "remove the driver; the driver of the node is mounted into the container"
        return Check(
            "cuda", FAIL, f"a driver's library is in the image, {drivers[0]}; it hides the driver of the node", step
        )
    if "/stubs" in seen.library_path:
        step = "remove the stubs from LD_LIBRARY_PATH; they are only for linking"
        return Check("cuda", FAIL, f"LD_LIBRARY_PATH has {seen.library_path}: its libcuda.so sees no GPU", step)
    runtimes = sorted({_file(path) for path in seen.libraries if _is_runtime(path)}, key=len)
    if not runtimes:
        return Check("cuda", OK, "no CUDA: for nodes without GPUs")
    nccl = sorted({_file(path) for path in seen.libraries if _file(path).startswith("libnccl.so.")}, key=len)
    return Check("cuda", OK, f"{runtimes[-1]}, {nccl[-1] if nccl else 'no NCCL'}; the driver comes from the node")


def _infiniband(seen: Inside) -> Check:
    if any(_file(path).startswith("libibverbs.so") for path in seen.libraries):
        return Check("infiniband", OK, "libibverbs")
    step = "install libibverbs1, ibverbs-providers and librdmacm1"
    return Check("infiniband", WARN, "no libibverbs: nodes communicate by TCP, even with InfiniBand", step)


def _is_driver(path: str) -> bool:
    return (
        re.fullmatch(r"libcuda\.so\.\d.*", _file(path)) is not None and "/stubs/" not in path and "/compat" not in path
    )


def _is_runtime(path: str) -> bool:
    return re.fullmatch(r"libcudart\.so\.\d.*", _file(path)) is not None


def _file(path: str) -> str:
    return path.rpartition("/")[2]


def _root(path: str) -> str:
    """The directory of a library; a directory below another one counts as the same installation."""
    folder = path.rpartition("/")[0]
    return re.sub(r"/(release|debug|openmpi/lib|mt)$", "", folder)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
