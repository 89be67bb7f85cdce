"""Examines an image: the engine's data, and the output of a probe in a container without a network."""

from __future__ import annotations

import secrets
from pathlib import Path

from batchtrain.containers import layers
from batchtrain.containers.contract import Looked, Outside, inside
from batchtrain.containers.engine import WORDS, Done, Engine
from batchtrain.errors import NotFound, ServiceError

PROBE = Path(__file__).with_name("probe.sh")
PATIENCE = 180.0
"""Seconds for the probe, which reads all directories and tries a login."""
QUICK = 30.0
"""Seconds for an entry point to run a command."""


def look(engine: Engine, name: str, *, architecture: str = "amd64", deep: bool = False, fetch: bool = True) -> Looked:
    """Examine an image. deep: also read its layers, for keys that a later layer hides.

    Pulls an image that the engine does not have, unless `fetch` is false. Raises NotFound, ServiceError.
    """
    image = engine.image(name)
    if image is None and fetch:
        engine.fetch(name, architecture)
        image = engine.image(name)
    if image is None:
        raise NotFound(f"{name} is not on this engine; build it (`batchtrain images build`), or allow the pull")
    config = image.get("Config") or {}
    outside = Outside(
        name=name,
        system=str(image.get("Os", "")),
        architecture=str(image.get("Architecture", "")),
        user=str(config.get("User") or ""),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        size=int(image.get("Size") or 0),
    )
    keys = layers.keys(engine, name) if deep else None
    if (outside.system, outside.architecture) != ("linux", architecture):
        return Looked(outside, why_not=f"not tried: it is for {outside.system}/{outside.architecture}", layer_keys=keys)
    probe = PROBE.read_text(encoding="utf-8")
    answer = _run(engine, name, "--interactive", "--entrypoint=/bin/sh", after=("-s",), text=probe, patience=PATIENCE)
    if answer.code == 124:
        raise ServiceError(f"{name}: the probe did not end within {PATIENCE:g} s; is the engine busy?")
    if "\t" not in answer.out:
        last = (answer.error.splitlines() or [f"code {answer.code}"])[-1]
        return Looked(outside, why_not=f"its /bin/sh could not be run: {last[-WORDS:]}", layer_keys=keys)
    passes = None
    if outside.entrypoint:  # it runs its arguments; the sum detects one that only prints them
        first, second = secrets.randbelow(10**8), secrets.randbelow(10**8)
        trial = _run(engine, name, after=("/bin/sh", "-c", f"echo $(({first} + {second}))"), patience=QUICK)
        passes = trial.code == 0 and str(first + second) in trial.out.split()
    return Looked(outside, inside(answer.out), passes=passes, layer_keys=keys)


def _run(
    engine: Engine, name: str, *options: str, after: tuple[str, ...], text: str | None = None, patience: float
) -> Done:
    """Run a container to its end, and remove it in any case."""
    container = f"batchtrain-check-{secrets.token_hex(6)}"
    try:
        return engine.ask(
            "run", "--rm", f"--name={container}", "--network=none", "--pull=never", *options, name, *after,
            text=text, patience=patience,
        )  # fmt: skip
    finally:
        engine.ask("rm", "--force", "--volumes", container)
