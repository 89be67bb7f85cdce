"""`script`: a recipe for a bare Python script, in the types that YAML files and `command` make."""

from __future__ import annotations

import functools
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from batchtrain.config import catalog_file, load, source_packages, user_settings
from batchtrain.config.described import IMAGE, VM_SIZE, Sweep, factory_of, new_gang, new_pool, suggesting, valid
from batchtrain.config.ids import project_id
from batchtrain.config.override import FIRST_TASK, setting_texts
from batchtrain.config.source_packages import Package, SourcePackages
from batchtrain.config.types import (
    AdditionalNodePrep,
    Checkpoint,
    GlobalResources,
    Job,
    PrepCommands,
    Recipe,
    Results,
    SharedDataVolume,
    Task,
    VmCount,
    Volumes,
)
from batchtrain.config.user_settings import is_for_emulator
from batchtrain.containers import recipe_images
from batchtrain.containers.environments import ENVIRONMENTS, Environment
from batchtrain.errors import Problem, UsageError, counted
from batchtrain.scripts import detection, distributions, imports, local_environment, on_nodes
from batchtrain.scripts.detection import Choice

POOL, TASK = "pool_specification", "train"
CHECKPOINTS = "checkpoints"
"""The volume for checkpoints, and its file share."""
MODULE = "batchtrain_checkpoint"
"""It comes with a task that has checkpoints."""
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
    checkpoints: str = ""
    sweeps: bool = False
    """Each node has a whole training."""


class Prepared(NamedTuple):
    """A script as a recipe, and how it was understood."""

    recipe: Recipe
    choice: Choice
    packages: tuple[SourcePackages, ...]
    above: tuple[Path, ...]
    """Further directories whose modules the script imports."""
    nodes_install: Environment | None
    """What the start task of each node installs, without the packages that the script lists; None if nothing."""

    @property
    def installs(self) -> str:
        """What the start task of each node installs, in words; empty if nothing."""
        if (spec := self.nodes_install) is None:
            return ""
        if self.packages:  # their size is only known when they are resolved
            others = f" and about {spec.megabytes} MB of others" if spec.packages else ""
            return f"each node installs the packages that the script lists{others} when it starts"
        minutes = counted(spec.minutes, "minute")
        return f"each node installs about {spec.megabytes} MB of packages when it starts, in about {minutes}"

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
    checkpoints: str | None = None,
    sweep: Sweep | None = None,
    settings: Mapping[str, object] | None = None,
    ignore: Iterable[str] = (),
    local: bool | None = None,
) -> Recipe:
    """A recipe for a bare Python script. `client.run(recipe)` runs it, `recipe.save(DIR)` writes it as YAML files.

    path: the script. Its directory is copied to every node, and its packages come from its inline metadata (PEP 723),
    requirements.txt, pyproject.toml or environment.yml.
    nodes: number of nodes. processes_per_node, gpus_per_node: processes on each; by default one per GPU, or one.
    size: the VM size. spot: use spot nodes. framework: by default the one that the script imports.
    arguments: of the script. name: the id of the job and of its pool, by default from the script.
    checkpoints: the name of a storage account in credentials.yaml. Its file share `checkpoints` keeps those that the
    script writes to $BATCHTRAIN_CHECKPOINT_DIR.
    sweep: {"lr": [0.1, 0.01]} makes a task for each combination of values, [{"lr": 0.1}, ...] for each set of them. The
    script gets `--lr=0.1`, unless an argument has the parameter in braces, such as `optimizer.lr={lr}`.
    settings: overriding values, by path. ignore: names of checks to silence.
    local: the recipe is for the emulator (or BATCHTRAIN_LOCAL=1), and its environment is made now. By default the
    client that runs it decides: on the emulator, it makes one environment with the packages; on an account without a
    registry, each node installs them. With False, the nodes of the emulator install them, too.

    Raises UsageError for a script that cannot be launched, and ConfigError, with every problem, for what could not run.
    """
    each = processes_each(processes_per_node, gpus_per_node)
    tasks = _tasks_of(sweep) if sweep is not None else {}
    words = swept(tuple(map(str, arguments)), tasks)
    wish = Wish(nodes, each, size or "", spot, framework or "", words, name or "", checkpoints or "", bool(tasks))
    values = {**setting_texts(settings), **dict(tasks.values())}
    prepared = prepare(Path(path), wish, settings=values, ignore=ignore, local=local)

    def on_target(recipe: Recipe, home: str, say: Callable[[str], None] | None) -> Recipe:
        if not home:
            if say is not None and prepared.installs:
                say(prepared.installs)
            return replace(recipe, for_target=None)
        if replace(recipe, for_target=None) != prepared.recipe:
            return recipe  # the caller has changed it
        emulated = prepare(Path(path), wish, settings=values, ignore=ignore, local=True)
        if say is not None:
            local_environment.make(emulated.recipe, emulated.image, say, data_dir=Path(home))
        return emulated.recipe

    say = functools.partial(print, file=sys.stderr, flush=True)
    if is_for_emulator(local):
        local_environment.make(prepared.recipe, prepared.image, say)
    elif prepared.installs and local is False:
        say(prepared.installs)
    return replace(prepared.recipe, for_target=on_target if local is None and not prepared.image else None)


