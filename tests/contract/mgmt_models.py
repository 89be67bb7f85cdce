"""What azure-mgmt-batch says of answers, as JSON: the type of each property of its models, the values of its enums, and
the model that each operation returns."""

import enum
import inspect
import json
import sys
import types
import typing

from azure.mgmt.batch import BatchManagementClient, models
from azure.mgmt.batch._utils.model_base import Model, _RestField


def kind_of(hint):
    """[type, whether it is a list, whether it is a map]."""
    if isinstance(hint, str):
        return kind_of(eval(hint, {"_models": models}))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        parts = [part for part in arguments if part is not type(None)]
        parts = [part for part in parts if part is not str] if len(parts) > 1 else parts
        return kind_of(parts[0])
    if origin in (list, dict):
        return [kind_of(arguments[-1])[0], origin is list, origin is dict]
    return [getattr(hint, "__name__", "Any"), False, False]


def properties(model):
    hints = typing.get_type_hints(model, localns={"_models": models})
    fields = {name: field for parent in reversed(model.__mro__) for name, field in vars(parent).items()}
    return {
        field._rest_name_input or name: kind_of(hints[name])
        for name, field in fields.items()
        if isinstance(field, _RestField)
    }


def answer_of(method):
    """The name of the model that a method returns, of one item of a list, or of what a long operation leaves."""
    hint = inspect.signature(method).return_annotation
    arguments = typing.get_args(hint)
    return kind_of(arguments[0] if arguments else hint)[0] if hint is not None else "NoneType"


classes = {name: item for name, item in vars(models).items() if isinstance(item, type)}
client = BatchManagementClient(object(), "s")
groups = {name: group for name, group in vars(client).items() if not name.startswith("_")}
document = {
    "models": {name: properties(item) for name, item in classes.items() if issubclass(item, Model)},
    "enums": {name: [entry.value for entry in item] for name, item in classes.items() if issubclass(item, enum.Enum)},
    "operations": {
        f"{group}.{name}": answer_of(method)
        for group, item in groups.items()
        for name, method in inspect.getmembers(item, callable)
        if not name.startswith("_")
    },
}
json.dump(document, sys.stdout)
