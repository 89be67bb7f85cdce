"""The commands that make an environment."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import FrameType

import pytest

from batchtrain.containers import uv
from batchtrain.errors import Terminated


def test_what_a_command_started_ends_with_the_signal_that_ends_this_process(tmp_path: Path) -> None:
    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated

    os.mkfifo(fifo := tmp_path / "fifo")
    texts: list[bytes] = []

    def read() -> None:
        with fifo.open("rb") as file:  # until the program has opened it
            signal.pthread_kill(main, signal.SIGUSR1)
            texts.append(file.read())  # until none has it open

    main, reader = threading.get_ident(), threading.Thread(target=read)
    before = signal.signal(signal.SIGUSR1, end)
    try:
        reader.start()
        with pytest.raises(Terminated):
            uv.ended(("sh", "-c", f"read line; (sleep 30; echo compiled) >{fifo} & wait"), lines="begin\n")
    finally:
        signal.signal(signal.SIGUSR1, before)
    reader.join()
    assert texts == [b""]
