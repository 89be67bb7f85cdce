"""What is there: things of the service, and what happened to them. Pure; the only types that views know."""
