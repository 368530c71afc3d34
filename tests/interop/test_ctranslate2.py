"""CTranslate2 with our weights: equal results, or an error."""

import json
import operator
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_lite
from support.pairs import score_pairs
from support.params import slow
from support.random_translator import WORDS, random_sentences
from support.rounding import approx_score, assert_scores_close
from t2t_lite.decoding.batching import Batching
from t2t_lite.decoding.search.settings import SearchSettings
from t2t_lite.decoding.stream import translate_lines
from t2t_lite.decoding.translator import Translator, with_eos
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.interop.ctranslate2 import (
    CTranslate2Translator,
    token_names,
    write_ctranslate2,
)
from t2t_lite.interop.quantization import QUANTIZATIONS
from t2t_lite.model.transformer import Transformer
from t2t_lite.serving.export import export_to_engine
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer

pytest.importorskip(
    "ctranslate2", reason="needs pip install 't2t-lite[ctranslate2]'"
)

KINDS = {
    "the paper's": {},
    "pre-norm, sines first": {
        "norm_placement": "pre",
        "position_encoding": "concatenated",
    },
    "two vocabularies": {"shared_embedding": False},
    "learned positions": {"position_encoding": "learned", "max_length": 9},
    "deep heads": {"num_heads": 3, "key_depth": 10, "value_depth": 10},
    "a source vector, no positions": {
        "target_space_embedding": True,
        "position_encoding": "none",
        "num_decoder_layers": 1,
        "embedding_scale": "none",
        "norm_epsilon": 0.01,
    },
    "biases and a learned start, as MarianMT": {
        "activation": "swish",
        "attention_bias": True,
        "logits_bias": True,
        "learned_start": True,
    },
    "ids beyond the vocabulary": {"vocab_divisor": 64},
    "relative positions": {
        "max_relative_position": 3,
        "position_encoding": "none",
        "target_space_embedding": True,
    },
}
FAST = "pre-norm, sines first", "relative positions"


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    lines = [f"{first} {second}" for first in WORDS for second in WORDS]
    return [
        SentencePieceTokenizer.train(lines, size, folder / f"{size}.model")
        for size in (300, 310)
    ]


def never_end(model):
    """Make EOS the least likely token, so that hypotheses reach the limit."""
    direction = np.ones(16) / 4
    table = model.softmax_embedding.table
    values = table.numpy()
    values[EOS_ID] = 12 * direction
    table.assign(values)
    last = model.decoder_layers[-1].feed_forward_norm
    if model.hparams.norm_placement == "pre":
        last = model.decoder_norm
    last.bias.assign(-3 * direction)


def make_translator(encoders, **hparams):
    """Return a translator with random weights, large enough to avoid ties."""
    source, target = encoders[0], encoders[0]
    if not hparams.get("shared_embedding", True):
        target = encoders[1]
    sizes = {"hidden_size": 16, "filter_size": 32, "num_heads": 2}
    model = Transformer(
        source.vocab_size,
        target.vocab_size,
        **{**sizes, "num_hidden_layers": 2, **hparams},
    ).build_weights()
    generator = np.random.default_rng(1)
    for variable in model.trainable_variables:
        value = generator.normal(0, 0.3, variable.shape)
        if len(variable.shape) == 1:
            value += variable.numpy()  # norms begin with a scale of 1
        elif "table" in variable.path:
            value *= 3
        variable.assign(value)
    table = model.softmax_embedding.table.numpy()
    table[target.vocab_size :] *= 3  # so that the search may choose them
    model.softmax_embedding.table.assign(table)
    never_end(model)
    if model.hparams.learned_start:  # CTranslate2 never generates padding
        bias = model.softmax_embedding.bias.numpy()
        bias[PAD_ID] = -30
        model.softmax_embedding.bias.assign(bias)
    assert np.any(model.softmax_embedding.table[PAD_ID])
    return Translator(
        model, source, target, extra_decode_length=6, max_length=20
    )


@pytest.fixture(
    scope="module",
    params=[
        kind if name in FAST else slow(kind) for name, kind in KINDS.items()
    ],
    ids=KINDS,
)
def pair(request, encoders):
    """The same translator in our engine and in CTranslate2."""
    translator = make_translator(encoders, **request.param)
    return translator, CTranslate2Translator.convert(translator)


@pytest.fixture(scope="module")
def translator(encoders):
    return make_translator(encoders)


