"""The shell text that prepares a node when it joins: mounts, drivers, container runtimes, images, data put in place.

The user's lines come before and after it, in one shell; the lines of batchtrain run in a separate shell, so that
neither changes the other. Steps with transient faults (a registry, a mirror, a package lock) are tried `TRIES` times.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from batchtrain.launchers import shell, shell_functions

SCRIPT = "BATCHTRAIN_PREPARATION"
"""Contains the whole preparation, so that quoting cannot break the user's lines."""
OWN = "BATCHTRAIN_NODE_PREPARATION"
"""Contains the lines of batchtrain."""

LINUX = f"/bin/bash -c 'exec /bin/bash -e -c \"${SCRIPT}\"'"
WINDOWS = f'cmd.exe /d /s /c "%{SCRIPT}%"'

TRIES = 5
PULLS_AT_ONCE = 4
IMAGES = "$AZ_BATCH_NODE_SHARED_DIR/batchtrain/apptainer"
"""The directory of Apptainer images on a node."""

KATA = "3.2.0"
KATA_URL = (
    f"https://github.com/kata-containers/kata-containers/releases/download/{KATA}/kata-static-{KATA}-amd64.tar.xz"
)


class Fstab(NamedTuple):
    """One line of /etc/fstab; it is mounted at `$AZ_BATCH_NODE_MOUNTS_DIR/alias`."""

    alias: str
    spec: str
    vfstype: str
    options: str = "defaults"
    freq: int = 0
    passno: int = 0


class Login(NamedTuple):
    """A registry of images; the password is in an environment variable."""

    server: str
    username: str
    variable: str


class Image(NamedTuple):
    """A container image, and its copy in another registry, used if the first fails."""

    name: str
    copy: str = ""


class Sif(NamedTuple):
    """An Apptainer image. With a fingerprint, its signature must be by this key."""

    uri: str
    fingerprint: str = ""
    key_variable: str = ""
    """The environment variable with the public key; empty if the key server provides it."""
    copy: str = ""
    """Its URI in another registry."""


class Selected(NamedTuple):
    """Which files of a download are kept, and how they are named. Patterns are those of fnmatch: `*` takes `/` too."""

    below: str = ""
    """The directory to which the patterns are relative."""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    strip: int = 0
    """Leading directories that are removed from each name."""


class Moved(NamedTuple):
    """Data that Batch downloaded to `source` in the working directory, and that belongs to `destination`."""

    source: str
    destination: str
    selected: Selected | None = None
    """None is everything."""


class Preparation(NamedTuple):
    """The steps of batchtrain's part, in this order."""

    mounts: tuple[Fstab, ...] = ()
    nvidia_driver: str = ""
    runtimes: tuple[str, ...] = ()
    docker_user: str = ""
    docker_images: tuple[Image, ...] = ()
    logins: tuple[Login, ...] = ()
    images: tuple[Sif, ...] = ()
    moves: tuple[Moved, ...] = ()
    fallback: bool = False
    """Images have copies in a second registry, so a failed sign-in does not stop the preparation."""
    locks_memory: bool = False
    """Processes of tasks may lock memory without a limit."""
    joins_imex: bool = False
    """A service puts the node into the IMEX domain of each gang."""


def linux(pre: tuple[str, ...], post: tuple[str, ...], *, prepares: bool) -> str:
    """The whole preparation, each part on its own line, so that a comment cannot hide the next part."""
    before, after = "\n".join(pre), "\n".join(post)
    run = f'/bin/bash -c "${OWN}" || exit $?'
    parts = (shell.verbatim(before), run, after) if prepares else (before, after)
    return shell_functions.loaded("\n".join(part for part in parts if part)) or ":"


def windows(pre: tuple[str, ...], post: tuple[str, ...]) -> str:
    """The preparation for cmd.exe: one line, which ends at the first command that fails."""
    return " && ".join((*pre, *post)) or "ver"


def own(todo: Preparation) -> str:
    """The part of batchtrain; empty if there is nothing to do."""
    runtimes = {*todo.runtimes, *(("singularity",) if todo.images or todo.logins else ())}
    steps = (
        _mounts(todo.mounts),
        _driver(todo.nvidia_driver),
        _LOCKED_MEMORY if todo.locks_memory else "",
        _IMEX if todo.joins_imex else "",
        "\n\n".join(text for name, text in _RUNTIMES.items() if name in runtimes),
        _docker_user(todo.docker_user),
        _docker_images(todo.docker_images),
        _apptainer_logins(todo.logins, fallback=todo.fallback),
        _apptainer_images(todo.images),
        _moved("Data that Batch brought, to where it belongs:", _MOVE, todo.moves),
    )
    return shell.script(_START, *steps) if any(steps) else ""


