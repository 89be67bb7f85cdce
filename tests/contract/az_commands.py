"""Runs commands of azure-cli, each a JSON list of words on a line of standard input, in one process: az takes over a
second to start. Ends with the exit code of the first that fails."""

import json
import sys

from azure.cli.core import get_default_cli

for line in sys.stdin:
    if code := get_default_cli().invoke(json.loads(line)):
        sys.exit(code)
