"""The entry point: `primary` on the primary, `node MARK` on every other node."""

import errno
import json
import os
import sys

from .kernel import names_in
from .processes import decoded, output_of, own_environment
from .spec import HERE, LaunchError, Spec, Values
from .supervisor import guarded, refuse


def hosts_of(environment: "Values", instances: int) -> "list[str]":
    """The addresses of the nodes, that of the primary first; empty if node.sh reported that they cannot be right."""
    program = ["bash", os.path.join(HERE, "node.sh"), "hosts", str(instances)]
    code, printed = output_of(program, environment, "/", 30)
    return decoded(printed).strip().split(",") if code == 0 else []


def be_primary() -> int:
    from .primary import Primary  # the other nodes need not compile it

    try:
        with open(os.path.join(HERE, "gang.json"), encoding="utf-8") as file:
            spec = Spec(json.load(file))
        environment = own_environment()
        hosts = hosts_of(environment, spec.instances)
        primary = Primary(spec, hosts, environment)
    except LaunchError as error:
        return refuse(str(error))
    except OSError as error:
        return refuse(f"{error.filename}: {error.strerror}")
    except (ValueError, KeyError) as error:
        return refuse(f"gang.json cannot be read: {error!r}")
    return primary.run() if hosts else 1


def note_end(code: int) -> None:
    """Note the end of this attempt of the task, as the launch text would that has become this process."""
    if "BATCHTRAIN_ATTEMPT_DIR" in os.environ:
        output_of(["bash", os.path.join(HERE, "attempt.sh"), "ended", str(code)], dict(os.environ), "/", 30)


def be_node(mark: str) -> int:
    """stdin and stdout are the channel; no other code may write to it."""
    reader, writer = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return guarded(reader, writer, mark)


def keep_to_ourselves() -> None:
    """Close the descriptors of the caller for the ranks, and ensure that 0, 1 and 2 are open."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            break
        os.set_inheritable(fd, True)
    for name in names_in("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError as error:
                if error.errno != errno.EBADF:  # the descriptor of the listing itself
                    raise


def main(arguments: "list[str]") -> int:
    keep_to_ourselves()
    if arguments[:1] == ["primary"] and len(arguments) == 1:
        code = be_primary()
        note_end(code)
        return code
    if arguments[:1] == ["node"] and len(arguments) == 2:
        return be_node(arguments[1])
    return refuse("usage: python3 launch primary")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
