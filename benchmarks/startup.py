"""Compare the CPU time of whole commands with that of importing TensorFlow.

    python benchmarks/startup.py --output_dir=.quickstart/run

The commands take turns in one run, so quote the ratios of the medians. The
environment of another checkout, --before, adds the same commands.
"""

import argparse
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
IMPORT = "import tensorflow, tensorflow_text"


def commands_of(checkout, run, text, folder):
    """Return commands and their input by name."""

    def command(name, *flags):
        return [checkout / ".venv/bin" / f"t2t-lite-{name}", *flags]

    decoder = command("decoder", f"--output_dir={run}")
    exporter = command("exporter", f"--output_dir={run}")
    big = ["--problem=wmt_ende", "--hparams=transformer_big", "--dry_run"]
    return {
        "translate a line": (decoder, f"{text}\n"),
        "score a line": ([*decoder, "--score"], f"{text}\t{text}\n"),
        "export": ([*exporter, f"--export_dir={folder}"], ""),
        "dry run of big": (command("trainer", *big), ""),
    }


def cpu_seconds(command, stdin):
    """Return the user and system time of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, input=stdin.encode(), check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    """Print the CPU time of each command, in seconds and in imports."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output_dir", required=True, type=Path)
    parser.add_argument("--text", default="seven hundred and two")
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    run = flags.output_dir.resolve()
    with tempfile.TemporaryDirectory() as folder:
        python = HERE / ".venv/bin/python"
        commands = {"import": ([python, "-c", IMPORT], "")}
        for name, checkout in (("", HERE), ("before: ", flags.before)):
            if checkout:
                export_dir = Path(folder) / (name or "now")
                own = commands_of(
                    checkout.resolve(), run, flags.text, export_dir
                )
                commands |= {name + key: value for key, value in own.items()}
        seconds = {name: [] for name in commands}
        for _ in range(flags.rounds):
            for name, command in commands.items():
                seconds[name].append(cpu_seconds(*command))
    imports = statistics.median(seconds["import"])
    for name, each in seconds.items():
        median = statistics.median(each)
        print(
            f"{name:26} {median:6.2f} s of CPU ({min(each):.2f} to "
            f"{max(each):.2f}), {median / imports:.2f} imports"
        )


if __name__ == "__main__":
    main()
