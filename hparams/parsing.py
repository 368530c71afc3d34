"""Hparams sets for constituency parsing (arXiv:1706.03762, section 6.3)."""

from t2t_lite.hparam import HParams
from t2t_lite.registry import register_hparams


@register_hparams
def transformer_parsing_base() -> HParams:
    """The paper's set for the treebank only: 4 layers, d_model 1024.

    Other values equal the base translation model, except for dropout and
    learning rate, which the paper tuned but does not report: dropout and
    warm-up are tensor2tensor's, the learning rate follows equation 3.
    """
    return HParams(
        hidden_size=1024,
        filter_size=2048,
        num_heads=8,
        num_hidden_layers=4,
        shared_embedding=False,
        max_length=512,
        residual_dropout=0.2,
        attention_dropout=0.2,
        warmup_steps=16000,
        beam_size=21,
        length_penalty_alpha=0.3,
        extra_decode_length=300,
    )


@register_hparams
def transformer_parsing_semisupervised() -> HParams:
    """The paper's set with 17 million automatic trees: less dropout."""
    return transformer_parsing_base().replace(
        residual_dropout=0.1, attention_dropout=0.0, warmup_steps=4000
    )


@register_hparams
def transformer_parsing_small() -> HParams:
    """A set for 3,000 sentences, augmented 100 times, and an hour on a CPU."""
    return HParams(
        hidden_size=128,
        filter_size=512,
        num_heads=4,
        num_hidden_layers=3,
        shared_embedding=False,
        norm_placement="pre",
        max_length=512,
        residual_dropout=0.1,
        batch_tokens=3072,
        gradient_accumulation_steps=1,
        learning_rate=1.0,  # a peak rate of 0.0028
        warmup_steps=1000,
        train_steps=10000,
        cooldown=0.5,
        average_checkpoints=5,
        beam_size=21,
        length_penalty_alpha=0.3,
        extra_decode_length=300,
        constrained_search=True,
    )
