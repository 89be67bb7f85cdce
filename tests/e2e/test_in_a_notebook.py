"""The Python API in a real kernel: what it displays, and what an interrupt leaves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import GUARD

manager = pytest.importorskip("jupyter_client.manager", reason="there is no Jupyter (pip install -e '.[notebook]')")
pytest.importorskip("ipykernel", reason="there is no kernel (pip install -e '.[notebook]')")

pytestmark = [pytest.mark.process, pytest.mark.slow]

BEGIN = """\
import batchtrain as bt
client = bt.connect(local=True)
recipe = bt.command(command="sh -c 'echo \\"<script>alert(1)</script>\\"; {end}'", name="job")
"""


class Kernel:
    """Runs cells, and interrupts one as soon as a text is displayed."""

    def __init__(self, shell: Any) -> None:
        self._manager = manager.KernelManager(kernel_cmd=[sys.executable, "-m", "ipykernel", "-f", "{connection_file}"])
        self._manager.start_kernel(env=shell.environment, cwd=str(shell.cwd))
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=GUARD)

    def run(self, code: str, *, interrupt: str = "") -> list[tuple[str, Any]]:
        """The outputs of a cell: kind and content."""
        request, found = self._client.execute(code), list[tuple[str, Any]]()
        while True:
            message = self._client.get_iopub_msg(timeout=GUARD)
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != request:
                continue
            if kind == "status" and content["execution_state"] == "idle":
                return found
            found.append((kind, content))
            if interrupt and interrupt in str(content.get("data", {}).get("text/plain", "")):
                interrupt = ""
                self._manager.interrupt_kernel()

    def end(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(batchtrain: Any) -> Iterator[Kernel]:
    running = Kernel(batchtrain)
    yield running
    running.end()


def cards(outputs: list[tuple[str, Any]]) -> list[str]:
    """The states of the one card of a cell."""
    kinds, contents = zip(*(pair for pair in outputs if "display_data" in pair[0]), strict=True)
    assert kinds[0] == "display_data"
    assert set(kinds[1:]) == {"update_display_data"}
    return [content["data"]["text/html"] for content in contents]


def error(outputs: list[tuple[str, Any]]) -> str:
    return "\n".join(line for kind, content in outputs if kind == "error" for line in content["traceback"])


def test_a_run_is_one_card_that_ends_as_done_and_its_result_is_displayed(kernel: Kernel) -> None:
    kernel.run(BEGIN.format(end="true"))
    outputs = kernel.run("client.run(recipe)")
    shown = cards(outputs)
    assert "done after" in shown[-1]
    assert "&lt;script&gt;" in shown[-1]
    assert "<script" not in "".join(shown)
    [result] = [content["data"] for kind, content in outputs if kind == "execute_result"]
    assert "succeeded" in result["text/html"]
    assert result["text/plain"].startswith("Result(")


def test_a_failed_task_is_one_short_frame(kernel: Kernel) -> None:
    kernel.run(BEGIN.format(end="exit 3"))
    shown = error(kernel.run("client.run(recipe)"))
    assert "TaskFailed" in shown
    assert "exit code 3" in shown
    assert "client.run(recipe)" in shown
    assert "operations.py" not in shown


def test_an_interrupted_run_deletes_what_it_created(kernel: Kernel) -> None:
    kernel.run(BEGIN.format(end="sleep 86400"))
    outputs = kernel.run("client.run(recipe)", interrupt="script")
    assert "interrupted" in cards(outputs)[-1]
    assert "what this call created is deleted" in error(outputs)
    left = kernel.run("print(len(client.pools.list()), len(client.jobs.list()))")
    assert [content["text"] for kind, content in left if kind == "stream"] == ["0 0\n"]


def test_an_interrupted_wait_leaves_the_job_running(kernel: Kernel) -> None:
    kernel.run(BEGIN.format(end="sleep 86400"))
    outputs = kernel.run("client.pools.add(recipe)\njob = client.jobs.add(recipe)\njob.wait()", interrupt="script")
    assert "only the waiting ends" in error(outputs)
    left = kernel.run("print(job.seen.state, job.tasks[0].state)")
    assert [content["text"] for kind, content in left if kind == "stream"] == ["active running\n"]
