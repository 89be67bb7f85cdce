"""Writes the versions of Python and of its packages to a file: python3 package_versions.py FILE

Standard library, Python 3.8 or later; an older one writes nothing. Takes as little processor time as it can, because
the program of the user starts meanwhile.
"""

import json
import os
import sys
from importlib.metadata import distributions


def main(path: str) -> None:
    """Write the file at once: a reader sees all of it."""
    os.nice(19)
    packages = {item.metadata["Name"]: item.version for item in distributions()}
    known = {"python": sys.version.split()[0], "executable": sys.executable, "packages": packages}
    with open(path + ".part", "w") as file:
        json.dump(known, file, indent=1, sort_keys=True)
    os.rename(path + ".part", path)


if __name__ == "__main__":
    main(sys.argv[1])
