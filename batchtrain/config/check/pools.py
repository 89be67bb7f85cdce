"""Rules about a pool's nodes, slots, scaling, upgrades and users."""

from __future__ import annotations

from batchtrain.catalog.meaning import INTER_NODE_LIMIT
from batchtrain.config import scaling
from batchtrain.config.check.networks import encryption_sets
from batchtrain.config.check.spans import HOUR, MINUTE, length
from batchtrain.config.check.subject import Path, Subject
from batchtrain.config.check.table import BOTH, CREDENTIALS, ERROR, INFO, POOL, WARNING, Found, Rule
from batchtrain.config.times import duration
from batchtrain.config.types import Pool, Scenario, Task

SLOTS_A_CORE = 4
USER_NAME_LIMIT = 20
CUSTOM_IMAGE_LIMITS = {"dedicated": 2000, "low_priority": 1000}
AUTOSCALE: Path = (*POOL, "autoscale")


# --- nodes ----------------------------------------------------------------------------------------------------------


def _mixed(subject: Subject) -> Found:
    pool = subject.pool
    path = scaling.maximum_path(pool)
    if not pool.inter_node_communication_enabled or "formula" in path:  # which may give them at different times
        return
    if subject.most_nodes.dedicated != 0 and subject.spot:
        message = "a pool with inter-node communication cannot mix dedicated and spot nodes; set one of them to 0"
        is_fixed = pool.vm_count.dedicated and pool.vm_count.low_priority
        yield (*POOL, "vm_count") if is_fixed else (*POOL, *path), message


def _too_many_nodes(subject: Subject) -> Found:
    most = subject.most_nodes.total
    if subject.pool.inter_node_communication_enabled and most is not None and most > INTER_NODE_LIMIT:
        message = f"{most} nodes are too many: a pool with inter-node communication has at most {INTER_NODE_LIMIT}"
        yield (*POOL, *scaling.maximum_path(subject.pool)), message


def _custom_image_nodes(subject: Subject) -> Found:
    for name, most in CUSTOM_IMAGE_LIMITS.items() if subject.vm.custom_image is not None else ():
        if (getattr(subject.most_nodes, name) or 0) > most:
            path = scaling.maximum_path(subject.pool, name)
            yield (*POOL, *path), f"a pool of a custom image has at most {most} such nodes"


def _spot_inter_node(subject: Subject) -> Found:
    pool, gangs = subject.pool, subject.gangs
    all_continue = gangs and all(gang.task.checkpoint for gang in gangs)
    if pool.inter_node_communication_enabled and subject.spot and not all_continue:
        yield (
            (*POOL, "vm_count") if pool.vm_count.low_priority else (*POOL, *scaling.maximum_path(pool)),
            "if Azure preempts a spot node, every multi-instance task on it restarts from the beginning; write"
            " checkpoints (`checkpoint` of the task), or use dedicated nodes",
        )


def _empty(subject: Subject) -> Found:
    if subject.recipe.pool and subject.scaling is None and not subject.pool.vm_count.total:
        yield (*POOL, "vm_count"), "the pool has no nodes, so its tasks wait until it is resized"


def _slots(subject: Subject) -> Found:
    size = subject.size
    most = SLOTS_A_CORE * size.cores if size is not None else 0
    if size is not None and 0 < most < subject.pool.task_slots_per_node:
        yield (*POOL, "task_slots_per_node"), f"{size.name} takes at most {most} ({SLOTS_A_CORE} a core)"


def _resize_timeout(subject: Subject) -> Found:
    timeout = subject.pool.resize_timeout
    if timeout is not None and 0 <= length(timeout) < 5 * MINUTE:
        yield (*POOL, "resize_timeout"), f"`{timeout}` is less than the minimum of 5 minutes"


def _on_bad_node(subject: Subject) -> Found:
    path = (*POOL, "on_bad_node")
    if subject.pool.on_bad_node != "replace":
        return
    if subject.pool.scales:
        yield path, "a formula decides the number of nodes, so none can be replaced; remove it, or write `fail`"
    for job in subject.recipe.jobs:
        if job.auto_pool is not None or job.recurrence is not None:
            kind = "its own pool (`auto_pool`)" if job.auto_pool else "a schedule (`recurrence`)"
            yield path, f"job {job.id} has {kind}, which no client follows; write `fail`"
    if subject.gangs and not any(gang.options.preflight for gang in subject.gangs):
        yield path, "no task is checked before its launch (`preflight: false`), so no fault is found; write `fail`"


