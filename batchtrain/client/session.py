"""A connection to one Batch account: its plans, storage and requests."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from batchtrain.client.identities import identify
from batchtrain.client.late_values import Placeholders
from batchtrain.client.local import Kept, add_catalog, storage
from batchtrain.client.planning import Foreseen, foresee, pool_id_of
from batchtrain.client.shown_progress import SHOW, Tell
from batchtrain.config import local_storage
from batchtrain.config.local_storage import NOT_LOCAL, account_names, without_accounts
from batchtrain.config.travel import LargeSource
from batchtrain.config.types import Credentials, Recipe, StorageCredentials
from batchtrain.display.progress import line
from batchtrain.errors import UsageError
from batchtrain.plan.ingress import plan as ingress_plan
from batchtrain.plan.step import Step
from batchtrain.plan.types import Plan
from batchtrain.records.events import Event, FilesUploaded, RecipeWarned
from batchtrain.runs.beginnings import Beginning, lineage_of
from batchtrain.runs.directory import new_name, root_of
from batchtrain.runs.finished import Runs
from batchtrain.runs.lease import marks_here
from batchtrain.runs.recording import now
from batchtrain.runs.task_files import Service
from batchtrain.service import connect as signing
from batchtrain.service import submit, watch
from batchtrain.service.connect import Account
from batchtrain.service.job_addition import ONCE, AddOptions
from batchtrain.service.register import Register
from batchtrain.storage import ingress
from batchtrain.storage.blob import Connect
from batchtrain.storage.source import is_empty


class Session:
    """What the pools and jobs of one Batch account share: its connection, plans, storage and requests."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.batch = signing.connect(account)
        self.pace = watch.NEAR if signing.loopback(account.endpoint) else watch.FAR
        self.display: bool | None = False
        """Whether the progress of calls is shown; None: in a notebook, on a terminal, and in an interactive Python."""
        self.say: Callable[[str], None] = lambda text: None if self.display is False else line(Event("", text))
        """Receives messages about slow one-time work, such as an installation."""
        self.explains = True
        """Whether calls tell the warnings of their recipes, and their errors say the cause and the next step; False if
        the caller shows both itself."""
        self.credentials = Credentials()
        """Those with which it was connected; they name the storage accounts."""
        self.real_storage = False
        """Whether the emulator uses the storage accounts of the credentials; else its own storage replaces them."""
        self.others: list[Session] = []
        """Clients of other accounts, where a pool was looked for."""
        self._own_storage: StorageCredentials | None = None
        self._told_accounts: Mapping[str, str] = {}
        self.files = Service(self.batch, signing.patience(account.endpoint))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.account.endpoint!r}, {self.account.name!r})"

    @property
    def runs(self) -> Runs:
        """The runs in BATCHTRAIN_RUNS_DIR or `runs`."""
        return Runs(root_of(None, os.environ))

    def foresee(self, recipe: Recipe, *, listed: bool = True, results: str = "") -> Foreseen:
        """The whole plan of a recipe, with its pool as it will be. Creates nothing; raises what `run` would refuse.

        The emulator's storage is installed now if the recipe needs it. results: `link/container` to which the service
        uploads what the tasks leave behind.
        """
        from batchtrain.config.check.storage import links_of, read_places  # every rule, and only here

        recipe = self.with_storage(recipe)
        self.tell_storage(recipe, links_of(recipe))
        if listed and self.account.home:
            self._refuse_empty(recipe, read_places(recipe))
        foreseen = foresee(recipe, self.account, self.storage(recipe), listed=listed, results=results)
        is_large = any(isinstance(source, LargeSource) for source in foreseen.sources.values())
        of_source = (recipe.settings.storage_account_settings,) if is_large else ()
        links = (*links_of(recipe), *(results.split("/")[:1] if results else ()), *of_source)
        if self.account.home and any(link not in recipe.credentials.storage for link in links):
            self.own_storage()
        return foreseen

    def recipe_here(self, recipe: Recipe | str | Path, tell: Tell = None, *, makes: bool = True) -> Recipe:
        """The recipe as this account runs it. tell: gets its warnings. makes: also the environment that a script has on
        the emulator. Raises UsageError, with what to call, for the path of a script or of a recipe in place of the
        recipe."""
        if isinstance(recipe, str | Path):
            call = f"batchtrain.{'script' if Path(recipe).suffix == '.py' else 'load'}({str(recipe)!r})"
            raise UsageError(f"{str(recipe)!r} is a path, and this call takes a recipe; give it `{call}`")
        say: Callable[[str], None] = self.say if tell is not None else lambda _: None
        if recipe.for_target is not None:
            recipe = recipe.for_target(recipe, self.account.home, say if makes else None)
        if tell is not None and self.explains:
            self._tell_warnings(recipe, tell)
        return recipe

    def _tell_warnings(self, recipe: Recipe, tell: Callable[[Event], None]) -> None:
        """A program whose progress is not shown, because the user has not chosen, shows them all the same."""
        shows = functools.partial(line, target=self.account.option) if tell is SHOW and self.display is None else tell
        silent = NOT_LOCAL if self.account.home else frozenset[str]()
        for warning in (warning for warning in recipe.warnings if warning.rule not in silent):
            shows(RecipeWarned(warning.path, str(warning)))

    def with_storage(self, recipe: Recipe) -> Recipe:
        """The recipe with the storage accounts that this session uses."""
        return without_accounts(recipe) if self.account.home and not self.real_storage else recipe

    def tell_storage(self, recipe: Recipe, links: Iterable[str]) -> None:
        """Say once where links lead on the emulator, if credentials.yaml has accounts for them."""
        if not self.account.home:
            return
        names = account_names(recipe.credentials) if self.real_storage else recipe.replaced_accounts
        accounts = {link: names[link] for link in dict.fromkeys(links) if link in names}
        if accounts and accounts != self._told_accounts:
            self._told_accounts = accounts
            self.say(local_storage.meaning(accounts, real=self.real_storage))

    def _refuse_empty(self, recipe: Recipe, places: Iterable[str]) -> None:
        """Raise UsageError for places that the emulator's own storage lacks, except where the plan uploads files."""
        connect = self.storage(recipe)
        local = (prefix for prefix in places if prefix.partition("/")[0] not in recipe.credentials.storage)
        if not (empty := [prefix for prefix in local if is_empty(prefix, connect)]):
            return
        files = [step.subject for step in ingress_plan(recipe).steps]
        if recipe.pool and recipe.pool.transfer_files_on_pool_creation:
            empty = [prefix for prefix in empty if not local_storage.overlaps(prefix, files)]
        if empty:
            raise UsageError(local_storage.empty(empty, recipe.replaced_accounts, files, recipe.directory))

    def storage(self, recipe: Recipe) -> Connect:
        """Clients of the recipe's storage accounts by link; batchtrain signs in when the first one is needed."""
        values = self._values(recipe)
        return lambda link: values.connect(link)

    def _values(self, recipe: Recipe) -> Placeholders:
        recipe = self.with_storage(recipe)
        return Placeholders(recipe, ca=self.account.ca, own=self.own_storage if self.account.home else None)

    def own_storage(self) -> StorageCredentials:
        """The storage account of the emulator, which stands for storage links without an account."""
        if self._own_storage is None:
            self._own_storage = storage(self.account, self.say)
        return self._own_storage

    def register(
        self, recipe: Recipe, runs: Mapping[str, str] | None = None, beginning: Beginning | None = None
    ) -> Register:
        """A register for what one command creates. runs: the names of its runs by job; by default a new name.
        beginning: where its tasks with checkpoints begin."""
        names = runs or {}
        name = next(iter(names.values()), "") or new_name(
            recipe.jobs[0].id if recipe.jobs else pool_id_of(recipe), now()
        )
        return Register(marks_here(recipe.settings, name, lineage_of(recipe, beginning)), names)

    def carry_out(
        self, todo: Plan, recipe: Recipe, tell: Tell, options: AddOptions = ONCE, register: Register | None = None
    ) -> None:
        """Send a plan's requests in order. register: receives what they create."""
        add_catalog(recipe, self.account)
        register = register or self.register(recipe)
        values = self._values(recipe)
        others: submit.Others = {
            "files.upload": lambda step: _bring(step, recipe, values),
            "pool.identity": lambda step: identify(step, recipe, self.account),
        }
        filler = Kept(values, self.account)
        for event in submit.submit(self.batch, todo, filler.fill, filler.upload, others, options, register=register):
            (tell or SHOW)(event)

    def filled(self, todo: Plan, recipe: Recipe) -> tuple[Step, ...]:
        """The requests of a plan with their links and secrets. Uploads its files."""
        uploads = [step for step in todo.steps if step.action in ("blob.upload", "files.upload")]
        self.carry_out(todo._replace(steps=tuple(uploads)), recipe, lambda event: None)
        fill = self._values(recipe).fill
        steps = (step for step in todo.steps if step not in uploads)
        return tuple(step._replace(body=submit.filled(step.body, fill)) for step in steps)


def _bring(step: Step, recipe: Recipe, values: Placeholders) -> Event:
    (tally,) = ingress.carry_out(Plan((step,)), recipe, values.connect)
    tally.check()
    total = tally.total
    return FilesUploaded(total.place, f"{total.files} files to {total.place}: {total.copied} copied")
