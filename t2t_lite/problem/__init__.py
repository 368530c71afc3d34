"""What a task declares."""

from t2t_lite.problem.base import Problem, Text2TextProblem

__all__ = ["Problem", "Text2TextProblem"]
