"""Roman numerals: 1987 is MCMLXXXVII."""

import random

from t2t_lite import Text2TextProblem
from t2t_lite.registry import register_problem

_SYMBOLS = {
    1000: "M",
    900: "CM",
    500: "D",
    400: "CD",
    100: "C",
    90: "XC",
    50: "L",
    40: "XL",
    10: "X",
    9: "IX",
    5: "V",
    4: "IV",
    1: "I",
}


@register_problem("roman_numerals")
class RomanNumerals(Text2TextProblem):
    """Numbers from 1 to 3999 in Roman numerals."""

    # 3 special pieces, 256 bytes, 17 characters; the rest are learned.
    vocab_size = 300

    def samples(self, split, raw):
        """Yield pairs such as ("1987", "MCMLXXXVII").

        The order is shuffled with a fixed seed, and each number is in one
        split only. `raw` finds files; this problem needs none.
        """
        numbers = list(range(1, 4000))
        random.Random(0).shuffle(numbers)
        numbers = {
            "test": numbers[:200],
            "dev": numbers[200:400],
            "train": numbers[400:],
        }[split]
        for number in numbers:
            yield str(number), roman(number)


def roman(number):
    """Return the Roman numeral of a number: 9 -> "IX"."""
    numeral = ""
    for value, symbol in _SYMBOLS.items():
        count, number = divmod(number, value)
        numeral += symbol * count
    return numeral
