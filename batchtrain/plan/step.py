"""One request of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from batchtrain.catalog import api_versions
from batchtrain.plan.task_stream import TaskStream
from batchtrain.plan.wire import API_VERSION, TaskCollection, Wire, document

Action = Literal[
    "pool.add",
    "pool.identity",
    "pool.resize",
    "pool.autoscale",
    "node.user",
    "job.add",
    "job.complete",
    "schedule.add",
    "task.add",
    "blob.upload",
    "files.upload",
]
REQUESTS: Mapping[Action, tuple[str, str]] = {
    "pool.add": ("POST", "/pools"),
    "pool.identity": ("PATCH", "/pools/{}"),
    "pool.resize": ("POST", "/pools/{}/resize"),
    "pool.autoscale": ("POST", "/pools/{}/enableautoscale"),
    "node.user": ("POST", "/pools/{}/nodes/{{each}}/users"),  # sent once for each node
    "job.add": ("POST", "/jobs"),
    "job.complete": ("PATCH", "/jobs/{}"),
    "schedule.add": ("POST", "/jobschedules"),
    "task.add": ("POST", "/jobs/{}/tasks"),
    "blob.upload": ("PUT", "/{}"),
    "files.upload": ("PUT", "/{}"),
}
"""Method and path of each action's request; `{}` stands for the step's subject."""
AUTOSCALE_FIELDS = ("autoScaleFormula", "autoScaleEvaluationInterval")
"""The properties of a `pool.autoscale`."""
COLLECTION = ("POST", "/jobs/{}/addtaskcollection")


class Step(NamedTuple):
    """One request to the service, or one upload.

    subject: the id of the pool, job or schedule that the request is about; of an upload `link/container/path`.
    """

    action: Action
    subject: str
    body: Wire | TaskStream | dict[str, Any]

    @property
    def collects(self) -> bool:
        """Whether the body is a collection of tasks."""
        return isinstance(self.body, (TaskCollection, TaskStream)) or (
            isinstance(self.body, dict) and "value" in self.body
        )

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self._request[0]

    @property
    def path(self) -> str:
        """The URL's path."""
        return self._request[1].format(self.subject)

    @property
    def url(self) -> str:
        """The path, with the API version if it is not that of all requests."""
        version = api_versions.needed("pool", self.document) if self.action == "pool.add" else API_VERSION
        return self.path if version == API_VERSION else f"{self.path}?api-version={version}"

    @property
    def _request(self) -> tuple[str, str]:
        return COLLECTION if self.collects else REQUESTS[self.action]

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document that it sends, with its placeholders; of a stream of tasks, what is known without it."""
        return self.body.shown() if isinstance(self.body, TaskStream) else document(self.body)
