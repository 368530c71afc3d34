"""A job as bytes, for machines that do not have the user's code."""

import copy
import pathlib
import sys
from importlib import metadata
from types import ModuleType

from t2t_lite.corpus.raw_files import RawFiles
from t2t_lite.datagen.beam.runner import cloudpickle
from t2t_lite.datagen.split_job import SplitJob


def ship(job: SplitJob, raw: RawFiles) -> bytes:
    """The job, where its corpus is, and its vocabulary files by name.

    The problem goes along with the modules it needs, unless they are installed.
    """
    quiet = copy.copy(raw)
    quiet.progress = False
    vocabulary = {
        name: (job.vocabulary_dir / name).read_bytes()
        for name in set(job.problem.vocabulary_files().values())
    }
    by_value = _modules_of_user(type(job.problem).__module__)
    for module in by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps((job, quiet, vocabulary))
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_of_user(name: str) -> list[ModuleType]:
    """What to send as code: the package of a module, or those beside it.

    An installed package is on the workers, too, and is not sent.
    """
    top = name.partition(".")[0]
    if top in (__name__.partition(".")[0], "__main__"):
        return []  # the latter is always sent
    if top in metadata.packages_distributions():
        return []
    package = sys.modules[top]
    if hasattr(package, "__path__"):
        return [package]
    folder = pathlib.Path(package.__file__ or "").parent
    return [
        module
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None))
        and pathlib.Path(file).parent == folder
        and module.__name__ == name
    ]
