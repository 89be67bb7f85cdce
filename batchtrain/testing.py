"""An Azure Batch for the tests of any project: the public name of `batchtrain.emulator.testing`."""

from batchtrain.emulator.testing import SIMULATED, BatchService, Clock, Faults, emulated_batch

__all__ = ["SIMULATED", "BatchService", "Clock", "Faults", "emulated_batch"]
