"""Train a small network on handwritten digits with TensorFlow 1's Estimator, over the processes of a cluster.

TF_CONFIG, which batchtrain sets under `mode: estimator`, says who is who: a chief that trains and writes checkpoints,
workers, parameter servers and, with `evaluator: true`, a process that evaluates each checkpoint.

--model-dir must be a directory that all nodes share: the workers wait for what the chief writes there, and the evaluator
reads it. AZ_BATCH_NODE_SHARED_DIR is not one; it is shared by the tasks of one node.

What it prints (the words are stable, so that a program may read them):

    evaluator host n1 step 480 accuracy 0.9617                                 the evaluator, of each checkpoint
    chief 0 of 1 host n1 step 480 accuracy 0.9617                              the chief, at the end
"""

import argparse
import json
import os
import socket
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow.compat.v1 as tf

BATCH = 64
TEST_IMAGES = 261
ROLE = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("type", "chief")


def main():
    parser = argparse.ArgumentParser(description="Training on handwritten digits with TensorFlow 1's Estimator.")
    parser.add_argument("--model-dir", required=True, help="for checkpoints; all nodes must see the same one")
    parser.add_argument("--steps", type=int, default=480, help="of all workers together (default: %(default)s)")
    options = parser.parse_args()

    (images, labels), test = load()
    estimator = tf.estimator.Estimator(
        network, options.model_dir, tf.estimator.RunConfig(save_checkpoints_steps=200, tf_random_seed=0)
    )
    train = tf.estimator.TrainSpec(lambda: batches(images, labels), max_steps=options.steps)
    evaluate = tf.estimator.EvalSpec(
        lambda: once(*test), steps=None, start_delay_secs=1, throttle_secs=1, exporters=(Teller(),)
    )
    tf.estimator.train_and_evaluate(estimator, train, evaluate)
    if ROLE == "chief":
        found = estimator.evaluate(lambda: once(*test))
        line = "chief 0 of 1 host {} step {} accuracy {:.4f}"
        say(line.format(socket.gethostname(), found["global_step"], found["accuracy"]))
        record(step=found["global_step"], loss=found["loss"], test_accuracy=found["accuracy"])


class Teller(tf.estimator.Exporter):
    """Exports nothing; it is called after each evaluation, with what was found."""

    name = "told"

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        line = "evaluator host {} step {} accuracy {:.4f}"
        say(line.format(socket.gethostname(), eval_result["global_step"], eval_result["accuracy"]))
        record(step=eval_result["global_step"], loss=eval_result["loss"], test_accuracy=eval_result["accuracy"])


def network(features, labels, mode):
    hidden = tf.layers.dense(features, 64, tf.nn.relu)
    scores = tf.layers.dense(hidden, 10)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, scores)
    right = tf.metrics.accuracy(labels, tf.argmax(scores, 1))
    update = tf.train.GradientDescentOptimizer(0.3).minimize(loss, tf.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=update, eval_metric_ops={"accuracy": right})


def batches(images, labels):
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    return data.shuffle(len(labels)).repeat().batch(BATCH)


def once(images, labels):
    return tf.data.Dataset.from_tensor_slices((images, labels)).batch(len(labels))


def load():
    """(images, labels) to train on and to test on, in an order that never changes."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int32)
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES])


def record(**values):
    """A line of JSON for the metrics of the run, if batchtrain gives a file for them."""
    if "BATCHTRAIN_METRICS" in os.environ:
        with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
            file.write(json.dumps(values, default=float) + "\n")


def say(line):
    """One line, one write, at once: the lines of several processes come to one place and must not mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    main()
