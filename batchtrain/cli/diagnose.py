"""`batchtrain jobs diagnose`, `pool diagnose` and `emulator diagnose`: why something does not work, on one page."""

from __future__ import annotations

import json
import platform
import shutil
import sys
import textwrap
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from batchtrain.cli import job_files, loading, pool
from batchtrain.cli.connecting import connect
from batchtrain.cli.documents import plain
from batchtrain.cli.messages import completed, say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows
from batchtrain.config.load import Loaded
from batchtrain.config.masking import masked_document, masked_text, secrets_in
from batchtrain.diagnosis import diagnose
from batchtrain.diagnosis.finding import Diagnosis
from batchtrain.emulator import server
from batchtrain.emulator.examine import examine
from batchtrain.emulator.local_service import emulator_directory, emulator_faults
from batchtrain.errors import OK, WARN, Check, UsageError
from batchtrain.version import __version__

LABELS = ("cause", "where", "proof", "next")
OUTPUT = "  |"
"""The start of a line of output."""
SENT = "{} has everything that was read; look through it before you send it"


def of_job(job_id: str | None, task_id: str | None, bundle: Path | None) -> None:
    """Find out why a job fails or waits: the first cause, the line that proves it, and what to do.

    Reads at most 20 tasks; with TASK_ID only that one. Of a job that is gone, its newest run directory tells. Changes
    nothing.
    """
    name, config = job_files.named(job_id)
    config = config or _recipe()
    job = connect(config).jobs.handle(name)
    _show(job.diagnose(task_id, hints=tuple(hints(name)), runs_dir=settings().runs_dir), bundle, config)


def of_pool(pool_id: str | None, bundle: Path | None) -> None:
    """Find out why a pool (by default the one of pool.yaml) has no usable nodes: errors of the resize, start tasks that
    failed, and faulty nodes. Changes nothing.
    """
    name, config = pool.named(pool_id)
    config = config or _recipe()
    client = connect(config)
    _show(diagnose.pool(client.batch, name), bundle, config)


def of_emulator(data_dir: str | None, bundle: Path | None) -> None:
    """Examine the emulator: whether it runs, its directory, its nodes, its log, and the programs that it can use."""
    with emulator_faults():
        report = examine(Path(data_dir) if data_dir else emulator_directory())
    rows = [Check(row.check, OK if row.good else WARN, row.fact, row.next_step) for row in report.rows]
    if bundle is not None:
        texts = {"checks.json": _json(plain(rows)), "status.json": _json(report.status), "versions.txt": _versions()}
        write(bundle, {**texts, "emulator.log": masked_text(report.log)})
    show_rows(rows)
    if bundle is not None:
        say(SENT.format(bundle))


def hints(job_id: str) -> list[str]:
    """Why tasks are waiting, as the emulator knows it; Azure does not report it."""
    if not settings().local:
        return []
    with emulator_faults():
        return [hint.text for hint in server.hints(emulator_directory()) if hint.job_id == job_id]


def _recipe() -> Loaded | None:
    """The recipe of --configdir; its secrets are masked in everything that is shown."""
    return loading.load() if settings().configdir else None


def _show(diagnosis: Diagnosis, bundle: Path | None, config: Loaded | None) -> None:
    secrets = secrets_in(config.recipe) if config else ()
    page, document = masked_text(str(diagnosis), secrets), masked_document(_document(diagnosis), secrets)
    if bundle is not None:
        write(bundle, {"diagnosis.txt": page + "\n", "diagnosis.json": _json(document), "versions.txt": _versions()})
    if settings().output == "table":
        page = "\n".join(line if line.startswith(OUTPUT) else _wrapped(completed(line)) for line in page.split("\n"))
    show({key: value for key, value in document.items() if key != "record"}, page)
    if bundle is not None:
        say(SENT.format(bundle))


def _wrapped(line: str) -> str:
    """A line of the page in the width of the terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    if not width or len(line) <= width:
        return line
    label = "       " if line[:7].strip() in LABELS else "    "
    return textwrap.fill(line, width, subsequent_indent=label, break_long_words=False, break_on_hyphens=False)


def _document(diagnosis: Diagnosis) -> dict[str, object]:
    return {
        "subject": diagnosis.subject,
        "state": diagnosis.state,
        "who": diagnosis.who,
        "findings": plain(diagnosis.findings),
        "lines": list(diagnosis.lines),
        "progress": list(diagnosis.evidence.progress),
        "record": plain(diagnosis.evidence, whole=True),
    }


def _json(document: object) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n"


def _versions() -> str:
    names = ("azure-batch", "azure-core", "azure-identity", "azure-storage-blob")
    rows = [f"batchtrain {__version__}", f"Python {platform.python_version()} on {platform.platform()}"]
    return "\n".join((*rows, *(f"{name} {metadata.version(name)}" for name in names))) + "\n"


def write(path: Path, texts: Mapping[str, str]) -> None:
    """Write a zip file; an existing file is not replaced. Raises UsageError."""
    try:
        with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as bundle:
            for name, text in texts.items():
                bundle.writestr(name, text)
    except FileExistsError:
        raise UsageError(f"{path} exists; name another file with --bundle") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
