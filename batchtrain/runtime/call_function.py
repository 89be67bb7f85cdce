"""Calls a function on a node: reads call.json beside this file, and writes the value or the exception of this rank.

Python 3.6, standard library only; numpy where there are arrays. The client packs and unpacks with the same functions.
"""

import base64
import importlib
import json
import os
import pickle
import sys
import time
import traceback
from typing import Any, Dict, Mapping, Sequence

ARRAY, TUPLE, PICKLE = "__batchtrain_array__", "__batchtrain_tuple__", "__batchtrain_pickle__"
MARKS = (ARRAY, TUPLE, PICKLE)
CALL, ARRAYS = "call.json", "arrays.npz"
HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = ("BATCHTRAIN_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK")
SIZES = ("BATCHTRAIN_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE")


def pack(
    value: Any,
    arrays: Dict[str, Any],
    may_pickle: bool = False,
    where: str = "the value",
    instead: str = "allow pickle with `unpickle=True`",
) -> Any:
    """A value as JSON. Its arrays are put into `arrays`. Raises TypeError with the part that cannot be sent, and what
    to do `instead`.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        items = [pack(item, arrays, may_pickle, "%s[%d]" % (where, at), instead) for at, item in enumerate(value)]
        return items if type(value) is list else {TUPLE: items}
    if type(value) is dict and all(type(key) is str and key not in MARKS for key in value):
        return {key: pack(item, arrays, may_pickle, "%s[%r]" % (where, key), instead) for key, item in value.items()}
    numpy = sys.modules.get("numpy")  # type: Any
    if numpy and isinstance(value, (numpy.ndarray, numpy.generic)) and _fits_npz(value, numpy):
        scalar = value.item() if isinstance(value, numpy.generic) and value.dtype.kind in "biufU" else None
        if type(scalar) in (bool, int, float, str):  # not a longdouble, which is its own item
            return scalar
        name = "a%d" % len(arrays)
        arrays[name] = numpy.asarray(value)
        return {ARRAY: name}
    if may_pickle:
        return {PICKLE: base64.b64encode(pickle.dumps(value)).decode()}
    kind = type(value).__qualname__
    kind = ("an " if kind[0] in "aeiouAEIOU" else "a ") + kind
    if type(value) is dict:
        kind = "a dict whose keys are not all text"
    elif numpy and isinstance(value, numpy.ma.MaskedArray):
        kind = "a masked array (give its `data` and `mask`)"
    elif numpy and isinstance(value, numpy.ndarray):
        kind = "an array of %s" % value.dtype
    usable = "numbers, text, lists, dicts and numpy arrays"
    raise TypeError("%s is %s; use %s, or %s" % (where, kind, usable, instead))


def _fits_npz(value: Any, numpy: Any) -> bool:
    """Whether npz keeps an array without pickles: not its Python objects, its mask, or a type of another library."""
    return not isinstance(value, numpy.ma.MaskedArray) and not value.dtype.hasobject and value.dtype.isbuiltin < 2


def unpack(value: Any, arrays: Mapping[str, Any], may_pickle: bool = False) -> Any:
    """The value again. A pickle is only loaded if `may_pickle`."""
    if isinstance(value, list):
        return [unpack(item, arrays, may_pickle) for item in value]
    if not isinstance(value, dict):
        return value
    if ARRAY in value:
        return arrays[value[ARRAY]]
    if TUPLE in value:
        return tuple(unpack(value[TUPLE], arrays, may_pickle))
    if PICKLE in value:
        if not may_pickle:
            raise TypeError("the value is a pickle, and `unpickle=True` was not given")
        return pickle.loads(base64.b64decode(value[PICKLE]))
    return {key: unpack(item, arrays, may_pickle) for key, item in value.items()}


def write_arrays(path: str, arrays: Dict[str, Any]) -> None:
    """The arrays as npz; no file without arrays."""
    if arrays:
        _numpy().savez(path, **arrays)


def read_arrays(path: str) -> Any:
    """The arrays of an npz file by name, each read when it is used, without pickles; none without the file."""
    if not os.path.exists(path):
        return {}
    return _numpy().load(path, allow_pickle=False)


def _numpy() -> Any:
    import numpy  # only where there are arrays

    return numpy


def values() -> Any:
    """Values of the caller's module, which the module of the function takes from here, also in its child processes."""
    return unpack(_call()["values"], read_arrays(os.path.join(HERE, ARRAYS)))


def main() -> None:
    rank, size = _number(RANKS, 0), _number(SIZES, 1)
    output = os.path.join(os.environ.get("AZ_BATCH_TASK_WORKING_DIR", "."), "output")
    os.makedirs(output, exist_ok=True)
    arrays = {}  # type: Dict[str, Any]
    try:
        answer = {"value": _called(_call(), arrays)}  # type: Dict[str, Any]
        write_arrays(os.path.join(output, "rank-%d.npz" % rank), arrays)
    except BaseException as error:  # noqa: BLE001  # whatever it is, the caller gets it
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        own = [line for line in lines if os.path.join(HERE, "call_function.py") not in line]
        answer = {"type": type(error).__name__, "message": str(error), "traceback": "".join(own)}
    answer.update(rank=rank, size=size, arrays=len(arrays), time=time.time())
    path = os.path.join(output, "rank-%d.json" % rank)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os.replace(path + ".new", path)
    if "type" in answer:
        sys.stderr.write(answer["traceback"])
        sys.exit(1)


def _number(names: Sequence[str], default: int) -> int:
    """The first of the variables that is set."""
    return next((int(os.environ[name]) for name in names if os.environ.get(name)), default)


def _call() -> Any:
    with open(os.path.join(HERE, CALL), encoding="utf-8") as file:
        return json.load(file)


def _called(call: Dict[str, Any], arrays: Dict[str, Any]) -> Any:
    if list(sys.version_info[:2]) != call["python"]:
        raise RuntimeError(
            "the function was sent by Python %d.%d, and the node runs Python %d.%d (%s); choose an image with the same"
            " version" % (tuple(call["python"]) + sys.version_info[:2] + (sys.executable,))
        )
    sys.path.insert(0, HERE)
    given = unpack(call["given"], read_arrays(os.path.join(HERE, ARRAYS)), may_pickle=True)  # the caller's own
    function = importlib.import_module(call["module"])  # type: Any
    for name in call["name"].split("."):
        function = getattr(function, name)
    value = function(*given["args"], **given["kwargs"])
    instead = "write it to a file below `output`, or allow pickle with `unpickle=True`"
    return pack(value, arrays, call["unpickle"], "what %s returned" % call["name"], instead)


if __name__ == "__main__":
    main()
