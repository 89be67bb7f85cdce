"""The managed identities of a pool, which are set through Azure Resource Manager."""

from __future__ import annotations

import os

from batchtrain.client.planning import pool_id_of
from batchtrain.config.types import Recipe
from batchtrain.errors import NotFound, UsageError
from batchtrain.plan.step import Step
from batchtrain.records.events import Event, PoolIdentified
from batchtrain.service import arm
from batchtrain.service.connect import Account


def refuse_identities(recipe: Recipe, account: Account) -> None:
    """Raise UsageError where a pool's managed identities could not be set."""
    management = recipe.credentials.management
    if account.emulated or account.key is None or recipe.credentials.aad or (management and management.aad):
        return
    raise UsageError(
        "the pool's `identities` are set through Azure Resource Manager, which takes no account key: sign in with"
        " Microsoft Entra ID (`credentials.aad`, or `az login` and no `account_key`), or remove `identities`"
    )


def identify(step: Step, recipe: Recipe, account: Account) -> Event:
    """Sets the managed identities of a pool through Azure Resource Manager; the emulator has none."""
    pool_id = pool_id_of(recipe)
    identities = step.body["identities"] if isinstance(step.body, dict) else ()
    if account.emulated:
        return PoolIdentified(pool_id, f"pool {pool_id} is created without managed identities: the emulator has none")
    rest = arm.reach(recipe.credentials, os.environ, account.endpoint)
    management = recipe.credentials.management
    seen = arm.account(rest, account.endpoint, management.subscription_id if management else None)
    if seen is None:
        raise NotFound(f"the signed-in identity sees no Batch account at {account.endpoint}; it needs the role Reader")
    arm.set_pool_identity(rest, seen, pool_id, identities)
    return PoolIdentified(pool_id, f"pool {pool_id} has {len(identities)} managed identities")
