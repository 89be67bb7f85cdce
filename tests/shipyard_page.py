"""`docs/how-to/from-batch-shipyard.md`, made of the answers to its commands: `python -m tests.shipyard_page`."""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.cli.shipyard import ANSWERS, PAGE
from tests import environments

FILE = environments.ROOT / "docs" / "how-to" / f"{PAGE}.md"

HEAD = """\
# Coming from Batch Shipyard

`credentials.yaml`, `config.yaml`, `pool.yaml` and `jobs.yaml` of Batch Shipyard load and plan unchanged, except
for what Azure Batch cannot do: a GlusterFS file system of the nodes, files of another task's node, files copied to the
nodes' own disks, a file share as input, patterns of files to leave out, options of a transfer other than
`--strip-components`, a recurrence with several tasks. Each is an error that names the replacement. A placeholder
such as `<job id>` is a warning until something is sent. These commands need no account:

```text
batchtrain config validate DIR            # every problem, with its line and the replacement
batchtrain config migrate DIR --write     # replaces older names, and VM sizes and images that Azure has retired
batchtrain config plan DIR                # the exact requests
batchtrain run DIR --local                # the same on this machine
```

| Batch Shipyard | batchtrain |
|---|---|
| `--configdir DIR` after the verb | the same, before or after it; or DIR as the argument |
| `SHIPYARD_CONFIGDIR`, `SHIPYARD_POOL_CONF`, … | [`BATCHTRAIN_CONFIGDIR`, …](../reference/command-line.md) |
| `--poolid ID`, `--jobid ID`, `--taskid ID` | arguments: `batchtrain jobs show ID`, `batchtrain jobs get ID TASK` |
| `--raw` | `-o json` |
| `--show-config` | `batchtrain config show`, without secrets |
| exit code 0 after a refused task | [exit codes](../reference/command-line.md) for each cause |
| `fs.yaml`, `monitor.yaml`, `federation.yaml`, `slurm.yaml` | these four files are not read |

The [configuration reference](../reference/config.md) lists every property; one without an effect names its replacement.
Containers are Batch's own, also in a file with `native: false`.

## Every command

If you type one that does not exist here, the message is the text of this table. `python -m tests.shipyard_page`
generates it; a test compares it with the commands that exist.

| Batch Shipyard | batchtrain | remark |
|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    return HEAD + "\n".join(_rows()) + "\n"


def _rows() -> Iterator[str]:
    for name, answer in ANSWERS.items():
        command = f"`batchtrain {answer.command}`" if answer.command else "–"
        yield f"| `{name}` | {command} | {answer.remark} |"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