def image_path(uri: str) -> str:
    """The path of an Apptainer image on the node, with a variable of Batch; the name identifies the image."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", uri.rpartition("/")[2])[:80]
    return f"{IMAGES}/{name}-{hashlib.sha256(uri.encode()).hexdigest()[:8]}.sif"


def path_word(path: str) -> str:
    """A path as one word of the shell; only variables are expanded."""
    parts = re.split(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", path)
    words = []
    for index in range(0, len(parts), 3):
        words.append(shell.word(parts[index]) if parts[index] else "")
        if index + 1 < len(parts):
            words.append(f'"${{{parts[index + 1] or parts[index + 2]}}}"')
    return "".join(words) or "''"


# --- the shell ------------------------------------------------------------------------------------------------------

_START = f"""set -euo pipefail
export HOME="${{HOME:-/root}}" DEBIAN_FRONTEND=noninteractive
bt_scratch=$(mktemp -d)
trap 'rm -rf "$bt_scratch"' EXIT

bt_stop() {{ echo "batchtrain: $*" >&2; exit 1; }}

bt_try() {{  # 64 says that another try would end as this one did
  local bt_attempt bt_code
  for bt_attempt in $(seq {TRIES}); do
    bt_code=0
    "$@" || bt_code=$?
    case $bt_code in 0) return 0 ;; 64) return 1 ;; esac
    [ "$bt_attempt" = {TRIES} ] || sleep "$((bt_attempt * ${{BATCHTRAIN_RETRY_SECONDS:-5}}))"
  done
  echo "batchtrain: given up after {TRIES} tries: $*" >&2
  return 1
}}

bt_install() {{
  if command -v apt-get >/dev/null; then
    bt_try apt-get -o DPkg::Lock::Timeout=300 -q update
    bt_try apt-get -o DPkg::Lock::Timeout=300 -qy install "$@"
  elif command -v dnf >/dev/null; then
    bt_try dnf -qy install "$@"
  else
    bt_stop "neither apt-get nor dnf is here to install $*; use an image that has it"
  fi
}}"""


def _mounts(mounts: tuple[Fstab, ...]) -> str:
    if not mounts:
        return ""
    function = """bt_mount() {  # alias spec type options freq passno
  local at="$AZ_BATCH_NODE_MOUNTS_DIR/$1"
  mkdir -p "$at"
  mountpoint -q "$at" && return 0
  local line="$2 $at $3 $4 $5 $6"
  grep -qxF -- "$line" /etc/fstab || printf '%s\\n' "$line" >> /etc/fstab
  bt_try mount "$at" || bt_stop "the volume $1 ($2) cannot be mounted"
}"""
    calls = (" ".join(("bt_mount", *(shell.word(str(value)) for value in line))) for line in mounts)
    return shell.block("File systems that Batch has no word for:", function, *calls)


def _driver(url: str) -> str:
    if not url:
        return ""
    return shell.block(
        "The NVIDIA driver that was asked for; again only when another one is asked for:",
        f"bt_driver={shell.word(url)}",
        "bt_mark=/var/lib/batchtrain/nvidia-driver",
        """if [ -n "${BATCHTRAIN_EMULATED_NODE-}" ]; then echo "no driver is installed: emulated GPUs need none"
elif [ "$(cat "$bt_mark" 2>/dev/null)" != "$bt_driver" ] || ! nvidia-smi >/dev/null; then
  command -v make >/dev/null && command -v gcc >/dev/null || bt_install gcc make
  if command -v apt-get >/dev/null; then bt_install "linux-headers-$(uname -r)" dkms
  else bt_install "kernel-devel-$(uname -r)"; fi
  bt_try curl -fsSL --retry 2 -o nvidia-driver.run "$bt_driver" || bt_stop "$bt_driver cannot be fetched"
  modprobe -r nouveau 2>/dev/null || true
  sh nvidia-driver.run --silent || bt_stop "$bt_driver does not install; /var/log/nvidia-installer.log says why"
  nvidia-smi || bt_stop "the driver is installed, and nvidia-smi fails"
  mkdir -p "${bt_mark%/*}"
  printf '%s' "$bt_driver" > "$bt_mark"
  rm -f nvidia-driver.run
