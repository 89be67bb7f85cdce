"""A plain function that runs as a gang."""
