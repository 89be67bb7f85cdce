"""Runs the `docker` command, which chooses the engine, the sign-ins and the builder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

from batchtrain.errors import NotFound, ServiceError, Unreachable, UsageError

LOCAL = 30.0
"""Seconds for commands without network."""
WORDS = 600
"""Maximum characters of the engine's output in a message."""


class Done(NamedTuple):
    """The result of a docker command."""

    code: int
    out: str
    error: str

    @property
    def sentence(self) -> str:
        """The end of its error output as a sentence."""
        text = self.error[-WORDS:]
        return text if text.endswith((".", "?", "!")) else f"{text}."


class Engine:
    """An engine that has answered."""

    def __init__(self, program: str, environment: Mapping[str, str], version: str = "") -> None:
        """environment: variables of the docker command, such as DOCKER_HOST and DOCKER_CONFIG."""
        self.program, self.environment, self.version = program, dict(environment), version

    def with_variables(self, more: Mapping[str, str]) -> Engine:
        """The same engine with more environment variables."""
        return Engine(self.program, {**self.environment, **more}, self.version)

    def ask(self, *arguments: str, text: str | None = None, patience: float | None = LOCAL) -> Done:
        """Run a docker command quietly. patience: seconds; a command that takes longer ends with code 124."""
        try:
            answer = subprocess.run(
                [self.program, *arguments],
                input=text,
                stdin=subprocess.DEVNULL if text is None else None,
                capture_output=True,
                env=self.environment,
                encoding="utf-8",
                errors="replace",
                timeout=patience,
            )
        except subprocess.TimeoutExpired as late:
            output = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
            return Done(124, output, f"no end within {patience:g} s")
        return Done(answer.returncode, answer.stdout, answer.stderr.strip())

    def follow(self, *arguments: str, source: IO[bytes] | None = None) -> None:
        """Run a docker command with its output on stderr. Raises ServiceError."""
        code = subprocess.run(
            [self.program, *arguments],
            stdin=subprocess.DEVNULL if source is None else source,
            stdout=sys.stderr,
            env=self.environment,
        ).returncode
        if code != 0:
            raise ServiceError(f"`docker {arguments[0]}` ended with code {code}; its messages are above")

    @contextlib.contextmanager
    def output(self, *arguments: str) -> Iterator[IO[bytes]]:
        """The output of a docker command, to be read while it runs. Raises ServiceError if the command fails."""
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([self.program, *arguments], env=self.environment, **pipes) as process:
            assert process.stdout is not None and process.stderr is not None
            try:
                yield process.stdout
                error = process.stderr.read().decode(errors="replace").strip()
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise ServiceError(f"`docker {arguments[0]}` ended with code {process.returncode}: {error[-WORDS:]}")

    def image(self, name: str) -> dict[str, Any] | None:
        """The engine's data about an image. Returns None if the engine does not have the image."""
        answer = self.ask("image", "inspect", "--", name)
        images = json.loads(answer.out) if answer.code == 0 else []
        return dict(images[0]) if images else None

    def fetch(self, name: str, architecture: str) -> None:
        """Pull an image. Raises NotFound with the engine's message: the name is wrong, or a sign-in is missing."""
        answer = self.ask("pull", "--quiet", "--platform", f"linux/{architecture}", name, patience=None)
        if answer.code != 0:
            raise NotFound(
                f"{name} is not on this engine, and pulling it failed: {answer.sentence} "
                "Is the name right, and is there a sign-in for its registry (credentials.yaml, or `docker login`)?"
            )


def find(environment: Mapping[str, str] | None = None) -> Engine:
    """The engine that docker would use. Raises UsageError without the command, Unreachable without an engine."""
    variables = os.environ if environment is None else environment
    program = shutil.which("docker", path=variables.get("PATH"))
    if program is None:
        raise UsageError("there is no `docker` command on PATH; install Docker (its engine may be on another machine)")
    engine = Engine(program, variables)
    answer = engine.ask("version", "--format", "{{.Server.Version}}")
    if answer.code != 0:
        raise Unreachable(
            f"no container engine answers: {answer.sentence} Start one (`systemctl start docker`, Docker Desktop), "
            "or set its address with DOCKER_HOST or `docker context use`"
        )
    return Engine(program, variables, answer.out.strip())
