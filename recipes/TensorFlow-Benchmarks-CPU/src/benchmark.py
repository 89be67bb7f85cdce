"""A benchmark with the arguments and the result line of tf_cnn_benchmarks, small enough for a machine without a GPU.

TensorFlow 1 between-graph replication: every process gets --job_name, --task_index, --ps_hosts and --worker_hosts, which
batchtrain fills in. Parameter servers keep the variables and serve until they are ended; workers train at their own pace
(--variable_update=parameter_server). Without --job_name one process does everything, as tf_cnn_benchmarks does.

What it prints (the words are stable, so that a program may read them):

    ps 0 host n2 serves
    worker 1 of 2 host n2 step 480 accuracy 0.9617
    total images/sec: 12345.67                                                 every worker, its own
"""

import argparse
import os
import socket
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow.compat.v1 as tf

TEST_IMAGES = 261


def main():
    parser = argparse.ArgumentParser(description="Images a second over a TensorFlow 1 cluster.")
    parser.add_argument("--job_name", choices=("", "ps", "worker"), default="")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--ps_hosts", default="", help="HOST:PORT,... of the parameter servers")
    parser.add_argument("--worker_hosts", default="", help="HOST:PORT,... of the workers")
    parser.add_argument("--variable_update", choices=("parameter_server",), default="parameter_server")
    parser.add_argument("--num_gpus", type=int, default=0, help="GPUs a worker; here 0 (default: %(default)s)")
    parser.add_argument("--batch_size", type=int, default=64, help="images a step (default: %(default)s)")
    parser.add_argument("--num_batches", type=int, default=480, help="steps of each worker (default: %(default)s)")
    options = parser.parse_args()

    if not options.job_name:
        train(options, "", 1, None, ())
        return
    cluster = tf.train.ClusterSpec(
        {"ps": options.ps_hosts.split(","), "worker": options.worker_hosts.split(",")}
    )
    server = tf.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
    if options.job_name == "ps":
        say("ps {} host {} serves".format(options.task_index, socket.gethostname()))
        server.join()
    # A worker must not wait for the others: it sees only the parameter servers and itself.
    seen = ["/job:ps", "/job:worker/task:{}".format(options.task_index)]
    train(options, server.target, cluster.num_tasks("worker"), cluster, seen)


def train(options, target, workers, cluster, seen):
    (images, labels), (test_images, test_labels) = load()
    here = "/job:worker/task:{}".format(options.task_index) if cluster else None
    with tf.Graph().as_default(), tf.device(tf.train.replica_device_setter(worker_device=here, cluster=cluster)):
        x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
        scores = dense(tf.nn.relu(dense(x, 64, "hidden")), 10, "output")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores))
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, 1, output_type=tf.int32), y), tf.float32))
        steps = tf.train.get_or_create_global_step()
        update = tf.train.GradientDescentOptimizer(0.3).minimize(loss, global_step=steps)

        # The supervisor of tf_cnn_benchmarks; MonitoredSession would let a worker sleep 30 s until the chief is ready.
        supervisor = tf.train.Supervisor(
            is_chief=options.task_index == 0, logdir=None, saver=None, summary_op=None, recovery_wait_secs=1
        )
        session = supervisor.prepare_or_wait_for_session(target, config=tf.ConfigProto(device_filters=seen))
        began = time.time()
        rng = np.random.RandomState(options.task_index)
        for _ in range(options.num_batches):
            own = rng.randint(len(labels), size=options.batch_size)
            step, _ = session.run([steps, update], {x: images[own], y: labels[own]})
        took = time.time() - began
        accuracy = session.run(right, {x: test_images, y: test_labels})
    place = "worker {} of {} host {}".format(options.task_index, workers, socket.gethostname())
    say("{} step {} accuracy {:.4f}".format(place, step, accuracy))
    say("total images/sec: {:.2f}".format(options.num_batches * options.batch_size / took))


def dense(inputs, width, name):
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", [inputs.shape[1], width])
        return tf.matmul(inputs, weights) + tf.get_variable("bias", [width], initializer=tf.zeros_initializer())


def load():
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int32)
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def say(line):
    """One line, one write, at once: the lines of several processes come to one place and must not mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    tf.disable_eager_execution()
    tf.logging.set_verbosity(tf.logging.ERROR)
    main()
