"""What a task declares: `Problem`, and the files that it may name and read."""

from t2t_lite.corpus.raw_files import RawFiles, RemoteFile, read_parallel
from t2t_lite.problem.base import Problem, Text2TextProblem

__all__ = [
    "Problem",
    "RawFiles",
    "RemoteFile",
    "Text2TextProblem",
    "read_parallel",
]
