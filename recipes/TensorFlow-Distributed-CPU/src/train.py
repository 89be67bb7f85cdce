"""Train a small network on scikit-learn's handwritten digits with TensorFlow 2 over the processes of a gang.

TF_CONFIG, which batchtrain sets, says who is who and so also how to train:

    only workers                 MultiWorkerMirroredStrategy: gradients are all-reduced after each step
    chief, workers and ps        ParameterServerStrategy: the chief hands out steps, the workers carry them out at their
                                 own pace, and the parameter servers keep the variables
    an evaluator beside either   it reads each checkpoint, and says how good it is

With `checkpoint` on the task, collective training continues from the newest checkpoint of worker 0.

What it prints (the words are stable, so that a program may read them):

    continues after epoch 4                                                    worker 0, from a checkpoint
    epoch 1 loss 1.2345                                                        worker 0 or the chief, every epoch
    evaluator host n1 epoch 1 accuracy 0.8774                                  the evaluator, of each checkpoint it finds
    test accuracy 0.9617                                                       worker 0 or the chief, at the end
    worker 1 of 2 host n2 accuracy 0.9617 weights 3f2a9c01d4…                  every worker or the chief, with --verify

`weights` is the SHA-256 of the trained variables: the same on all workers after collective training.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
CONFIG = json.loads(os.environ.get("TF_CONFIG", "{}"))
CLUSTER, ROLE = CONFIG.get("cluster", {}), CONFIG.get("task", {}).get("type")
if "ps" in CLUSTER:
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # the chief waits for servers that are still starting

import numpy as np
import tensorflow as tf

try:
    import batchtrain_checkpoint as checkpoint  # comes with a task that has `checkpoint`
except ImportError:
    checkpoint = None

BATCH = 64
"""Images a step, over all workers."""
TEST_IMAGES = 261
RATE = 0.3
CHECKPOINTS = os.path.join(os.environ.get("AZ_BATCH_TASK_WORKING_DIR", "."), "checkpoints")
"""Written by worker 0 or the chief, read by the evaluator: all three are on the primary, so it need not be shared."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Training on handwritten digits with TensorFlow's strategies.")
    parser.add_argument("--epochs", type=int, default=10, help="times every image is seen (default: %(default)s)")
    parser.add_argument("--checkpoints", default=CHECKPOINTS, help="a directory (default: %(default)s)")
    parser.add_argument("--verify", action="store_true", help="every worker prints a hash of its weights at the end")
    options = parser.parse_args()

    if not tf.config.list_physical_devices("GPU"):
        tf.config.threading.set_intra_op_parallelism_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if ROLE == "evaluator":
        evaluate(options.epochs, options.checkpoints)
    elif "ps" in CLUSTER:
        asynchronously(options)
    else:
        together(options)


def together(options: argparse.Namespace) -> None:
    """Every worker runs this. A step is one all-reduce, and on busy machines it takes as long as the slowest worker:
    the images never end, or the workers would also ask each other in each step whether one still has some."""
    ways = tf.distribute.experimental.CommunicationImplementation
    way = ways.AUTO if tf.config.list_physical_devices("GPU") else ways.RING  # AUTO takes NCCL
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(implementation=way)
    )
    resolver = strategy.cluster_resolver
    index, workers = resolver.task_id or 0, max(1, len(resolver.cluster_spec().as_dict().get("worker", ())))
    train_set, test_set = load()
    with strategy.scope():
        variables = first_variables()
    done = restore(variables)
    if done and index == 0:
        say(f"continues after epoch {done}")
    data = iter(strategy.experimental_distribute_dataset(shuffled(*train_set).repeat()))

    @tf.function
    def step(images, labels):
        def own(images, labels):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(entropy(variables, images, labels)) / BATCH
            gradients = tape.gradient(loss, variables)
            gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
            for variable, gradient in zip(variables, gradients):
                variable.assign_sub(RATE * gradient)
            return loss

        return strategy.run(own, args=(images, labels))

    for epoch in range(done + 1, options.epochs + 1):
        for _ in range(len(train_set[1]) // BATCH):
            loss = step(*next(data))
        loss = strategy.reduce("sum", loss, axis=None)  # of the last step, on every worker
        if index == 0:
            say(f"epoch {epoch} loss {float(loss):.4f}")
            record(epoch=epoch, loss=loss)
            save(variables, epoch, options.checkpoints)
    report(f"worker {index} of {workers}", variables, test_set, options.verify, tells=index == 0)
    meet(strategy)


def meet(strategy: tf.distribute.Strategy) -> None:
    """Wait for all workers: those that are still busy need worker 0, which counts them."""

    @tf.function
    def count():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))

    count()


