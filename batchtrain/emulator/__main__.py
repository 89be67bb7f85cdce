"""`python -m batchtrain.emulator`: the emulator in the foreground."""

from __future__ import annotations

import sys

from batchtrain.emulator.server import main

sys.exit(main())
