"""Writes the versions of Python and of its packages to a file: python3 package_versions.py FILE

Standard library, Python 3.6 or later; an older one writes nothing. Takes as little processor time as it can, because
the program of the user starts meanwhile: `importlib.metadata` alone takes twice the time to be imported.
"""

import os

if __name__ == "__main__":
    os.nice(19)  # before the other imports

import json
import re
import sys
from glob import escape, glob

PAGES = ("*.dist-info/METADATA", "*.egg-info/PKG-INFO", "*.egg-info")
"""Where a package's page is, beside its modules (packaging.python.org, "Recording installed projects")."""


def main(path: str) -> None:
    """Write the file at once: a reader sees all of it."""
    packages: "dict[str, str]" = {}
    for folder in sys.path:  # the first of a name is the one that is imported
        pages = [page for end in PAGES for page in glob(os.path.join(escape(folder), end)) if os.access(page, os.R_OK)]
        for page in filter(os.path.isfile, sorted(pages)):
            with open(page, encoding="utf-8", errors="replace") as file:
                text = file.read().partition("\n\n")[0]
            head = dict(re.findall(r"^(Name|Version):[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))
            if head.get("Name"):
                packages.setdefault(head["Name"], head.get("Version", ""))
    known = {"python": sys.version.split()[0], "executable": sys.executable, "packages": packages}
    with open(path + ".part", "w") as file:
        json.dump(known, file, indent=1, sort_keys=True)
    os.rename(path + ".part", path)


if __name__ == "__main__":
    main(sys.argv[1])
