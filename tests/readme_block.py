"""Print a fenced `sh` block of the README by its number, so that CI runs what people read."""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(text: str) -> list[str]:
    """The contents of all fenced `sh` blocks, in order."""
    return [block.strip() for block in re.findall(r"^```sh\n(.*?)^```", text, flags=re.M | re.S)]


if __name__ == "__main__":
    print(blocks(README.read_text(encoding="utf-8"))[int(sys.argv[1]) - 1])
