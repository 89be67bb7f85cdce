"""DLBS's parameters in, DLBS's result lines out: what a benchmark needs so that DLBS's parser and reports read it.

    -Pexp.replica_batch=16 -Pexp.dtype='"float16"'    NAME=JSON, as DLBS's experimenter takes parameters
    --config config.json                              the section "parameters" of an experimenter's file

A result line is `__NAME__=JSON` at the beginning of a line. The parameter `exp.log_file` names a file to which the same
lines are appended: there they have no prefix of the launcher.
"""

import argparse
import json
import os
import sys
import uuid


def take(argv, options):
    """(DLBS's parameters, arguments of the program). `options` maps a parameter to the program's option.

    What the user wrote as an option comes last, so it wins.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-P", dest="given", action="append", default=[], metavar="NAME=JSON")
    parser.add_argument("--config")
    own, rest = parser.parse_known_args(argv)
    parameters = dict(of_file(own.config)) if own.config else {}
    parameters.update(of_word(word) for word in own.given)
    words = [
        "{}={}".format(options[name], word(value)) for name, value in parameters.items() if name in options
    ]
    return parameters, words + rest


def of_file(path):
    with open(path) as file:
        for name, value in json.load(file).get("parameters", {}).items():
            value = value["val"] if isinstance(value, dict) else value
            if isinstance(value, str) and ("${" in value or "$(" in value):
                sys.exit("{}: {} is an expression that only DLBS evaluates; write its value".format(path, name))
            yield name, value


def of_word(text):
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        sys.exit("-P{}: the value is not JSON; a string has quotes of its own: -P{}='\"{}\"'".format(text, name, value))


def word(value):
    return value if isinstance(value, str) else json.dumps(value)


def report(parameters, results):
    """Write every parameter and every result; a result replaces the parameter of the same name."""
    lines = {"exp.id": str(uuid.uuid4()), "exp.status": "ok"}
    lines.update(parameters)
    lines.update(results)
    text = "".join("__{}__={}\n".format(name, json.dumps(value)) for name, value in lines.items())
    log = parameters.get("exp.log_file")
    if log:
        os.makedirs(os.path.dirname(log) or ".", exist_ok=True)
        with open(log, "a") as file:
            file.write(text)
    sys.stdout.write(text)  # one write: the lines of several processes come to one place and must not mix
    sys.stdout.flush()
