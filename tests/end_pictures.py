"""`python -m tests.end_pictures [NAME ...]`: pictures (SVG) of how real runs on the emulator end, at 80 and at 40
columns. It needs tmux.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from batchtrain.emulator import server
from tests.moving_picture import LAST_SECONDS, Frame, picture, recorded

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTHS = {80: 16, 40: 24}
"""Columns, and the last lines that a picture has."""
RUN = "batchtrain run digits --local"
COMMANDS = {"stopped": f"timeout --foreground -s INT 40 {RUN} </dev/null", "detached": f"{RUN} --detach"}
STEPS = 'for n in range(1, 21): print(f"step {n}/20 loss {2 / n:.4f} accuracy {1 - 1 / (n + 1):.4f} 812 images/sec")\n'
PROGRAMS = {
    "good": f"{STEPS}import os\nos.mkdir('output'); open('output/model.pt', 'wb').write(bytes(20_000))\n",
    "failed": f"{STEPS}open('data/train.npz')\n",
    "nan": "for n in range(1, 21): print('step', f'{n}/20', 'loss', 2 / n if n < 13 else 'nan')\n",
    "stopped": f"import time\n{STEPS}time.sleep(86400)\n",
    "detached": STEPS,
}
RECIPE = """\
pool_specification:
  id: two
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 2}
  vm_configuration: {platform_image: {publisher: almalinux, offer: almalinux-x86_64, sku: 8-gen2}}
job_specifications:
- id: digits
  auto_complete: true
  tasks: [{id: train, command: python3 -u train.py, source: src}]
"""


def write(name: str) -> None:
    """Run a program, and write a picture of the last lines at each width."""
    for width, count in WIDTHS.items():
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "digits", "src")
            source.mkdir(parents=True)
            (source / "train.py").write_text(PROGRAMS[name], encoding="utf-8")
            (source.parent / "batchtrain.yaml").write_text(RECIPE, encoding="utf-8")
            home = Path(folder, "emulator")
            try:
                lines = recorded(COMMANDS.get(name, RUN), Path(folder), home, width)[-1].lines[-count:]
            finally:
                server.stop(home)
        end = picture([Frame(lines, LAST_SECONDS)], RUN, width, len(lines))
        (IMAGES / f"end-{name}-{width}.svg").write_text(end, encoding="utf-8")


if __name__ == "__main__":
    for program in sys.argv[1:] or PROGRAMS:
        write(program)
