"""Writes the versions of Python and of its packages to a file: python3 package_versions.py FILE

Standard library, Python 3.8 or later; an older one writes nothing. Takes as little processor time as it can, because
the program of the user starts meanwhile.
"""

import json
import os
import re
import sys
from importlib.metadata import distributions


def main(path: str) -> None:
    """Write the file at once: a reader sees all of it."""
    os.nice(19)
    packages: "dict[str, str]" = {}
    for item in distributions():  # the first of a name is the one that is imported; a broken one has no name
        # `item.metadata` parses the whole text of a package's page too, which takes four times the processor time
        text = item.read_text("METADATA") or item.read_text("PKG-INFO") or item.read_text("") or ""
        head = dict(re.findall(r"^(Name|Version):[ \t]*(.*?)[ \t]*$", text.partition("\n\n")[0], re.MULTILINE))
        if head.get("Name"):
            packages.setdefault(head["Name"], head.get("Version", ""))
    known = {"python": sys.version.split()[0], "executable": sys.executable, "packages": packages}
    with open(path + ".part", "w") as file:
        json.dump(known, file, indent=1, sort_keys=True)
    os.rename(path + ".part", path)


if __name__ == "__main__":
    main(sys.argv[1])
