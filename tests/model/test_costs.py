"""Counts without a model: equal to the built one's, and to the paper's."""

import pytest

from t2t_lite import plugins, registry
from t2t_lite.hparam import HParams
from t2t_lite.hparams import table3
from t2t_lite.model import costs
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
        {"key_depth": 3},
        {"shared_embedding": False},
        {"norm_placement": "pre"},
        {"position_encoding": "learned"},
        {"attention_window": 4},
        {"num_encoder_layers": 2, "num_decoder_layers": 1},
        {"vocab_divisor": 8},
        {"source_vector": True, "position_encoding": "none"},
        {"max_relative_position": 3, "key_depth": 3, "num_decoder_layers": 1},
    ],
    ids=str,
)
def test_parameters_are_those_of_the_built_model(changes):
    hparams = SMALL.replace(**changes)
    sizes = (17, 17) if hparams.shared_embedding else (17, 23)
    parts = costs.count_parameters(hparams, *sizes)
    model = Transformer.from_hparams(hparams, *sizes).build_weights()
    assert sum(parts.values()) == model.count_params()


def test_parameters_by_part_are_those_of_the_built_parts():
    parts = costs.count_parameters(SMALL.replace(key_depth=3), 17, 17)
    model = Transformer.from_hparams(
        SMALL.replace(key_depth=3), 17, 17
    ).build_weights()

    def count(layers, *names):
        return sum(
            getattr(layer, name).count_params()
            for layer in layers
            for name in names
        )

    encoder, decoder = model.encoder_layers, model.decoder_layers
    assert parts == {
        "embedding and softmax": model.source_embedding.count_params(),
        "encoder self-attention": count(encoder, "self_attention"),
        "encoder feed-forward": count(encoder, "feed_forward"),
        "encoder norms": count(
            encoder, "self_attention_norm", "feed_forward_norm"
        ),
        "decoder self-attention": count(decoder, "self_attention"),
        "decoder cross-attention": count(decoder, "cross_attention"),
        "decoder feed-forward": count(decoder, "feed_forward"),
        "decoder norms": count(
            decoder,
            "self_attention_norm",
            "cross_attention_norm",
            "feed_forward_norm",
        ),
    }


def test_flops_of_a_small_model_counted_by_hand():
    hparams = HParams(
        hidden_size=4,
        filter_size=6,
        num_heads=2,
        num_hidden_layers=1,
        key_depth=1,
        value_depth=3,
    )
    source, target = costs.count_forward_flops(hparams, 10, 5, 7)
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


def test_a_window_bounds_what_attention_costs():
    windowed = SMALL.replace(attention_window=4)
    short = costs.count_forward_flops(SMALL, 17, 2, 2)
    assert costs.count_forward_flops(windowed, 17, 2, 2) == short
    # w = 16, 3 layers: 5 positions in the encoder, 3 in the decoder.
    bare_source, bare_target = costs.count_forward_flops(SMALL, 17, 0, 0)
    source, target = costs.count_forward_flops(windowed, 17, 100, 100)
    assert source == bare_source + 3 * 2 * 16 * 5
    assert target == bare_target + 3 * 2 * 16 * (3 + 100)


def test_relative_positions_cost_products_with_their_tables():
    relative = SMALL.replace(max_relative_position=4)
    plain = costs.count_forward_flops(SMALL, 17, 6, 7)
    # w = 16, 3 layers, 9 rows a table.
    assert costs.count_forward_flops(relative, 17, 6, 7) == (
        plain[0] + 3 * 2 * 16 * 9,
        plain[1] + 3 * 2 * 16 * 9,
    )


def test_flops_follow_the_layers_of_each_stack_and_the_models_vocabulary():
    changes = {"num_encoder_layers": 1, "num_decoder_layers": 2}
    one, two = (
        costs.count_forward_flops(SMALL.replace(num_hidden_layers=n), 24, 6, 7)
        for n in (1, 2)
    )
    source, target = costs.count_forward_flops(
        SMALL.replace(vocab_divisor=8, **changes), 17, 6, 7
    )
    assert target == two[1]
    # Keys and values of the source are made by the decoder's layers.
    assert source == one[0] + 2 * 8 * 16


