"""Weight types of CTranslate2; importing this module loads no packages."""

from typing import Literal, get_args

Quantization = Literal[
    "float32",
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
    "int16",
    "float16",
    "bfloat16",
]
QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)
