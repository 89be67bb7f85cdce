"""How the progress of a client's methods reaches who called them."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from batchtrain.config.types import Recipe
from batchtrain.display.progress import KEPT_VALUES, shown, wanted
from batchtrain.display.subject import view_of
from batchtrain.errors import BatchtrainError
from batchtrain.records.events import Event
from batchtrain.service.connect import Account

if TYPE_CHECKING:
    from batchtrain.display.live_view import View

Tell = Callable[[Event], None] | None
"""Receives each event; None shows nothing."""
P = ParamSpec("P")
R = TypeVar("R")


def SHOW(event: Event) -> None:
    """The default of `tell`: progress is shown as `connect(display=…)` says."""


def displayed(interrupted: str, *, quiet: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Shows the progress of a method, unless the caller gives `tell`. interrupted: what Ctrl-C leaves. quiet: one
    line is left in a notebook."""

    def decorated(method: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(method)
        def call(*args: P.args, **options: P.kwargs) -> R:
            owner: Any = args[0]
            client: Any = getattr(owner, "_client", owner)
            with _explained(getattr(client, "explains", False) and options.get("register") is None):
                if options.get("tell", SHOW) is not SHOW or not wanted(getattr(client, "display", False)):
                    return method(*args, **options)
                subject = args[1] if len(args) > 1 else getattr(owner, "id", None) or options.get("recipe")
                view = functools.partial(_view, client.account, subject)
                with shown(view, interrupted, client.account.option, quiet=quiet) as tell:
                    options["tell"] = tell
                    return method(*args, **options)

        return call

    return decorated


_IS_INSIDE = contextvars.ContextVar("_IS_INSIDE", default=False)
"""Whether a call of the Python API is in progress, which may use others and record their errors."""


@contextlib.contextmanager
def _explained(explains: bool) -> Iterator[None]:
    """An error that leaves the outermost call says its cause and the next step. A call with a register is part of a
    run, which records its error."""
    if not explains or _IS_INSIDE.get():
        yield
        return
    token = _IS_INSIDE.set(True)
    try:
        yield
    except BatchtrainError as error:
        error.is_explained = True
        raise
    finally:
        _IS_INSIDE.reset(token)


def _view(account: Account, subject: object) -> View:
    recipe = subject if isinstance(subject, Recipe) else None
    return view_of(account, recipe, "" if recipe else str(subject), recent=KEPT_VALUES)
