"""TensorFlow: TF_CONFIG, or the flags of TensorFlow 1."""

import json

from ..spec import Gang, Process, Values
from .base import Framework


class TensorFlow(Framework):
    gpus = "each"
    linger = 0.0  # its servers never end by themselves

    def variables(self, gang: Gang, process: Process) -> Values:
        """TF_CONFIG, except for programs with flags. An evaluator is not part of the cluster."""
        if gang.spec.options.get("mode") == "flags":
            return {}
        names = [role.name for role in gang.spec.roles if role.name != "evaluator" and gang.of(role.name)]
        cluster = {name: gang.hosts(name) for name in names}
        task = {"type": process.role.name, "index": process.index}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task}, sort_keys=True)}

    def command(self, gang: Gang, process: Process) -> str:
        """Programs of TensorFlow 1 get the cluster on their command line."""
        text = process.role.command
        if gang.spec.options.get("mode") != "flags":
            return text
        values = {"{job_name}": process.role.name, "{task_index}": str(process.index)}
        for name in ("ps_hosts", "worker_hosts", "chief_hosts", "controller_host"):
            values["{" + name + "}"] = ",".join(gang.hosts(name.partition("_")[0]))
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)
        return text


FRAMEWORK = TensorFlow()