# --- scaling --------------------------------------------------------------------------------------------------------


def _idle_timeout(subject: Subject) -> Found:
    path, timeout = (*POOL, "idle_timeout"), subject.pool.idle_timeout
    if timeout is not None and subject.pool.autoscale is not None:
        yield path, "`autoscale` decides when the pool has nodes; remove one of them"
    elif timeout is not None and not 5 * MINUTE <= (duration(timeout) or 0) <= 168 * HOUR:
        reason = "is not between 5 minutes, the shortest time between two evaluations of a formula, and 7 days"
        yield path, f"`{timeout}` {reason}"


def _autoscale_kind(subject: Subject) -> Found:
    scaling = subject.autoscale
    if scaling is not None and not scaling.formula and scaling.scenario is None:
        yield AUTOSCALE, "neither a `formula` nor a `scenario` is given, so the pool does not scale"


def _autoscale_both(subject: Subject) -> Found:
    scaling = subject.autoscale
    if scaling is not None and scaling.formula and scaling.scenario is not None:
        yield (*AUTOSCALE, "scenario"), "the `formula` overrides it; remove one of them"


def _autoscale_interval(subject: Subject) -> Found:
    scaling = subject.autoscale
    interval = scaling.evaluation_interval if scaling else None
    if interval is not None and length(interval) >= 0 and not 5 * MINUTE <= length(interval) <= 168 * HOUR:
        yield (*AUTOSCALE, "evaluation_interval"), f"`{interval}` is not between 5 minutes and 7 days"


def _autoscale_formula(subject: Subject) -> Found:
    scaling = subject.autoscale
    if scaling is None or not scaling.formula:
        return
    from batchtrain import formula  # only where there is one

    for error in formula.judge(scaling.formula):
        yield (*AUTOSCALE, "formula"), f"in the formula, {error}"


def _autoscale_count(subject: Subject) -> Found:
    if subject.autoscale and subject.autoscale.formula and subject.pool.vm_count.total:
        yield (*POOL, "vm_count"), "the autoscale formula decides the number of nodes"


def _autoscale_maximum(subject: Subject) -> Found:
    scenario = _scenario(subject)
    if scenario is not None:
        for path, message in scaling.faults(scenario, scaling.least_of(subject.pool)):
            yield (*AUTOSCALE, "scenario", *path), message


def _autoscale_nothing(subject: Subject) -> Found:
    if _scenario(subject) is not None and subject.most_nodes.total == 0:
        yield (*AUTOSCALE, "scenario", "maximum_vm_count"), "both are 0, so the pool never gets a node"


def _scenario(subject: Subject) -> Scenario | None:
    """The scenario, if no formula overrides it."""
    autoscale = subject.autoscale
    return autoscale.scenario if autoscale is not None and not autoscale.formula else None


# --- upgrades -------------------------------------------------------------------------------------------------------


def _upgrade(subject: Subject) -> Found:
    policy = subject.pool.upgrade_policy
    if policy and policy.automatic_os and policy.automatic_os.enabled and subject.vm.windows_automatic_updates:
        message = "the nodes also install Windows updates; set `vm_configuration.windows_automatic_updates: false`"
        yield (*POOL, "upgrade_policy", "automatic_os", "enabled"), message
    if policy is None or policy.rolling is None:
        return
    path, rolling = (*POOL, "upgrade_policy", "rolling"), policy.rolling
    at_once, unhealthy = rolling.max_batch_instance_percent, rolling.max_unhealthy_instance_percent
    if at_once is not None and unhealthy is not None and at_once > unhealthy:
        yield (
            (*path, "max_batch_instance_percent"),
            f"{at_once} is more than `max_unhealthy_instance_percent`, {unhealthy}, and the nodes of a batch count as"
            " unhealthy",
        )
    if rolling.enable_cross_zone_upgrade is not None and subject.vm.node_placement != "zonal":
        yield (*path, "enable_cross_zone_upgrade"), "this needs `vm_configuration.node_placement: zonal`"


