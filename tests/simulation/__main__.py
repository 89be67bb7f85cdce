"""python -m tests.simulation [--seeds FROM:TO] [--minutes M] [--jobs 2], or --seed N [--trace], or --planted NUMBER"""

from __future__ import annotations

import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a seed's trace
    command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})

from tests.simulation import owned

owned.install()

from tests.simulation import search  # noqa: E402 - everything that it imports sees the replaced standard library

sys.exit(search.main(sys.argv[1:]))
