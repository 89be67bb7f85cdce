"""The user accounts that Batch creates with the pool, and the login that is added to each node later."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from batchtrain.config.request_fields import at, copied, nested
from batchtrain.config.types import Pool, Rdp, Recipe, Ssh
from batchtrain.plan import wire, wire_times
from batchtrain.plan.step import Step
from batchtrain.plan.types import Plan

ACCOUNT = "pool.userAccounts"


def user_accounts(recipe: Recipe, pool: Pool) -> tuple[dict[str, Any], ...]:
    """The pool's users; their secrets are filled in when the request is sent."""
    accounts = []
    for account in pool.user_accounts:
        secret = recipe.credentials.user_accounts.get(account.name)
        key = wire.later("user", f"{account.name}:ssh_private_key") if secret and secret.ssh_private_key else None
        password = wire.later("user", f"{account.name}:password")
        secrets = {f"{ACCOUNT}.password": password, f"{ACCOUNT}.linuxUserConfiguration.sshPrivateKey": key}
        accounts.append(at(nested({**copied(account), **secrets}), ACCOUNT))
    return tuple(accounts)


def logins(pool: Pool, *, windows: bool) -> tuple[Step, ...]:
    """The request that creates the login of `ssh` (or `rdp`) on one node; it is sent for each node.

    A plan has no clock, so the expiry is a duration from the time of sending. With 0 days, the service's default of one
    day is used.
    """
    login: Rdp | Ssh | None = pool.rdp if windows else pool.ssh
    if login is None:
        return ()
    ends = wire.later("expires", f"P{login.expiry_days}D") if login.expiry_days else None
    user = wire.NodeUserCreate(name=login.username, is_admin=True, expiry_time=ends)
    if isinstance(login, Rdp):
        user = msgspec.structs.replace(user, password=wire.later("user", f"{login.username}:password"))
    else:
        key = login.ssh_public_key_data or wire.later("ssh", login.ssh_public_key or "")
        user = msgspec.structs.replace(user, ssh_public_key=key)
    return (Step("node.user", pool.id, user),)


def with_dates(plan: Plan, now: datetime) -> Plan:
    """The plan for display: its logins with the time at which they would end if they were created now."""

    steps = list(plan.steps)
    for number, step in enumerate(steps):
        body = step.body
        if isinstance(body, wire.NodeUserCreate) and isinstance(body.expiry_time, wire.Template):
            expiry = body.expiry_time.filled(lambda placeholder: wire_times.after(placeholder.name, now))
            steps[number] = step._replace(body=msgspec.structs.replace(body, expiry_time=expiry))
    return plan._replace(steps=tuple(steps))