def of_factory(*names: str) -> str:
    """The path of a value of the factory that makes the tasks of a script."""
    return ".".join((FIRST_TASK, "task_factory", *names))


def swept(arguments: Sequence[str], parameters: Iterable[str]) -> tuple[str, ...]:
    """The arguments of a script for a sweep: those that do not name a parameter in braces get one for it."""
    text = " ".join(arguments)
    return (*arguments, *(f"--{name}={{{name}}}" for name in parameters if f"{{{name}}}" not in text))


def _tasks_of(sweep: Sweep) -> dict[str, tuple[str, str]]:
    """For each parameter of a sweep, the value of the recipe that makes its tasks, by path."""
    factory = factory_of(sweep)
    if factory.grid:
        values = {name: msgspec.json.encode(texts).decode() for name, texts in factory.grid.items()}
        return {name: (of_factory("grid", name), text) for name, text in values.items()}
    sets = factory.list or ()
    return {name: (of_factory("list"), msgspec.json.encode(sets).decode()) for values in sets for name in values}


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
    runs: bool = True,
) -> Prepared:
    """Read a script and make its recipe; changes nothing. files: the credentials, if they are elsewhere. in_image:
    whether the script runs in an image; by default on the emulator, and where the user has a registry. choose: asks the
    user which of several frameworks is meant. runs: the recipe is for a run, so a script that surely starts its own
    processes is an error, unless the user chooses the framework."""
    if wish.framework and wish.framework not in detection.NAMES:
        raise UsageError(f"there is no framework {wish.framework}; choose one of {', '.join(detection.NAMES)}")
    read_script = imports.read(path)
    directory = read_script.root
    script = (path.parent.resolve() / path.name).relative_to(directory).as_posix()
    package_list = source_packages.of_directory(directory, script)
    framework_of = functools.partial(
        detection.framework_of, read_script, packages=package_list.names, keras_backend=_keras_backend(settings or {})
    )
    try:
        choice = framework_of(wish.framework)
    except detection.Undecided as undecided:
        if choose is None:
            raise
        choice = framework_of(choose(undecided))
    packages = (package_list,) if package_list.packages or package_list.pythons else ()
    build = detection.PLAIN_IMAGE if package_list.names.intersection(choice.packages) else choice.image
    vm = catalog_file.load(directory).size(wish.size or VM_SIZE)
    gpus = vm is not None and vm.gpus > 0
    image = recipe_images.script_image(build, packages, gpus=gpus)
    remarks = (
        *_own_launcher(read_script, refuses=runs and not wish.framework),
        *_unlisted(read_script, package_list, choice, build, has_checkpoints=bool(wish.checkpoints)),
        *_alone(read_script, choice, wish, vm.gpus if vm else 1),
    )
    draft = _recipe(read_script, script, wish, choice, image)
    nodes_install = None
    if not (is_for_emulator(local) or user_settings.load().registry if in_image is None else in_image):
        environment, spec = recipe_images.environment_of(image)
        draft = _without_image(draft, environment, spec, packages, gpus=gpus)
        nodes_install = spec if on_nodes.listed(spec, packages) else None
    recipe = valid(
        draft, str(path), files=_credentials(directory, files or {}), settings=settings, ignore=ignore,
        remarks=remarks, local=local,
    )  # fmt: skip
    return Prepared(recipe, choice, packages, read_script.above, nodes_install)


def _recipe(script: imports.Script, name: str, wish: Wish, choice: Choice, image: str) -> Recipe:
    """name: the path of the script in its directory."""
    directory = script.root
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", script.path.stem).strip("-")[:STEM_LENGTH] or "script"
    job_id = wish.name or f"{stem}-{project_id(str(directory))[:6]}"  # another directory may have a script of this name
    kind = "low_priority" if wish.spot else "dedicated"
    launcher = detection.block_of(choice, script, 1 if wish.sweeps else wish.nodes, wish.processes_per_node)
    gang = new_gang(f"{POOL}_vm_count_{kind}", launcher) if launcher else None
    variables = {"PYTHONPATH": script.python_path, detection.KERAS_BACKEND: choice.keras_backend}
    task = Task(
        id=TASK,
        command=" ".join((f"python -u {shlex.quote(name)}", *map(quoted, wish.arguments))),
        docker_image=image,
        source=".",
        checkpoint=Checkpoint(volume=CHECKPOINTS) if wish.checkpoints else None,
        environment_variables={name: value for name, value in variables.items() if value},
        multi_instance=gang,
        results=Results(from_="all") if gang and choice.name == detection.NONE else None,
    )
    job = Job(id=job_id, auto_complete=True, tasks=(task,))
    pool = new_pool(None, wish.size or VM_SIZE, job, wish.nodes)
    pool = replace(pool, vm_count=VmCount(**{kind: wish.nodes}))
    share = SharedDataVolume(
        volume_driver="azurefile", storage_account_settings=wish.checkpoints, azure_file_share_name=CHECKPOINTS
    )
    volumes = Volumes(shared_data_volumes={CHECKPOINTS: share} if wish.checkpoints else {})
    return Recipe(directory=str(directory), pool=pool, jobs=(job,), resources=GlobalResources(volumes=volumes))