# --- users and logins -----------------------------------------------------------------------------------------------


def _user_names(subject: Subject) -> Found:
    names: set[str] = set()
    for number, account in enumerate(subject.pool.user_accounts):
        path = (*POOL, "user_accounts", number, "name")
        if len(account.name) > USER_NAME_LIMIT:
            yield path, f"`{account.name}` has {len(account.name)} characters, a user name at most {USER_NAME_LIMIT}"
        if account.name.lower() in names:
            yield path, f"another account is called `{account.name}`"
        names.add(account.name.lower())


def _user_ids(subject: Subject) -> Found:
    for number, account in enumerate(subject.pool.user_accounts):
        if (account.uid is None) != (account.gid is None):
            present, lacking = ("uid", "gid") if account.gid is None else ("gid", "uid")
            yield (*POOL, "user_accounts", number, present), f"`{lacking}` is missing: give both or neither"


def _user_system(subject: Subject) -> Found:
    for number, account in enumerate(subject.pool.user_accounts):
        path = (*POOL, "user_accounts", number)
        if subject.windows and account.uid is not None:
            yield (*path, "uid"), "Windows nodes have no user ids; remove `uid` and `gid`"
        if subject.linux and account.login_mode is not None:
            yield (*path, "login_mode"), "the login mode is only for Windows; remove it"


def _user_passwords(subject: Subject) -> Found:
    secrets = subject.recipe.credentials.user_accounts
    for number, account in enumerate(subject.pool.user_accounts):
        secret = secrets.get(account.name)
        if secret is None or not (secret.password or secret.password_keyvault_secret_id):
            yield (
                (*POOL, "user_accounts", number, "name"),
                f"credentials.yaml has no password for `{account.name}` (`user_accounts.{account.name}.password`);"
                " the service needs one to create the pool",
            )


def _login_system(subject: Subject) -> Found:
    if subject.pool.ssh is not None and subject.windows:
        yield (*POOL, "ssh"), "the nodes run Windows: use `rdp` for the login"
    if subject.pool.rdp is not None and subject.linux:
        yield (*POOL, "rdp"), "the nodes run Linux: use `ssh` for the login"


def _ssh_key(subject: Subject) -> Found:
    ssh = subject.pool.ssh
    if ssh is not None and ssh.ssh_public_key is not None and ssh.ssh_public_key_data is not None:
        yield (*POOL, "ssh", "ssh_public_key_data"), "`ssh_public_key` names another key; keep one of them"


def packages_twice(path: Path, owner: Pool | Task) -> Found:
    """The application packages that the pool or a task lists again."""
    packages: set[tuple[str, str | None]] = set()
    for number, package in enumerate(owner.application_packages):
        if (package.id.lower(), package.version) in packages:
            yield (*path, "application_packages", number), f"`{package.id}` is listed twice"
        packages.add((package.id.lower(), package.version))


def _auto_pool_prefix(subject: Subject) -> Found:
    size = len(subject.pool.id)
    if size > 20 and any(job.auto_pool for _, job in subject.jobs):
        message = f"the id of an automatic pool begins with this, which may have 20 characters; it has {size}"
        yield (*POOL, "id"), message


def _encryption_set(subject: Subject) -> Found:
    """A disk encryption set needs an account that allocates in the user's own subscription."""
    for path, _ in encryption_sets(subject):
        message = "this is refused unless the Batch account allocates in your own subscription (UserSubscription mode)"
        yield path, message


_LIMITS = "Azure Batch: batch-quota-limit"
_SCALING = "Azure Batch: batch-automatic-scaling"
_ACCOUNT = "azure-batch 15.1, UserAccount"

