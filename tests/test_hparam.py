"""HParams: types, validation and overrides."""

import pytest

from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams


def test_defaults_are_the_base_model_of_the_paper():
    paper = {"hidden_size": 512, "filter_size": 2048, "num_heads": 8}
    paper |= {"num_hidden_layers": 6, "adam_beta1": 0.9, "adam_beta2": 0.98}
    assert HParams(**paper, adam_epsilon=1e-9) == HParams()


def test_explicit_depths_allow_any_number_of_heads():
    hparams = HParams(num_heads=7, key_depth=16, value_depth=24)
    assert hparams.override("key_depth=none,num_heads=8").key_depth is None


def test_odd_sizes_are_valid_without_interleaved_positions():
    odd = "hidden_size=9,num_heads=3,position_encoding="
    for positions in ("concatenated", "learned", "none"):
        assert HParams().override(odd + positions).hidden_size == 9


def test_each_stack_may_have_its_own_number_of_layers():
    assert HParams(num_hidden_layers=3).num_layers == (3, 3)
    assert HParams(num_decoder_layers=2).num_layers == (6, 2)
    assert HParams(num_encoder_layers=1).num_layers == (1, 6)


def test_vocabulary_of_the_model_is_rounded_up():
    assert HParams().vocab_sizes(17, 23) == (17, 23)
    assert HParams(vocab_divisor=8).vocab_sizes(17, 24) == (24, 24)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hiden_size=8", "hiden_size.*hidden_size"),
        ("hidden_size", "key=value"),
        ("hidden_size=0", "hidden_size .*at least 1"),
        ("learning_rate=1e300", "learning_rate .*1e"),
        ("learning_rate=0", "learning_rate .*0"),
        ("clip_norm=1e-40", "clip_norm .*or none"),
        ("packing=rows", "packing .*true or false"),
        ("residual_dropout=1.0", "residual_dropout .*below 1"),
        ("norm_placement=mid", "norm_placement .*post, pre"),
        ("key_depth=0", "key_depth .*or none"),
        ("num_heads=7", "num_heads=7, hidden_size=512"),
        ("hidden_size=9,num_heads=3", "interleaved"),
        ("max_relative_position=2,attention_window=4", "attention_window=4"),
        ("max_relative_position=9,max_length=8", "max_length=8"),
        ("attention_score=additive,attention_window=4", "attention_window=4"),
        ("batch_tokens=4", "batch_tokens=4"),
        ("weight_decay=0.1", "optimizer=adamw"),
        ("schedule=linear,cooldown=0.1", "schedule=linear"),
        ("schedule=cosine,train_steps=4000", "warmup_steps=4000"),
        ("schedule=constant", "learning_rate=1.0"),
    ],
)
def test_a_bad_override_is_refused_with_the_rule(text, words):
    with pytest.raises(UsageError, match=words):
        HParams().override(text)


def test_wrong_python_type_is_refused():
    with pytest.raises(UsageError, match="num_heads must be a whole number"):
        HParams(num_heads=8.0)


def test_text_form_is_an_override_of_the_same_record():
    hparams = HParams(hidden_size=64, num_heads=2, learning_rate=0.5)
    text = str(hparams).replace("\n", ",")
    assert HParams().override(text) == hparams
