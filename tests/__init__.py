"""The tests. Each module is compiled once for all of their processes, also where PYTHONDONTWRITEBYTECODE is set."""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
