"""A limit of the size of files, with the effect of a full disk."""

import contextlib
import resource


@contextlib.contextmanager
def full_disk(size):
    """Limit files to some bytes, so that writes fail half-way.

    Not a fixture: the limit would still apply while pytest writes its report.
    """
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