RULES = (
    Rule("inter-node-mixed", ERROR, POOL, "An inter-node pool has only dedicated or only spot nodes.",
         "Azure Batch: batch-spot-vms; measured by Batch Shipyard", _mixed),
    Rule("inter-node-limit", ERROR, POOL, f"An inter-node pool has at most {INTER_NODE_LIMIT} nodes.", _LIMITS,
         _too_many_nodes),
    Rule("custom-image-limit", ERROR, POOL, "A pool of a custom image is not too large.", _LIMITS, _custom_image_nodes),
    Rule("spot-inter-node", WARNING, POOL, "Gangs do not depend on spot nodes, which Azure may preempt.",
         "Azure Batch: batch-spot-vms", _spot_inter_node),
    Rule("pool-empty", INFO, POOL, "A pool has nodes.", "azure-batch 15.1, targetDedicatedNodes", _empty),
    Rule("slots-limit", ERROR, POOL, f"A node takes at most {SLOTS_A_CORE} tasks a core.",
         "azure-batch 15.1, taskSlotsPerNode", _slots),
    Rule("resize-timeout", ERROR, POOL, "Allocation may take 5 minutes or more.", "azure-batch 15.1, resizeTimeout",
         _resize_timeout),
    Rule("on-bad-node", ERROR, BOTH, "Faulty nodes are replaced where a client can do it, and finds them.",
         "azure-batch 15.1, BatchNodeRemoveOptions", _on_bad_node),
    Rule("autoscale-empty", WARNING, POOL, "An autoscale pool has a formula or a scenario.", _SCALING, _autoscale_kind),
    Rule("autoscale-both", WARNING, POOL, "A pool scales by a formula or by a scenario.", _SCALING, _autoscale_both),
    Rule("autoscale-interval", ERROR, POOL, "A formula is evaluated every 5 minutes to 7 days.",
         "azure-batch 15.1, autoScaleEvaluationInterval", _autoscale_interval),
    Rule("idle-timeout", ERROR, POOL, "A pool without `autoscale` may have an idle timeout of 5m to 7d.", _SCALING,
         _idle_timeout),
    Rule("autoscale-formula", ERROR, POOL, "A formula is well formed, 8 KB and 100 statements at most.", _SCALING,
         _autoscale_formula),
    Rule("autoscale-count", INFO, POOL, "A fixed number of nodes and a formula are not both given.",
         "azure-batch 15.1, enableAutoScale", _autoscale_count),
    Rule("autoscale-maximum", ERROR, POOL, "The maximum of a scenario is a number, and at least its minimum.",
         "Batch Shipyard: `vm_count` is the least under a scenario", _autoscale_maximum),
    Rule("autoscale-nothing", WARNING, POOL, "An autoscale pool has a maximum above 0.",
         "Batch Shipyard: `maximum_vm_count`", _autoscale_nothing),
    Rule("upgrade-policy", ERROR, POOL, "A rolling upgrade's numbers fit each other and the pool.",
         "azure-batch 15.1, RollingUpgradePolicy", _upgrade),
    Rule("user-name", ERROR, POOL, f"User names are unique and have at most {USER_NAME_LIMIT} characters.",
         f"{_ACCOUNT}.name", _user_names),
    Rule("user-ids", ERROR, POOL, "A user has both a user id and a group id, or neither.",
         "azure-batch 15.1, LinuxUserConfiguration", _user_ids),
    Rule("user-system", ERROR, POOL, "A user's settings are those of the nodes' system.", _ACCOUNT, _user_system),
    Rule("user-password", WARNING, (*POOL, *CREDENTIALS), "A user has a password.", f"{_ACCOUNT}.password",
         _user_passwords),
    Rule("login-system", WARNING, POOL, "Linux nodes have ssh logins, Windows nodes have rdp logins.",
         "azure-batch 15.1, BatchNodeUserCreateOptions", _login_system),
    Rule("ssh-key", ERROR, POOL, "A login has one public key.",
         "azure-batch 15.1, BatchNodeUserCreateOptions.sshPublicKey", _ssh_key),
    Rule("pool-packages", ERROR, POOL, "An application package is listed once.",
         "azure-batch 15.1, applicationPackageReferences",
         lambda subject: packages_twice(POOL, subject.pool)),
    Rule("auto-pool-prefix", ERROR, BOTH, "The id of an automatic pool begins with at most 20 characters.",
         "azure-batch 15.1, BatchAutoPoolSpecification.autoPoolIdPrefix", _auto_pool_prefix),
    Rule("disk-encryption-set", WARNING, POOL, "A disk encryption set needs an account of the right mode.",
         "azure-batch 15.1, ManagedDisk.diskEncryptionSet", _encryption_set),
)  # fmt: skip
