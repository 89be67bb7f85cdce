"""`script`: a recipe for a bare Python script, in the types that YAML files and `command` make."""

from __future__ import annotations

import functools
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from batchtrain.config import catalog_file, load, source_packages, user_settings
from batchtrain.config.described import IMAGE, VM_SIZE, new_gang, new_pool, suggesting, valid
from batchtrain.config.ids import project_id
from batchtrain.config.source_packages import SourcePackages
from batchtrain.config.types import AdditionalNodePrep, Job, PrepCommands, Recipe, Results, Task, VmCount
from batchtrain.config.user_settings import is_for_emulator
from batchtrain.containers import recipe_images
from batchtrain.containers.environments import ENVIRONMENTS, Environment
from batchtrain.errors import Problem, UsageError
from batchtrain.scripts import detection, imports, local_environment, on_nodes
from batchtrain.scripts.detection import Choice

SHARED = "$AZ_BATCH_TASK_SHARED_DIR"
POOL, TASK = "pool_specification", "train"
STEM_LENGTH = 57
"""The longest part of an id before the digest of the directory; an id has at most 64 characters."""


class Wish(NamedTuple):
    """What the user says about a script."""

    nodes: int = 1
    processes_per_node: int | None = None
    size: str = ""
    spot: bool = False
    framework: str = ""
    arguments: Sequence[str] = ()
    name: str = ""


class Prepared(NamedTuple):
    """A script as a recipe, and how it was understood."""

    recipe: Recipe
    choice: Choice
    packages: tuple[SourcePackages, ...]

    @property
    def image(self) -> str:
        (task,) = self.recipe.jobs[0].tasks
        return task.docker_image or ""


@suggesting
def script(
    path: str | Path,
    *,
    nodes: int = 1,
    processes_per_node: int | None = None,
    gpus_per_node: int | None = None,
    size: str | None = None,
    spot: bool = False,
    framework: str | None = None,
    arguments: Iterable[object] = (),
    name: str | None = None,
    settings: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
    local: bool | None = None,
) -> Recipe:
    """A recipe for a bare Python script. `client.run(recipe)` runs it, `recipe.save(DIR)` writes it as YAML files.

    path: the script. Its directory is copied to every node, and its packages come from its inline metadata (PEP 723),
    requirements.txt, pyproject.toml or environment.yml.
    nodes: number of nodes. processes_per_node, gpus_per_node: processes on each; by default one per GPU, or one.
    size: the VM size. spot: use spot nodes. framework: by default the one that the script imports.
    arguments: of the script. name: the id of the job and of its pool, by default from the script.
    settings: overriding values, by path. ignore: names of checks to silence.
    local: for the emulator (or BATCHTRAIN_LOCAL=1): makes the environment with the packages, and prints its steps.

    Raises UsageError for a script that cannot be launched, and ConfigError, with every problem, for what could not run.
    """
    each = processes_each(processes_per_node, gpus_per_node)
    wish = Wish(nodes, each, size or "", spot, framework or "", tuple(map(str, arguments)), name or "")
    prepared = prepare(Path(path), wish, settings=settings, ignore=ignore, local=local)
    if is_for_emulator(local):
        say = functools.partial(print, file=sys.stderr, flush=True)
        local_environment.make(prepared.recipe, prepared.image, prepared.packages, say)
    return prepared.recipe


def processes_each(processes_per_node: int | None, gpus_per_node: int | None) -> int | None:
    """The processes of a node, by either name. Raises UsageError if both are given."""
    if processes_per_node is not None and gpus_per_node is not None:
        raise UsageError("processes per node and GPUs per node are the same number here; give one of them")
    return gpus_per_node if processes_per_node is None else processes_per_node


def prepare(
    path: Path,
    wish: Wish,
    *,
    settings: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
    local: bool | None = None,
    in_image: bool | None = None,
    choose: Callable[[detection.Undecided], str] | None = None,
) -> Prepared:
    """Read a script and make its recipe; changes nothing. files: the credentials, if they are elsewhere. in_image:
    whether the script runs in an image; by default on the emulator, and where the user has a registry. choose: asks the
    user which of several frameworks is meant."""
    if wish.framework and wish.framework not in detection.NAMES:
        raise UsageError(f"there is no framework {wish.framework}; choose one of {', '.join(detection.NAMES)}")
    read_script = imports.read(path)
    if mention := detection.launcher_in(read_script):
        raise UsageError(
            f"{mention.file}:{mention.line} starts the processes of the training itself, with `{mention.name}`;"
            " batchtrain starts them on every node (`--processes-per-node`), so call the training function directly,"
            " and let it read RANK, LOCAL_RANK and WORLD_SIZE"
        )
    try:
        choice = detection.framework_of(read_script, wish.framework)
    except detection.Undecided as undecided:
        if choose is None:
            raise
        choice = detection.framework_of(read_script, choose(undecided))
    directory = path.parent.resolve()
    package_list = source_packages.of_directory(directory, path.name)
    packages = (package_list,) if package_list.packages or package_list.pythons else ()
    build = detection.PLAIN_IMAGE if package_list.names.intersection(choice.packages) else choice.image
    vm = catalog_file.load(directory).size(wish.size or VM_SIZE)
    gpus = vm is not None and vm.gpus > 0
    image = recipe_images.script_image(build, packages, gpus=gpus)
    remarks = tuple(_unlisted(read_script, package_list, choice, build))
    draft = _recipe(path, directory, wish, choice, image)
    if not (is_for_emulator(local) or user_settings.load().registry if in_image is None else in_image):
        draft = _without_image(draft, *recipe_images.environment_of(image), packages, gpus=gpus)
    recipe = valid(
        draft, str(path), files=_credentials(directory, files or {}), settings=settings, ignore=ignore,
        remarks=remarks, local=local,
    )  # fmt: skip
    return Prepared(recipe, choice, packages)


