"""The protocol between a benchmark and the sides it compares.

Each side is a process, maybe of another virtual environment. The sides take
turns, so that a machine's changing speed affects all of them.
"""

import json
import subprocess
import sys
import time


def serve(make_step, arguments):
    """Make a step of the JSON arguments; time it when the benchmark asks."""
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
      python: the interpreter to run it with.
      script: its file.
      arguments: what its `make_step` is called with.
      stderr: where its messages go; None: where ours go.

    Attributes:
      value: what the last step gave.
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
        """Seconds a step takes, the mean of `count` steps."""
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
