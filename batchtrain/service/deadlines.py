"""The default deadline of each wait in seconds. Imports nothing, because the command line needs it at its start."""

POOL_SECONDS = 3600.0
"""Until a pool's nodes accept tasks, or a pool stops growing."""
JOB_SECONDS = 24 * 3600.0
"""Until the tasks of a job end that have no wall clock limit."""
STOP_SECONDS = 120.0
"""Until tasks have ended that are stopped after Ctrl-C or at a limit."""
GONE_SECONDS = 600.0
"""Until a deletion is accepted, and then until the object is gone."""