def test_a_step_is_three_forward_passes_over_its_tokens():
    hparams = SMALL.replace(batch_tokens=100)
    source, target = costs.count_forward_flops(hparams, 17, 6, 6)
    step = costs.count_step_flops(hparams, 17, 6)
    assert step == 3 * 100 * (source + target)


@pytest.mark.parametrize("name,millions", table3.PAPER_MILLIONS.items())
def test_sizes_of_table_3_are_near_the_papers(name, millions):
    """Within 8 %: the paper does not say which vocabulary it counted with."""
    parts = costs.count_parameters(registry.hparams(name), 37000, 37000)
    assert sum(parts.values()) / 1e6 == pytest.approx(millions, rel=0.08)


@pytest.mark.parametrize(
    "name", ["transformer_h1", "transformer_h4", "transformer_h16"]
)
def test_heads_of_row_a_change_no_size(name):
    base, other = (
        costs.count_parameters(registry.hparams(n), 37000, 37000)
        for n in ("transformer_base", name)
    )
    assert base == other


def test_training_counts_the_tokens_it_saw():
    source, target = costs.count_forward_flops(SMALL, 17, 6, 7)
    got = costs.count_training_flops(SMALL, 17, 1000, 2000, 6, 7)
    assert got == 3 * (1000 * source + 2000 * target)


def test_memory_depends_on_the_pass_and_not_on_the_update():
    whole = SMALL.replace(batch_tokens=512, micro_batches=1)
    cut = SMALL.replace(batch_tokens=1024, micro_batches=2)
    larger = SMALL.replace(batch_tokens=1024, micro_batches=1)
    memory = costs.estimate_memory(whole, 17, 17)
    assert costs.estimate_memory(cut, 17, 17) == memory
    grown = costs.estimate_memory(larger, 17, 17)
    changed = {part for part in memory if memory[part] != grown[part]}
    assert changed == {"activations"}


def test_recomputing_keeps_the_inputs_of_layers_and_one_layer_whole():
    def activations(layers, recompute):
        hparams = SMALL.replace(
            num_hidden_layers=layers, batch_tokens=512, micro_batches=1
        )
        memory = costs.estimate_memory(hparams, 17, 17, recompute)
        return memory["activations"]

    # The inputs of an encoder layer and of a decoder layer, float32.
    more = 4 * 512 * 2 * SMALL.hidden_size
    assert activations(3, True) - activations(2, True) == more
    assert activations(2, True) < activations(2, False)


def test_memory_counts_what_is_kept_of_each_weight():
    adam = costs.estimate_memory(SMALL, 17, 17)
    other = costs.estimate_memory(
        SMALL.replace(optimizer="adafactor", ema_decay=0.9), 17, 17
    )
    assert adam["optimizer"] == 2 * adam["weights"]
    assert other["optimizer"] == 0
    assert other["moving average"] == adam["weights"]


def test_sustained_flops_are_the_papers_for_its_gpus():
    assert costs.sustained_flops("Tesla P100-PCIE-16GB") == 9.5e12
    assert costs.sustained_flops("Tesla K40m") == 3.7e12
    assert costs.sustained_flops("Quadro K4000") is None
    assert costs.sustained_flops("NVIDIA H100 PCIe") is None


def test_table_2_is_time_by_devices_by_sustained_flops():
    """Base: 12 hours on 8 P100s, 3.3e18; big: 3.5 days, 2.3e19."""
    rate = costs.sustained_flops("P100")
    assert 12 * 3600 * 8 * rate == pytest.approx(3.3e18, rel=0.01)
    assert 3.5 * 86400 * 8 * rate == pytest.approx(2.3e19, rel=0.01)
    work = {"seconds": 12 * 3600, "devices": 8, "device": "Tesla P100-SXM2"}
    tokens = {"source_tokens": 10, "target_tokens": 20}
    cost = costs.training_cost(SMALL, 17, (6, 7), work | tokens)
    assert cost["flops_as_table_2"] == pytest.approx(3.3e18, rel=0.01)
    assert cost["flops_counted"] == costs.count_training_flops(
        SMALL, 17, 10, 20, 6, 7
    )
