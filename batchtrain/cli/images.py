"""`batchtrain images`: build, check, mirror and archive container images."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from batchtrain.catalog.arm_images import misfit
from batchtrain.cli import loading, shipped_recipes
from batchtrain.cli.messages import confirm, say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows
from batchtrain.cli.storage_accounts import Remote, remote
from batchtrain.config import source_packages
from batchtrain.config.image_names import server_of
from batchtrain.config.load import load_credentials
from batchtrain.config.types import RegistryCredentials
from batchtrain.containers import archives, contract, engine, images, inspection, make_environment, recipe_images
from batchtrain.containers import build as building
from batchtrain.containers import mirror as mirroring
from batchtrain.containers.images import BASES, IMAGES, Step
from batchtrain.emulator import mapped_images
from batchtrain.emulator.local_service import emulator_directory
from batchtrain.errors import FAIL, PlanError, UsageError
from batchtrain.scripts import local_environment
from batchtrain.service import vault
from batchtrain.service.connect import CA_VARIABLE
from batchtrain.shipped import shipped
from batchtrain.storage import blob, sync
from batchtrain.storage.ingress import bring, walk

STORAGE = "storage:"


class ImageRow(NamedTuple):
    """A row of the table of images of docker/."""

    image: str
    on: str
    after: str
    about: str


class BaseRow(NamedTuple):
    """A row of the table of bases."""

    on: str
    base: str
    about: str


class EnvironmentRow(NamedTuple):
    """An image of a recipe and its local environment."""

    image: str
    environment: str
    prefix: str
    ready: bool


class MadeRow(NamedTuple):
    """A local environment that was made."""

    environment: str
    megabytes: int
    unused_days: float
    prefix: str


class CheckRow(NamedTuple):
    """A row of the table of checks."""

    image: str
    check: str
    result: str
    found: str
    next_step: str


def list_(bases: bool) -> None:
    """List the images that `images build` can build."""
    if bases:
        show_rows([BaseRow(name, base.image, base.about) for name, base in BASES.items()])
        return
    rows = [ImageRow(name, ", ".join(image.on), image.parent, image.about) for name, image in IMAGES.items()]
    show_rows(rows)


def build(
    name: str, on: str, base: str, tag: str, arguments: tuple[str, ...], network: str, pull: bool, push: bool
) -> None:
    """Build an image of docker/ with its base images, the image of a RECIPE, or a DIRECTORY with a Dockerfile.

    The image of a recipe also gets the packages that its source lists.
    """
    for build in arguments:
        if "=" not in build:
            raise UsageError(f"--build-arg {build}: write NAME=VALUE")
    steps = _steps(name, on, base, tag, arguments)
    docker = engine.find()
    result = building.run(docker, steps, say, network=network, fresh=pull)
    if push:
        logins = mirroring.logins(_registries(), os.environ, server_of(result.image))
        with mirroring.signed_in(docker, logins) as session:
            say(f"pushing {result.image}")
            session.follow("push", result.image)
    show(result, f"{result.image}: {result.id}, {result.size / 1e9:.2f} GB")


def _steps(name: str, on: str, base: str, tag: str, arguments: tuple[str, ...]) -> tuple[Step, ...]:
    """The builds for NAME: an image, a recipe or a directory. Raises UsageError."""
    directory = Path(name)
    if (directory / "Dockerfile").is_file():
        if not tag:
            raise UsageError(f"{name} is a directory of your own; name its image with --tag")
        return (images.Step(directory, tag, base, arguments),)
    recipe = None if name in images.IMAGES else shipped_recipes.directory_or_none(name)
    if recipe is None:
        return images.chain(name, shipped("docker"), on=on or images.CPU, base=base, tag=tag, arguments=arguments)
    config = loading.quietly(recipe)
    image = shipped_recipes.image_of(recipe, config)
    origin, packages = recipe_images.behind(image), source_packages.of_recipe(config, image)
    last_tag = "" if source_packages.digest(packages) else tag or image
    if "/" in origin.build:
        last_tag = last_tag or f"{image}-base"
        steps: tuple[Step, ...] = (images.Step(shipped("recipes") / origin.build, last_tag, base, arguments),)
    else:
        home, on = shipped("docker"), on or origin.on
        steps = images.chain(origin.build, home, on=on, base=base, tag=last_tag, arguments=arguments)
    size = config.catalog.size(config.pool.vm_size) if config.pool else None
    if reason := misfit(image, size):
        raise UsageError(reason)
    architecture = "arm64" if size is not None and size.architecture == "arm64" else ""
    every = (*steps, *images.with_packages(steps[-1], packages, tag or image, arguments))
    return tuple(step._replace(architecture=architecture) for step in every)


def env(name: str | None, dry_run: bool, data_dir: str | None) -> None:
    """Make the local environment of a recipe (default: of --configdir) and use it in place of the recipe's image.

    The emulator then runs the recipe without a container engine. The environment also gets the packages that
    requirements.txt (or pyproject.toml without one) in the source of the recipe lists. First prints what is downloaded
    and installed. An environment is made once, in the data directory (BATCHTRAIN_ENVIRONMENTS_DIR names another one);
    recipes with the same packages share it. Prints the directory of the environment.
    """
    data = Path(data_dir).absolute() if data_dir else None
    recipe = shipped_recipes.directory_of(name or settings().configdir or ".")
    config = loading.quietly(recipe)
    image = shipped_recipes.image_of(recipe, config)
    environment = local_environment.make(config, image, say, data_dir=data, dry_run=dry_run)
    if not dry_run:
        say(f"{image} is mapped to the environment {environment.name}")
    show(EnvironmentRow(image, environment.name, str(environment.prefix), environment.ready), str(environment.prefix))


def environments() -> None:
    """List the local environments that were made, with their sizes and the days since their last use."""
    home = make_environment.home(emulator_directory(), os.environ)
    show_rows([_made(prefix) for prefix in make_environment.made(home)])


def _made(prefix: Path) -> MadeRow:
    days = (time.time() - make_environment.last_use(prefix)) / 86400
    return MadeRow(prefix.name, make_environment.megabytes(prefix), round(days, 1), str(prefix))


def prune(age: float) -> None:
    """Delete the local environments that were not used for some time. They are made again when they are needed."""
    data = emulator_directory()
    home = make_environment.home(data, os.environ)
    old = [prefix for prefix in make_environment.made(home) if time.time() - make_environment.last_use(prefix) > age]
    rows = [_made(prefix) for prefix in old]
    if old:
        confirm(f"Delete {', '.join(prefix.name for prefix in old)} in {home}?")
    for image, mapping in mapped_images.list_images(data).items():
        if mapping.prefix in old:
            mapped_images.unmap(data, image)
    for prefix in old:
        shutil.rmtree(prefix)
    show_rows(rows)


def check(names: tuple[str, ...], purpose: str, layers: bool, no_pull: bool, architecture: str) -> int:
    """Check images against the image contract.

    Missing images are pulled with the sign-in of credentials.yaml (docker_registry) or of docker. Exit code: 0 if no
    check failed, 2 if a check failed, 3 if an image was not found.
    """
    docker = engine.find()
    pulls = not no_pull and any(docker.image(name) is None for name in names)
    logins = mirroring.logins(_registries() if pulls else {}, {}, "")
    rows: list[CheckRow] = []
    try:
        with mirroring.signed_in(docker, logins) as session:
            for name in names:
                facts = inspection.look(session, name, architecture=architecture, deep=layers, fetch=not no_pull)
                results = contract.checks(facts, purpose=purpose, architecture=architecture)
                rows += [CheckRow(name, *check) for check in results]
    finally:
        if rows:
            show_rows(rows)
    return PlanError.exit_code if any(row.result == FAIL for row in rows) else 0


def mirror(names: tuple[str, ...], target: str | None, architecture: str) -> None:
    """Copy images to another registry; by default all `docker_images` of config.yaml.

    Signs in with credentials.yaml (docker_registry), with BATCHTRAIN_REGISTRY_USERNAME and
    BATCHTRAIN_REGISTRY_PASSWORD, or with the sign-in of docker.
    """
    images, to = names, target
    if not (images and to):
        recipe = loading.load().recipe
        images, to = images or recipe.resources.docker_images, to or recipe.settings.fallback_registry
    if not images:
        raise UsageError("no image was named, and config.yaml has no docker_images")
    if not to:
        raise UsageError("add --to SERVER[/PATH], or set `fallback_registry` in config.yaml")
    copies = [(name, mirroring.copy_of(name, to)) for name in images]
    logins = mirroring.logins(_registries(), os.environ, server_of(copies[0][1]))
    with mirroring.signed_in(engine.find(), logins) as session:
        show_rows([mirroring.mirror(session, name, copy, architecture, say) for name, copy in copies])


def save(names: tuple[str, ...], target: str) -> None:
    """Write images to one archive, compressed if its name ends in .gz. An archive on storage can replace a registry."""
    docker = engine.find()
    if not target.startswith(STORAGE):
        archive = archives.save(docker, names, Path(target))
        show({"file": str(archive.file), "bytes": archive.size}, f"{archive.file}: {archive.size / 1e9:.2f} GB")
        return
    at = _blob(target)
    parent, _, name = at.path.rpartition("/")
    with tempfile.TemporaryDirectory(prefix="batchtrain-images-") as folder:
        archive = archives.save(docker, names, Path(folder, name))
        say(f"sending {archive.size / 1e9:.2f} GB to {target.removeprefix(STORAGE)}")
        bring(at.storage, at.box, parent, list(walk(archive.file))).check()
    show({"blob": target, "bytes": archive.size}, f"{target.removeprefix(STORAGE)}: {archive.size / 1e9:.2f} GB")


def load(source: str) -> None:
    """Load the images of an archive into the container engine."""
    docker = engine.find()
    if not source.startswith(STORAGE):
        _show_loaded(archives.load(docker, Path(source)))
        return
    at = _blob(source)
    blobs = [item for item in blob.below(at.storage, at.container, at.path) if item.name == at.path]
    if not blobs:
        raise at.not_there(source)
    with tempfile.TemporaryDirectory(prefix="batchtrain-images-") as folder:
        file = Path(folder, "archive")
        sync.get(at.storage, at.container, blobs, at.path, file, str).check()
        _show_loaded(archives.load(docker, file))


def _show_loaded(names: tuple[str, ...]) -> None:
    show({"images": list(names)}, "\n".join(names) or "the archive has images without names")


def _blob(text: str) -> Remote:
    at = remote(text.removeprefix(STORAGE))
    if not at.path or at.path.endswith("/"):
        raise UsageError(f"`{text}` does not name a blob; write {STORAGE}LINK/CONTAINER/PATH")
    return at


def _registries() -> dict[str, RegistryCredentials]:
    credentials = load_credentials(settings().configdir or ".", settings().files)
    if credentials is None:
        return {}
    return dict(vault.resolved(credentials, ca=os.environ.get(CA_VARIABLE)).docker_registry)