def test_scores_of_pairs_equal_ours(pair):
    sources, targets = random_sentences(20), random_sentences(20, seed=2)
    sources[3] = targets[4] = ""
    sources[5] = targets[6] = "rot grün " * 40
    ours, theirs = (
        engine.score(tf.constant(sources), tf.constant(targets))
        for engine in pair
    )
    assert ours.keys() == theirs.keys()
    for name, wanted in ours.items():
        assert_scores_close(theirs[name], wanted)


def with_search(translator, constraint=None, **settings):
    """Return the translator with a different search."""
    return Translator(
        translator.model,
        translator.source_encoder,
        translator.target_encoder,
        SearchSettings(**settings),
        extra_decode_length=translator.extra_decode_length,
        max_length=translator.max_length,
        constraint=constraint,
    )


def assert_same_hypotheses(wanted, found):
    """Compare the best hypotheses only: the others may be ties."""
    for one, other in zip(wanted, found, strict=True):
        a, b = one.hypotheses[0], other.hypotheses[0]
        assert (a.text, a.tokens) == (b.text, b.tokens)
        assert a.score == approx_score(b.score)


def test_hypotheses_at_the_length_limit_equal_ours(pair):
    lines = [
        *random_sentences(30),
        "",
        "rot " * 40,
        "\u3000",
        "haus 😀\x00 katze",
    ]
    wanted, found = (list(translate_lines(engine, lines)) for engine in pair)
    assert_same_hypotheses(wanted, found)
    assert not any(EOS_ID in each.hypotheses[0].tokens for each in wanted)


@pytest.fixture(scope="module")
def learned(encoders):
    """Both translators, trained to copy the first word and then to end."""
    encoder, _ = encoders
    model = Transformer(
        encoder.vocab_size,
        hidden_size=16,
        filter_size=32,
        num_heads=2,
        num_hidden_layers=1,
        norm_placement="pre",
    ).build_weights()
    sources = random_sentences(200, 4, seed=2)
    targets = [source.split()[0] for source in sources]
    features = {
        side: with_eos(encoder.encode_tf(tf.constant(texts)), 20)[0]
        for side, texts in (("inputs", sources), ("targets", targets))
    }
    optimizer = keras.optimizers.Adam(0.02)

    @tf.function(autograph=False)
    def update():
        with tf.GradientTape() as tape:
            loss, count = model.loss_sum(features)
            loss /= count
        weights = model.trainable_weights
        optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )

    for _ in range(100):
        update()
    translator = Translator(model, encoder, encoder)
    return translator, CTranslate2Translator.convert(translator)


@pytest.mark.parametrize("beam_size, alpha", [(1, 0.6), (2, 1.5), (4, 0.6)])
def test_hypotheses_with_eos_equal_ours(learned, beam_size, alpha):
    lines = random_sentences(60, 4)
    wanted, found = (
        list(translate_lines(engine, lines))
        for engine in (
            with_search(learned[0], beam_size=beam_size, alpha=alpha),
            learned[1].searching(beam_size, alpha),
        )
    )
    assert_same_hypotheses(wanted, found)
    best = [each.hypotheses[0] for each in wanted]
    assert all(each.tokens[-1] == EOS_ID for each in best)
    expected = [line.split()[0] for line in lines]
    assert sum(map(operator.eq, expected, (each.text for each in best))) > 30


def test_other_lines_of_the_batch_do_not_change_results(translator):
    engine = CTranslate2Translator.convert(translator)
    lines = [*random_sentences(20), "", "rot " * 15]
    wanted = [
        next(translate_lines(engine, [line], num_hypotheses=2)).hypotheses
        for line in lines
    ]
    for batch_size in (3, 64):
        found = translate_lines(
            engine, lines, batching=Batching(batch_size), num_hypotheses=2
        )
        for one, other in zip(wanted, found, strict=True):
            for a, b in zip(one, other.hypotheses, strict=True):
                assert a.tokens == b.tokens
                assert a.score == approx_score(b.score)


@pytest.mark.parametrize(
    "hparams, message",
    [
        ({"attention_window": 4}, "attention_window"),
        ({"max_relative_position": 3}, "position_encoding=none"),
        ({"attention_score": "dot"}, "attention_score=scaled"),
        ({"key_depth": 4, "value_depth": 8}, "key_depth"),
    ],
    ids=["window", "relative", "score", "depths"],
)
def test_model_that_cannot_run_exactly_is_rejected(
    encoders, hparams, message, tmp_path
):
    translator = make_translator(encoders, **hparams)
    for write in (CTranslate2Translator.convert, export_to(tmp_path / "e")):
        with pytest.raises(UsageError, match=message):
            write(translator)
    assert not os.path.exists(tmp_path / "e")


