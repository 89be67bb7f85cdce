"""Write `schemas/*.json` from the types: `python -m batchtrain.config SCHEMAS_DIRECTORY`."""

import sys
from pathlib import Path

from batchtrain.config import schema

for name in schema.FILES:
    (Path(sys.argv[1]) / f"{name}.json").write_bytes(schema.rendered(name))
