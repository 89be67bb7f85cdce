"""`gang`: a plain function runs as a gang, and its return values come back by rank."""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import json
import re
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import msgspec

from batchtrain.client.client import Client, connect
from batchtrain.client.local import own_environment
from batchtrain.config.described import command, suggesting
from batchtrain.config.types import Pool, Recipe, Results
from batchtrain.errors import LimitReached, NotFound, TaskFailed, UsageError, printable, printable_lines
from batchtrain.frameworks.base import Nodes
from batchtrain.frameworks.mpi import MpiBlock
from batchtrain.frameworks.pytorch import PyTorchBlock
from batchtrain.functions.serialization import travelling
from batchtrain.functions.this_python import image_of_this_python
from batchtrain.runs.finished import Result
from batchtrain.runtime import call_function
from batchtrain.runtime.call_function import pack

P = ParamSpec("P")
R = TypeVar("R")


class Returned(tuple[R, ...]):
    """The return values of a gang: item N is that of rank N. `result` has the logs, metrics and files."""

    result: Result


@suggesting
def gang(
    *,
    nodes: int = 1,
    processes_per_node: int = 1,
    image: str | None = None,
    compute: str | Pool | None = None,
    distribution: MpiBlock | Nodes | None = None,
    environment_variables: Mapping[str, str] | None = None,
    timeout: int | None = None,
    ignore: Iterable[str] = (),
    local: bool | None = None,
    client: Client | None = None,
    unpickle: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, Returned[R]]]:
    """Run a plain function on every rank of a gang: `gang(nodes=2, processes_per_node=2)(train)(0.1, epochs=3)`.

    The call creates a pool and a job, waits, returns the values by rank, and deletes both. RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT are set as for PyTorch, unless `distribution` says otherwise.

    The source of the function travels, with the functions, constants and local modules that it uses; installed
    packages come from the image. Arguments and values are JSON and numpy arrays. On the emulator, the environment of a
    recipe's image is made once more if it has another Python than this one.

    nodes, processes_per_node: the size of the gang. image: the container image; without one, the emulator runs this
    Python, and Azure the python3 of the node. compute: a VM size, or the id of a pool. local: on the emulator, as for
    `connect`. client: an existing client. timeout: time limit in seconds.
    unpickle: also send and load values as pickles. Only if you trust what runs on the nodes.

    Raises TypeError for a missing or an unknown argument, UsageError for a function or an argument that cannot be sent,
    and TaskFailed with the traceback of the rank that failed first, caused by an exception of the same type if it is a
    built-in one. NotFound names the ranks whose values were not fetched.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, Returned[R]]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Returned[R]:
            with tempfile.TemporaryDirectory(prefix="batchtrain-") as folder:
                write(Path(folder), function, args, kwargs, unpickle=unpickle)
                where = client or connect(local=local)
                if image is None:
                    environment = own_environment(where.account)
                else:
                    environment = image_of_this_python(where.account, image, where.say)
                word = re.sub(r"[^A-Za-z0-9]+", "-", getattr(function, "__name__", "")).strip("-")[:40] or "function"
                recipe = command(
                    "python3 -u call_function.py",
                    name=f"{word}-{secrets.token_hex(2)}",
                    source=folder,
                    image=environment,
                    instances=nodes,
                    distribution=distribution or PyTorchBlock(processes_per_node=processes_per_node),
                    compute=compute,
                    environment_variables=environment_variables,
                    timeout=timeout,
                    ignore=ignore,
                    local=where.account.emulated,
                )
                size = nodes * processes_per_node if distribution is None else None
                return read(where.run(_fetching_all(recipe), check=False), unpickle=unpickle, size=size)

        return call

    return decorated


def _fetching_all(recipe: Recipe) -> Recipe:
    """The recipe with the results of all nodes."""
    (job,) = recipe.jobs
    task = msgspec.structs.replace(job.tasks[0], results=Results(from_="all"))
    return msgspec.structs.replace(recipe, jobs=(msgspec.structs.replace(job, tasks=(task,)),))


def write(
    folder: Path, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, unpickle: bool
) -> None:
    """Write the function and its arguments for the nodes. Raises UsageError for what cannot be sent, and TypeError
    for a missing or an unknown argument."""
    code, arrays = travelling(function), dict[str, Any]()
    try:
        inputs = {
            "args": [pack(value, arrays, unpickle, f"argument {number}") for number, value in enumerate(args, 1)],
            "kwargs": {name: pack(value, arrays, unpickle, f"argument `{name}`") for name, value in kwargs.items()},
        }
        values = pack(code.values, arrays)
    except TypeError as error:
        raise UsageError(str(error)) from None
    inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    call = {"module": code.module, "name": code.name, "given": inputs, "values": values, "unpickle": unpickle}
    caller = Path(call_function.__file__).read_bytes()
    document = json.dumps({**call, "python": sys.version_info[:2]}).encode()
    files = {**code.files, "call_function.py": caller, call_function.CALL: document}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    call_function.write_arrays(str(folder / call_function.ARRAYS), arrays)


def read(result: Result, *, unpickle: bool, size: int | None = None) -> Returned[Any]:
    """The values of all ranks. size: their number; without it, the ranks themselves say it.

    Raises TaskFailed for the rank that failed first, and NotFound for values that were not fetched.
    """
    answers = _answers(result.output)
    if size is None:
        size = max((max(answer.get("size", 0), rank + 1) for rank, (answer, _) in answers.items()), default=1)
    answers = {rank: answers[rank] for rank in range(size) if rank in answers}
    if result.failure is not None:
        _fail(result.failure, [answer for answer, _ in answers.values() if "type" in answer])
    if missing := [rank for rank in range(size) if rank not in answers]:
        names = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
        why = _reason(result, f"rank-{missing[0]}.json")
        raise NotFound(f"the values of {names} of {size} are not in {result.path}{why}")
    for rank, (answer, arrays) in answers.items():
        if answer.get("arrays") and not arrays.exists():
            raise NotFound(f"the arrays of rank {rank} are not in {result.path}{_reason(result, arrays.name)}")
    values = Returned(
        call_function.unpack(answer["value"], call_function.read_arrays(str(arrays)), unpickle)
        for answer, arrays in answers.values()
    )
    values.result = result
    return values


def _answers(output: Path) -> dict[int, tuple[dict[str, Any], Path]]:
    """What each rank wrote, with the path of its arrays; the newest if it ran on several nodes."""
    answers: dict[int, tuple[dict[str, Any], Path]] = {}
    for path in output.glob("*/rank-*.json"):
        if match := re.fullmatch(r"rank-(\d+)\.json", path.name):
            rank, answer = int(match[1]), json.loads(path.read_bytes())
            if rank not in answers or answer.get("time", 0) > answers[rank][0].get("time", 0):
                answers[rank] = answer, path.with_suffix(".npz")
    return answers


def _reason(result: Result, name: str) -> str:
    """Why a file of the ranks was not fetched, if it is known."""
    for file in result.directory.files():
        if file.path.endswith(f"/{name}") and not file.fetched and file.reason:
            return f": {name} was not fetched, because {file.reason.partition(';')[0]}"
    return f": {name} is missing"


def _fail(failure: TaskFailed | LimitReached, answers: list[dict[str, Any]]) -> NoReturn:
    if not answers or not isinstance(failure, TaskFailed):
        raise failure
    first = min(answers, key=lambda answer: (answer["rank"] != failure.rank, answer["time"]))
    message = printable_lines(first["message"])
    headline = f"rank {first['rank']} raised {printable(first['type'])}: {message}"
    failure.args = (f"{headline}\n\n{printable_lines(first['traceback'])}",)
    failure.rank = first["rank"]
    raise failure from _built_in(first["type"], message)


def _built_in(name: str, message: str) -> Exception | None:
    """The built-in exception of this name; None for others, and for those that need more than a message."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(Exception):  # such as that of UnicodeDecodeError, which takes five arguments
            return kind(message)
    return None
