"""`docs/how-to/from-batch-shipyard.md`, made of the answers to its commands: `python -m tests.generated_files`."""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.cli.shipyard import ANSWERS
from batchtrain.config.types.history import RENAMED, RENAMED_VALUES, REPLACED, WRAPPED, Pattern
from tests.field_files import KINDS

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
| `--poolid ID`, `--jobid ID`, `--taskid ID`, `--nodeid ID`, `--cardinal N` | accepted; here `pool ssh N` |
| a command for a node, without `--poolid` | the pool of pool.yaml; here `.`, as in `pool reboot . NODE` |
| `--tail stdout.txt`, `--raw`; `--wait` of pools, `jobs del` | accepted; here `--follow`, `-o json`, and the default |
| `jobs add --tail FILE` of another file | `jobs add`, then `jobs logs --file FILE --follow` |
| `--filespec JOB,TASK,FILE`, `--filespec NODE,FILE` | accepted; here arguments |
| `--show-config`, `pool add --recreate` | the message has the command for it |
| `global_resources.files` began at the working directory | relative paths begin at the directory of config.yaml |
| exit code 0 after a refused task | [exit codes](../reference/command-line.md) for each cause |
| `fs.yaml`, `monitor.yaml`, `federation.yaml`, `slurm.yaml` | these four files are not read |

The [configuration reference](../reference/config.md) lists every property; one without an effect names its replacement.
Containers are Batch's own, also in a file with `native: false`.

## Every older name

Batch Shipyard renamed properties from version to version. `config validate` warns of each older name and reads it;
`config migrate` writes the name of today. A name without one of today says what to do.

| Older name | Today |
|---|---|
NAMES

## Kinds of files of others

Files that people wrote for every version since 1.0 were tried. These are the kinds that are not today's language. A
check is what `config validate` names; `batchtrain config checks` explains it.

| In the file | Here | Check |
|---|---|---|
KINDS

## Every command

If you type one that does not exist here, the message is the text of this table. `python -m tests.generated_files`
generates it; a test compares it with the commands that exist. The commands of Batch Shipyard 1 and 2, such as
`pool delnode`, have the answers of their names in version 3.

| Batch Shipyard | batchtrain | remark |
|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    head = HEAD.replace("NAMES", "\n".join(sorted(_names()))).replace("KINDS", "\n".join(_kinds()))
    return head + "\n".join(_rows()) + "\n"


def _names() -> Iterator[str]:
    for rule in RENAMED:
        values = ", ".join(f"`{old}` is `{new}`" for old, new in rule.values.items())
        beside = "".join(f", with `{name}: {value}`" for name, value in rule.beside.items())
        yield _row(rule.path, f"`{'.'.join(rule.steps)}`{beside}{f' ({values})' if values else ''}")
    for value in RENAMED_VALUES:
        yield _row((*value.path, value.old), f"`{value.new}`")
    for wrapped in WRAPPED:
        yield _row(wrapped.path, f"{'a list' if wrapped.kind is list else 'a value'} is its `{wrapped.below}`")
    for replaced in REPLACED:
        yield _row(replaced.path, replaced.instead)


def _kinds() -> Iterator[str]:
    for kind in KINDS:
        yield f"| {kind.name} | {kind.level} | `{kind.rule}` |" if kind.rule else f"| {kind.name} | loads | |"


def _row(path: Pattern, today: str) -> str:
    return f"| `{'.'.join(path).replace('.*', '[]')}` | {today} |"


def _rows() -> Iterator[str]:
    for name, answer in sorted(ANSWERS.items()):
        command = f"`batchtrain {answer.command}`" if answer.command else "–"
        yield f"| `{name}` | {command} | {answer.remark} |"
