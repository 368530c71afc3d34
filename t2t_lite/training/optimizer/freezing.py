"""Which weights do not train, by patterns that people write."""

import fnmatch
from collections.abc import Iterable, Sequence

from t2t_lite.errors import UsageError, nearest

# Patterns by one word. Embeddings are the token tables and the softmax.
GROUPS = {
    "encoder": ("encoder_*",),
    "decoder": ("decoder_*",),
    "embeddings": ("*_embedding/*", "softmax/*"),
}


def frozen_paths(paths: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """The paths that a pattern matches.

    Args:
      paths: of variables, "transformer/encoder_layer_0/..." say.
      patterns: each a word of `GROUPS`, or a glob on what follows the model's
        name; "*" also stands for "/".

    Raises:
      UsageError: a pattern matches nothing, or nothing is left to train.
    """
    names = {path: path.partition("/")[2] for path in paths}
    frozen: set[str] = set()
    for pattern in patterns:
        globs = GROUPS.get(pattern, (pattern,))
        found = {
            path
            for path, name in names.items()
            if any(fnmatch.fnmatchcase(name, glob) for glob in globs)
        }
        if not found:
            parts = {name.partition("/")[0] + "/*" for name in names.values()}
            known = [*GROUPS, *sorted(parts), *names.values()]
            raise UsageError(
                f"freeze: {pattern!r} matches no weight; it is one of "
                f"{', '.join(GROUPS)}, or a pattern such as "
                f"encoder_layer_0/*.{nearest(pattern, known)}"
            )
        frozen |= found
    if names and frozen == set(names):
        raise UsageError(
            f"freeze: {','.join(patterns)} leaves no weight to train."
        )
    return frozen
