"""Writes the generated files: `python -m batchtrain.config schemas|reference`, in the root of the repository."""

import sys
from pathlib import Path

from batchtrain.config import editor, reference, schema

match sys.argv[1:]:
    case ["schemas"]:
        for name in schema.FILES:
            (Path("schemas") / f"{name}.json").write_bytes(editor.rendered(name))
    case ["reference"]:
        Path(reference.PAGE).write_text(reference.page(), encoding="utf-8")
    case _:
        sys.exit("python -m batchtrain.config schemas|reference")
