"""Declarations of tasks: `Problem`, its options and its corpus files."""

from t2t_lite.corpus.download import RawFiles, RemoteFile
from t2t_lite.corpus.parallel import read_parallel
from t2t_lite.problem.base import Problem, ProblemOptions, Text2TextProblem
from t2t_lite.problem.parallel_corpus import ParallelCorpus
from t2t_lite.problem.text_files import TextFiles

__all__ = [
    "TextFiles",
    "ParallelCorpus",
    "Problem",
    "ProblemOptions",
    "RawFiles",
    "RemoteFile",
    "Text2TextProblem",
    "read_parallel",
]
