"""How long each wait lasts at most by itself, in seconds; imports nothing, for the command line's door."""

POOL_SECONDS = 3600.0
"""For a pool to take tasks, or to stop growing."""
JOB_SECONDS = 24 * 3600.0
"""For the tasks of a job that have no wall-clock limit."""
GONE_SECONDS = 600.0
"""For a deletion: to be accepted, and then for the thing to be gone."""
