"""What each of the 105 commands of Batch Shipyard is here: the answer to such a command, and a page of the
documentation."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from batchtrain.cli.options import OF_FILE

PAGE = "from-batch-shipyard"


class Answer(NamedTuple):
    """The command that replaces one of Batch Shipyard, or an empty text; and what differs, or why there is none."""

    command: str
    remark: str = ""
    """`JOB`, `TASK` and `NODE` in it stand for what was typed; an argument ` JOB` that was not typed is left out."""
    arguments: tuple[str, ...] = ()
    """What stands in place of the arguments of the command that were not typed."""


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
_FEDERATION = Answer(
    "", "batchtrain has no federations. `batchtrain jobs migrate JOB POOL` moves a job to another pool."
)
_STORAGE = Answer(
    "", "batchtrain makes no tables and queues to delete. `batchtrain data rm LINK/CONTAINER` deletes blobs."
)
_SLURM = Answer("", "batchtrain creates no Slurm cluster; use Azure CycleCloud.")
_AUTOSCALE = Answer("", "Change `autoscale` in pool.yaml and create the pool again, or use `az batch pool autoscale`.")
_SAME = ("jobs del", "jobs disable", "jobs enable", "jobs list", "jobs stats", "jobs term", "pool del", "pool list",
         "pool resize")  # fmt: skip

ANSWERS: Mapping[str, Answer] = {
    "account images": Answer("catalog images", "It needs no account."),
    "account info": Answer("doctor", "It checks the sign-in and shows the quota."),
    "account list": Answer("", "Use `az batch account list`."),
    "account quota": Answer("doctor", "It compares the quota of the account with what a recipe needs."),
    **_all("cert", "add, create, del, list", _CERTIFICATE),
    "data files list": Answer(
        "jobs files", "For one task. `batchtrain pool files . NODE` lists those of a node.", ("JOB", "TASK")
    ),
    "data files node": Answer("pool get", "", (OF_FILE, "NODE", "FILE")),
    "data files stream": Answer("jobs logs --follow", "`--file` names another file than stdout.txt."),
    "data files task": Answer(
        "jobs get", "`batchtrain jobs fetch JOB` also fetches logs and results into the run directory.", ("JOB",)
    ),
    "data ingress": Answer("data ingress", "To storage. Azure no longer copies files to the disks of nodes."),
    "diag logs upload": Answer("pool diagnose", "To upload Batch's logs, use `az batch node service-logs upload`."),
    **_all("fed", "create, destroy, list, jobs add, jobs del, jobs list, jobs term, jobs zap", _FEDERATION),
    **_all("fed pool", "add, remove", _FEDERATION),
    **_all("fed proxy", "create, destroy, ssh, start, status, suspend", _FEDERATION),
    **_all("fs cluster", "add, del, expand, orchestrate, resize, ssh, start, status, suspend", _FILE_SERVER),
    **_all("fs disks", "add, del, list", _DISK),
    "jobs add": Answer(
        "jobs add",
        "`--tail stdout.txt` is `--follow`. `batchtrain jobs logs --file FILE --follow` follows another file.",
    ),
    "jobs cmi": Answer("", "There is nothing to clean up: the containers of a multi-instance task end with it."),
    "jobs migrate": Answer("jobs migrate", "`--requeue`, `--terminate` and `--wait` are `--running`."),
    "jobs tasks count": Answer("jobs stats", "", ("JOB",)),
    "jobs tasks del": Answer("jobs task del", "", ("JOB", "TASK")),
    "jobs tasks list": Answer("jobs tasks", "`--poll-until-tasks-complete` is `batchtrain jobs wait JOB`."),
    "jobs tasks term": Answer("jobs task term", "", ("JOB", "TASK")),
    **{name: Answer(name) for name in _SAME},
    **_all("keyvault", "add, del, list", _KEY_VAULT),
    "misc mirror-images": Answer("images mirror"),
    "misc tensorboard": Answer("jobs tensorboard"),
    **_all("monitor", "add, create, destroy, list, remove, ssh, start, status, suspend", _MONITOR),
    "pool add": Answer("pool add", "For `--recreate`, delete the pool first."),
    "pool autoscale disable": Answer("pool resize", "Before, disable the formula: `az batch pool autoscale disable`."),
    "pool autoscale enable": _AUTOSCALE,
    "pool autoscale evaluate": Answer("pool autoscale evaluate", "It evaluates the formula here, without an account."),
    "pool autoscale lastexec": Answer("pool diagnose", "It reports an error of the last evaluation."),
    "pool exists": Answer("pool show", "The exit code is 3 if the pool does not exist."),
    "pool images list": Answer("", "`batchtrain config show` prints `docker_images`, the images of the pool."),
    "pool images update": Answer(
        "", "The images of an existing pool cannot change. A task pulls an image that its node lacks."
    ),
    **_all("pool nodes", "count, list", _NODES),
    "pool nodes del": Answer("pool resize", "To remove a certain node, use `az batch node delete`."),
    "pool nodes grls": _LOGIN,
    "pool nodes prune": _ENGINE,
    "pool nodes ps": Answer("jobs tasks", "Batch runs one container for each task."),
    "pool nodes reboot": Answer("pool reboot", "", (OF_FILE, "NODE")),
    "pool nodes zap": Answer("jobs term", "It ends the tasks and with them their containers."),
    "pool rdp": Answer("pool login", "It creates the login of `rdp` in pool.yaml on every node."),
    "pool ssh": Answer("pool ssh", "`batchtrain pool login` creates the login and prints one `ssh` per node."),
    "pool stats": Answer("pool show", "`batchtrain pool list` shows the paid hours."),
    "pool user add": _LOGIN,
    "pool user del": Answer(
        "", "A login expires after `expiry_days` of `ssh`. `az batch node user delete` deletes it before."
    ),
    **_all("slurm cluster", "create, destroy, orchestrate, start, status, suspend", _SLURM),
    **_all("slurm ssh", "controller, login, node", _SLURM),
    **_all("storage", "clear, del", _STORAGE),
    "storage sas create": Answer(
        "", "Use `az storage container generate-sas`. batchtrain makes the SAS that its tasks need."
    ),
}

BEFORE_3: Mapping[str, str] = {
    "addjobs": "jobs add", "addpool": "pool add", "addsshuser": "pool user add", "cleanmijobs": "jobs cmi",
    "clearstorage": "storage clear", "delalljobs": "jobs del", "delcleanmijobs": "jobs cmi", "deljobs": "jobs del",
    "delnode": "pool nodes del", "delpool": "pool del", "delstorage": "storage del", "getnodefile": "data files node",
    "gettaskfile": "data files task", "grls": "pool nodes grls", "resizepool": "pool resize",
    "streamfile": "data files stream", "termjobs": "jobs term",
    "data getfile": "data files task", "data getfilenode": "data files node", "data listfiles": "data files list",
    "data stream": "data files stream",
    "jobs deltasks": "jobs tasks del", "jobs listtasks": "jobs tasks list", "jobs termtasks": "jobs tasks term",
    "pool asu": "pool user add", "pool delnode": "pool nodes del", "pool dsu": "pool user del",
    "pool grls": "pool nodes grls", "pool listimages": "pool images list", "pool listnodes": "pool nodes list",
    "pool listskus": "account images", "pool rebootnode": "pool nodes reboot", "pool udi": "pool images update",
}  # fmt: skip
"""The commands of Batch Shipyard 1 and 2, with their names in version 3."""


class Option(NamedTuple):
    """What an option of Batch Shipyard is here."""

    commands: tuple[str, ...]
    """The commands with it, or how their names begin."""
    words: tuple[str, ...] | None
    """The options or, if `argument`, the argument in its place, with `{}` for its value; None if there are none."""
    remark: str
    argument: int = 0
    """Its place among the arguments, from 1; 0 for an option."""
    values: tuple[str, ...] | None = None
    """The values that mean the same; None: any."""
    is_flag: bool = False


_VALUE = "FILE"
"""In a remark, in place of the value of the option."""
_SSH = ("pool ssh", "pool forward")
_NODES_OF_POOL = ("pool reboot", "pool files", "pool get")
_POOLS = ("pool show", "pool del", "pool resize", "pool wait", "pool watch", "pool diagnose", *_NODES_OF_POOL)
_MOVING = ("jobs migrate", "jobs disable")
_POOL = "The id of the pool is an argument."
_JOB = "The ids of jobs and tasks are arguments."
_NODE = "The node is an argument: its id, its short id, or its number."
_EACH_JOB = "`batchtrain jobs list` shows the jobs; give the command each of their ids."
_SCHEDULES = "`batchtrain jobs list --schedules` shows the schedules."
_OF_ENTRA = ("directory-id", "application-id", "auth-key", "authority-url", "user", "password", "cert-private-key",
             "cert-thumbprint", "endpoint")  # fmt: skip
OPTIONS: Mapping[str, tuple[Option, ...]] = {
    "--tail": (
        Option(("jobs add",), ("--follow",), f"Add the jobs without it; then `batchtrain jobs logs --file {_VALUE}"
               " --follow` follows the file.", values=("stdout.txt", "stderr.txt")),
    ),
    "--jobid": (
        Option(("jobs list",), None, "`batchtrain jobs show JOB` shows one job."),
        Option(("jobs ",), ("{}",), _JOB, 1),
    ),
    "--jobscheduleid": (
        Option(("jobs list",), None, _SCHEDULES),
        Option(("jobs ",), ("{}",), "The id of the schedule is an argument.", 1),
    ),
    "--all-jobs": (Option(("jobs ",), None, _EACH_JOB, is_flag=True),),
    "--all-jobschedules": (Option(("jobs ",), None, _SCHEDULES, is_flag=True),),
    "--termtasks": (
        Option(("jobs term", "jobs del"), (), "The tasks end with the job.", is_flag=True),
    ),
    "--poll-until-tasks-complete": (
        Option(("jobs ",), None, "`batchtrain jobs wait JOB` waits for the tasks.", is_flag=True),
    ),
    "--all": (
        Option(("jobs tasks",), None, "`batchtrain jobs list` shows the jobs, and `batchtrain jobs tasks JOB` the tasks"
               " of one.", is_flag=True),
        Option(("jobs get", "pool get"), None, "The pattern `*` names all files.", is_flag=True),
    ),
    "--force": (
        Option(("jobs task",), None, "`batchtrain jobs task term JOB TASK` also ends its container.", is_flag=True),
    ),
    "--requeue": (
        Option(_MOVING, ("--running", "requeue"), "`--running requeue` starts the tasks again.", is_flag=True),
    ),
    "--terminate": (
        Option(_MOVING, ("--running", "terminate"), "`--running terminate` ends the tasks.", is_flag=True),
    ),
    "--to-fs": (Option(("data ingress",), None, "batchtrain sends data to storage."),),
    "--log-file": (Option(("",), None, "Progress goes to stderr: `2>FILE` writes it to a file."),),
    **dict.fromkeys(("--keyvault-uri", "--keyvault-credentials-secret-id"), (
        Option(("",), None, "Write `keyvault` into credentials.yaml."),
    )),
    **dict.fromkeys((f"--aad-{name}" for name in _OF_ENTRA), (
        Option(("",), None, "Write `aad` into credentials.yaml, or sign in with `az login`."),
    )),
    "--subscription-id": (Option(("",), None, "Write `management: {subscription_id: …}` into credentials.yaml."),),
    "--taskid": (
        Option(("jobs tasks", "jobs tensorboard"), (), "It shows all tasks of the job."),
        Option(("jobs logs", "jobs exec"), ("--task", "{}"), "`--task` names the task."),
        Option(("jobs files", "jobs get", "jobs task"), ("{}",), _JOB, 2),
    ),
    "--poolid": (
        Option(_SSH, ("--pool-id", "{}"), "`--pool-id` names the pool."),
        Option(_POOLS, ("{}",), _POOL, 1),
        Option(("jobs migrate",), ("{}",), "The pool is the second argument.", 2),
    ),
    "--pool-id": (Option(_POOLS, ("{}",), _POOL, 1),),
    "--cardinal": (Option((*_SSH, *_NODES_OF_POOL), ("{}",), _NODE, 2),),
    "--nodeid": (Option((*_SSH, *_NODES_OF_POOL), ("{}",), _NODE, 2),),
    "--file": (Option(("jobs get", "pool get"), ("{}",), "Files are arguments.", 3),),
    **dict.fromkeys(("--logdir", "--image"), (
        Option(("jobs tensorboard",), (), "It fetches the job, and finds the event files among the results."),
    )),
    "--raw": (Option(("",), ("--output", "json"), "`--output json` prints documents.", is_flag=True),),
    "--wait": (
        Option(("pool del", "pool resize"), (), "It waits unless there is --no-wait.", is_flag=True),
        Option(_MOVING, ("--running", "wait"), "`--running wait` waits for the tasks.", is_flag=True),
        Option(("jobs del",), (), "It waits until the job is deleted.", is_flag=True),
        Option(("jobs term",), None, "`batchtrain jobs wait JOB` waits for the tasks.", is_flag=True),
    ),
    "--recreate": (
        Option(("pool add",), None, "`batchtrain pool del`, and then `batchtrain pool add`, creates it again.",
               is_flag=True),
    ),
    "--show-config": (Option(("",), None, "`batchtrain config show` prints it, without secrets.", is_flag=True),),
    "--tty": (Option(("pool ssh",), (), "Without a COMMAND there is a terminal.", is_flag=True),),
}  # fmt: skip
"""Options that do not exist here."""
_FILESPEC = {
    **dict.fromkeys(("jobs logs", "jobs get"), ("--jobid", "--taskid", "--file")), "pool get": ("--nodeid", "--file"),
    "jobs files": ("--jobid", "--taskid"),
}  # fmt: skip
"""What the parts of `--filespec` are, by command."""
_STANDS_FOR = {"--jobid": "JOB", "--taskid": "TASK", "--nodeid": "NODE", "--cardinal": "NODE"}
"""What stands for the value of an option in a remark."""
_FIRST_RUNNING = "@FIRSTRUNNING"
"""In place of a task; without a task, commands choose one themselves."""


class OtherOption(ValueError):
    """An option of Batch Shipyard that has no equal here; the message says what to write."""


def renamed(
    command: str,
    words: Sequence[str],
    *,
    interspersed: bool = True,
    valued: Container[str] = (),
    missing: Sequence[str] = (),
) -> list[str] | None:
    """The words of a command with the options of this project in place of those of Batch Shipyard; None if there are
    none. interspersed: options may follow arguments. valued: the options of the command with a value. missing: what
    stands in place of arguments that are not there. Raises OtherOption."""
    rest, options, arguments, at = list[str](), list[str](), list[tuple[int, str]](), None
    queue, has_arguments = list(_spread(command, words)), False
    while queue:
        if queue[0] == "--" or not (interspersed or queue[0].startswith("-")):
            break
        word = queue.pop(0)
        name, equals, value = word.partition("=")
        option = _option(command, name)
        if option is None:
            has_arguments = has_arguments or not word.startswith("-")
            rest += [word, *(queue[:1] if word in valued else ())]
            del queue[: word in valued]
            continue
        if not option.is_flag and not equals:
            value = queue.pop(0) if queue else ""
        if not option.is_flag and (not value or value.startswith("-")):
            raise OtherOption(f"Batch Shipyard's `{name}` needs a value. {option.remark}".rstrip())
        if option.words is None or (option.values is not None and value not in option.values):
            remark = _filled(option.remark, command, words)
            remark = remark.replace(_VALUE, shlex.quote(value)) if option.values is not None else remark
            raise OtherOption(f"Batch Shipyard's `{f'{name} {value}'.rstrip()}` does not exist here. {remark}")
        at = len(rest)
        replacement = [text.format(value) for text in option.words]
        if option.argument:
            arguments += [(option.argument, text) for text in replacement]
        else:
            options += replacement
    if at is None:
        return None
    at = at if interspersed else len(rest)
    rest += queue
    if (verb := f"{command} {words[0]}") in ANSWERS:  # `jobs tasks list`, where `jobs tasks` is a command here
        raise OtherOption(_answered(verb, words[1:]))
    if command in _NODES_OF_POOL and not has_arguments and 1 not in dict(arguments):
        arguments.append((1, OF_FILE))
    arguments += [(ordinal, text) for ordinal, text in enumerate(missing, 1) if ordinal not in dict(arguments)]
    return [*options, *rest[:at], *(text for _, text in sorted(arguments)), *rest[at:]]


def _option(command: str, name: str) -> Option | None:
    return next((option for option in OPTIONS.get(name, ()) if command.startswith(option.commands)), None)


def _spread(command: str, words: Sequence[str]) -> Iterator[str]:
    """The words with the options that `--filespec JOB,TASK,FILE` or `--filespec NODE,FILE` means."""
    names, queue = _FILESPEC.get(command, ()), iter(words)
    for word in queue:
        name, equals, value = word.partition("=")
        if not names or name != "--filespec":
            yield word
            continue
        values = (value if equals else next(queue, "")).split(",", len(names) - 1)
        for name, value in itertools.zip_longest(names, values, fillvalue=""):
            if value != _FIRST_RUNNING:
                yield from (name, value)


def answer(groups: Sequence[str], words: Sequence[str]) -> str | None:
    """What to write in place of a command of Batch Shipyard; None if it had none of this name.

    groups: the groups that exist here; words: the first one that does not, and what follows it.
    """
    names = [" ".join((*groups, *words[:count])) for count in (3, 2, 1)]
    for name in names:
        if BEFORE_3.get(name, name) in ANSWERS:
            return _answered(name, words[len(name.split()) - len(groups) :])
    for group in names:
        if any(name.startswith(f"{group} ") for name in ANSWERS):
            return f"`{group}` has commands in Batch Shipyard; `batchtrain help {PAGE}` lists what each is here."
    return None


def _answered(name: str, words: Sequence[str]) -> str:
    """The sentences about a command of Batch Shipyard. words: what was typed behind it."""
    command, remark, arguments = ANSWERS[BEFORE_3.get(name, name)]
    if command:
        path = " ".join(itertools.takewhile(lambda word: not word.startswith("-"), command.split()))
        line = shlex.join((*command.split(), *_typed(path, words, arguments)))
        remark = _filled(remark, path, words).replace(" JOB", "")
        return f"Batch Shipyard's `{name}` is `batchtrain {line}` here. {remark}".rstrip()
    return f"Batch Shipyard's `{name}` does not exist here. {remark}".rstrip()


def _filled(remark: str, command: str, words: Sequence[str]) -> str:
    """The remark with the ids that were typed in place of `JOB`, `TASK` and `NODE`."""
    spread = [part for word in _spread(command, words) for part in word.split("=", 1)]
    for option, value in itertools.pairwise(spread):
        if option in _STANDS_FOR:
            remark = remark.replace(_STANDS_FOR[option], shlex.quote(value))
    return remark


def _typed(command: str, words: Sequence[str], missing: Sequence[str]) -> Sequence[str]:
    """The options and arguments of a command here for those of Batch Shipyard that were typed; without the others."""
    options, spread = list[str](), tuple(_spread(command, words))
    for word, following in itertools.pairwise((*spread, "")):
        name, equals, _ = word.partition("=")
        option = _option(command, name)
        if name == "--file" or (option is not None and option.words is not None):
            is_whole = equals or (option is not None and option.is_flag)
            options += (word,) if is_whole else (word, following)
    try:
        again = renamed(command, options, valued=("--file",), missing=missing)
    except OtherOption:
        return missing
    return (*options, *missing) if again is None else again
