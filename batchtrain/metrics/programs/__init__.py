"""The programs whose output is read. The next one is an entry in one of these modules. Pure."""

from __future__ import annotations

from batchtrain.metrics.programs import benchmarks, frameworks, training
from batchtrain.metrics.programs.base import Program, Source, Table
from batchtrain.metrics.programs.tables import TABLES

PROGRAMS: tuple[Program, ...] = (*benchmarks.PROGRAMS, *frameworks.PROGRAMS, *training.PROGRAMS)
"""In the order in which they are tried: the first that reads a line is taken."""

__all__ = ["PROGRAMS", "TABLES", "Program", "Source", "Table"]
