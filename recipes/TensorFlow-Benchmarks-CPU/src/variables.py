"""Where the variables are and how gradients meet: one class for each `--variable_update` of tf_cnn_benchmarks.

A tower is one device with its own copy of the network. `scope(tower)` is where its variables are made, `update(…)` makes
the operation that ends a step, `copy()` the one that gives every copy its first value.
"""

import contextlib

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import collective_ops

RATE = 0.3
LATEST = 2**62  # an accumulator drops gradients of an older step


class ParameterServer:
    """All towers use the same variables: on the parameter servers, or on one device of this machine."""

    def __init__(self, options, cluster):
        self.options, self.cluster = options, cluster
        self.workers = cluster.num_tasks("worker") if cluster else 1

    @contextlib.contextmanager
    def scope(self, tower):
        with tf.device(self.place(tower)), tf.variable_scope("v", reuse=tower > 0):
            yield

    def place(self, tower=0):
        """Puts variables on the servers or on the parameter device, and everything else on the tower's device."""
        device = self.options.devices[tower]
        if self.cluster:
            return tf.train.replica_device_setter(worker_device=device, cluster=self.cluster)
        parameters = self.options.devices[0] if self.options.local_parameter_device == "gpu" else "/cpu:0"
        return lambda operation: parameters if operation.type.startswith("Var") else device

    def update(self, towers, steps):
        return self.apply(self.shared(), mean(towers), steps)

    def shared(self):
        return tf.trainable_variables()

    def apply(self, variables, gradients, steps):
        """Change shared variables: at once, or when the gradients of all workers are in."""
        optimizer = tf.train.GradientDescentOptimizer(RATE)
        if self.workers == 1 or not self.options.cross_replica_sync:
            return optimizer.apply_gradients(zip(gradients, variables), steps)
        sums = []
        for variable in variables:
            with tf.device(variable.device):
                sums.append(tf.ConditionalAccumulator(tf.float32, variable.shape, "sum/" + variable.op.name))
        pushed = [total.apply_grad(gradient, LATEST) for total, gradient in zip(sums, gradients)]
        with tf.control_dependencies(pushed):
            return self.wait(lambda: optimizer.apply_gradients(
                [(total.take_grad(self.workers), variable) for total, variable in zip(sums, variables)], steps
            ))

    def wait(self, update):
        """The first worker updates and then gives a token to each; every worker ends its step with its own token."""
        with tf.device(tf.DeviceSpec(job="ps", task=0)):
            queues = [
                tf.FIFOQueue(self.workers, [tf.bool], [()], shared_name="token/%d" % number)
                for number in range(self.workers)
            ]
        given = tf.no_op()
        if self.options.task_index == 0:
            with tf.control_dependencies([update()]):
                given = tf.group(*[queue.enqueue(True) for queue in queues])
        return tf.group(given, queues[self.options.task_index].dequeue())

    def copy(self):
        return tf.no_op()


class DistributedReplicated(ParameterServer):
    """The servers have the first copy; every tower computes with one of its own, renewed after each step."""

    @contextlib.contextmanager
    def scope(self, tower):
        scope = tf.variable_scope("v%d" % tower, custom_getter=self.beside_servers)
        with tf.device(self.options.devices[tower]), scope:
            yield

    def beside_servers(self, getter, name, *arguments, **settings):
        settings.update(trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES, "towers"])
        return getter(name, *arguments, **settings)

    def shared(self):
        if not hasattr(self, "masters"):
            first = [variable for variable in tf.get_collection("towers") if variable.op.name.startswith("v0/")]
            with tf.device(self.place()):
                self.masters = [
                    tf.get_variable(variable.op.name.replace("v0", "master", 1), initializer=variable.initial_value)
                    for variable in first
                ]
        return self.masters

    def update(self, towers, steps):
        with tf.control_dependencies([super().update(towers, steps)]):
            return self.copy()

    def copy(self):
        masters = {master.op.name.partition("/")[2]: master for master in self.shared()}
        copies = tf.get_collection("towers")
        return tf.group(*[one.assign(masters[one.op.name.partition("/")[2]].read_value()) for one in copies])


class Replicated(ParameterServer):
    """Every tower has variables of its own, which take the mean of all towers' gradients."""

    @contextlib.contextmanager
    def scope(self, tower):
        with tf.device(self.options.devices[tower]), tf.variable_scope("v%d" % tower):
            yield

    def update(self, towers, steps):
        optimizer = tf.train.GradientDescentOptimizer(RATE)
        applied = []
        for tower, gradients in enumerate(self.exchange(towers)):
            variables = tf.trainable_variables("v%d/" % tower)
            applied.append(optimizer.apply_gradients(zip(gradients, variables)))
        with tf.control_dependencies(applied):
            return steps.assign_add(1)

    def exchange(self, towers):
        return [mean(towers)] * len(towers)


class Independent(Replicated):
    """Every tower has variables of its own and trains alone."""

    def exchange(self, towers):
        return towers


class CollectiveAllReduce(Replicated):
    """The same over all workers, by TensorFlow's collective operations; there are no servers."""

    def exchange(self, towers):
        members, reduced = len(towers) * self.workers, []
        for device, gradients in zip(self.options.devices, towers):
            with tf.device(device):
                reduced.append([
                    collective_ops.all_reduce(gradient, members, 1, number + 1, "Add", "Div")
                    for number, gradient in enumerate(gradients)
                ])
        return reduced


def mean(towers):
    """Of each gradient over all towers of this worker."""
    return [tf.add_n(list(parts)) / len(parts) for parts in zip(*towers)]


MODES = {
    "parameter_server": ParameterServer,
    "distributed_replicated": DistributedReplicated,
    "replicated": Replicated,
    "independent": Independent,
    "collective_all_reduce": CollectiveAllReduce,
}
ALONE = ("replicated", "independent")
SERVERLESS = ("replicated", "independent", "collective_all_reduce")
