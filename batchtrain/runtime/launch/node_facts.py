"""The facts that a node sends to the primary before anything starts."""

import os

from .gpus import choose_gpus
from .kernel import find_interfaces, find_ports, why_taken
from .processes import ending, output_of, prepared
from .spec import HERE, LaunchError, Message, Spec, Values


def ranks_folder(directory: str) -> str:
    """The folder of this node for the output of its processes."""
    return os.path.join(os.environ.get("AZ_BATCH_TASK_WORKING_DIR", directory), "ranks")


def look(message: "Message", environment: "Values", directory: str) -> "Message":
    """The facts about this node."""
    spec, emulated = Spec(message["spec"]), message["emulated"]
    facts = hardware(environment)
    processes = count_processes(spec, facts["gpus"], environment, directory)
    port = spec.options.get("port") if message["index"] == 0 else None
    if port and why_taken(port, again=True):
        raise LaunchError(f"port {port} cannot be listened on: {why_taken(port, again=True)}")
    defaults = dict(spec.environment, **spec.rdma_environment)
    ports = 4 + len(spec.roles) * processes + sum(role.total or 0 for role in spec.roles)
    return {
        **facts,
        "processes": processes,
        "cores": len(os.sched_getaffinity(0)),
        "ports": find_ports(ports, message["index"] if emulated else 0, message["count"] if emulated else 1),
        "interfaces": find_interfaces(),
        "folder": ranks_folder(directory),
        "files": [path for name, path in defaults.items() if name.endswith("_FILE") and os.path.exists(path)],
        "nvlink": "NCCL_MNNVL_ENABLE" in defaults and is_in_domain(message["hosts"], environment),
        "emulated": emulated,
    }


def is_in_domain(hosts: str, environment: "Values") -> bool:
    """Whether this node is in the IMEX domain of the gang."""
    return bool(output_of(["bash", os.path.join(HERE, "node.sh"), "imex", hosts], environment, "/", 30)[1])


def hardware(environment: "Values") -> "Message":
    """The GPUs as in CUDA_VISIBLE_DEVICES, which may select some, and the InfiniBand ports by their names in UCX."""
    _, printed = output_of(["bash", os.path.join(HERE, "node.sh"), "gpus", "infiniband"], environment, "/", 30)
    lines = [line.split(" ") for line in printed.decode("utf-8", "replace").splitlines()]
    names = [words[1] for words in lines if words[0] == "gpu"]
    ports = [words[1:] for words in lines if words[0] == "infiniband"]
    return {
        "gpus": choose_gpus(names, environment.get("CUDA_VISIBLE_DEVICES")),
        "real_gpus": ["driver"] in lines,
        "infiniband": {"ports": ports[0][0], "key": ports[0][1]} if ports else {},
    }


HARDWARE, WARNING = "preflight hardware: ", "preflight warning: "
"""The beginning of a line of preflight.sh about the hardware of this node, and of one that does not stop the gang."""


def preflight(spec: Spec, message: "Message", environment: "Values") -> "Message":
    """The faults and warnings of preflight.sh on this node, and whether its hardware has one of the faults."""
    if not spec.preflight:
        return {"faults": [], "warnings": [], "unfit": False}
    words = spec.preflight + ["{}={}".format(name, message[name]) for name in ("own", "hosts", "now")]
    words += ["emulated=1"] * message["emulated"] + ["port="] * message["near"]
    script = os.path.join(HERE, "preflight.sh")
    code, printed = output_of(["bash", script, *words], environment, "/", 60)
    lines = printed.decode("utf-8", "replace").split("\n")
    faults = [line.replace(HARDWARE, "preflight: ", 1) for line in lines if line.startswith(("preflight: ", HARDWARE))]
    if not faults and code != 0:
        faults = [f"preflight: node {message['own']}: {script} {ending(code)}"]
    return {
        "faults": faults,
        "warnings": [line[len(WARNING) :] for line in lines if line.startswith(WARNING)],
        "unfit": any(line.startswith(HARDWARE) for line in lines),
    }


def verdict() -> "Message":
    """The functions of verdict.py, which lies beside this file if NCCL writes notes about its network."""
    values: "Message" = {}
    with open(os.path.join(HERE, "verdict.py"), encoding="utf-8") as file:
        exec(compile(file.read(), "verdict.py", "exec"), values)
    return values


def count_processes(spec: Spec, gpus: "list[str]", environment: "Values", directory: str) -> int:
    wanted = spec.processes_per_node
    if wanted is None:
        return 1
    if str(wanted).strip().isdecimal():
        number = int(wanted)
    elif wanted == "auto":
        number = len(gpus) or 1
    else:
        # nproc alone would answer with the threads of one process
        command = "env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc" if wanted == "nproc" else str(wanted)
        number = counted(spec, command, environment, directory)
    if number < 1:
        raise LaunchError(f"processes_per_node is {number}; it must be at least 1")
    return number


def counted(spec: Spec, command: str, environment: "Values", directory: str) -> int:
    """The number that the command prints on this node, after the same preparation as a process."""
    text = "exec 3>&1 >&2\n{}".format(prepared(spec.pre_execution, "exec >&3 3>&-\n" + command))
    code, printed = output_of(["bash", "-c", text], environment, directory, spec.barrier)
    text = printed.decode("utf-8", "replace").strip()
    if code == 0 and text.isdecimal() and int(text) > 0:
        return int(text)
    why = "printed '{}'".format(" ".join(text.split())[:200]) if code == 0 else f"ended with code {code}"
    hint = " (no GPU, or no driver, on this node?)" if "nvidia-smi" in command else ""
    raise LaunchError(f"processes_per_node: `{command}` {why}, not a number of at least 1{hint}")
