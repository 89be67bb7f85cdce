"""Kernel ridge regression on handwritten digits; writes its parameters and accuracy to a result.json, and its model."""

import argparse
import gzip
import json
import os
from importlib.util import find_spec

import numpy


def digits():
    """The digits of scikit-learn, without the time to import it: images, labels."""
    directory = list(find_spec("sklearn").submodule_search_locations)[0]
    with gzip.open(os.path.join(directory, "datasets", "data", "digits.csv.gz")) as file:
        rows = numpy.loadtxt(file, delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(int)


def kernel(kind, gamma, left, right):
    """The similarity of every two images."""
    products = left @ right.T
    if kind == "poly":
        return (gamma * products + 1) ** 3
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :]
    return numpy.exp(-gamma * (squares - 2 * products))


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kernel", default="rbf", choices=("rbf", "poly"))
    options.add_argument("--c", type=float, default=1.0, help="weight of an error")
    options.add_argument("--gamma", type=float, default=1e-3, help="width of the kernel")
    options.add_argument("--results", default=".", help="directory of the result.json")
    given = options.parse_args()
    by_hand = {"kernel": given.kernel, "c": given.c, "gamma": given.gamma}
    parameters = json.loads(os.environ.get("BATCHTRAIN_PARAMETERS") or json.dumps(by_hand))
    images, labels = digits()
    order = numpy.random.RandomState(0).permutation(len(images))
    train, test = order[360:], order[:360]
    similar = kernel(given.kernel, given.gamma, images[train], images[train])
    weights = numpy.linalg.solve(similar + numpy.eye(len(train)) / given.c, numpy.eye(10)[labels[train]])
    scores = kernel(given.kernel, given.gamma, images[test], images[train]) @ weights
    accuracy = float((scores.argmax(1) == labels[test]).mean())
    print("test accuracy {:.4f}".format(accuracy))
    record(test_accuracy=accuracy)
    os.makedirs(given.results, exist_ok=True)
    with open(os.path.join(given.results, "result.json"), "w") as file:
        json.dump({"parameters": parameters, "accuracy": accuracy}, file)
    keep(given, images[train].astype("uint8"), weights.astype("float32"), test_accuracy=accuracy)


def keep(given, images, weights, **metrics):
    """Write the model and its metrics to `output`, which comes home with the results."""
    os.makedirs("output", exist_ok=True)
    known = {"images": images, "weights": weights}
    numpy.savez_compressed("output/model.npz", kernel=given.kernel, gamma=given.gamma, **known)
    with open("output/metrics.json", "w") as file:
        json.dump(metrics, file)


def record(**values):
    """A line of JSON for the metrics of the run, if batchtrain gives a file for them."""
    if "BATCHTRAIN_METRICS" in os.environ:
        with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
            file.write(json.dumps(values, default=float) + "\n")


main()
