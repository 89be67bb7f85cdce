"""The user of a task and of its container: the user's choice wins; the default depends on the task."""

from __future__ import annotations

from batchtrain.config.types import UserIdentity
from batchtrain.plan import wire


def chosen(identity: UserIdentity | None) -> wire.UserIdentity | None:
    """A user of the pool by name, an automatic one, or the pool's administrator; None by default."""
    if identity is None:
        return None
    if identity.username is not None:
        return wire.UserIdentity(username=identity.username)
    if identity.auto_user is not None:
        automatic = wire.AutoUser(scope=identity.auto_user.scope, elevation_level=identity.auto_user.elevation_level)
        return wire.UserIdentity(auto_user=automatic)
    return wire.POOL_ADMIN if identity.default_pool_admin else None


def in_container(identity: UserIdentity | None) -> tuple[str, ...]:
    """The container engine's option for a user id and a group id."""
    if identity is None or identity.specific_user is None:
        return ()
    return (f"--user={identity.specific_user.uid}:{identity.specific_user.gid}",)
