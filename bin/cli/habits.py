"""Takes tensor2tensor's names for flags and problems, and says today's.

The tables are in `old_names`; other names of problems are declared with them.
"""

import argparse
import pathlib
from collections.abc import Collection, Iterator, Sequence

from t2t_lite import recipe, registry
from t2t_lite.bin.cli.old_names import FLAGS, SETS, Old
from t2t_lite.errors import UsageError

_NO = ("false", "0", "no", "f", "n")


def todays_words(
    parser: argparse.ArgumentParser, words: Sequence[str]
) -> tuple[list[str], str]:
    """A command line in today's flags.

    Args:
      parser: of the command. A flag that it has is left alone, and so is one
        whose counterpart it lacks.
      words: the command line.

    Returns:
      the words to parse, and a remark on those that were others; "" if none.

    Raises:
      UsageError: a flag or a value of tensor2tensor has no counterpart.
    """
    known = parser._option_string_actions
    read = list(_flags_in(words, known))
    given = {flag: value for _, flag, value, _ in read}
    new: list[str] = []
    remarks = []
    for spelled, flag, value, old in read:
        if old is None:
            new += spelled
            continue
        if flag == "--hparams" and "--hparams_override" not in known:
            raise UsageError(
                f"--hparams={value}: a run keeps its hparams; leave it out."
            )
        todays: Sequence[str] = [f"{old.flag}={value}"]
        if old.convert:
            todays = old.convert(value, given)
        new += todays
        told = old.told or SETS.get(value, "")
        remarks.append(
            f"{' '.join(spelled)} is {' '.join(todays) or 'not needed'}"
            + f" ({told})" * bool(told)
        )
    if not remarks:
        return new, ""
    return new, f"tensor2tensor's words in ours: {'; '.join(remarks)}."


def _flags_in(
    words: Sequence[str], known: Collection[str]
) -> Iterator[tuple[list[str], str, str, Old | None]]:
    """The flags of a command line, and its other words.

    Yields:
      how it is spelled, the flag, its value ("true" or "false" of an old
      switch), and what the table says of it, or None for a word of today.
    """
    rest = iter(words)
    for word in rest:
        if word == "--":
            yield [word, *rest], "", "", None
            return
        flag, has_value, value = word.partition("=")
        spelled = [word]
        if flag == "--hparams" and not has_value:
            value = next(rest, "")
            spelled.append(value)
        old = _old_flag(flag, value, known, words)
        if old and old.values and not has_value and flag != "--hparams":
            value = next(rest, "")
            spelled.append(value)
        elif old and not old.values:
            is_off = flag not in FLAGS or value.lower() in _NO
            value = "false" if is_off else "true"
        yield spelled, flag, value, old


def _old_flag(
    flag: str, value: str, known: Collection[str], words: Sequence[str]
) -> Old | None:
    """What the table says of a flag; None if it is one of today."""
    if flag == "--hparams":
        is_old = "=" in value or not value and _names_set(words)
        return FLAGS[flag] if is_old else None
    name = f"--{flag[4:]}" if flag.startswith("--no") else flag
    old = FLAGS.get(flag) or FLAGS.get(name)
    if old is None or flag in known or (flag != name and old.values):
        return None
    needed = old.needs or old.flag
    return old if not needed or needed in known else None


def _names_set(words: Sequence[str]) -> bool:
    return any(word.startswith("--hparams_set") for word in words)


def rename_problem(args: argparse.Namespace) -> str:
    """Gives `--problem` the name that it has here.

    Own text may be called by the name of its data, as adopted shards are.

    Args:
      args: of a command with `--data_dir`, given or not; plugins are loaded.

    Returns: a remark, "" where the name stays.
    """
    old = args.problem
    base = (old or "").removesuffix(registry.REVERSED_SUFFIX)
    if not base or base in registry.problem_names():
        return ""
    args.problem, named = registry.name_here(old), ""
    data_dir = recipe.absolute(args.data_dir)
    if data_dir and _is_own_text(data_dir, base):
        args.problem = f"text{old[len(base) :]}"
        if "name" in args:  # the doctor looks at all that is there
            args.name, named = base, f" --name={base}"
    if args.problem == old:
        return ""
    return f"--problem={old} is --problem={args.problem}{named} here."


def _is_own_text(data_dir: pathlib.Path, name: str) -> bool:
    from t2t_lite.data.manifest import find_data

    return name in find_data(data_dir, registry.problem("text"))
