"""Files of lines, and command lines."""

import json
import sys


def write(path, lines):
    r"""Write lines that end in "\n" and nothing else; return the path."""
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def two_files(folder, flags, *sides):
    """Write a file for each flag; return the flags with the paths."""
    return [
        f"--{flag}={write(folder / flag, lines)}"
        for flag, lines in zip(flags, sides, strict=True)
    ]


def records(lines):
    """Parse lines of JSON."""
    return [json.loads(line) for line in lines]


def command_line(module):
    """Return the arguments that run a command in a separate process."""
    code = f"from t2t_lite.bin.{module} import main; raise SystemExit(main())"
    return [sys.executable, "-c", code]


def last_of_each(argv):
    """Return a command line with only the last `--flag=value` of each flag.

    Tests use it to override the flags of a fixture.
    """
    words = {}
    for number, word in enumerate(map(str, argv)):
        flag, equals, _ = word.partition("=")
        key = flag if equals and flag.startswith("--") else number
        words.pop(key, None)
        words[key] = word
    return list(words.values())
