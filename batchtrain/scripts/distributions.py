"""Which packages of PyPI bring a module. Tables: a module has the name of its package only where a table says so."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from batchtrain.config.source_packages import normalized

# fmt: off
SAME_NAME = frozenset(re.split(" ", (
    "accelerate adlfs aiohttp albumentations altair av bitsandbytes boto3 bokeh catboost chex click cloudpickle"
    " colorama cupy dask datasets decord deepspeed diffusers dill distributed einops evaluate fastapi fastai filelock"
    " fire flask flax fsspec ftfy gcsfs gensim gymnasium h5py horovod httpx imageio jax jaxlib jieba jinja2 joblib"
    " jsonschema kornia librosa lightgbm lightning lmdb loguru markdown matplotlib mlflow monai mpi4py msgpack mxnet"
    " networkx nltk numba numpy ogb omegaconf onnx onnxruntime openai optax optuna packaging pandas peft plotly polars"
    " prettytable psutil pyarrow pycocotools pydantic ray regex requests rich s3fs sacrebleu sacremoses safetensors"
    " scipy seaborn sentencepiece six soundfile spacy statsmodels submitit sympy tabulate tensorboard tensorflow"
    " termcolor tifffile tiktoken timm tokenizers toml tomli torch torchaudio torchdata torchmetrics torchtext"
    " torchvision tqdm transformers triton trl typer ultralytics unidecode uvicorn wandb webdataset xarray xgboost"
    " xxhash yacs zarr"
)))
"""Modules that a package of the same name brings."""

OTHER_NAME: Mapping[str, tuple[str, ...]] = {module: tuple(packages.split()) for module, packages in {
    "Crypto": "pycryptodome", "IPython": "ipython", "Levenshtein": "levenshtein python-levenshtein",
    "MySQLdb": "mysqlclient", "OpenGL": "pyopengl", "OpenSSL": "pyopenssl", "PIL": "pillow pillow-simd",
    "absl": "absl-py", "attr": "attrs", "attrs": "attrs", "bs4": "beautifulsoup4",
    "cv2": "opencv-python opencv-python-headless opencv-contrib-python opencv-contrib-python-headless",
    "dateutil": "python-dateutil", "docx": "python-docx", "dotenv": "python-dotenv", "faiss": "faiss-cpu faiss-gpu",
    "fitz": "pymupdf", "git": "gitpython", "huggingface_hub": "huggingface-hub", "hydra": "hydra-core",
    "igraph": "igraph python-igraph", "jose": "python-jose", "jwt": "pyjwt",
    "keras": "keras tensorflow tensorflow-cpu tensorflow-gpu", "kafka": "kafka-python",
    "lightning_fabric": "lightning-fabric lightning", "magic": "python-magic", "ml_collections": "ml-collections",
    "mpl_toolkits": "matplotlib", "orbax": "orbax-checkpoint", "pkg_resources": "setuptools", "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary psycopg2", "pycuda": "pycuda", "pynvml": "nvidia-ml-py pynvml",
    "pytorch_lightning": "pytorch-lightning lightning", "rouge_score": "rouge-score", "ruamel": "ruamel-yaml",
    "sentence_transformers": "sentence-transformers", "serial": "pyserial", "setuptools": "setuptools",
    "skimage": "scikit-image", "sklearn": "scikit-learn", "slugify": "python-slugify",
    "stable_baselines3": "stable-baselines3", "tensorboardX": "tensorboardx",
    "tensorflow": "tensorflow tensorflow-cpu tensorflow-gpu", "tensorflow_datasets": "tensorflow-datasets tfds-nightly",
    "tensorflow_hub": "tensorflow-hub", "tensorflow_probability": "tensorflow-probability",
    "torch_geometric": "torch-geometric", "typing_extensions": "typing-extensions", "umap": "umap-learn",
    "usb": "pyusb", "yaml": "pyyaml", "zmq": "pyzmq",
}.items()}
"""Packages that bring a module of another name, or of several names; the first one is the usual one."""

ALSO_BRINGS: Mapping[str, tuple[str, ...]] = {package: tuple(others.split()) for package, others in {
    "accelerate": "torch numpy packaging psutil pyyaml huggingface-hub safetensors",
    "albumentations": "numpy scipy pyyaml pydantic opencv-python-headless",
    "datasets": "numpy pandas pyarrow dill requests tqdm xxhash fsspec aiohttp filelock huggingface-hub packaging"
    " pyyaml",
    "deepspeed": "torch numpy einops msgpack packaging psutil pydantic tqdm",
    "diffusers": "numpy pillow regex requests filelock huggingface-hub safetensors",
    "evaluate": "datasets numpy pandas", "flax": "jax optax numpy msgpack rich pyyaml orbax-checkpoint",
    "gymnasium": "numpy cloudpickle", "h5py": "numpy",
    "huggingface-hub": "filelock fsspec packaging pyyaml tqdm requests",
    "hydra-core": "omegaconf packaging", "jax": "jaxlib numpy scipy", "keras": "numpy absl-py rich h5py packaging",
    "keras-mxnet": "keras", "kornia": "torch packaging", "librosa": "numpy scipy numba scikit-learn joblib soundfile",
    "lightgbm": "numpy scipy", "lightning": "torch torchmetrics pytorch-lightning fsspec numpy packaging pyyaml tqdm",
    "matplotlib": "numpy pillow packaging python-dateutil",
    "mlflow": "numpy pandas scipy scikit-learn matplotlib pyarrow requests pyyaml cloudpickle gitpython flask click",
    "monai": "torch numpy", "nltk": "click joblib regex tqdm", "numba": "numpy", "omegaconf": "pyyaml",
    "opencv-contrib-python": "numpy", "opencv-python": "numpy", "opencv-python-headless": "numpy",
    "optax": "jax numpy absl-py chex", "optuna": "numpy packaging tqdm pyyaml", "pandas": "numpy python-dateutil",
    "peft": "torch transformers accelerate tqdm psutil", "pytorch-lightning": "torch torchmetrics fsspec packaging"
    " pyyaml tqdm numpy", "ray": "click filelock jsonschema msgpack packaging pyyaml requests",
    "scikit-image": "numpy scipy networkx pillow imageio tifffile packaging", "scikit-learn": "numpy scipy joblib",
    "scipy": "numpy", "seaborn": "matplotlib pandas numpy",
    "sentence-transformers": "torch transformers scikit-learn scipy numpy tqdm pillow",
    "spacy": "numpy pydantic requests tqdm jinja2 typer",
    "stable-baselines3": "torch gymnasium numpy pandas matplotlib",
    "statsmodels": "numpy pandas scipy packaging",
    "tensorboard": "numpy absl-py markdown packaging setuptools",
    "tensorflow": "keras tensorboard numpy h5py absl-py requests six termcolor packaging typing-extensions",
    "tensorflow-cpu": "tensorflow", "tensorflow-gpu": "tensorflow", "timm": "torch torchvision pyyaml safetensors",
    "tokenizers": "huggingface-hub", "torch": "fsspec filelock jinja2 networkx sympy typing-extensions",
    "torch-geometric": "numpy aiohttp fsspec jinja2 psutil requests tqdm xxhash", "torchaudio": "torch",
    "torchmetrics": "torch numpy packaging", "torchvision": "torch numpy pillow",
    "transformers": "numpy huggingface-hub tokenizers safetensors regex requests filelock tqdm packaging pyyaml",
    "trl": "accelerate datasets transformers", "ultralytics": "torch torchvision numpy matplotlib opencv-python pillow"
    " pyyaml requests scipy psutil polars", "wandb": "click gitpython pydantic pyyaml requests packaging",
    "xarray": "numpy pandas packaging", "xgboost": "numpy scipy",
}.items()}
"""Packages that always install others whose modules scripts import."""
# fmt: on


def packages_of(module: str) -> tuple[str, ...]:
    """The packages that bring a module, the usual one first; none if no table has it."""
    return OTHER_NAME.get(module, (module,) if module in SAME_NAME else ())


def brings(packages: Collection[str], module: str) -> bool:
    """Whether one of the packages, or one that they install, brings the module. For a module that no table has: whether
    the name of one begins with its name, as `azure-storage-blob` does for `azure`."""
    if names := packages_of(module):
        return not _closure(packages).isdisjoint(names)
    name = normalized(module)
    return any(package == name or name in package.split("-") or package == f"py{name}" for package in packages)


def _closure(packages: Collection[str]) -> set[str]:
    """The packages with all that they install."""
    names = list(packages)
    for name in names:  # grows on the way
        names += [other for other in ALSO_BRINGS.get(name, ()) if other not in names]
    return set(names)
