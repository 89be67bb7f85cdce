"""The environment of a script on the nodes of an account without a registry: the start task of each node makes it once.
Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from urllib.parse import urlsplit

from batchtrain.config.source_packages import READY, SourcePackages, allowed_pythons, digest
from batchtrain.containers.environments import TODAY, Environment, key
from batchtrain.errors import UsageError

FAILED = (
    '{ echo "batchtrain: pip could not install the packages of the script (its error is above): correct the names, or'
    ' let the node reach the package index" >&2; exit 1; }'
)
OF_NODES = (*TODAY, "3.10", "3.9", "3.8")
"""The versions of Python that images of VMs have."""
HOME = "$AZ_BATCH_NODE_SHARED_DIR"


def prefix(name: str, spec: Environment, packages: tuple[SourcePackages, ...]) -> str:
    """The directory of the environment on a node, named by its content."""
    return "-".join(filter(None, (f"{HOME}/batchtrain/{name}", key(spec, ""), digest(packages))))


def listed(spec: Environment, packages: tuple[SourcePackages, ...]) -> list[tuple[str, ...]]:
    """The lists of packages that the start task installs; without one, it takes a moment."""
    return [words for words in (spec.packages, *(package_list.words() for package_list in packages)) if words]


def commands(name: str, spec: Environment, packages: tuple[SourcePackages, ...], *, gpus: bool) -> Iterator[str]:
    """The lines of the start task. gpus: take the builds of PyPI, which include CUDA. Raises UsageError for an
    environment that needs more than packages."""
    if spec.late or spec.horovod or spec.steps or spec.tools:
        raise UsageError(
            f"the environment {name} needs builds that a node does not make; name the registry of your images,"
            " `batchtrain config set registry SERVER`, and build the image with `batchtrain images build`; `batchtrain"
            " init --image` writes the recipe without either"
        )
    directory = prefix(name, spec, packages)
    versions = allowed_pythons(packages, spec.pythons or OF_NODES, f"the environment {name}")
    any_fits = not spec.pythons and versions == OF_NODES
    pythons = "python3" if any_fits else " ".join(f"python{version}" for version in versions)  # the best first
    yield f'if [ ! -e "{directory}/{READY}" ]; then'
    yield f'  python="$(for name in {pythons}; do command -v "$name" && break; done)" || true'
    yield f'  [ -n "$python" ] || {{ echo "batchtrain: this node has none of {pythons}; use an image" >&2; exit 1; }}'
    yield f'  rm -rf "{directory}" && "$python" -m venv "{directory}"'
    requirement_lists = listed(spec, packages)
    yield "  index=()"
    if requirement_lists and spec.extra_index and not gpus:
        yield from _index(directory, spec.extra_index)
    for requirements in requirement_lists:
        yield f'  "{directory}/bin/pip" install --quiet "${{index[@]}}" {shlex.join(requirements)} || {FAILED}'
    yield f'  : >"{directory}/{READY}"'
    yield "fi"


def _index(directory: str, url: str) -> Iterator[str]:
    """Take a second index if the node reaches it. pip itself would wait for it at every package."""
    connect = (
        "import socket, sys, urllib.request; urllib.request.getproxies() or socket.create_connection(sys.argv[1:], 10)"
    )
    yield f'  if "{directory}/bin/python" -c {shlex.quote(connect)} {urlsplit(url).hostname} 443 2>/dev/null; then'
    yield f"    index=(--extra-index-url {url})"
    yield "  else"
    yield f'    echo "batchtrain: this node does not reach {url}, so the packages come from its other indexes"'
    yield "  fi"
