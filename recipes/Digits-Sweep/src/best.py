"""Prints the best results of the tasks before it."""

import argparse
import glob
import json
import os


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("directory", help="has a result.json in a directory for each task")
    options.add_argument("--most", type=int, default=5, help="number of results to print")
    given = options.parse_args()
    results = []
    for path in glob.glob(os.path.join(given.directory, "*", "result.json")):
        with open(path) as file:
            results.append(json.load(file))
    results.sort(key=lambda result: (-result["accuracy"], json.dumps(result["parameters"])))
    print("{} results".format(len(results)))
    for result in results[: given.most]:
        print("{:.4f} {}".format(result["accuracy"], json.dumps(result["parameters"])))
    print("best {} test accuracy {:.4f}".format(json.dumps(results[0]["parameters"]), results[0]["accuracy"]))


main()
