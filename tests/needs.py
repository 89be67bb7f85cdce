"""Programs that some tests need. Where one is missing, its tests are skipped with the package to install; in CI, those
of a program that CI must have fail."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

PACKAGES = {
    "busybox": "busybox",
    "chromium": "chromium",
    "docker": "docker.io",
    "git": "git",
    "ip": "iproute2",
    "modulecmd": "environment-modules",
    "npm": "nodejs and npm",
    "pgrep": "procps",
    "shellcheck": "shellcheck",
    "sshd": "openssh-server",
}
"""Debian's package of each program."""
MUST = frozenset({"shellcheck"})
"""Programs without which CI (BATCHTRAIN_CI is set) would check less than it says."""


def program(name: str) -> str:
    """The path of a program; skips the test where it is not installed, or fails it in CI."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        missing = f"{name} is not installed (on Debian: apt-get install {PACKAGES.get(name, name)})"
        if name in MUST and os.environ.get("BATCHTRAIN_CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def namespaces(refusal: str) -> None:
    """Skips the test of a node's namespaces for this reason; fails it if another program gets them: a fault of the
    agent must not skip its own tests."""
    options = ["--map-root-user", "--mount", "--uts", "--ipc", "--pid", "--fork"]
    mounts = "mount -t tmpfs none /tmp && mount -t proc proc /proc"
    unshare = shutil.which("unshare")
    if unshare is not None and subprocess.run([unshare, *options, "sh", "-c", mounts]).returncode == 0:
        pytest.fail(refusal)
    pytest.skip(refusal)