def _recipe(path: Path, directory: Path, wish: Wish, choice: Choice, image: str) -> Recipe:
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-")[:STEM_LENGTH] or "script"
    name = wish.name or f"{stem}-{project_id(str(directory))[:6]}"  # another directory may have a script of this name
    launcher, kind = detection.block_of(choice, wish.processes_per_node), "low_priority" if wish.spot else "dedicated"
    task = Task(
        id=TASK,
        command=" ".join((f"python -u {SHARED}/{shlex.quote(path.name)}", *map(shlex.quote, wish.arguments))),
        docker_image=image,
        source=".",
        link_source=True,
        multi_instance=replace(new_gang(wish.nodes, launcher), num_instances=f"{POOL}_vm_count_{kind}"),
        results=Results(from_="all") if choice.name == detection.NONE else None,
    )
    job = Job(id=name, auto_complete=True, tasks=(task,))
    pool = new_pool(None, wish.size or VM_SIZE, job, wish.nodes)
    pool = replace(pool, vm_count=VmCount(**{kind: wish.nodes}))
    return Recipe(directory=str(directory), pool=pool, jobs=(job,))


def _without_image(
    recipe: Recipe, name: str, spec: Environment, packages: tuple[SourcePackages, ...], *, gpus: bool
) -> Recipe:
    """The recipe with an environment that the start task of each node makes, in place of its image."""
    assert recipe.pool is not None
    bin_directory = f"{on_nodes.prefix(name, spec, packages)}/bin"
    (job,), pool = recipe.jobs, recipe.pool
    (task,) = job.tasks
    gang = task.multi_instance
    if gang is not None and gang.mpi is not None:
        gang = replace(gang, mpi=replace(gang.mpi, executable_path=f"{bin_directory}/mpiexec"))
    task = replace(task, docker_image=None, command=f"{bin_directory}/{task.command}", multi_instance=gang)
    lines = "\n".join(on_nodes.commands(name, spec, packages, gpus=gpus))
    pool = replace(
        pool,
        additional_node_prep=AdditionalNodePrep(commands=PrepCommands(post=(lines,))),
        vm_configuration=replace(pool.vm_configuration, platform_image=replace(IMAGE, native=False)),
    )
    return replace(recipe, pool=pool, jobs=(replace(job, tasks=(task,)),))


def _credentials(directory: Path, files: Mapping[str, str]) -> Mapping[str, bytes]:
    """The file of the accounts: beside the script, or where the user says."""
    contents = load.read(directory, {part: file for part, file in files.items() if part == "credentials"})
    return {
        file: content
        for file, content in contents.items()
        if Path(file).stem == "credentials" or file in files.values()
    }


def _unlisted(script: imports.Script, package_list: SourcePackages, choice: Choice, build: str) -> Iterator[Problem]:
    """A warning for each import that no package brings, as far as names tell."""
    name = recipe_images.ENVIRONMENTS_OF.get(build, build)
    ready = {requirement.partition("=")[0].partition(">")[0] for requirement in ENVIRONMENTS[name].packages}
    packages = {*package_list.names, *ready, *(p for p in choice.packages if build != detection.PLAIN_IMAGE)}
    modules: set[str] = set()
    for mention in script.imports:
        names = DISTRIBUTIONS.get(mention.top, (mention.top.replace("_", "-").lower(),))
        if mention.top not in modules and not packages.intersection(names):
            modules.add(mention.top)
            where = package_list.file if package_list.packages else source_packages.REQUIREMENTS
            text = f"no package file names `{mention.top}`, which the script imports; write `{names[0]}` into {where}"
            yield Problem("script-package", text, str(mention.file), mention.line, level="warning")


DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    "PIL": ("pillow",),
    "bs4": ("beautifulsoup4",),
    "cv2": ("opencv-python", "opencv-python-headless"),
    "dateutil": ("python-dateutil",),
    "keras": ("keras", "tensorflow", "tensorflow-cpu"),
    "pytorch_lightning": ("pytorch-lightning", "lightning"),
    "skimage": ("scikit-image",),
    "sklearn": ("scikit-learn",),
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "yaml": ("pyyaml",),
}
"""Packages of PyPI that bring a module of another name."""
