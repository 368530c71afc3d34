"""HParams: typed, validated, overridden without surprises."""

import dataclasses

import pytest

from t2t_lite.errors import UsageError
from t2t_lite.hparam import HParams


def test_defaults_are_the_base_model_of_the_paper():
    hparams = HParams()
    assert hparams.hidden_size == 512
    assert hparams.filter_size == 2048
    assert hparams.num_heads == 8
    assert hparams.num_hidden_layers == 6
    assert (hparams.adam_beta1, hparams.adam_beta2) == (0.9, 0.98)
    assert hparams.adam_epsilon == 1e-9


def test_override_reads_every_type():
    hparams = HParams().override(
        "hidden_size=64, num_heads=4,residual_dropout=0.25,"
        "shared_embedding=false,norm_placement=pre,learning_rate=2"
    )
    assert hparams.hidden_size == 64
    assert hparams.residual_dropout == 0.25
    assert hparams.shared_embedding is False
    assert hparams.norm_placement == "pre"
    assert hparams.learning_rate == 2.0
    assert type(hparams.learning_rate) is float


def test_depths_given_need_no_heads_that_divide():
    hparams = HParams(num_heads=7, key_depth=16, value_depth=24)
    assert hparams.override("key_depth=none,num_heads=8").key_depth is None


def test_odd_sizes_go_with_sines_first():
    odd = "hidden_size=9,num_heads=3,position_encoding="
    for positions in ("concatenated", "learned", "none"):
        assert HParams().override(odd + positions).hidden_size == 9


def test_each_stack_may_have_layers_of_its_own():
    assert HParams(num_hidden_layers=3).layers == (3, 3)
    assert HParams(num_decoder_layers=2).layers == (6, 2)
    assert HParams(num_encoder_layers=1).layers == (1, 6)


def test_the_models_vocabulary_is_rounded_up():
    assert HParams().vocab_sizes(17, 23) == (17, 23)
    assert HParams(vocab_divisor=8).vocab_sizes(17, 24) == (24, 24)


def test_override_of_nothing_changes_nothing():
    assert HParams().override("") == HParams()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hiden_size=8", "Unknown hparam 'hiden_size'. Did you mean hidden_si"),
        ("hidden_size", "hparams must be key=value, joined by commas"),
        ("=8", "hparams must be key=value, joined by commas"),
        ("hidden_size=big", "hidden_size must be a whole number; got 'big'"),
        ("hidden_size=8.5", "hidden_size must be a whole number; got '8.5'"),
        ("learning_rate=fast", "learning_rate must be a finite number; got 'f"),
        ("learning_rate=nan", "learning_rate must be a finite number; got nan"),
        ("shared_embedding=maybe", "shared_embedding must be true or false"),
        ("packing=rows", "packing must be true or false; got 'rows'"),
        (
            "hidden_size=8,hidden_size=16",
            "each key once; got 'hidden_size=8,hi",
        ),
        ("beam_size=0", "beam_size must be at least 1; got 0"),
        ("residual_dropout=1.0", "residual_dropout must be in [0, 1); got 1.0"),
        ("norm_placement=mid", "norm_placement must be one of post, pre"),
        ("num_heads=7", "are given; got num_heads=7, hidden_size=512"),
        ("hidden_size=9,num_heads=3", "hidden_size must be even with positi"),
        ("hidden_size=0", "hidden_size must be at least 1; got 0"),
        (
            "max_relative_position=2,attention_window=4",
            "needs attention_window=none; got max_relative_position=2, att",
        ),
        (
            "norm_epsilon=0",
            "norm_epsilon must be above 0, from 1e-37 to 1e38",
        ),
        ("learning_rate=1e300", "learning_rate must be above 0, from 1e-37"),
        ("clip_norm=1e-40", "clip_norm must be above 0, from 1e-37 to 1e38"),
        (
            "max_relative_position=9,max_length=8",
            "must be at most max_length",
        ),
        ("key_depth=0", "key_depth must be at least 1, or none; got 0"),
        ("value_depth=0", "value_depth must be at least 1, or none; got 0"),
        ("attention_window=0", "attention_window must be at least 1, or none"),
        ("key_depth=wide", "key_depth must be a whole number, or none; got 'w"),
        ("hidden_size=none", "hidden_size must be a whole number; got 'none'"),
        ("cooldown=1", "cooldown must be in [0, 1); got 1.0"),
        ("batch_tokens=4", "micro_batches must not exceed batch_tokens"),
        ("warmup_steps=0", "warmup_steps must be at least 1; got 0"),
        (
            "learning_rate=0",
            "learning_rate must be above 0, from 1e-37 to 1e38",
        ),
        (
            "clip_norm=0",
            "clip_norm must be above 0, from 1e-37 to 1e38, or none",
        ),
        ("schedule=step", "schedule must be one of paper, inverse_sqrt, fl"),
        ("optimizer=sgd", "optimizer must be one of adam, adamw, adafactor"),
        ("weight_decay=0.1", "needs optimizer=adamw; got weight_decay=0.1, o"),
        ("schedule=linear,cooldown=0.1", "cooldown must be 0 with a schedule "),
        (
            "schedule=cosine,train_steps=4000",
            "got warmup_steps=4000, train_steps=4000, schedule=cosine",
        ),
        (
            "schedule=constant",
            "and must be below 1; got learning_rate=1.0, schedule=constant",
        ),
        ("ema_decay=1", "ema_decay must be in [0, 1); got 1.0"),
    ],
)
def test_bad_override_states_the_rule_and_the_value(text, message):
    with pytest.raises(UsageError) as error:
        HParams().override(text)
    assert message in str(error.value)


def test_wrong_python_type_is_refused():
    with pytest.raises(UsageError, match="num_heads must be a whole number"):
        HParams(num_heads=8.0)
    with pytest.raises(UsageError, match="num_heads must be a whole number"):
        HParams(num_heads=True)


def test_dict_round_trip():
    hparams = HParams(hidden_size=64, num_heads=2, precision="bfloat16")
    assert HParams.from_dict(hparams.to_dict()) == hparams


def test_record_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        HParams().hidden_size = 8


def test_text_form_is_an_override_of_the_same_record():
    hparams = HParams(hidden_size=64, num_heads=2, learning_rate=0.5)
    text = str(hparams).replace("\n", ",")
    assert HParams().override(text) == hparams
