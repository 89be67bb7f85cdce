"""The probes, by area. The next one is one entry in one of these modules."""

from __future__ import annotations

from batchtrain.verify.probe import Area
from batchtrain.verify.probes import (
    accounts_and_sizes,
    first_failures,
    formulas,
    framework_launch,
    mpi_launch,
    pools_and_nodes,
    preemptions,
    stored_data,
)

AREAS: tuple[Area, ...] = (
    mpi_launch.AREA,
    framework_launch.AREA,
    preemptions.AREA,
    accounts_and_sizes.AREA,
    formulas.AREA,
    stored_data.AREA,
    pools_and_nodes.AREA,
    first_failures.AREA,
)
