"""What a problem yields, looked at."""

from collections.abc import Iterable, Iterator

from t2t_lite.errors import T2TLiteError

_SHOWN_CHARACTERS = 60


def checked_pairs(
    pairs: Iterable[tuple[str, str]], place: str
) -> Iterator[tuple[str, str]]:
    """The pairs as they are.

    Args:
      pairs: (source, target) texts, streamed.
      place: what an error calls them, such as "wmt_ende train".

    Raises:
      T2TLiteError: something is not a pair of texts.
    """
    for number, pair in enumerate(pairs, 1):
        match pair:
            case [str(), str()]:
                yield pair
            case _:
                raise T2TLiteError(
                    "samples must yield (source, target) texts; got "
                    f"{str(pair)[:_SHOWN_CHARACTERS]!r} as pair {number} of "
                    f"{place}."
                )
