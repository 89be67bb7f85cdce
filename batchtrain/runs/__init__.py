"""The results of a run: its directory, the fetched files, and its metrics."""