_VARIABLE = re.compile(r"(\$(?:BATCHTRAIN|AZ_BATCH)_\w+|\$\{(?:BATCHTRAIN|AZ_BATCH)_\w+\})")


def quoted(argument: str) -> str:
    """An argument of the program for the shell of the node, which replaces only the variables of Batch and batchtrain,
    such as $BATCHTRAIN_CHECKPOINT_DIR."""
    if not _VARIABLE.search(argument):
        return shlex.quote(argument)
    parts = (
        part if at % 2 else re.sub(r'([\\$"`])', r"\\\1", part) for at, part in enumerate(_VARIABLE.split(argument))
    )
    return f'"{"".join(parts)}"'


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


def _keras_backend(settings: Mapping[str, str]) -> str:
    """KERAS_BACKEND of the nodes, if the settings have it among the environment variables of the job or the task."""
    end = ("environment_variables", detection.KERAS_BACKEND)
    paths = {path: path.split(".") for path in settings if path.startswith("job_specifications")}
    return next((settings[path] for path, parts in paths.items() if tuple(parts[-2:]) == end), "")


def _credentials(directory: Path, files: Mapping[str, str]) -> Mapping[str, bytes]:
    """The file of the accounts: beside the script, or where the user says."""
    contents = load.read(directory, {part: file for part, file in files.items() if part == "credentials"})
    names = [file for file in contents if Path(file).stem == "credentials" or file in files.values()]
    return {file: contents[file] for file in names}


def _own_launcher(script: imports.Script, *, refuses: bool) -> Iterator[Problem]:
    """What the user must know of a script that starts processes of the training itself."""
    if (mention := detection.launcher_in(script)) is None:
        return
    refused = refuses and mention.certain
    when = "" if mention.certain else " under a condition"
    advice = (
        "call the training function directly, and let it read RANK, LOCAL_RANK and WORLD_SIZE; to run it as it is,"
        " choose the framework"
        if refused
        else "give it the arguments with which it does not"
    )
    text = (
        f"the script starts the processes of the training itself{when}, with `{mention.name}`; batchtrain starts them"
        f" on every node (processes per node), so {advice}"
    )
    level = "error" if refused else "warning"
    yield Problem("script-launcher", text, str(mention.file), mention.line, level=level)


def _alone(script: imports.Script, choice: Choice, wish: Wish, gpus: int) -> Iterator[Problem]:
    """A warning for a program whose processes would each do the same work, and that a run would call a success."""
    is_plain = choice.name == detection.NONE
    each = wish.processes_per_node or (1 if is_plain else gpus)
    ways = detection.OF_A_LAUNCH if is_plain else detection.LAUNCHES[choice.name].joined_by
    others = {
        name for framework, other in detection.LAUNCHES.items() if framework != choice.name for name in other.imports
    }
    is_joined = (
        not script.words.isdisjoint(ways)
        or any(mention.top in others for mention in script.imports)
        or any(call.name.startswith("keras.distribution.") for call in script.calls)
    )
    if ways and (each > 1 or (wish.nodes > 1 and not wish.sweeps)) and not is_joined:
        text = (
            "the script reads no `RANK` and the like, so each of its processes does the same work; divide it by `RANK`"
            " and `WORLD_SIZE`, or run it on one node with one process"
            if is_plain
            else f"nothing in the script joins its processes (it has no `{ways[0]}` and the like), so each of them"
            f" trains alone, on all the data; use `{ways[0]}`, or run it on one node with one process"
        )
        yield Problem("script-alone", text, str(script.path), 1, level="warning")


def _unlisted(
    script: imports.Script, package_list: SourcePackages, choice: Choice, build: str, *, has_checkpoints: bool
) -> Iterator[Problem]:
    """A warning for each import that no package brings, as far as tables tell. An import that the script can do without
    has none."""
    environment = ENVIRONMENTS.get(recipe_images.ENVIRONMENTS_OF.get(build, build))
    of_image = {Package(text, 0).name for text in environment.packages} if environment else set()
    packages = {*package_list.names, *of_image, *(p for p in choice.packages if build != detection.PLAIN_IMAGE)}
    of_framework = () if build == detection.PLAIN_IMAGE else detection.LAUNCHES[choice.name].imports[:1]
    modules = {MODULE} if has_checkpoints else set[str]()
    for mention in script.imports:
        module = mention.top
        if module in modules or module in of_framework or not mention.certain:
            continue
        modules.add(module)
        if not distributions.brings(packages, module):
            is_beside = package_list.directory == script.path.parent.resolve()
            where = package_list.file if is_beside else package_list.path
            names = distributions.packages_of(module)
            advice = f"write `{names[0]}` into {where}" if names else f"add the package that does to {where}"
            advice = "`--checkpoints NAME` brings it" if module == MODULE else advice
            text = f"`{module}` is imported, and no requirement provides it; {advice}"
            yield Problem("script-package", text, str(mention.file), mention.line, level="warning")
