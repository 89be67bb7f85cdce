"""A benchmark with the arguments and the printed lines of tf_cnn_benchmarks, small enough for a machine without a GPU.

TensorFlow 1 between-graph replication: every process gets --job_name, --task_index, --ps_hosts and --worker_hosts, which
batchtrain fills in. `--variable_update` decides where the variables are and how gradients meet: variables.py. Without
--job_name one process does everything. It trains a network on handwritten digits, so that a mode which does not exchange
gradients as it should is seen in the accuracy. dlbs.py says how DLBS's parameters are given.

What it prints (the words are stable, so that a program may read them):

    10	images/sec: 5123.4 +/- 11.2 (jitter = 30.1)	0.532              every worker: its own mean since the warm-up, loss
    ps 0 host n2 serves
    worker 1 of 2 host n2 step 480 accuracy 0.9617 weights 3f2a9c…     the hash with --verify
    total images/sec: 12345.67                                         every worker: of the whole cluster
    __results.throughput__=12345.67                                    worker 0 alone; milliseconds a step in results.time
"""

import argparse
import hashlib
import json
import os
import socket
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow.compat.v1 as tf

import dlbs
import variables

TEST_IMAGES = 261
DLBS = {
    "exp.model": "--model",
    "exp.replica_batch": "--batch_size",
    "exp.num_batches": "--num_batches",
    "exp.num_warmup_batches": "--num_warmup_batches",
    "exp.device_type": "--device",
    "exp.num_local_gpus": "--num_gpus",
}
"""Parameters of DLBS that are an argument here."""


def main():
    parameters, words = dlbs.take(sys.argv[1:], DLBS)
    options = arguments(words)
    cluster = of_hosts(options)
    config = sessions(options, cluster)
    if not cluster:
        train(options, parameters, "", cluster, config)
        return
    server = tf.train.Server(cluster, job_name=options.job_name, task_index=options.task_index, config=config)
    if options.job_name == "ps":
        say("ps {} host {} serves".format(options.task_index, socket.gethostname()))
        server.join()
    train(options, parameters, server.target, cluster, config)


def arguments(words):
    parser = argparse.ArgumentParser(description="Images a second over a TensorFlow 1 cluster.")
    parser.add_argument("--job_name", choices=("", "ps", "worker"), default="")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--ps_hosts", default="", help="HOST:PORT,... of the parameter servers")
    parser.add_argument("--worker_hosts", default="", help="HOST:PORT,... of the workers")
    parser.add_argument("--variable_update", choices=tuple(variables.MODES), default="parameter_server")
    parser.add_argument("--all_reduce_spec", default="", help="such as nccl, xring, pscpu, collective")
    parser.add_argument("--local_parameter_device", choices=("cpu", "gpu"), default="gpu")
    parser.add_argument("--cross_replica_sync", type=truth, default=True, help="workers wait for each other")
    parser.add_argument("--model", choices=("digits",), default="digits")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="gpu")
    parser.add_argument("--data_format", choices=("NCHW", "NHWC"), default="NCHW", help="no effect: digits are rows")
    parser.add_argument("--use_fp16", type=truth, nargs="?", const=True, default=False, help="no effect on a CPU")
    parser.add_argument("--num_gpus", type=int, default=1, help="devices of a worker (default: %(default)s)")
    parser.add_argument("--batch_size", type=int, default=64, help="images a step of a device (default: %(default)s)")
    parser.add_argument("--num_batches", type=int, default=100, help="steps of each worker (default: %(default)s)")
    parser.add_argument("--num_warmup_batches", type=int, default=10, help="steps before (default: %(default)s)")
    parser.add_argument("--display_every", type=int, default=10, help="steps between two lines")
    parser.add_argument("--train_dir", help="write summaries for TensorBoard there (the first worker)")
    parser.add_argument("--save_summaries_steps", type=int, default=10, help="steps between two summaries")
    parser.add_argument("--verify", action="store_true", help="every worker prints a hash of its weights at the end")
    options = parser.parse_args(words)
    if options.variable_update == "collective_all_reduce" and not options.all_reduce_spec:
        parser.error("--variable_update=collective_all_reduce needs --all_reduce_spec, such as collective")
    if options.variable_update in variables.ALONE and options.job_name:
        parser.error("--variable_update={} is one process of its own".format(options.variable_update))
    if options.variable_update == "distributed_replicated" and not options.job_name:
        parser.error("--variable_update=distributed_replicated needs a cluster: --job_name")
    options.devices = devices(options)
    return options


