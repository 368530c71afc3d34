"""A request that is not answered: why, in one line, and its status."""

import enum

_LONGEST = 1000  # of a message; gRPC has room for a few thousand bytes


class Status(enum.Enum):
    """A status by its name in gRPC, with its number there and in HTTP.

    The pairs are those of TensorFlow Serving, but for RESOURCE_EXHAUSTED, a
    full queue: 429 there, whose own full queue is UNAVAILABLE.
    """

    CANCELLED = (1, 499)
    UNKNOWN = (2, 500)
    INVALID_ARGUMENT = (3, 400)
    DEADLINE_EXCEEDED = (4, 504)
    NOT_FOUND = (5, 404)
    ALREADY_EXISTS = (6, 409)
    PERMISSION_DENIED = (7, 403)
    RESOURCE_EXHAUSTED = (8, 503)
    FAILED_PRECONDITION = (9, 400)
    ABORTED = (10, 409)
    OUT_OF_RANGE = (11, 400)
    UNIMPLEMENTED = (12, 501)
    INTERNAL = (13, 500)
    UNAVAILABLE = (14, 503)
    DATA_LOSS = (15, 500)
    UNAUTHENTICATED = (16, 401)

    def __init__(self, number: int, http: int):
        self.number = number
        self.http = http


class Refusal(Exception):
    """Raised for a request that gets no answer.

    Args:
      status: its kind.
      message: one line that states the rule and the value.
    """

    def __init__(self, status: Status, message: str):
        super().__init__(message)
        self.status = status
        line = " ".join(message.split())
        self.message = (
            line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
        )


def invalid(message: str) -> Refusal:
    """The refusal of a request that is wrong by itself."""
    return Refusal(Status.INVALID_ARGUMENT, message)
