"""The errors of a Docker Engine about containers, and the failure code of Batch for each; pure.

No document tells which code the service uses in which case; docs/explanation/untested-on-azure.md says so.
"""

from __future__ import annotations

import re
from typing import Any

INVALID_IMAGE, INVALID_REGISTRY = "ContainerInvalidImage", "ContainerInvalidRegistry"
INVALID_SETTINGS, MISC = "ContainerInvalidSettings", "ContainerMiscError"
NOT_FOUND, LAUNCH_FAILED = "CommandProgramNotFound", "CommandLaunchFailed"
KILLED = 137

PULL = (
    (r"no matching manifest|does not match the specified platform", INVALID_IMAGE),
    (r"no basic auth|unauthorized|authentication required|incorrect username|denied: requested access",
     INVALID_REGISTRY),
    (r"manifest unknown|not found|does not exist|repository name must|invalid reference", INVALID_IMAGE),
    (r"denied|dial tcp|no such host|connection refused|timeout|Client\.Timeout|server gave HTTP|x509|EOF|TLS",
     INVALID_REGISTRY),
)  # fmt: skip
START = (
    (
        r"executable file not found|exec: .*no such file or directory|starting container process.*no such file",
        NOT_FOUND,
    ),
    (r"exec: .*permission denied|exec format error|exec user process", LAUNCH_FAILED),
    (r"device|bind source path|mount|cgroup|sysctl|capabilit|nvidia|runtime|ulimit|rlimit", INVALID_SETTINGS),
)
CREATE = ((r"No such image|Unable to find image", INVALID_IMAGE),)
_NOISE = (
    re.compile(r"^(docker: )?(Error response from daemon: )?"),
    re.compile(r"^.*OCI runtime (create|exec) failed: (runc create failed: )?"),
    re.compile(r"\s*(See|Run) 'docker create --help'( for more information)?\.?\s*"),
    re.compile(r"container_linux\.go:\d+: "),
    re.compile(r"\s*Usage:\s+docker create[\s\S]*"),
    re.compile(r": unknown$"),
)


def of_pull(message: str) -> str:
    """The failure code for an image that could not be pulled."""
    return _first(PULL, message, MISC)


def of_create(message: str) -> str:
    """The failure code for options that `docker create` refuses."""
    return _first(CREATE, message, INVALID_SETTINGS)


def of_start(message: str) -> str:
    """The failure code for a container, or a command in one, that did not start."""
    return _first(START, message, MISC)


def of_exit(code: int, state: dict[str, Any], memory: int) -> str:
    """An explanation of an exit code; usually empty. The engine may not know that memory was the reason: it learns of
    this and of the end separately, in either order."""
    limit = f" (--memory={memory >> 20}m)" if memory else ""
    if state.get("OOMKilled"):
        return f"A process of the container was killed because its memory{limit} was used up; exit code {code}."
    if code == KILLED:
        return f"The container was killed by SIGKILL (exit code 137): from outside, or its memory{limit} was used up."
    return ""


def cleaned(message: str) -> str:
    """The message of the engine without its standard prefix and suffix."""
    for noise in _NOISE:
        message = noise.sub("", message)
    return message.strip()


def _first(table: tuple[tuple[str, str], ...], message: str, otherwise: str) -> str:
    return next((code for pattern, code in table if re.search(pattern, message, re.IGNORECASE)), otherwise)
