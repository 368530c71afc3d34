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
    """The objects of lines of JSON."""
    return [json.loads(line) for line in lines]


def command_line(module):
    """The words that start a command in a process of its own."""
    code = f"from t2t_lite.bin.{module} import main; raise SystemExit(main())"
    return [sys.executable, "-c", code]


def last_of_each(argv):
    """The words of a command line; a later `--flag=value` replaces an earlier.

    So tests can change one of the flags that a fixture gives them.
    """
    words = {}
    for number, word in enumerate(map(str, argv)):
        flag, equals, _ = word.partition("=")
        key = flag if equals and flag.startswith("--") else number
        words.pop(key, None)
        words[key] = word
    return list(words.values())