def truth(word):
    return word.lower() in ("true", "1", "yes", "t", "y")


def devices(options):
    """The towers' devices. A worker without GPUs takes as many of TensorFlow's CPU devices."""
    here = "/job:worker/task:{}".format(options.task_index) if options.job_name else ""
    gpus = options.device == "gpu" and bool(tf.config.experimental.list_physical_devices("GPU"))
    if not gpus and options.job_name != "ps":
        if options.all_reduce_spec.startswith("nccl") or "/nccl" in options.all_reduce_spec:
            say("no GPU: gradients are summed on the CPU in place of NCCL")
        if options.use_fp16:
            say("no GPU: float32 in place of --use_fp16")
    return ["{}/{}:{}".format(here, "gpu" if gpus else "cpu", number) for number in range(options.num_gpus)]


def of_hosts(options):
    if not options.job_name:
        return None
    hosts = {"ps": options.ps_hosts, "worker": options.worker_hosts}
    return tf.train.ClusterSpec({name: words.split(",") for name, words in hosts.items() if words})


def sessions(options, cluster):
    config = tf.ConfigProto(device_count={"CPU": options.num_gpus}, allow_soft_placement=True)
    if options.variable_update == "collective_all_reduce":
        config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    if cluster and options.job_name == "worker":
        # A worker must not wait for the others: it sees only the parameter servers and itself.
        config.device_filters.extend(["/job:ps", "/job:worker/task:{}".format(options.task_index)])
    return config


def train(options, parameters, target, cluster, config):
    mode = variables.MODES[options.variable_update](options, cluster)
    header(options, mode.workers)
    (images, labels), (test_images, test_labels) = load()
    with tf.Graph().as_default():
        feeds, graph = build(options, mode)
        serverless = options.variable_update in variables.SERVERLESS
        # The supervisor of tf_cnn_benchmarks; MonitoredSession would let a worker sleep 30 s until the chief is ready.
        supervisor = tf.train.Supervisor(
            is_chief=serverless or options.task_index == 0,
            logdir=None,
            saver=None,
            summary_op=None,
            recovery_wait_secs=1,
            local_init_op=tf.group(tf.local_variables_initializer()),
            ready_for_local_init_op=tf.report_uninitialized_variables(tf.global_variables()),
        )
        session = supervisor.prepare_or_wait_for_session(target, config=config)
        session.run(graph["copy"])
        batches = draw(options, feeds, images, labels)
        speed = measure(options, mode.workers, session, graph, batches)
        test = {feeds[0][0]: test_images, feeds[0][1]: test_labels}
        step, accuracy, weights = session.run([graph["steps"], graph["accuracy"], graph["weights"]], test)
    line = "worker {} of {} host {} step {} accuracy {:.4f}".format(
        options.task_index, mode.workers, socket.gethostname(), step, accuracy
    )
    if options.verify:
        line += " weights " + hashlib.sha256(b"".join(array.tobytes() for array in weights)).hexdigest()
    say(line)
    record(step=step, test_accuracy=accuracy, total_images_per_second=speed["total"])
    say("-" * 64 + "\ntotal images/sec: {:.2f}\n".format(speed["total"]) + "-" * 64)
    if options.task_index == 0:
        dlbs.report(parameters, results(options, mode.workers, speed))


def header(options, workers):
    each = options.batch_size * options.num_gpus
    say("\n".join((
        "TensorFlow:  {}".format(".".join(tf.__version__.split(".")[:2])),
        "Model:       {}".format(options.model),
        "Dataset:     digits",
        "Mode:        training",
        "Batch size:  {} global".format(each * workers),
        "             {} per device".format(options.batch_size),
        "Num batches: {}".format(options.num_batches),
        "Devices:     {}".format(options.devices),
        "Variables:   {}".format(options.variable_update),
        "AllReduce:   {}".format(options.all_reduce_spec or None),
        "Sync:        {}".format(options.cross_replica_sync),
        "==========",
    )))


def build(options, mode):
    """(each tower's placeholders, what a session runs)."""
    feeds, losses, towers = [], [], []
    for number in range(options.num_gpus):
        with mode.scope(number):
            x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
            scores = dense(tf.nn.relu(dense(x, 64, "hidden", 1)), 10, "output", 2)
            losses.append(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores)))
            towers.append(tf.gradients(losses[-1], used(number)))
        feeds.append((x, y))
        if number == 0:
            right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, 1, output_type=tf.int32), y), tf.float32))
    with tf.device(mode.place()):
        steps = tf.train.get_or_create_global_step()
    loss = tf.add_n(losses) / len(losses)
    summary = tf.summary.scalar("total_loss", loss)
    update = mode.update(towers, steps)
    graph = {"update": update, "loss": loss, "steps": steps, "accuracy": right, "weights": used(0)}
    graph.update(copy=mode.copy(), summary=summary)
    return feeds, graph


