"""Runs commands of azure-cli, each in a fork of one process that has imported it: az takes over a second to start.

A line of standard input is a JSON list: the words of a command, its variables beside those of this process, and its
directory. The line that answers is one of its exit code and of what it printed to stdout and stderr.
"""

import contextlib
import json
import os
import sys
import tempfile

from azure.cli.core import get_default_cli


def import_commands():
    """Import what a command of `az batch` does."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.suppress(SystemExit):
        get_default_cli().invoke(["batch", "pool", "list", "--help"])


def run(words, variables, directory):
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os.environ.update(variables)
            os.chdir(directory)
            end(words)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), *(stream.seek(0) or stream.read() for stream in (out, err))


def end(words):
    """End this process as the command ends."""
    try:
        code = get_default_cli().invoke(words)
    except SystemExit as exit_:
        code = exit_.code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


import_commands()
for line in sys.stdin:
    print(json.dumps(run(*json.loads(line))), flush=True)
