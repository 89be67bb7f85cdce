"""The user accounts that Batch creates with the pool, and the login that is added to each node later."""

from __future__ import annotations

from datetime import datetime

import msgspec

from batchtrain.config.types import Pool, Recipe, UserAccount
from batchtrain.plan import wire, wire_times
from batchtrain.plan.step import Step
from batchtrain.plan.types import Plan


def user_accounts(recipe: Recipe, pool: Pool) -> tuple[wire.UserAccount, ...]:
    """The pool's users; their secrets are filled in when the request is sent."""
    return tuple(_account(recipe, account) for account in pool.user_accounts)


def _account(recipe: Recipe, account: UserAccount) -> wire.UserAccount:
    secret = recipe.credentials.user_accounts.get(account.name)
    key = wire.later("user", f"{account.name}:ssh_private_key") if secret and secret.ssh_private_key else None
    linux = wire.LinuxUser(uid=account.uid, gid=account.gid, ssh_private_key=key)
    return wire.UserAccount(
        name=account.name,
        password=wire.later("user", f"{account.name}:password"),
        elevation_level=account.elevation_level,
        linux_user_configuration=None if linux == wire.LinuxUser() else linux,
        windows_user_configuration=wire.WindowsUser(login_mode=account.login_mode) if account.login_mode else None,
    )


def logins(pool: Pool, *, windows: bool) -> tuple[Step, ...]:
    """The request that creates the login of `ssh` (or `rdp`) on one node; it is sent for each node.

    A plan has no clock, so the expiry is a duration from the time of sending. With 0 days, the service's default of one
    day is used.
    """
    user = _rdp(pool) if windows else _ssh(pool)
    return (Step("node.user", pool.id, user),) if user else ()


def _ssh(pool: Pool) -> wire.NodeUserCreate | None:
    ssh = pool.ssh
    if ssh is None:
        return None
    return wire.NodeUserCreate(
        name=ssh.username,
        is_admin=True,
        expiry_time=_ends(ssh.expiry_days),
        ssh_public_key=ssh.ssh_public_key_data or wire.later("ssh", ssh.ssh_public_key or ""),
    )


def _rdp(pool: Pool) -> wire.NodeUserCreate | None:
    rdp = pool.rdp
    if rdp is None:
        return None
    return wire.NodeUserCreate(
        name=rdp.username,
        is_admin=True,
        expiry_time=_ends(rdp.expiry_days),
        password=wire.later("user", f"{rdp.username}:password"),
    )


def with_dates(plan: Plan, now: datetime) -> Plan:
    """The plan for display: its logins with the time at which they would end if they were created now."""

    def step_with_date(step: Step) -> Step:
        body = step.body
        if not isinstance(body, wire.NodeUserCreate) or not isinstance(body.expiry_time, wire.Template):
            return step
        expiry = body.expiry_time.filled(lambda placeholder: wire_times.after(placeholder.name, now))
        return step._replace(body=msgspec.structs.replace(body, expiry_time=expiry))

    return plan._replace(steps=tuple(map(step_with_date, plan.steps)))


def _ends(days: int) -> wire.Text | None:
    return wire.later("expires", f"P{days}D") if days else None
