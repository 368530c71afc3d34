"""Counts of parameters and FLOPs equal those of models and the paper."""

import pytest

from t2t_lite import plugins, registry
from t2t_lite.hparam import HParams
from t2t_lite.hparams import table3
from t2t_lite.model import flops
from t2t_lite.model.transformer import Transformer

SMALL = HParams(
    hidden_size=8,
    filter_size=12,
    num_heads=2,
    num_hidden_layers=3,
    max_length=10,
)


@pytest.fixture(scope="module", autouse=True)
def built_in_sets():
    plugins.load_plugins()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"key_depth": 3, "value_depth": 5},
        {"shared_embedding": False},
        {"norm_placement": "pre"},
        {"position_encoding": "learned"},
        {"attention_score": "additive", "key_depth": 3},
        {"num_encoder_layers": 2, "num_decoder_layers": 1},
        {"vocab_divisor": 8, "logits_bias": True},
        {"attention_bias": True, "key_depth": 3, "activation": "swish"},
        {"target_space_embedding": True, "position_encoding": "none"},
        {"max_relative_position": 3, "key_depth": 3, "num_decoder_layers": 1},
    ],
    ids=str,
)
def test_number_of_parameters_equals_that_of_the_model(changes):
    hparams = SMALL.replace(**changes)
    sizes = (17, 17) if hparams.shared_embedding else (17, 23)
    parts = flops.count_parameters(hparams, *sizes)
    model = Transformer.from_hparams(hparams, *sizes).build_weights()
    assert sum(parts.values()) == model.count_params()


def test_flops_of_a_small_model_counted_by_hand():
    hparams = HParams(
        hidden_size=4,
        filter_size=6,
        num_heads=2,
        num_hidden_layers=1,
        key_depth=1,
        value_depth=3,
    )
    source, target = flops.count_forward_flops(hparams, 10, 5, 7)
    projections = 2 * (4 * 2 + 4 * 2 + 4 * 6 + 6 * 4)  # q, k, v and back
    feed_forward = 2 * (4 * 6 + 6 * 4)
    to_source = 2 * (2 * 1 * 5 + 2 * 3 * 5)  # scores, weighted values
    to_target = 2 * (2 * 1 * 7 + 2 * 3 * 7)
    keys_and_values = 2 * (4 * 2 + 4 * 6)
    assert source == projections + feed_forward + to_source + keys_and_values
    query_and_back = 2 * (4 * 2 + 6 * 4)
    cross = query_and_back + to_source
    softmax = 2 * 4 * 10
    assert target == projections + feed_forward + to_target + cross + softmax


def test_window_bounds_the_cost_of_attention():
    windowed = SMALL.replace(attention_window=4)
    short = flops.count_forward_flops(SMALL, 17, 2, 2)
    assert flops.count_forward_flops(windowed, 17, 2, 2) == short
    # w = 16, 3 layers: 5 positions in the encoder, 3 in the decoder.
    bare_source, bare_target = flops.count_forward_flops(SMALL, 17, 0, 0)
    source, target = flops.count_forward_flops(windowed, 17, 100, 100)
    assert source == bare_source + 3 * 2 * 16 * 5
    assert target == bare_target + 3 * 2 * 16 * (3 + 100)


def test_relative_positions_cost_products_with_their_tables():
    relative = SMALL.replace(max_relative_position=4)
    plain = flops.count_forward_flops(SMALL, 17, 6, 7)
    # w = 16, 3 layers, 9 rows a table.
    assert flops.count_forward_flops(relative, 17, 6, 7) == (
        plain[0] + 3 * 2 * 16 * 9,
        plain[1] + 3 * 2 * 16 * 9,
    )


def test_flops_follow_the_layers_of_each_stack_and_the_models_vocabulary():
    changes = {"num_encoder_layers": 1, "num_decoder_layers": 2}
    one, two = (
        flops.count_forward_flops(SMALL.replace(num_hidden_layers=n), 24, 6, 7)
        for n in (1, 2)
    )
    source, target = flops.count_forward_flops(
        SMALL.replace(vocab_divisor=8, **changes), 17, 6, 7
    )
    assert target == two[1]
    # The decoder's layers compute the keys and values of the source.
    assert source == one[0] + 2 * 8 * 16


@pytest.mark.parametrize("name,millions", table3.PAPER_MILLIONS.items())
def test_sizes_of_table_3_are_close_to_the_papers(name, millions):
    """Within 8 %: the paper does not say which vocabulary it counted with."""
    parts = flops.count_parameters(registry.hparams(name), 37000, 37000)
    assert sum(parts.values()) / 1e6 == pytest.approx(millions, rel=0.08)


@pytest.mark.parametrize(
    ("device", "rate"),
    [
        ("Tesla P100-SXM2", 9.5e12),
        ("Tesla K40m", 3.7e12),
        ("Quadro K4000", None),
        ("NVIDIA H100 PCIe", None),
    ],
)
def test_training_cost_is_counted_and_estimated_as_in_table_2(device, rate):
    """The base model took 12 hours on 8 P100s: 3.3e18 in table 2."""
    work = {"seconds": 12 * 3600, "devices": 8, "device": device}
    tokens = {"source_tokens": 1000, "target_tokens": 2000}
    cost = flops.training_cost(SMALL, 17, (6, 7), work | tokens)
    source, target = flops.count_forward_flops(SMALL, 17, 6, 7)
    assert cost["flops_counted"] == 3 * (1000 * source + 2000 * target)
    assert cost["flops_as_table_2"] == (rate and 12 * 3600 * 8 * rate)
    if rate == 9.5e12:
        assert cost["flops_as_table_2"] == pytest.approx(3.3e18, rel=0.01)
    given = flops.training_cost(SMALL, 17, (6, 7), work | tokens, 1e12)
    assert given["flops_as_table_2"] == 12 * 3600 * 8 * 1e12


def test_step_counts_tokens_of_both_sides():
    step = flops.count_step_flops(SMALL.replace(batch_tokens=100), 17, 6)
    assert step == flops.count_training_flops(SMALL, 17, (100, 100), (6, 6))
