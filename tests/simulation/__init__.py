"""The whole of client, SDK, service and store in one process, in which a seed owns time, chance and order."""
