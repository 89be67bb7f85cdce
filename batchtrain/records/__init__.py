"""What is there: things of the service, and what happened to them. Pure; the only types that views know."""

from batchtrain.records.attempt import Attempt, AttemptEvent
from batchtrain.records.fabric_check import FabricCheck, FabricMeasurement, Judged, NodePair
from batchtrain.records.failure import Detail, Failure
from batchtrain.records.jobs import Counts, FailedBy, Job, JobSchedule
from batchtrain.records.metric import Metric, Point, Rank, RanksRecord, Rendezvous, TrainingProgress
from batchtrain.records.pools import Endpoint, Image, Node, Pool, RecentTask, least_node_hours, node_cost, node_hours
from batchtrain.records.rows import MOST_ROWS, Table, aligned, cells, columns, shown
from batchtrain.records.tasks import File, Task, TaskNode, TaskRequest

__all__ = [
    "MOST_ROWS", "Attempt", "AttemptEvent", "Counts", "Detail", "Endpoint", "FabricCheck", "FabricMeasurement",
    "FailedBy", "Failure", "File", "Image", "Job", "JobSchedule", "Judged", "Metric", "Node", "NodePair", "Point",
    "Pool", "Rank", "RanksRecord", "RecentTask", "Rendezvous", "Table", "Task", "TaskNode", "TaskRequest",
    "TrainingProgress", "aligned", "cells", "columns", "least_node_hours", "node_cost", "node_hours", "shown",
]  # fmt: skip
