"""The metrics of a task: numbers that its ranks print or write, as one stream of points."""
