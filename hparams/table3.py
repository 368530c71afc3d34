"""The other rows of table 3 of arXiv:1706.03762, variations of the base model.

The names are tensor2tensor's, where they exist. `t2t-lite-registry --table3`
compares the numbers of parameters with the paper. Each row also has a set
`NAME_quarter` for `make paper`.
"""

import functools
from collections.abc import Callable
from typing import Any

from t2t_lite import registry
from t2t_lite.hparam import HParams
from t2t_lite.hparams.transformer import transformer_base

# The shared vocabulary of section 5.1, "about 37000 tokens".
PAPER_VOCAB_SIZE = 37000
# Millions of parameters by table 3.
PAPER_MILLIONS = {"transformer_base": 65}


def _register(
    name: str, meaning: str, base: Callable[[], HParams], **changes: Any
) -> None:
    def variation() -> HParams:
        return base().replace(**changes)

    variation.__doc__, variation.__qualname__ = meaning, name
    registry.register_hparams(name)(variation)


def _row(name: str, meaning: str, millions: int = 65, **changes: Any) -> None:
    """Register a row of the table, by default with the base model's size."""
    _register(name, f"Table 3, row {meaning}.", transformer_base, **changes)
    PAPER_MILLIONS[name] = millions


def _depth(units: int) -> dict[str, int]:
    return {"key_depth": units, "value_depth": units}


_row("transformer_h1", "(A): 1 head of 512 units", num_heads=1, **_depth(512))
_row("transformer_h4", "(A): 4 heads of 128 units", num_heads=4, **_depth(128))
_row("transformer_h16", "(A): 16 heads of 32 units", num_heads=16, **_depth(32))
_row("transformer_h32", "(A): 32 heads of 16 units", num_heads=32, **_depth(16))
_row("transformer_k16", "(B): keys of 16 units, values of 64", 58, key_depth=16)
_row("transformer_k32", "(B): keys of 32 units, values of 64", 60, key_depth=32)
_row("transformer_l2", "(C): 2 layers", 36, num_hidden_layers=2)
_row("transformer_l4", "(C): 4 layers", 50, num_hidden_layers=4)
_row("transformer_l8", "(C): 8 layers", 80, num_hidden_layers=8)
_row("transformer_hs256", "(C): d_model 256", 28, hidden_size=256, **_depth(32))
_row(
    "transformer_hs1024",
    "(C): d_model 1024",
    168,
    hidden_size=1024,
    **_depth(128),
)
_row("transformer_ff1024", "(C): d_ff 1024", 53, filter_size=1024)
_row("transformer_ff4096", "(C): d_ff 4096", 90, filter_size=4096)
_row("transformer_dr0", "(D): no dropout", residual_dropout=0.0)
_row("transformer_dr2", "(D): dropout 0.2", residual_dropout=0.2)
_row("transformer_ls0", "(D): no label smoothing", label_smoothing=0.0)
_row("transformer_ls2", "(D): label smoothing 0.2", label_smoothing=0.2)
_row(
    "transformer_learned_positions",
    "(E): learned positions instead of sinusoids",
    position_encoding="learned",
)
PAPER_MILLIONS["transformer_big"] = 213


def _quarter(row: str) -> HParams:
    hparams = registry.hparams(row)
    key_depth, value_depth = hparams.key_depth, hparams.value_depth
    return hparams.replace(
        hidden_size=hparams.hidden_size // 4,
        filter_size=hparams.filter_size // 4,
        key_depth=key_depth and key_depth // 4,
        value_depth=value_depth and value_depth // 4,
        num_hidden_layers=hparams.num_hidden_layers // 2,
        max_length=128,
        batch_tokens=2048,
        gradient_accumulation_steps=1,
        warmup_steps=1000,
        train_steps=3000,
        average_checkpoints=1,  # as for table 3
    )


_QUARTERS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(PAPER_MILLIONS, {}),
    "transformer_local": {"attention_window": 8},  # 4 positions on each side
    "transformer_unscaled": {"attention_score": "dot"},
    "transformer_additive": {"attention_score": "additive"},
}
for _name, _changes in _QUARTERS.items():
    _register(
        f"{_name}_quarter",
        f"For `make paper`: {_name}, a quarter as large, half of the layers.",
        functools.partial(_quarter, "transformer_base" if _changes else _name),
        **_changes,
    )
