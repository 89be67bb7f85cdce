"""`python -m tests.detection_table`: what `run` makes of the shapes of the example programs of the frameworks.

Each shape is a small twin of a kind of example: its imports, and how it begins. None of their text is here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from batchtrain.errors import BatchtrainError
from batchtrain.scripts.recipe import Wish, prepare

RIGHT, WARNED, REFUSED = "right", "warned", "refused"
MAIN = 'if __name__ == "__main__":\n    '
SPAWN = "import torch, torch.multiprocessing as mp\n"


class Shape(NamedTuple):
    """A kind of example, and what is expected."""

    text: str
    framework: str
    verdict: str = RIGHT


SHAPES = {
    "PyTorch: one device": Shape(f"import torch\ndef main(): ...\n{MAIN}main()\n", "pytorch"),
    "PyTorch: for torchrun": Shape(f"import os, torch\ndef main(): os.environ['RANK']\n{MAIN}main()\n", "pytorch"),
    "PyTorch: hydra around main": Shape(
        f"import hydra, torch\nfrom omegaconf import OmegaConf\n@hydra.main()\ndef main(cfg): ...\n{MAIN}main()\n",
        "pytorch",
    ),
    "PyTorch: spawns if an option says so": Shape(
        f"{SPAWN}def main():\n    if args.multi:\n        mp.spawn(work)\n    else:\n        work(0)\n{MAIN}main()\n",
        "pytorch", WARNED,
    ),
    "PyTorch: spawns unless there is one GPU": Shape(
        f"{SPAWN}def main():\n    if count < 2:\n        return work(0)\n    mp.spawn(work)\n{MAIN}main()\n",
        "pytorch", WARNED,
    ),
    "PyTorch: a function that nothing calls": Shape(
        f"{SPAWN}def demo():\n    mp.spawn(work)\nwork(0)\n", "pytorch", WARNED
    ),
    "PyTorch: a test in the same file": Shape(
        f"{SPAWN}class TestIt:\n    def test(self):\n        mp.spawn(work)\n{MAIN}work(0)\n", "pytorch", WARNED
    ),
    "PyTorch: spawns in the file itself": Shape(f"{SPAWN}{MAIN}mp.spawn(work, nprocs=2)\n", "pytorch", REFUSED),
    "PyTorch: spawns in main": Shape(
        f"{SPAWN}def main():\n    size = 2\n    mp.spawn(work, nprocs=size)\n{MAIN}main()\n", "pytorch", REFUSED
    ),
    "PyTorch: spawns after a check": Shape(
        f"{SPAWN}def main():\n    if not count:\n        raise ValueError\n    mp.spawn(work)\n{MAIN}main()\n",
        "pytorch", REFUSED,
    ),
    "PyTorch: spawns in a function of main": Shape(
        f"{SPAWN}def run(f):\n    mp.spawn(f)\ndef main():\n    run(work)\n{MAIN}main()\n", "pytorch", REFUSED
    ),
    "PyTorch: starts torchrun": Shape(f"import torch, subprocess\n{MAIN}subprocess.run(['torchrun', 'a.py'])\n",
                                      "pytorch", REFUSED),
    "PyTorch: processes that share a model": Shape(
        f"{SPAWN}{MAIN}[mp.Process(target=f).start() for f in fs]\n", "pytorch"
    ),
    "Lightning": Shape("import lightning as L\nL.Trainer(devices=2).fit(model)\n", "pytorch"),
    "Horovod: PyTorch": Shape("import torch, horovod.torch as hvd\nhvd.init()\n", "horovod"),
    "Horovod: its run function behind an option": Shape(
        "import torch, horovod, horovod.torch as hvd\n"
        f"{MAIN}if args.num_proc:\n        horovod.run(main)\n    else:\n        main()\n",
        "horovod", WARNED,
    ),
    "Horovod: its run function": Shape(f"import horovod, horovod.torch\n{MAIN}horovod.run(main, np=2)\n",
                                       "horovod", REFUSED),
    "Horovod: Keras": Shape("import keras, horovod.keras as hvd\nhvd.init()\n", "horovod"),
    "Horovod: TensorFlow": Shape("import tensorflow as tf, horovod.tensorflow as hvd\nhvd.init()\n", "horovod"),
    "Horovod: MXNet": Shape("import mxnet as mx, horovod.mxnet as hvd\nhvd.init()\n", "horovod"),
    "Horovod: only with an option": Shape(
        "import torch\nif args.horovod:\n    import horovod.torch as hvd\n", "pytorch"
    ),
    "Accelerate": Shape("import torch\nfrom accelerate import Accelerator\nAccelerator()\n", "accelerate"),
    "Accelerate: Transformers": Shape("import torch, datasets\nfrom transformers import Trainer\n", "accelerate"),
    "Accelerate: from a notebook": Shape(
        "import torch\nfrom accelerate import notebook_launcher\nnotebook_launcher(train)\n", "accelerate", REFUSED
    ),
    "DeepSpeed": Shape("import torch, deepspeed\ndeepspeed.initialize()\n", "deepspeed"),
    "PyTorch: Transformers in a method that is not called": Shape(
        "import torch\nclass Net:\n    def pretrained(self):\n        import transformers\nNet()\n", "pytorch"
    ),
    "DeepSpeed: imported in main": Shape(
        f"import torch\ndef main():\n    import deepspeed\n    deepspeed.initialize()\n{MAIN}main()\n", "deepspeed"
    ),
    "DeepSpeed: only if it is there": Shape(
        "import torch\ntry:\n    import deepspeed\nexcept ImportError:\n    deepspeed = None\n", "pytorch"
    ),
    "DeepSpeed: with a reason if it is missing": Shape(
        "import torch\ntry:\n    import deepspeed\nexcept ImportError:\n    print()\n    exit(1)\n", "deepspeed"
    ),
    "Keras": Shape("import keras\nkeras.Model()\n", "tensorflow"),
    "Keras: on JAX": Shape("import jax, keras\n", "jax"),
    "JAX: Flax and absl": Shape(
        "from absl import app, flags\nimport jax, optax\nfrom flax import linen\n"
        f"def main(argv): ...\n{MAIN}app.run(main)\n",
        "jax",
    ),
    "Ray: trainer": Shape(
        "import torch, ray\nfrom ray.train.torch import TorchTrainer\nTorchTrainer(f).fit()\n", "ray"
    ),
    "MXNet: Gluon": Shape("import mxnet as mx\nfrom mxnet import gluon\nmx.kv.create('dist_sync')\n", "mxnet"),
    "mpi4py": Shape("from mpi4py import MPI\nMPI.COMM_WORLD.rank\n", "mpi"),
    "TensorFlow: mirrored workers": Shape("import tensorflow as tf\ntf.distribute\n", "tensorflow"),
    "JAX: TensorFlow reads its data": Shape("import jax, tensorflow as tf\ntf.data.Dataset\n", "jax"),
    "PyTorch: TensorFlow writes its events": Shape("import torch\nimport tensorflow as tf\n", "pytorch"),
    "NumPy": Shape("import numpy as np\n", "none"),
}  # fmt: skip


def judged(shape: Shape) -> tuple[str, str]:
    """The framework of a shape, and the verdict."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "train.py")
        path.write_text(shape.text, encoding="utf-8")
        try:
            prepared = prepare(path, Wish(), local=True)
        except BatchtrainError:
            return prepare(path, Wish(), local=True, runs=False).choice.name, REFUSED
        warned = any(warning.rule == "script-launcher" for warning in prepared.recipe.warnings)
        return prepared.choice.name, WARNED if warned else RIGHT


def rows() -> Iterator[str]:
    """The table, and its sums."""
    verdicts = {name: judged(shape) for name, shape in SHAPES.items()}
    for name, (framework, verdict) in verdicts.items():
        yield f"{name:45} {framework:12} {verdict}"
    counts = (f"{sum(v == verdict for _, v in verdicts.values())} {verdict}" for verdict in (RIGHT, WARNED, REFUSED))
    yield ", ".join(counts)


if __name__ == "__main__":
    print("\n".join(rows()))
