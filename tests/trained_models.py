"""The models that recipes leave in `runs/latest/outputs`: loaded by the lines of a README in a new process, which
computes the last metric from weights and data, and again after it has randomised the weights.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from batchtrain.shipped import shipped
from tests.environments import ROOT

LINES = re.compile(r"^## Load the model\n\n```python\n(.*?)^```", flags=re.M | re.S)
TOLERANCE = 0.01
"""Sums in another order, and precisions such as bf16, move a metric by less."""


class Evaluation(NamedTuple):
    """What a process does with a model that it has loaded. Python source of version 3.6."""

    metric: str
    """An expression of the model and its data."""
    randomise: str
    """A statement that gives the model other weights."""
    data: str
    file: str = "model.pt"
    """In the results of the task."""
    name: str = "test_accuracy"
    """Of the metric in `metrics.json`."""
    task: str = "train"


def digits(generator: str = "default_rng(0)", count: int = 261) -> str:
    """The images of scikit-learn on which a recipe tests, which it does not train on."""
    return f"""
import numpy
from sklearn.datasets import load_digits
digits = load_digits()
test = numpy.random.{generator}.permutation(len(digits.target))[:{count}]
images, labels = (digits.data[test] / 16).astype("float32"), digits.target[test]
"""


def accuracy(scores: str, randomise: str, data: str, file: str = "model.pt") -> Evaluation:
    return Evaluation(f"(numpy.asarray({scores}).argmax(1) == labels).mean()", randomise, data, file)


OF_TORCH = "[torch.nn.init.normal_(weight) for weight in model.parameters()]"
OF_NUMPY = "model = {name: numpy.random.normal(size=part.shape) for name, part in model.items()}"
OF_KERAS = "model.set_weights([numpy.random.normal(size=part.shape) for part in model.get_weights()])"
OLD_DIGITS = digits("RandomState(0)")
LAYERS = 'numpy.maximum(images @ model["w1"] + model["b1"], 0) @ model["w2"] + model["b2"]'

TORCH = accuracy("model(torch.tensor(images)).detach()", OF_TORCH, digits())
TENSORFLOW = accuracy(
    "model.scores(images)",
    "[part.assign(numpy.random.normal(size=part.shape)) for part in model.weights]",
    digits(),
    "model/saved_model.pb",
)
MXNET = accuracy(
    "model(mxnet.nd.array(images)).asnumpy()",
    "[part.set_data(mxnet.nd.random.normal(shape=part.data().shape)) for part in model.collect_params().values()]",
    OLD_DIGITS,
    "model-0000.params",
)
CNTK = accuracy(
    "model.eval(images)",
    "for part in model.parameters: part.value = numpy.random.normal(size=part.shape).astype('float32')",
    OLD_DIGITS,
    "model.dnn",
)
OF_MPI = accuracy(LAYERS, OF_NUMPY, digits(count=360), "weights.npz")
KERAS = accuracy("model.predict(images)", OF_KERAS, digits(), "model.keras")
OLD_KERAS = KERAS._replace(data=OLD_DIGITS, file="model.h5")

EVALUATIONS: Mapping[str, Evaluation] = {
    "PyTorch-Language-Model": Evaluation(
        "(lambda text: torch.nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()))"
        "(train.Text.made().batch(0, 'cpu'))",
        OF_TORCH,
        "import torch",
        name="loss",
    ),
    **dict.fromkeys(("PyTorch-CPU", "PyTorch-GPU", "Horovod-PyTorch", "DeepSpeed"), TORCH),
    "Accelerate": TORCH._replace(file="model.safetensors"),
    **dict.fromkeys(("TensorFlow-Distributed-CPU", "TensorFlow-Distributed-GPU"), TENSORFLOW),
    **dict.fromkeys(("TensorFlow-GPU", "Horovod-TensorFlow"), TENSORFLOW),
    **dict.fromkeys(("Keras+TensorFlow", "Keras+PyTorch", "Keras+JAX"), KERAS),
    **dict.fromkeys(("Keras+MXNet", "Keras+CNTK"), OLD_KERAS),
    **dict.fromkeys(("MXNet-CPU", "MXNet-GPU"), MXNET),
    **dict.fromkeys(("CNTK-CPU-OpenMPI", "CNTK-GPU-OpenMPI"), CNTK),
    **dict.fromkeys(("JAX", "Ray"), accuracy(LAYERS, OF_NUMPY, digits(), "model.npz")),
    **dict.fromkeys(("mpi4py-MPICH", "mpi4py-OpenMPI", "mpi4py-IntelMPI"), OF_MPI),
    "Digits-Sweep": accuracy(
        "numpy.exp(-float(model['gamma']) * ((images[:, None] * 16 - support[None]) ** 2).sum(2)) @ weights",
        "weights = numpy.random.normal(size=weights.shape)",
        digits("RandomState(0)", 360),
        "model.npz",
    )._replace(task="rbf-c10-gamma1e-3"),
}
"""The recipes that train. Benchmarks and the recipe of an existing document have programs of others."""


def lines(recipe: str) -> str:
    """What the README of a recipe tells its reader to run."""
    found = LINES.search((shipped("recipes") / recipe / "README.md").read_text(encoding="utf-8"))
    assert found is not None, recipe
    return found[1]


def check(recipe: str, prefix: Path, directory: Path, reported: float) -> None:
    """Check what a run in `directory` left. prefix: an environment with the framework. reported: the metric that the
    training printed."""
    case = EVALUATIONS[recipe]
    outputs = directory / "runs/latest/outputs" / case.task
    assert (outputs / case.file).is_file()
    assert abs(json.loads((outputs / "metrics.json").read_text())[case.name] - reported) < TOLERANCE
    trained, random = measured(recipe, prefix, directory)
    assert abs(trained - reported) < TOLERANCE
    assert not abs(random - reported) < TOLERANCE, "the metric does not depend on the weights"


def measured(recipe: str, prefix: Path, directory: Path) -> tuple[float, float]:
    """The metric of the model that a run left, and of the same model with random weights."""
    case = EVALUATIONS[recipe]
    show = f"print('metric', float({case.metric}))"
    program = "\n".join((case.data, lines(recipe), show, case.randomise, show))
    sources = directory / recipe  # the reader's copy, by `recipe new`
    if not sources.exists():
        sources.symlink_to(ROOT / "recipes" / recipe)
    done = subprocess.run(
        [prefix / "bin/python", "-c", program],
        cwd=directory,
        env={
            "PATH": f"{prefix}/bin:/usr/bin:/bin",
            "HOME": str(Path.home()),
            "OPAL_PREFIX": str(prefix),
            "LD_LIBRARY_PATH": f"{prefix}/lib",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    trained, random = (float(value) for value in re.findall(r"^metric (\S+)$", done.stdout, flags=re.M))
    return trained, random
