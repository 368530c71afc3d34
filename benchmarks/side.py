"""The protocol between a benchmark and the sides that it compares.

Each side is a process, possibly in another environment. Sides take turns, so
that changes in the speed of the machine affect all of them.
"""

import json
import subprocess
import sys
import time


def serve(make_step, arguments):
    """Make a step from JSON arguments, and time it for each line of stdin."""
    step = make_step(*map(json.loads, arguments))
    step()
    step()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        count = json.loads(line)
        start = time.perf_counter()
        for _ in range(count):
            value = step()
        seconds = (time.perf_counter() - start) / count
        print(json.dumps({"seconds": seconds, "value": value}), flush=True)


class Side:
    """A running side.

    Args:
      python: the interpreter.
      script: the file that calls `serve`.
      arguments: arguments of `make_step`.
      stderr: destination of messages; None is our stderr.

    Attributes:
      value: result of the last step.
    """

    def __init__(self, python, script, *arguments, stderr=subprocess.DEVNULL):
        self.value = None
        self._process = subprocess.Popen(
            [python, script, *map(json.dumps, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        self._answer()

    def seconds(self, count):
        """Return the mean seconds of `count` steps."""
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        answer = self._answer()
        self.value = answer["value"]
        return answer["seconds"]

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended without an answer.")
        return json.loads(line)

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait()
