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


def checks(inspection: Looked, *, purpose: str = ANY, architecture: str = "amd64") -> tuple[Check, ...]:
    """Checks an image against the contract, for a purpose and the nodes' architecture."""
    outside, facts = inspection.outside, inspection.inside
    user = Check("user", OK, "root")
    if outside.user not in ROOT:
        text = f"{outside.user}: sshd only accepts root, and root owns the files of the task"
        user = Check("user", FAIL, text, "end the Dockerfile with USER root")
    first = (_architecture(outside, architecture), user, _entrypoint(outside, inspection.passes))
    if facts is None:
        step = "use an image with a shell" if outside.architecture == architecture else "correct the architecture first"
        shell = Check("shell", FAIL, inspection.why_not or "it could not be run", step)
        keys = () if inspection.layer_keys is None else (_keys(Inside(), inspection.layer_keys),)
        return (*first, shell, *keys, _size(outside))
    gang = purpose != SINGLE
    return (
        *first,
        _bash(facts, gang),
        *(_ssh(facts) if gang else ()),
        _keys(facts, inspection.layer_keys),
        *(_launch(facts, purpose) if gang else ()),
        _cuda(facts),
        *((_infiniband(facts),) if gang else ()),
        _size(outside),
    )


# --- the image as the engine has it ---------------------------------------------------------------------------------


def _architecture(outside: Outside, architecture: str) -> Check:
    text = f"{outside.system}/{outside.architecture}"
    if text == f"linux/{architecture}":
        return Check("architecture", OK, text)
    step = f"build it with --platform linux/{architecture}, or pull that variant of it"
    return Check("architecture", FAIL, f"{text}; the nodes are linux/{architecture}", step)


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


def _bash(facts: Inside, gang: bool) -> Check:
    missing = [tool for tool in TOOLS if tool not in facts.tools]
    if not facts.bash:
        return Check("bash", FAIL, "there is none; tasks are bash scripts", "install bash")
    if _version(facts.bash) < OLDEST_BASH:
        return Check("bash", FAIL, f"{facts.bash}; tasks need 4.2", "take a newer base")
    if missing and gang:
        return Check("bash", FAIL, f"{facts.bash}, but no {', '.join(missing)}", "install coreutils and grep")
    return Check("bash", OK, facts.bash)


def _ssh(facts: Inside) -> tuple[Check, ...]:
    client = [name for name, path in (("ssh", facts.ssh), ("ssh-keygen", facts.ssh_keygen)) if not path]
    text = f"no {' and no '.join(client)} on PATH: mpirun starts the ranks of other nodes with it"
    first = Check("ssh", FAIL, text, "install openssh-client") if client else Check("ssh", OK, facts.ssh)
    sshd = Check("sshd", OK, "/usr/sbin/sshd -p 23 starts")
    if not facts.sshd:
        sshd = Check("sshd", FAIL, "there is no /usr/sbin/sshd", "install openssh-server")
    elif not facts.listens:
        refuses = facts.refuses or "it did not start"
        sshd = Check("sshd", FAIL, f"`/usr/sbin/sshd -p 23` fails: {refuses}", "correct its configuration")
    return (first, sshd, _login(facts))


def _login(facts: Inside) -> Check:
    if not facts.listens:
        return Check("login", NOT_CHECKED, "there is no sshd to log in to")
    if not facts.ssh or not facts.ssh_keygen:
        return Check("login", NOT_CHECKED, "there is no ssh client")
    if not facts.login:
        reason = facts.locked or "it was not tried: no key could be made"
        step = "sshd_config: `PermitRootLogin prohibit-password`; root's account must not be locked"
        return Check("login", FAIL, f"root is not let in by key on port 23: {reason}", step)
    if facts.mpirun and facts.mpirun not in facts.login:
        reason = f"a login does not find {facts.mpirun}; Open MPI gets its path; your own programs do not find it"
        return Check("login", WARN, reason, "sshd_config: `SetEnv PATH=...` with the image's PATH")
    return Check("login", OK, "root by key on port 23")


