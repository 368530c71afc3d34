"""Map four folders to one import package.

The rooms at the top of the repository (`problems/`, `hparams/`, `bin/`) install
inside `t2t_lite`, so no generic name lands in a user's site-packages. All else
about the distribution stands in pyproject.toml, exact versions in
constraints.txt.
"""

from setuptools import find_packages, setup

FOLDERS = {
    "t2t_lite": "t2t_lite",
    "t2t_lite.problems": "problems",
    "t2t_lite.hparams": "hparams",
    "t2t_lite.bin": "bin",
}

setup(
    packages=[
        name
        for top, folder in FOLDERS.items()
        for name in (top, *(f"{top}.{part}" for part in find_packages(folder)))
    ],
    package_dir=FOLDERS,
    package_data={
        "t2t_lite": ["py.typed"],
        "t2t_lite.serving.page": ["static/*"],
    },
)
