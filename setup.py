"""Packaging of t2t-lite: one import package from four folders.

The rooms at the top of the repository (`problems/`, `hparams/`, `bin/`) install
inside `t2t_lite`, so no generic name lands in a user's site-packages.
Exact versions are in constraints.txt; here are the ranges that may work.
"""

import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
ROOMS = ("problems", "hparams", "bin")
COMMANDS = {
    "trainer": "trainer",
    "decoder": "decoder",
    "datagen": "datagen",
    "evaluator": "evaluator",
    "average": "average_checkpoints",
    "exporter": "exporter",
    "bleu": "bleu",
    "bracket-f1": "bracket_f1",
    "registry": "registry",
    "attention": "attention",
}


def version():
    """Returns `__version__` of the package, read without importing it."""
    text = (ROOT / "t2t_lite" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE).group(1)


def packages():
    """Returns (package names, package_dir) of the engine and the rooms."""
    names = ["t2t_lite"]
    names += [f"t2t_lite.{name}" for name in find_packages("t2t_lite")]
    folders = {"t2t_lite": "t2t_lite"}
    for room in ROOMS:
        folders[f"t2t_lite.{room}"] = room
        names.append(f"t2t_lite.{room}")
        names += [f"t2t_lite.{room}.{name}" for name in find_packages(room)]
    return names, folders


PACKAGES, PACKAGE_DIR = packages()

setup(
    name="t2t-lite",
    version=version(),
    description="A Transformer for text-to-text work: corpus to served model",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.14",
    packages=PACKAGES,
    package_dir=PACKAGE_DIR,
    package_data={"t2t_lite.decoding": ["*.html"]},
    install_requires=[
        "tensorflow>=2.21,<2.22",
        "tensorflow-text>=2.21,<2.22",
        "tensorflow-datasets>=4.9.9,<5",
        "importlib_resources>=6",  # the former imports it without saying so
        "tensorboard>=2.20,<2.22",
        "keras>=3.12,<4",
        "numpy>=2.1,<3",
        "sentencepiece>=0.2.1,<0.3",
        # Later ones need a protobuf that TensorFlow Metadata bars there.
        'sentencepiece<0.2.3; python_version < "3.11"',
        "sacrebleu>=2.5,<3",
        "sacremoses>=0.2,<0.3",
        "lxml>=5,<7",
        "backports.zstd>=1,<2",
        "nltk>=3.10,<4",
        "num2words>=0.5.14,<0.6",
        "rich>=13,<16",
    ],
    extras_require={
        # Its tokenizer reads our vocabularies; the engine needs none of it,
        # and it has left Python 3.10.
        "keras-hub": ['keras-hub>=0.32,<1; python_version >= "3.11"'],
        # The picture of `t2t-lite-datagen --inspect`.
        "plot": ["matplotlib>=3.10,<4"],
        # For t2t-lite-datagen --runner. It takes no protobuf 7, which later
        # versions of sentencepiece need without saying so, and which
        # constraints.txt pins for Python 3.11 and later.
        "beam": [
            "apache-beam>=2.77,<3",
            "cloudpickle>=3,<4",
            "sentencepiece<0.2.3",
        ],
        # selenium drives a Chromium, where there is one; on JAX, which has left
        # Python 3.10, the model core runs, too.
        "dev": [
            "matplotlib>=3.10,<4",
            "pytest>=8",
            "ruff>=0.14",
            "selenium>=4.30,<5",
            'jax>=0.6,<1; python_version >= "3.11"',
        ],
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.22"],
    },
    entry_points={
        "console_scripts": [
            f"t2t-lite-{command} = t2t_lite.bin.{module}:main"
            for command, module in COMMANDS.items()
        ],
        "t2t_lite.plugins": [
            "problems = t2t_lite.problems",
            "hparams = t2t_lite.hparams",
        ],
    },
)