def _keys(facts: Inside, layers: tuple[str, ...] | None) -> Check:
    keys = tuple(dict.fromkeys((*facts.keys, *(layers or ()))))
    if not keys:
        return Check("keys", OK, "none in the files" if layers is None else "none in any layer")
    few = ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
    step = "delete them in the RUN that made them; the container makes host keys, and the pool the keys of logins"
    return Check("keys", FAIL, f"every user who can pull the image has {few}", step)


def _launch(facts: Inside, purpose: str) -> tuple[Check, ...]:
    python, mpi = _python(facts), _mpi(facts)
    if purpose == MPI:
        return (mpi, python._replace(result=WARN) if python.result == FAIL else python)
    if purpose == FRAMEWORK:
        return (python, mpi._replace(result=WARN) if mpi.result == FAIL else mpi)
    if FAIL in (python.result, mpi.result) and python.result != mpi.result:
        python, mpi = (check._replace(result=WARN) if check.result == FAIL else check for check in (python, mpi))
    return (mpi, python)


def _mpi(facts: Inside) -> Check:
    libraries = [path for path in facts.libraries if _file(path).startswith("libmpi.so")]
    if not facts.mpirun:
        text = f"no mpirun on PATH, but {libraries[0]}" if libraries else "no mpirun on PATH"
        return Check("mpi", FAIL, text, "install an MPI, or name its launcher in mpi.executable_path")
    text = f"{facts.mpi or 'of an unknown version'} ({facts.mpirun})"
    if not libraries:
        return Check(
            "mpi", WARN, f"{text}, but no libmpi.so", "programs of the ranks must bring the same MPI's library"
        )
    # A directory below another one counts as the same installation.
    roots = {re.sub(r"/(release|debug|openmpi/lib|mt)$", "", path.rpartition("/")[0]) for path in libraries}
    if len(roots) > 1:
        step = "use one MPI per image, or set LD_LIBRARY_PATH to that of the launcher"
        return Check("mpi", WARN, f"{text}; libmpi.so in {', '.join(sorted(roots))}", step)
    return Check("mpi", OK, f"{text}, {_file(max(libraries, key=len))}")


def _python(facts: Inside) -> Check:
    if not facts.python:
        text = "no python3; MPI tasks work without it, but the blocks of frameworks need 3.6"
        return Check("python", FAIL, text, "install python3")
    if _version(facts.python) < OLDEST_PYTHON:
        return Check("python", FAIL, f"{facts.python}; the node launcher needs 3.6", "install a newer python3")
    return Check("python", OK, facts.python)


def _cuda(facts: Inside) -> Check:
    drivers = [path for path in facts.libraries if re.fullmatch(r"libcuda\.so\.\d.*", _file(path))]
    drivers = [path for path in drivers if "/stubs/" not in path and "/compat" not in path]
    if drivers:
        step = "remove the driver; the driver of the node is mounted into the container"
        return Check(
            "cuda", FAIL, f"a driver's library is in the image, {drivers[0]}; it hides the driver of the node", step
        )
    if "/stubs" in facts.library_path:
        step = "remove the stubs from LD_LIBRARY_PATH; they are only for linking"
        return Check("cuda", FAIL, f"LD_LIBRARY_PATH has {facts.library_path}: its libcuda.so sees no GPU", step)
    names = {_file(path) for path in facts.libraries}
    runtimes = sorted((name for name in names if re.fullmatch(r"libcudart\.so\.\d.*", name)), key=len)
    if not runtimes:
        return Check("cuda", OK, "no CUDA: for nodes without GPUs")
    nccl = sorted((name for name in names if name.startswith("libnccl.so.")), key=len)
    return Check("cuda", OK, f"{runtimes[-1]}, {nccl[-1] if nccl else 'no NCCL'}; the driver comes from the node")


def _infiniband(facts: Inside) -> Check:
    if any(_file(path).startswith("libibverbs.so") for path in facts.libraries):
        return Check("infiniband", OK, "libibverbs")
    step = "install libibverbs1, ibverbs-providers and librdmacm1"
    return Check("infiniband", WARN, "no libibverbs: nodes communicate by TCP, even with InfiniBand", step)


def _file(path: str) -> str:
    return path.rpartition("/")[2]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
