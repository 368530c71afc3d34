"""The list of checks, and the walk through it."""

from collections.abc import Callable, Iterator

from t2t_lite.doctor import contents, folders, machine
from t2t_lite.doctor.finding import Asked, Finding
from t2t_lite.errors import in_words

Check = Callable[[Asked], Iterator[Finding]]
# In the order of what to mend first.
CHECKS: tuple[Check, ...] = (
    machine.check_python,
    machine.check_packages,
    machine.check_devices,
    machine.check_memory,
    folders.check_data_dir,
    folders.check_output_dir,
    contents.check_data,
    contents.check_run,
)


def examine(
    asked: Asked, checks: tuple[Check, ...] = CHECKS
) -> Iterator[Finding]:
    """What each check found, as soon as it has.

    Args:
      asked: what to look at.
      checks: an error that one raises is what it found.
    """
    for check in checks:
        try:
            yield from check(asked)
        except Exception as error:  # others are to be made all the same
            name = check.__name__.removeprefix("check_").replace("_", " ")
            yield Finding(name, False, in_words(error))
