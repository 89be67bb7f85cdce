"""Connects a command to its account, and reports how a wait or an addition ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import click

from batchtrain.cli.event_lines import tell
from batchtrain.cli.hourly_cost import hour_of
from batchtrain.cli.messages import confirm, say
from batchtrain.cli.options import settings
from batchtrain.cli.run_directories import runs_root
from batchtrain.client import client, ending
from batchtrain.client.client import Client
from batchtrain.client.ending import Ending, left
from batchtrain.client.operations import Operations
from batchtrain.config import projects, user_settings
from batchtrain.config.load import Loaded, load_credentials
from batchtrain.config.types import Recipe
from batchtrain.errors import LimitReached, NoAccount, NotFound, TimedOut, Unreachable, UsageError
from batchtrain.life.intents import ADD
from batchtrain.records.events import Event, ServiceUnreachable
from batchtrain.runs import spent
from batchtrain.runs.beginnings import copied_from
from batchtrain.runs.directory import find
from batchtrain.runs.recording import now
from batchtrain.runs.spending import Budget
from batchtrain.service import retry
from batchtrain.service.connect import Account, loopback
from batchtrain.service.faults import NO_CONNECTION
from batchtrain.service.register import Kind, Thing


def connect(
    config: Loaded | None = None, *, changes: str = "", question: str = "", ends_it: bool = False, creates: bool = False
) -> Client:
    """A client for the target. `changes` is printed first, after the answer to a `question`.

    `ends_it`: the caller stops an emulator that this call started. `creates`: nodes may be created, which a budget
    limits. The credentials are those beside the files of
    the pool and the jobs, otherwise those of the working directory.
    """
    options = settings()
    credentials = config.recipe.credentials if config else load_credentials(options.configdir or ".", options.files)
    connection = client.connect(
        local=options.local,
        credentials=credentials,
        display=False,
        account=options.batch_account,
        real_storage=options.real_storage,
    )
    connection.say, connection.explains = say, False
    unlisten = retry.listen(lambda text: tell(ServiceUnreachable("", text)))
    click.get_current_context().find_root().call_on_close(unlisten)
    if connection.account.started and not ends_it:
        say("started the embedded Azure Batch; `batchtrain emulator stop` ends it")
    if connection.account.started and connection.account.data_loss:
        say(connection.account.data_loss)
    if config is not None and creates and not connection.account.emulated:
        check_budget(connection, config.recipe)
    if question:
        confirm(f"{question} on {service_of(connection.account)}?")
    if changes:
        say(f"{changes} on {service_of(connection.account)}")
    return connection


def connect_to(name: str) -> Client:
    """A client for the account of a run. Of a run on the emulator that this machine records, nothing else has to say
    where it is. Raises UsageError if another account is chosen."""
    try:
        record = find(runs_root(), name).record()
    except NotFound:  # a run of another machine
        return connect()
    is_local = loopback(record.endpoint)
    home = service_of(Account(record.endpoint, record.account, emulated=is_local))
    try:
        client = connect()
    except NoAccount as error:
        if not is_local:
            raise UsageError(f"run {record.id} is of {home}, and no account is chosen: {error}") from None
        settings().local = True
        client = connect()
    if record.endpoint not in ("", client.account.endpoint) and not (is_local and client.account.emulated):
        advice = "add --local" if is_local else "choose its account, without --local"
        raise UsageError(f"run {record.id} is of {home}, not of {service_of(client.account)}; {advice}")
    return client


def check_budget(connection: Client, recipe: Recipe) -> None:
    """Warn if an hour of the recipe's pool would exceed the budget of this month; refuse it with --strict-budget.
    Sends requests only if there is a budget."""
    month = user_settings.load().budget.month
    hour = hour_of(recipe)
    if month is None or hour is None or hour.price is None:
        return
    account, root = connection.account, runs_root()
    expenses = tuple(spent.of_month(connection.batch, account, recipe.catalog, root, now()))
    if why := Budget(month, expenses).exceeded(hour.cost, hour.price.currency):
        if settings().strict_budget:
            raise LimitReached(f"{why}. Nothing was created")
        say(why, "warning")


def service_of(account: Account) -> str:
    """An account, as a question names it."""
    return "the embedded Azure Batch" if account.emulated else f"account {account.name} at {account.endpoint}"


def settle_copy(recipe: Recipe) -> None:
    """Ask once whether a copied recipe continues the checkpoints of the original. Without a terminal it is another
    project, which the command says when it adds the jobs."""
    original = copied_from(recipe)
    if original is None or sys.stdin is None or not sys.stdin.isatty():
        return
    question = f"This recipe was copied from {original.path}. Continue the checkpoints of that project?"
    own_id = projects.project_of(recipe.directory).id  # of trainings that it began without a terminal
    try:
        projects.write(recipe.directory, original.id if click.confirm(question, err=True) else own_id)
    except OSError as error:
        say(f"{recipe.directory} cannot be written ({error.strerror}), so it is taken as a project of its own")


def registered(client: Client, recipe: Recipe, tell: Callable[[Event], None] = tell) -> AbstractContextManager[Ending]:
    """The ending of an `add` command: if that fails, it reports what was created, and the next commands."""
    return ending.registered(client, client.register(recipe), tell, ADD)


@contextmanager
def waiting(kind: Kind, name: str, client: Operations) -> Iterator[None]:
    """If a deadline passes or the service cannot be reached, report that nothing was changed and how to wait again. Of
    a job whose pool is gone, report how to delete it."""
    try:
        yield
    except (TimedOut, Unreachable) as error:
        if not isinstance(error, Unreachable) or error.code != NO_CONNECTION:
            thing = Thing(kind, name)
            say(left((thing,), client.account.option, waits=(thing,)))
        raise
    except NotFound as error:
        if kind == "job" and error.code == "PoolNotFound":
            say(left((Thing(kind, name),), client.account.option))
        raise
