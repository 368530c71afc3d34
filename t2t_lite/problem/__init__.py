"""What a task declares: `Problem`, and the files that it may name and read."""

from t2t_lite.corpus.parallel_lines import read_parallel
from t2t_lite.corpus.raw_files import RawFiles, RemoteFile
from t2t_lite.problem.base import Problem, Text2TextProblem
from t2t_lite.problem.option import Option
from t2t_lite.problem.own_text import OwnText
from t2t_lite.problem.parallel_corpus import ParallelCorpus

__all__ = [
    "Option",
    "OwnText",
    "ParallelCorpus",
    "Problem",
    "RawFiles",
    "RemoteFile",
    "Text2TextProblem",
    "read_parallel",
]
