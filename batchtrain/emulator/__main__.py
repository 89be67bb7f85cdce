"""The process of an emulator; `batchtrain emulator start` starts it and gives it its settings."""

from __future__ import annotations

import sys

from batchtrain.emulator.serving import main

sys.exit(main(sys.argv[1]))