def asynchronously(options: argparse.Namespace) -> None:
    """Workers and parameter servers serve until they are ended; the chief has the loop."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        )
        say(f"{resolver.task_type} {resolver.task_id} host {socket.gethostname()} serves")
        server.join()

    train_set, test_set = load()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variables = first_variables()

    @tf.function
    def step(iterator):
        def own(images, labels):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(entropy(variables, images, labels))
            for variable, gradient in zip(variables, tape.gradient(loss, variables)):
                variable.assign_sub(RATE * gradient)
            return loss

        return strategy.run(own, args=next(iterator))

    @tf.function
    def per_worker():
        return strategy.distribute_datasets_from_function(lambda context: shuffled(*train_set).repeat())

    iterator = iter(coordinator.create_per_worker_dataset(per_worker))
    for epoch in range(1, options.epochs + 1):
        for _ in range(len(train_set[1]) // BATCH):
            loss = coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        say(f"epoch {epoch} loss {float(loss.fetch()):.4f}")
        record(epoch=epoch, loss=loss.fetch())
        save(variables, epoch, options.checkpoints)
    report("chief 0 of 1", variables, test_set, options.verify, tells=True)


def save(variables: list[tf.Variable], epoch: int, directory: str) -> None:
    """A checkpoint of copies: those of a strategy would be written where they are kept, on nodes of the servers."""
    copies = [tf.Variable(variable.numpy()) for variable in variables]
    saved = tf.train.Checkpoint(variables=copies, epoch=tf.Variable(epoch))
    saved.save(os.path.join(directory, f"epoch-{epoch}"))
    if checkpoint:
        path = checkpoint.begin(epoch)
        saved.write(os.path.join(path, "model"))
        checkpoint.complete(path)


def restore(variables: list[tf.Variable]) -> int:
    """The epoch of the newest complete checkpoint, whose values the variables get; 0 without one."""
    path = checkpoint.newest() if checkpoint else None
    if path is None:
        return 0
    copies = first_variables()
    tf.train.Checkpoint(variables=copies).read(os.path.join(path, "model")).expect_partial()
    for variable, copy in zip(variables, copies):
        variable.assign(copy.numpy())
    return checkpoint.step_of(path)


def evaluate(epochs: int, directory: str) -> None:
    """Looks at the newest checkpoint whenever there is one, until that of the last epoch."""
    _, (images, labels) = load()
    variables, epoch = first_variables(), tf.Variable(0)
    kept = tf.train.Checkpoint(variables=variables, epoch=epoch)
    for path in tf.train.checkpoints_iterator(directory):
        kept.restore(path).assert_existing_objects_matched()
        accuracy = float((scores(variables, images).numpy().argmax(1) == labels).mean())
        say(f"evaluator host {socket.gethostname()} epoch {int(epoch)} accuracy {accuracy:.4f}")
        if int(epoch) == epochs:
            return


def first_variables() -> list[tf.Variable]:
    """The same on every worker."""
    w1, w2 = (tf.random.stateless_normal((64, width), (1, width)) * (2 / 64) ** 0.5 for width in (64, 10))
    return [tf.Variable(part) for part in (w1, tf.zeros(64), w2, tf.zeros(10))]


def scores(variables, images):
    w1, b1, w2, b2 = variables
    return tf.nn.relu(images @ w1 + b1) @ w2 + b2


def entropy(variables, images, labels):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores(variables, images))


def load():
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int32)
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def shuffled(images, labels) -> tf.data.Dataset:
    """Batches in the same order everywhere; a strategy that shards takes each worker's part of every batch."""
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(labels), seed=1)
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.batch(BATCH, drop_remainder=True).with_options(sharding)


def report(who: str, variables, test_set, verify: bool, tells: bool) -> None:
    images, labels = test_set
    values = [variable.numpy() for variable in variables]
    accuracy = float((scores(values, images).numpy().argmax(1) == labels).mean())
    weights = hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()
    if verify:
        say(f"{who} host {socket.gethostname()} accuracy {accuracy:.4f} weights {weights}")
    if tells:
        say(f"test accuracy {accuracy:.4f}")
        record(test_accuracy=accuracy)
        keep(values, test_accuracy=accuracy)


def keep(weights: list[np.ndarray], **metrics: float) -> None:
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    model = tf.Module()
    model.weights = [tf.Variable(part) for part in weights]
    signature = [tf.TensorSpec((None, 64), tf.float32)]
    model.scores = tf.function(lambda images: scores(model.weights, images), input_signature=signature)
    tf.saved_model.save(model, "output/model")
    with open("output/metrics.json", "w") as file:
        json.dump(metrics, file)


def record(**values: float) -> None:
    """A line of JSON for the metrics of the run, if batchtrain gives a file for them."""
    if "BATCHTRAIN_METRICS" in os.environ:
        with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
            file.write(json.dumps(values, default=float) + "\n")


def say(line: str) -> None:
    """One line, one write, at once: the lines of several workers come to one place and must not mix."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