fi""",
    )


# limits.conf counts for ssh sessions alone. azhpc-images (hpc-tuning.sh) sets DefaultLimitMEMLOCK of systemd on Alma,
# Rocky and RHEL only.
_LOCKED_MEMORY = shell.block(
    "Tasks may lock memory, as ssh sessions may: each process from this one up to the agent, which starts them:",
    """bt_process=$PPID
while [ -z "${BATCHTRAIN_EMULATED_NODE-}" ] && [ "${bt_process:-1}" -gt 1 ]; do
  prlimit --pid "$bt_process" --memlock=unlimited:unlimited ||
    echo "batchtrain: the limit of locked memory of process $bt_process stays as it is" >&2
  bt_process=$(awk '$1 == "PPid:" { print $2 }' "/proc/$bt_process/status")
done""",
)

IMEX = "$AZ_BATCH_NODE_SHARED_DIR/batchtrain/imex"
"""The directory of the IMEX domain of a node: `asked/nodes` is what a gang wants, `ready` what it is."""
# NVIDIA: IMEX guide (channels, identical lists of nodes); Azure/cyclecloud-slurm: imex_prolog.sh; azhpc-images:
# install_nvidiagpudriver.sh (the service is enabled, and its list of nodes is empty).
_IMEX = shell.block(
    "NVLink between nodes: an IMEX channel, and a service that joins the domain of a gang when it asks:",
    f"""if [ -z "${{BATCHTRAIN_EMULATED_NODE-}}" ]; then
  if ! [ -e /dev/nvidia-caps-imex-channels/channel0 ]; then
    bt_major=$(awk '$2 == "nvidia-caps-imex-channels" {{ print $1 }}' /proc/devices)
    [ -n "$bt_major" ] || bt_stop "the NVIDIA driver of this image has no IMEX channels; take an image for this size"
    mkdir -p /dev/nvidia-caps-imex-channels
    mknod -m 0666 /dev/nvidia-caps-imex-channels/channel0 c "$bt_major" 0
  fi
  mkdir -p "{IMEX}/asked"
  chmod 0777 "{IMEX}/asked"
  cat >/usr/local/sbin/batchtrain-imex <<'END'
#!/bin/bash
cd "$1" && rm -f ready && mv asked/nodes nodes || exit 1
systemctl stop nvidia-imex
grep -xE '[0-9A-Fa-f.:]+' nodes >/etc/nvidia-imex/nodes_config.cfg
systemctl start nvidia-imex && mv nodes ready
END
  chmod 0755 /usr/local/sbin/batchtrain-imex
  cat >/etc/systemd/system/batchtrain-imex.service <<END
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/batchtrain-imex "{IMEX}"
END
  cat >/etc/systemd/system/batchtrain-imex.path <<END
[Path]
PathExists={IMEX}/asked/nodes
[Install]
WantedBy=multi-user.target
END
  systemctl daemon-reload
  systemctl enable --now batchtrain-imex.path
