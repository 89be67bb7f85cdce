"""Users: those Batch makes with the pool, and the login that is made on each node once nodes are there."""

from __future__ import annotations

from batchtrain.config.types import Pool, Recipe, UserAccount
from batchtrain.plan import wire
from batchtrain.plan.types import Step

EACH = "{each}"
"""Stands for a node's id in the path of a step that is carried out once for each node."""


def user_accounts(recipe: Recipe, pool: Pool) -> tuple[wire.UserAccount, ...]:
    """The pool's users; what is secret of them is filled in when the request is sent."""
    return tuple(_account(recipe, one) for one in pool.user_accounts)


def _account(recipe: Recipe, told: UserAccount) -> wire.UserAccount:
    secret = recipe.credentials.user_accounts.get(told.name)
    key = f"{{{{user:{told.name}:ssh_private_key}}}}" if secret and secret.ssh_private_key else None
    linux = wire.LinuxUser(uid=told.uid, gid=told.gid, ssh_private_key=key)
    return wire.UserAccount(
        name=told.name,
        password=f"{{{{user:{told.name}:password}}}}",
        elevation_level=told.elevation_level,
        linux_user_configuration=None if linux == wire.LinuxUser() else linux,
        windows_user_configuration=wire.WindowsUser(login_mode=told.login_mode) if told.login_mode else None,
    )


def logins(pool: Pool, *, windows: bool) -> tuple[Step, ...]:
    """The request that makes the login of `ssh` (or `rdp`) on one node; it is sent for each of them.

    A plan has no clock: when the login ends is a span, counted from the sending. 0 days leaves the end to the service
    (a day).
    """
    user = _rdp(pool) if windows else _ssh(pool)
    return (Step("node.user", "POST", f"/pools/{pool.id}/nodes/{EACH}/users", user),) if user else ()


def _ssh(pool: Pool) -> wire.NodeUserCreate | None:
    told = pool.ssh
    if told is None:
        return None
    return wire.NodeUserCreate(
        name=told.username,
        is_admin=True,
        expiry_time=_ends(told.expiry_days),
        ssh_public_key=told.ssh_public_key_data or f"{{{{ssh:{told.ssh_public_key or ''}}}}}",
    )


def _rdp(pool: Pool) -> wire.NodeUserCreate | None:
    told = pool.rdp
    if told is None:
        return None
    return wire.NodeUserCreate(
        name=told.username,
        is_admin=True,
        expiry_time=_ends(told.expiry_days),
        password=f"{{{{user:{told.username}:password}}}}",
    )


def _ends(days: int) -> str | None:
    return f"{{{{expires:P{days}D}}}}" if days else None
