"""A request to the stand-in for Azure Resource Manager, and what carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from batchtrain.emulator import query
from batchtrain.emulator.reply import Reply
from batchtrain.emulator.world import World

Document = dict[str, Any]


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

    def page(self, value: list[Document]) -> Reply:
        """One page of a list: `maxresults` entries after `$skiptoken`."""
        most = query.most_results(self.query.get("maxresults", "")) or query.MAX_PAGE
        start = query.number(self.query.get("$skiptoken", ""))
        document: Document = {"value": value[start : start + most]}
        if start + most < len(value):
            parameters = {**self.query, "$skiptoken": str(start + most)}
            pairs = "&".join(f"{quote(name, safe='$-')}={quote(text, safe='')}" for name, text in parameters.items())
            document["nextLink"] = f"{self.base}{self.raw_path}?{pairs}"
        return Reply(200, document)


Operation = Callable[[World, Account, Request, str, int], Reply]
"""The last parameters: the name of the pool, application or operation, and the revision of the API."""
