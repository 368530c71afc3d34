"""Conversion of tensor2tensor's hparams to ours."""

import json

import pytest

from support.places import SHARED_DATA
from t2t_lite import plugins, registry
from t2t_lite.errors import UsageError
from t2t_lite.interop.tensor2tensor.hparams import hparams_of
from t2t_lite.training.schedules import training_rate

RATES = SHARED_DATA / "t2t/learning_rate.json"


V2 = {
    "attention_dropout": 0.1,
    "layer_postprocess_sequence": "da",
    "layer_preprocess_sequence": "n",
    "learning_rate": 0.2,
    "learning_rate_warmup_steps": 8000,
    "relu_dropout": 0.1,
}
V3 = {
    **V2,
    "learning_rate_constant": 2.0,
    "learning_rate_schedule": (
        "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"
    ),
    "optimizer_adam_beta2": 0.997,
}
BIG = {
    **V3,
    "batch_size": 2048,
    "filter_size": 4096,
    "hidden_size": 1024,
    "layer_prepostprocess_dropout": 0.3,
    "num_heads": 16,
}
RELATIVE = {
    "max_relative_position": 20,
    "pos": None,
    "self_attention_type": "dot_product_relative",
}
# tensor2tensor's sets, as changes to transformer_base_v1.
SETS = {
    "transformer_base_v1": {},
    "transformer_base_v2": V2,
    "transformer_base_v3": V3,
    "transformer_base_single_gpu": {
        **V3,
        "batch_size": 1024,
        "learning_rate_constant": 0.1,
        "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay",
        "learning_rate_warmup_steps": 16000,
    },
    "transformer_big": BIG,
    "transformer_big_single_gpu": {
        **BIG,
        "layer_prepostprocess_dropout": 0.1,
        "learning_rate_warmup_steps": 16000,
    },
    "transformer_tiny": {
        **V3,
        "filter_size": 512,
        "hidden_size": 128,
        "num_heads": 4,
        "num_hidden_layers": 2,
    },
    "transformer_relative": {**V3, **RELATIVE},
    "transformer_relative_big": {**BIG, **RELATIVE},
}


def build(name="transformer_base_v1", flags=(), **changes):
    return hparams_of({**SETS[name], **changes}, dict(flags))


def test_flags_give_the_number_of_gpus_and_decoding_options():
    flags = {
        "worker_gpu": "8",
        "train_steps": "300",
        "decode_hparams": "beam_size=6,alpha=1.1",
    }
    found = build(flags=flags.items(), max_length=0)
    assert found.max_length == 4096  # batch_size
    assert (found.batch_tokens, found.gradient_accumulation_steps) == (
        8 * 4096,
        8,
    )
    assert (found.train_steps, found.beam_size) == (300, 6)
    assert (found.length_penalty_alpha, found.extra_decode_length) == (1.1, 100)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layer_preprocess_sequence", "nd"),
        ("ffn_layer", "local_moe"),
        ("pos", "timing_from_features"),
        ("prepend_mode", "prepend_inputs_masked_attention"),
        ("bottom", {"inputs": "identity"}),
    ],
)
def test_unsupported_model_value_is_rejected_by_name(name, value):
    for weights_only in (False, True):
        with pytest.raises(UsageError, match=name):
            hparams_of({name: value}, weights_only=weights_only)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate_schedule", "constant*linear_warmup*exp_decay"),
        ("learning_rate_decay_scheme", "exp"),
        ("optimizer", "momentum"),
        ("optimizer_multistep_accumulate_steps", 4),
        ("weight_decay", 0.01),
        ("optimizer_adafactor_beta1", 0.9),
    ],
)
def test_unsupported_training_value_is_rejected_unless_weights_only(
    name, value
):
    with pytest.raises(UsageError, match=f"{name}.*`weights_only"):
        hparams_of({name: value})
    assert hparams_of({name: value}, weights_only=True)


@pytest.mark.parametrize(
    "name", ["num_heads", "hidden_size", "learning_rate_warmup_steps"]
)
def test_a_divisor_is_at_least_1(name):
    with pytest.raises(UsageError, match=name.removeprefix("learning_rate_")):
        build("transformer_base_single_gpu", **{name: 0})


def test_shared_embedding_conflicts_with_a_separate_softmax():
    assert build(shared_embedding=True).shared_embedding
    with pytest.raises(UsageError, match="shared_embedding"):
        build(shared_embedding=True, shared_embedding_and_softmax_weights=False)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # c = 0.5, w = 4, d_model = 16; counters 0, 4, 8.
        ("constant*linear_warmup", [0, 0.5, 0.5]),
        ("constant*rsqrt_decay", [0.25, 0.25, 0.5 * 8**-0.5]),
        (
            "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
            [0, 0.0625, 0.125 * 8**-0.5],
        ),
        ("rsqrt_hidden_size*rsqrt_decay", [0.125, 0.125, 0.25 * 8**-0.5]),
    ],
)
def test_schedule_equals_factors_multiplied_by_hand(schedule, expected):
    found = build(
        learning_rate_schedule=schedule,
        learning_rate_constant=0.5,
        learning_rate_warmup_steps=4,
        hidden_size=16,
    )
    rates = [training_rate(found, counter + 1) for counter in (0, 4, 8)]
    assert rates == pytest.approx(expected)


@pytest.mark.skipif(not RATES.exists(), reason=f"needs {RATES}")
def test_rates_are_the_recorded_ones_or_refused():
    compared, refused = 0, []
    schedules = json.loads(RATES.read_text("utf-8"))["schedules"]
    for name, recorded in schedules.items():
        try:
            found = hparams_of(recorded["hparams"])
        except UsageError:
            refused.append(name)
            continue
        for counter, rate in recorded["lr"].items():
            ours = training_rate(found, int(counter) + 1)
            assert ours == pytest.approx(rate, rel=1e-6), (name, counter)
        compared += 1
    assert compared == 10
    assert all(":" in name for name in refused)  # variants of sets


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("transformer_base_v1", 8),
        ("transformer_base_v2", 8),
        ("transformer_base_v3", 8),
        ("transformer_base_single_gpu", 1),
        ("transformer_big_single_gpu", 1),
        ("transformer_tiny", 1),
        ("transformer_relative", 8),
        ("transformer_relative_big", 8),
    ],
)
def test_sets_named_as_in_tensor2tensor_have_its_values(name, gpus):
    plugins.load_plugins()
    ours = registry.hparams(name).replace(average_checkpoints=5)
    assert ours == build(name, {"worker_gpu": str(gpus)})


def test_big_set_equals_ours_with_the_documented_override():
    plugins.load_plugins()
    ours = registry.hparams("transformer_big_single_gpu").override(
        "residual_dropout=0.3,warmup_steps=8000,batch_tokens=16384,"
        "gradient_accumulation_steps=8"
    )
    assert ours == build("transformer_big", {"worker_gpu": "8"})