fi""",
)

_RUNTIMES = {
    "runc": shell.block("runc:", "command -v runc >/dev/null || bt_install runc"),
    "kata_containers": shell.block(
        "Kata Containers:",
        f"""if [ ! -x /opt/kata/bin/kata-runtime ]; then
  bt_try curl -fsSL -o kata.tar.xz {shell.word(KATA_URL)} || bt_stop "Kata Containers {KATA} cannot be fetched"
  tar -xJf kata.tar.xz -C /
  rm -f kata.tar.xz
  ln -sf /opt/kata/bin/* /usr/local/bin/
fi""",
    ),
    "singularity": shell.block(
        "Apptainer, where neither it nor Singularity is there:",
        """if ! command -v apptainer >/dev/null && ! command -v singularity >/dev/null; then
  if command -v apt-get >/dev/null; then
    command -v add-apt-repository >/dev/null || bt_install software-properties-common
    bt_try add-apt-repository -y ppa:apptainer/ppa || bt_stop "the package archive of Apptainer cannot be added"
  else
    bt_install epel-release
  fi
  bt_install apptainer
fi
bt_apptainer="$(command -v apptainer || command -v singularity)" || bt_stop "Apptainer is not there\"""",
    ),
}


def _docker_user(name: str) -> str:
    """Batch creates the login after the node has joined, so the line of the group contains its name, which needs no
    existing user."""
    if not name:
        return ""
    return shell.block(
        "The login may use Docker:",
        f"bt_user={shell.word(name)}",
        """getent group docker >/dev/null || groupadd docker
if ! grep -qE "^docker:.*[:,]$bt_user(,|$)" /etc/group; then
  sed -i -e "s/^docker:.*[^:]$/&,$bt_user/;t" -e "s/^docker:.*:$/&$bt_user/" /etc/group
fi""",
    )


def _docker_images(images: tuple[Image, ...]) -> str:
    if not images:
        return ""
    functions = f"""bt_failed="$bt_scratch/failed"
bt_pull_soon() {{  # image copy, if there is to be one
  while [ "$(jobs -rp | wc -l)" -ge {PULLS_AT_ONCE} ]; do wait -n || true; done
  {{ bt_pull_once "$@" || echo "$1${{2:+ (nor $2)}}" >> "$bt_failed"; }} &
}}
bt_pull_once() {{
  local bt_name
  for bt_name in "$@"; do ! docker image inspect "$bt_name" >/dev/null 2>&1 || return 0; done
  bt_try bt_pull_either "$@"
}}
bt_pull_either() {{
  local bt_name bt_code bt_worst=64
  for bt_name in "$@"; do
    bt_code=0
    bt_pull "$bt_name" || bt_code=$?
    case $bt_code in 0) break ;; 64) ;; *) bt_worst=1 ;; esac
  done
  [ "$bt_code" = 0 ] || return "$bt_worst"
  [ "$bt_name" != "$1" ] || return 0
  echo "batchtrain: $1 cannot be had from its own registry; this node takes $2" >&2
  case $1 in *@*) ;; *) docker tag "$2" "$1" ;; esac  # no tag has a digest
}}
bt_pull() {{
  local bt_said
  ! bt_said=$(docker pull --quiet "$1" 2>&1 >/dev/null) || return 0
  printf '%s\n' "$bt_said" >&2
  case $bt_said in
    *"not found"* | *"manifest unknown"* | *"no matching manifest"* | *denied* | *unauthorized*) return 64 ;;
  esac
  return 1
}}"""
    return shell.block(
        f"Container images, {PULLS_AT_ONCE} at once:",
        'command -v docker >/dev/null || bt_stop "Docker is not there; use an image with it, such as ubuntu-hpc"',
        functions,
        *(" ".join(("bt_pull_soon", *(shell.word(name) for name in image if name))) for image in images),
        "wait",
        '[ ! -s "$bt_failed" ] || bt_stop "these images cannot be pulled: $(paste -sd, "$bt_failed"). Are the names'
        ' right, and has credentials.yaml a sign-in (docker_registry)? The message of docker is above"',
    )


def _apptainer_logins(logins: tuple[Login, ...], *, fallback: bool) -> str:
    if not logins:
        return ""
    lines = []
    for login in logins:
        server = "docker.io" if login.server == "hub" else login.server
        message = f"the registry {server} takes no sign-in of {login.username}"
        note = shell.word(f"batchtrain: {message}; images have a second registry, so this continues")
        lines += [
            f'printf \'%s\' "${login.variable}" | "$bt_apptainer" registry login --username'
            f" {shell.word(login.username)} --password-stdin {shell.word(f'docker://{server}')} ||",
            f"  echo {note} >&2" if fallback else f"  bt_stop {shell.word(message)}",
        ]
    return shell.block("Registries of Apptainer images:", *lines)


def _apptainer_images(images: tuple[Sif, ...]) -> str:
    if not images:
        return ""
    function = """bt_fetch_sif() {  # uri file copy, if there is to be one
  [ -s "$2" ] || bt_try bt_pull_sif "$@" || bt_stop "the image $1 cannot be pulled${3:+, and neither can $3}"
}
bt_pull_sif() {
  ! "$bt_apptainer" pull --force "$2.part" "$1" || return 0
  [ -n "${3-}" ] && "$bt_apptainer" pull --force "$2.part" "$3" || return 1
  echo "batchtrain: $1 cannot be had from its own registry; this node takes $3" >&2
}
bt_keep() { [ ! -e "$1.part" ] || mv -f "$1.part" "$1"; chmod a+r "$1"; }
bt_verify() {  # uri file fingerprint
  local file="$2"
  [ ! -e "$2.part" ] || file="$2.part"
  "$bt_apptainer" verify --local --json "$file" | tr -d ' ' | grep -i -- "$3" >/dev/null ||
    bt_stop "$1 is not signed by $3"
}"""
    directory = path_word(IMAGES)
    directories = (
        f"mkdir -p {directory} {directory}/tmp",
        f"export APPTAINER_TMPDIR={directory}/tmp APPTAINER_CACHEDIR={directory}/tmp",
        'export SINGULARITY_TMPDIR="$APPTAINER_TMPDIR" SINGULARITY_CACHEDIR="$APPTAINER_CACHEDIR"',
    )
    lines = [line for image in images for line in _apptainer_image(image)]
    return shell.block("Apptainer images:", function, *directories, *lines, f"rm -rf {directory}/tmp")


def _apptainer_image(image: Sif) -> tuple[str, ...]:
    uri, file, print_ = shell.word(image.uri), path_word(image_path(image.uri)), image.fingerprint.replace(" ", "")
    if not print_:
        copy = f" {shell.word(image.copy)}" if image.copy else ""
        return (f"bt_fetch_sif {uri} {file}{copy}", f"bt_keep {file}")
    key = (
        f'printf \'%s\\n\' "${image.key_variable}" > signing-key.asc && "$bt_apptainer" key import signing-key.asc'
        if image.key_variable
        else f'bt_try "$bt_apptainer" key pull {shell.word(print_)}'
    )
    stop = shell.word(f"the key {print_} of {image.uri} cannot be had")
    return (
        'APPTAINER_KEYSDIR=$(mktemp -d -p "$bt_scratch")',
        'export APPTAINER_KEYSDIR SINGULARITY_KEYSDIR="$APPTAINER_KEYSDIR"',
        f"{{ {key}; }} || bt_stop {stop}",
        f"bt_fetch_sif {uri} {file}",
        f"bt_verify {uri} {file} {shell.word(print_)}",
        f"bt_keep {file}",
    )


_MOVE = "mkdir -p {target}\n[ ! -d {source} ] || {{ {act} && rm -rf {source}; }} || exit 1"
_MOVE_FOR_ALL = (
    "[ ! -d {source} ] || {{ chmod -R a+rX {source} && mkdir -p {target} && {act} && rm -rf {source}; }} || exit 1"
)


def _moved(title: str, template: str, items: tuple[Moved, ...]) -> str:
    lines = []
    for item in items:
        source, target = shell.word(item.source), path_word(item.destination)
        act = f"cp -a {source}/. {target}/" if item.selected is None else selection(item)
        lines.append(template.format(source=source, target=target, act=act))
    return shell.block(title, *lines) if lines else ""


def selection(item: Moved) -> str:
    """One compound command that moves the selected files, each with the name that is left of its own."""
    rules, source, target = item.selected or Selected(), shell.word(item.source), path_word(item.destination)
    patterns = "|".join(_case(pattern) for pattern in rules.include) or "*"
    lines = [
        f"find {source} -type f -print0 | {{ while IFS= read -r -d '' bt_file; do",
        f"  bt_name=${{bt_file#{source}/}}; bt_to=$bt_name",
        f"  bt_name=${{bt_name#{shell.word(rules.below)}/}}" if rules.below else "",
        f"  case $bt_name in {patterns}) ;; *) continue ;; esac",
        f"  case $bt_name in {'|'.join(map(_case, rules.exclude))}) continue ;; esac" if rules.exclude else "",
        *["  bt_to=${bt_to#*/}"] * rules.strip,
        f'  case $bt_to in */*) mkdir -p {target}/"${{bt_to%/*}}" || exit 1 ;; esac',
        f'  mv -f "$bt_file" {target}/"$bt_to" || exit 1',
        "done; }",
    ]
    return "\n".join(line for line in lines if line)


def _case(pattern: str) -> str:
    """A pattern for `case`, with nothing in it that the shell would take for anything else."""
    parts = re.split(r"(\*|\?|\[[^\]]+\])", pattern)
    return "".join(part if number % 2 else shell.word(part) for number, part in enumerate(parts) if part) or "''"


def moves(items: tuple[Moved, ...]) -> str:
    """The lines that move the data; every user of the node may read it."""
    return _moved("Input data, to where it belongs:", _MOVE_FOR_ALL, items)