def used(tower):
    """The variables that a tower computes with: its own copies if it has them."""
    own = "v%d/" % tower
    copies = [one for one in tf.get_collection("towers") if one.op.name.startswith(own)]
    return copies or tf.trainable_variables(own) or tf.trainable_variables("v/")


def dense(inputs, width, name, seed):
    """The seed is the operation's own: all towers and all workers begin alike."""
    with tf.variable_scope(name):
        start = tf.glorot_uniform_initializer(seed=seed)
        weights = tf.get_variable("weights", [inputs.shape[1], width], initializer=start)
        return tf.matmul(inputs, weights) + tf.get_variable("bias", [width], initializer=tf.zeros_initializer())


def draw(options, feeds, images, labels):
    """Batches for ever: each tower of each worker has its own."""
    random = np.random.RandomState(options.task_index)
    while True:
        batch = {}
        for x, y in feeds:
            own = random.randint(len(labels), size=options.batch_size)
            batch.update({x: images[own], y: labels[own]})
        yield batch


def measure(options, workers, session, graph, batches):
    """Train; seconds of each step, and the images a second of the whole cluster."""
    writer = None
    if options.train_dir and options.task_index == 0:
        writer = tf.summary.FileWriter(options.train_dir, session.graph)
    say("Running warm up")
    for _ in range(options.num_warmup_batches):
        session.run(graph["update"], next(batches))
    say("Done warm up\nStep\tImg/sec\ttotal_loss")
    first, times = session.run(graph["steps"]), []
    for step in range(1, options.num_batches + 1):
        began = time.time()
        _, loss, summary = session.run([graph["update"], graph["loss"], graph["summary"]], next(batches))
        times.append(time.time() - began)
        if step == 1 or step % options.display_every == 0:
            images = options.batch_size * options.num_gpus
            say(display(step, images, times, loss))
            record(step=step, images_per_second=images / np.mean(times), loss=loss)
        if writer and step % options.save_summaries_steps == 0:
            writer.add_summary(summary, step)
    if writer:
        writer.close()
    alone = options.variable_update in variables.SERVERLESS
    shared = not alone and not options.cross_replica_sync
    steps = session.run(graph["steps"]) - first if shared else options.num_batches * workers
    return {"times": times, "total": steps * options.batch_size * options.num_gpus / sum(times)}


def display(step, images, times, loss):
    """Mean since the warm-up, its standard error, and how much single steps differ."""
    rates = images / np.array(times)
    jitter = 1.4826 * np.median(np.abs(rates - np.median(rates)))
    return "{}\timages/sec: {:.1f} +/- {:.1f} (jitter = {:.1f})\t{:.3f}".format(
        step, images / np.mean(times), np.std(rates) / np.sqrt(len(rates)), jitter, loss
    )


def results(options, workers, speed):
    """What DLBS's reports read. CPU devices count as devices: reports leave out rows with 0 of them."""
    total = options.num_gpus * workers
    milliseconds = [round(seconds * 1000, 3) for seconds in speed["times"]]
    on_gpus = options.devices[0].rpartition("/")[2].startswith("gpu")
    return {
        "exp.framework": "tensorflow",
        "exp.framework_title": "TensorFlow",
        "exp.framework_ver": tf.__version__,
        "exp.model": options.model,
        "exp.model_title": options.model,
        "exp.phase": "training",
        "exp.dtype": "float32",
        "exp.data": "real",
        "exp.device_type": "gpu" if on_gpus else "cpu",
        "exp.gpus": ",".join(map(str, range(options.num_gpus))) if on_gpus else "",
        "exp.num_nodes": workers,
        "exp.num_local_gpus": options.num_gpus,
        "exp.num_gpus": total,
        "exp.num_replicas": total,
        "exp.replica_batch": options.batch_size,
        "exp.effective_batch": options.batch_size * total,
        "exp.num_warmup_batches": options.num_warmup_batches,
        "exp.num_batches": options.num_batches,
        "results.throughput": round(speed["total"], 2),
        "results.time": round(sum(milliseconds) / len(milliseconds), 3),
        "results.time_data": milliseconds,
    }


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
    tf.disable_eager_execution()
    tf.logging.set_verbosity(tf.logging.ERROR)
    main()
