"""How long each wait lasts at most by itself, in seconds; imports nothing, for the command line's door."""

POOL_SECONDS = 3600.0
"""For a pool to take tasks, or to stop growing."""
JOB_SECONDS = 7 * 24 * 3600.0
"""For the tasks of a job: a week."""
GONE_SECONDS = 600.0
"""For something to be gone."""