def export_to(folder):
    return lambda translator: export_to_engine(
        translator, folder, "ctranslate2"
    )


class Form:
    """Stands in for a `TreeConstraint`."""

    def prepare(self, texts):
        return tf.strings.upper(texts)


def test_constrained_search_is_rejected(translator, tmp_path):
    search = with_search(translator, constrained=True, constraint=Form())
    with pytest.raises(UsageError, match="`constrained=false"):
        CTranslate2Translator.convert(search)
    search = with_search(translator, constraint=Form())
    with pytest.raises(UsageError, match="`format=saved_model"):
        export_to_engine(search, tmp_path, "ctranslate2")
    # Without a constrained search, texts are still prepared.
    engine = CTranslate2Translator.convert(search)
    wanted, found = (
        each.translate(tf.constant(["eins zwei"]))["outputs"].numpy()
        for each in (search, engine)
    )
    assert found == wanted


@pytest.mark.slow
def test_moved_export_translates_like_its_run(translator, tmp_path):
    made = export_to_engine(translator, tmp_path / "made", "ctranslate2")
    assert made == tmp_path / "made" / "1"
    (tmp_path / "made").rename(tmp_path / "moved")
    loaded = t2t_lite.load(tmp_path / "moved")
    lines = [*random_sentences(5), ""]
    wanted = translate_lines(translator, lines, num_hypotheses=2)
    for one, found in zip(wanted, loaded(lines, nbest=2), strict=True):
        for a, b in zip(one.hypotheses, found, strict=True):
            assert a.tokens == b.tokens
    assert loaded(lines[0]) == loaded(lines)[0]
    engine = CTranslate2Translator(tmp_path / "moved" / "1").searching(2, 1.0)
    wanted = [x.hypotheses[0].text for x in translate_lines(engine, lines)]
    assert loaded(lines, beam_size=2, alpha=1.0) == wanted
    assert [pair.score for pair in loaded.score(["eins"], ["zwei"])] == [
        approx_score(result.hypotheses[0].score)
        for result in score_pairs(translator, [["eins", "zwei"]])
    ]
    with pytest.raises(UsageError, match="constrained is not"):
        loaded("eins", constrained=True)
    assert str(tmp_path / "moved") in repr(loaded)


def test_export_works_with_only_sentencepiece_and_ctranslate2(
    translator, tmp_path
):
    import ctranslate2
    import sentencepiece

    folder = export_to_engine(translator, tmp_path, "ctranslate2")
    engine = ctranslate2.Translator(str(folder))
    pieces = sentencepiece.SentencePieceProcessor(
        model_file=str(folder / translator.source_encoder.path.name)
    )
    text = "eins haus grün"
    (answer,) = engine.translate_batch(
        [pieces.encode(text, out_type=str)], beam_size=1, max_decoding_length=8
    )
    greedy = CTranslate2Translator.convert(translator).searching(beam_size=1)
    (wanted,) = translate_lines(greedy, [text])
    ids = wanted.hypotheses[0].tokens[:8]
    names = token_names(translator.target_encoder)
    assert answer.hypotheses[0] == [names[i] for i in ids if i != EOS_ID]


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_every_quantization_gives_similar_scores(
    translator, quantization, tmp_path
):
    write_ctranslate2(translator, tmp_path, quantization)
    engine = CTranslate2Translator(tmp_path)
    texts = [tf.constant(random_sentences(10, seed=n)) for n in (1, 2)]
    wanted = translator.score(*texts)["scores"]
    found = engine.score(*texts)["scores"]
    np.testing.assert_allclose(found, wanted, rtol=0.1)


def test_damaged_export_is_one_clear_error(translator, tmp_path):
    folder = export_to_engine(translator, tmp_path, "ctranslate2")
    (folder / "model.bin").write_bytes(b"none")
    with pytest.raises(T2TLiteError, match="CTranslate2 cannot load"):
        t2t_lite.load(folder)
    (folder / "t2t-lite.json").write_text(json.dumps({"beam_size": 4}))
    with pytest.raises(T2TLiteError, match="t2t-lite.json is missing or dam"):
        t2t_lite.load(folder)


def test_token_names_are_unique(tmp_path):
    class Encoder:
        vocab_size = 7
        unknown_id = 4

        def ids_to_pieces(self, ids):
            return ["a", "<EOS>_", "b", "</s>", "[UNK]", "b", "b"]

    assert token_names(Encoder()) == [
        *("<pad>", "</s>", "b", "</s>\n3", "<unk>", "b\n5", "b\n6")
    ]
    assert token_names(Encoder(), 9)[7:] == ["\n7", "\n8"]
