"""Measure the latency of single lines: load, the prompt, the server and peers.

    python benchmarks/latency.py --output_dir=RUN --lines=test.en \
        [--transformers=.huggingface/bin/python]

Each side is an open process; sides take turns, a line each. The first lines
are not counted, because `load` and the prompt compile in the background. The
pipeline of transformers requires a post-norm run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from serving import Server

SCRIPTS = Path(sys.executable).parent
LOOP = "for line in sys.stdin: print(translate(line.rstrip()), flush=True)"
LOAD = f"""import sys, t2t_lite
translate = t2t_lite.load(sys.argv[1])
{LOOP}"""
PIPELINE = f"""import sys, transformers
pipeline = transformers.pipeline("translation", model=sys.argv[1])
translate = lambda text: pipeline(text)[0]["translation_text"]
{LOOP}"""


class Lines:
    """A process that writes the translation of each line that it reads."""

    def __init__(self, *command):
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def translate(self, line):
        """Return the translation of a line."""
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().strip()


class Rest(Server):
    """A server over REST."""

    def translate(self, line):
        """Return the translation of a line."""
        body = json.dumps({"instances": [line]}).encode()
        url = f"{self.url}/v1/models/default:predict"
        with urllib.request.urlopen(url, body) as response:
            return json.load(response)["predictions"][0]["outputs"]


def start_sides(run, folder, transformers):
    """Export the run and return the sides by name."""

    def export(engine):
        path = folder / engine
        command = [SCRIPTS / "t2t-lite-exporter", f"--output_dir={run}"]
        flags = [f"--export_dir={path}", f"--format={engine}"]
        subprocess.run([*command, *flags], check=True, capture_output=True)
        return path

    python = sys.executable
    prompt = [SCRIPTS / "t2t-lite-decoder", f"--output_dir={run}"]
    prompt.append("--interactive")
    saved_model, ctranslate2 = export("saved_model"), export("ctranslate2")
    hub = transformers and next(export("huggingface").iterdir())
    sides = {
        "load": Lines(python, "-c", LOAD, run),
        "load, ctranslate2": Lines(python, "-c", LOAD, ctranslate2),
        "prompt": Lines(*prompt),
        "prompt, ctranslate2": Lines(*prompt, "--backend=ctranslate2"),
        "server": Rest(python, saved_model),
    }
    if transformers:
        sides["transformers"] = Lines(transformers, "-c", PIPELINE, hub)
    return sides


def main():
    """Print percentiles and the number of different translations."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output_dir", required=True, type=Path)
    parser.add_argument("--lines", required=True, type=Path)
    parser.add_argument("--count", type=int, default=200, help="of lines")
    parser.add_argument("--warmup", type=int, default=100, help="lines before")
    parser.add_argument("--transformers", help="a Python with transformers 4")
    flags = parser.parse_args()
    lines = flags.lines.read_text().splitlines()[: flags.warmup + flags.count]
    run = flags.output_dir.resolve()
    with tempfile.TemporaryDirectory() as folder:
        sides = start_sides(run, Path(folder), flags.transformers)
        times = {name: [] for name in sides}
        different = dict.fromkeys(sides, 0)
        for line in lines:
            answers = {}
            for name, side in sides.items():
                start = time.perf_counter()
                answers[name] = side.translate(line)
                times[name].append(1000 * (time.perf_counter() - start))
                different[name] += answers[name] != answers["load"]
        for side in sides.values():
            side.process.terminate()
            side.process.wait()
    for name, each in times.items():
        percentiles = statistics.quantiles(each[flags.warmup :], n=100)
        print(
            f"{name:20} p50 {percentiles[49]:6.1f} ms, p99 "
            f"{percentiles[98]:6.1f} ms, {different[name]} of {len(lines)} "
            "translations differ"
        )


if __name__ == "__main__":
    main()
