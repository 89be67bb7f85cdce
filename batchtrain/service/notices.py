"""What the webhook of a recipe (`notify`) receives about its runs: no secret, and its failure ends no run."""

from __future__ import annotations

from collections.abc import Callable

from batchtrain.config.masking import masked_text, secrets_in
from batchtrain.config.types import Happening, Recipe
from batchtrain.errors import LimitReached
from batchtrain.records.events import AttemptEnded, Event, NotNotified
from batchtrain.service import webhook
from batchtrain.service.connect import Account

PREEMPTED = "preempted"
"""The reason of an attempt, and what a webhook may ask for."""


class Notices:
    """Sends what happens to the runs of a recipe to its webhook; without one it does nothing."""

    def __init__(self, recipe: Recipe, account: Account, tell: Callable[[Event], None]) -> None:
        self._notify, self._account, self._tell = recipe.settings.notify, account, tell
        self._secrets = secrets_in(recipe) if self._notify else ()

    def see(self, job_id: str, run: str, event: AttemptEnded) -> None:
        """An attempt of a run has ended."""
        if event.attempt.reason == PREEMPTED:
            self._send("preempted", job_id, run, "running", event.text)

    def ended(self, job_id: str, run: str, state: str, error: BaseException | None) -> None:
        """The end of a run. error: why it ended before its tasks, or why one failed."""
        happening: Happening = "failure" if state == "failed" else "end"
        if isinstance(error, LimitReached):
            happening = "limit"
        self._send(happening, job_id, run, state, str(error or ""))

    def _send(self, happening: Happening, job_id: str, run: str, state: str, reason: str) -> None:
        notify = self._notify
        if notify is None or not {happening, *(("end",) if happening != "preempted" else ())} & set(notify.on):
            return
        reason = masked_text(reason, self._secrets)
        document = {
            "event": happening,
            "run": run,
            "job": job_id,
            "state": state,
            "reason": reason,
            "account": self._account.name,
            "link": f"{self._account.endpoint}/jobs/{job_id}",
            "text": f"batchtrain run {run}: {happening}, {state}{f': {reason}' if reason else ''}",
        }
        if fault := webhook.send(notify.url, document):
            self._tell(NotNotified(job_id, f"the webhook of `notify` did not receive `{happening}`: {fault}"))
