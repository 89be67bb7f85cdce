"""A request to the stand-in for Azure Resource Manager, and what carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from batchtrain.emulator.faults import Fault
from batchtrain.emulator.reply import Reply
from batchtrain.emulator.world import World

Document = dict[str, Any]
Body = TypeVar("Body", bound=msgspec.Struct)


class Account(NamedTuple):
    """The account as Resource Manager shows it."""

    name: str
    key: str
    host: str
    """The host name of the service, without the scheme."""

    def __repr__(self) -> str:
        return f"Account(name={self.name!r}, host={self.host!r})"


class Request(NamedTuple):
    """One request whose token is checked."""

    verb: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    base: str
    now: int
    version: str = ""
    """Of the package that the path names."""
    raw_path: str = ""
    """The whole path; `path` is the id of the account while the request is carried out."""

    def read(self, kind: type[Body]) -> Body:
        """The body. Raises Fault 400."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except msgspec.DecodeError as error:
            raise Fault("InvalidRequestBody", f"The specified request body is not valid: {error}.") from None


Operation = Callable[[World, Account, Request, str, int], Reply]
"""The last parameters: the name of the pool, application or operation, and the revision of the API."""
