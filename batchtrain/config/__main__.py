"""Write what is generated from the types: `python -m batchtrain.config schemas|reference`, at the repository's root."""

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
