"""What each of the 105 commands of Batch Shipyard is here: the answer to such a command, and a page of the
documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

PAGE = "from-batch-shipyard"


class Answer(NamedTuple):
    """The command that replaces one of Batch Shipyard, or an empty text; and what differs, or why there is none."""

    command: str
    remark: str = ""


def _all(group: str, names: str, answer: Answer) -> Mapping[str, Answer]:
    """The same answer for several commands of a group."""
    return {f"{group} {name}": answer for name in names.split(", ")}


_LOGIN = Answer(
    "pool login", "It creates the login of `ssh` in pool.yaml on every node, and prints one `ssh` per node."
)
_NODES = Answer("pool show", "It lists the nodes with their states.")
_CERTIFICATE = Answer(
    "", "Batch removed certificates in February 2024. Keep secrets in Key Vault and read them with a managed identity."
)
_ENGINE = Answer("", "Batch itself runs the containers of a task and removes them when the task ends.")
_KEY_VAULT = Answer(
    "", "Use `az keyvault secret`. batchtrain reads `keyvault.credentials_secret_id` and each `*_keyvault_secret_id`."
)
_FILE_SERVER = Answer(
    "", "batchtrain creates no file servers. Mount Azure Files, blob storage or NFS by `shared_data_volumes`."
)
_DISK = Answer(
    "", "batchtrain creates no disks for file servers; use `az disk`. For the disks of nodes, write `data_disks`."
)
_MONITOR = Answer("", "Use `batchtrain dashboard` for pools and jobs, and Azure Monitor for alerts.")
_FEDERATION = Answer("", "batchtrain has no federations. `batchtrain jobs migrate` moves a job to another pool.")
_SLURM = Answer("", "batchtrain creates no Slurm cluster; use Azure CycleCloud.")
_AUTOSCALE = Answer("", "Change `autoscale` in pool.yaml and create the pool again, or use `az batch pool autoscale`.")

ANSWERS: Mapping[str, Answer] = {
    "account images": Answer("catalog images", "It needs no account."),
    "account info": Answer("doctor", "It checks the sign-in and shows the quota."),
    "account list": Answer("", "Use `az batch account list`."),
    "account quota": Answer("doctor", "It compares the quota of the account with what a recipe needs."),
    "cert add": _CERTIFICATE,
    "cert create": _CERTIFICATE,
    "cert del": _CERTIFICATE,
    "cert list": _CERTIFICATE,
    "data files list": Answer("jobs files", "For one task. `batchtrain pool files` lists those of a node."),
    "data files node": Answer("pool get"),
    "data files stream": Answer("jobs logs", "Add `--follow`; `--file` names another file than stdout.txt."),
    "data files task": Answer(
        "jobs get", "`batchtrain jobs fetch` also fetches logs and results into the run directory."
    ),
    "data ingress": Answer("data ingress", "To storage. Azure no longer copies files to the disks of nodes."),
    "diag logs upload": Answer("pool diagnose", "To upload Batch's logs, use `az batch node service-logs upload`."),
    **_all("fed", "create, destroy, list, jobs add, jobs del, jobs list, jobs term, jobs zap", _FEDERATION),
    **_all("fed pool", "add, remove", _FEDERATION),
    **_all("fed proxy", "create, destroy, ssh, start, status, suspend", _FEDERATION),
    **_all("fs cluster", "add, del, expand, orchestrate, resize, ssh, start, status, suspend", _FILE_SERVER),
    **_all("fs disks", "add, del, list", _DISK),
    "jobs add": Answer("jobs add", "`--tail FILE` is `--follow`."),
    "jobs cmi": Answer("", "There is nothing to clean up: the containers of a multi-instance task end with it."),
    "jobs del": Answer("jobs del"),
    "jobs disable": Answer("jobs disable"),
    "jobs enable": Answer("jobs enable"),
    "jobs list": Answer("jobs list"),
    "jobs migrate": Answer("jobs migrate", "`--requeue`, `--terminate` and `--wait` are `--running`."),
    "jobs stats": Answer("jobs stats"),
    "jobs tasks count": Answer("jobs stats"),
    "jobs tasks del": Answer("jobs task del"),
    "jobs tasks list": Answer("jobs tasks", "`--poll-until-tasks-complete` is `batchtrain jobs wait`."),
    "jobs tasks term": Answer("jobs task term"),
    "jobs term": Answer("jobs term"),
    **_all("keyvault", "add, del, list", _KEY_VAULT),
    "misc mirror-images": Answer("images mirror"),
    "misc tensorboard": Answer("jobs tensorboard"),
    **_all("monitor", "add, create, destroy, list, remove, ssh, start, status, suspend", _MONITOR),
    "pool add": Answer("pool add", "For `--recreate`, delete the pool first."),
    "pool autoscale disable": Answer("pool resize", "Before, disable the formula: `az batch pool autoscale disable`."),
    "pool autoscale enable": _AUTOSCALE,
    "pool autoscale evaluate": Answer(
        "pool autoscale evaluate", "It evaluates the formula on this machine, without an account."
    ),
    "pool autoscale lastexec": Answer("pool diagnose", "It reports an error of the last evaluation."),
    "pool del": Answer("pool del"),
    "pool exists": Answer("pool show", "The exit code is 3 if the pool does not exist."),
    "pool images list": Answer("", "`batchtrain config show` prints `docker_images`, the images of the pool."),
    "pool images update": Answer(
        "", "The images of an existing pool cannot change. A task pulls an image that its node lacks."
    ),
    "pool list": Answer("pool list"),
    "pool nodes count": _NODES,
    "pool nodes del": Answer("pool resize", "To remove a certain node, use `az batch node delete`."),
    "pool nodes grls": _LOGIN,
    "pool nodes list": _NODES,
    "pool nodes prune": _ENGINE,
    "pool nodes ps": Answer("jobs tasks", "Batch runs one container for each task."),
    "pool nodes reboot": Answer("pool reboot"),
    "pool nodes zap": Answer("jobs term", "It ends the tasks and with them their containers."),
    "pool rdp": Answer("pool login", "It creates the login of `rdp` in pool.yaml on every node."),
    "pool resize": Answer("pool resize"),
    "pool ssh": Answer("pool ssh", "`batchtrain pool login` creates the login and prints one `ssh` per node."),
    "pool stats": Answer("pool show", "`batchtrain pool list` shows the paid hours."),
    "pool user add": _LOGIN,
    "pool user del": Answer(
        "", "A login expires after `expiry_days` of `ssh`. `az batch node user delete` deletes it before."
    ),
    **_all("slurm cluster", "create, destroy, orchestrate, start, status, suspend", _SLURM),
    **_all("slurm ssh", "controller, login, node", _SLURM),
    "storage clear": Answer("data rm", "batchtrain makes no tables and queues that must be cleared."),
    "storage del": Answer("data rm", "batchtrain makes no tables and queues that must be deleted."),
    "storage sas create": Answer(
        "", "Use `az storage container generate-sas`. batchtrain makes the SAS that its tasks need."
    ),
}


def answer(groups: Sequence[str], words: Sequence[str]) -> str | None:
    """What to write in place of a command of Batch Shipyard; None if it had none of this name.

    groups: the groups that exist here; words: the first one that does not, and what follows it.
    """
    names = [" ".join((*groups, *words[:count])) for count in (3, 2, 1)]
    for name in names:
        if name in ANSWERS:
            command, remark = ANSWERS[name]
            sentence = f"is `batchtrain {command}` here." if command else "does not exist here."
            return f"Batch Shipyard's `{name}` {sentence} {remark}".rstrip()
    for group in names:
        if any(name.startswith(f"{group} ") for name in ANSWERS):
            return f"`{group}` has commands in Batch Shipyard; `batchtrain help {PAGE}` lists what each is here."
    return None
