"""CPU time of a command's first answer, beside importing TensorFlow alone.

    .venv/bin/python benchmarks/first_answer.py --output_dir=.quickstart/run

The commands take turns in one run, so quote the ratios of the medians. With
--before=CHECKOUT, those of an older checkout take part; its .venv runs them.
"""

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
IMPORT = "import tensorflow, tensorflow_text"


def commands_of(checkout, run, text, export_dir):
    """Return the measured commands by name: arguments and stdin."""
    scripts = checkout / ".venv" / "bin"
    decoder = [scripts / "t2t-lite-decoder", f"--output_dir={run}"]
    exporter = [scripts / "t2t-lite-exporter", f"--output_dir={run}"]
    return {
        "translate a line": (decoder, f"{text}\n"),
        "score a line": ([*decoder, "--score"], f"{text}\t{text}\n"),
        "export": ([*exporter, f"--export_dir={export_dir}"], ""),
    }


def cpu_seconds(command, stdin):
    """User and system time of a process, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command,
        input=stdin.encode(),
        check=True,
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    """Print seconds, and how many imports each is worth."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output_dir", required=True, type=Path)
    parser.add_argument("--text", default="seven hundred and two")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = HERE / ".venv" / "bin" / "python"
        measured = {"import": ([python, "-c", IMPORT], "")}
        for mark, checkout in (("", HERE), ("before: ", flags.before)):
            if checkout:
                named = commands_of(
                    checkout.resolve(),
                    flags.output_dir.resolve(),
                    flags.text,
                    Path(folder) / (mark or "now"),
                )
                measured |= {mark + name: it for name, it in named.items()}
        seconds = {name: [] for name in measured}
        for _ in range(flags.rounds):
            for name, (command, stdin) in measured.items():
                seconds[name].append(cpu_seconds(command, stdin))
    alone = statistics.median(seconds["import"])
    for name, each in seconds.items():
        median = statistics.median(each)
        print(
            f"{name:26} {median:6.2f} s of CPU ({min(each):.2f} to "
            f"{max(each):.2f})   {median / alone:.2f} imports"
        )


if __name__ == "__main__":
    main()
