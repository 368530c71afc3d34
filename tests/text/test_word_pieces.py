"""Texts encoded by their words have the pieces of the whole text."""

import io

import numpy as np
import pytest

from t2t_lite.text import word_pieces
from t2t_lite.text.sentencepiece_encoder import SentencePieceEncoder
from t2t_lite.text.word_pieces import WordPieces

LINES = [
    "the cat sat on the mat, and the dog sat there",
    "größer als die Katze: 3,5 % — «ja»",
    "日本語のテキスト 日本",
]
ODD = [
    "",
    " ",
    "   ",
    "  two  spaces  ",
    " leading",
    "trailing ",
    "tab\tand\nline\r\nends",
    "nul\0 in \0it",
    "\u2581not a space \u2581",
    "\uf8f0A \uf8f0B\uf8f0",
    "</s> <pad> <0x41> <unk>",
    "\u00a0no break\u3000wide",
    "unknown 😀 \U0010ffff ẞ",
    "\ud800 half a \udfff",
    "\ufffd\ufeff \u2028",
    "x" * 5000,
    b"broken \xff\xfe bytes",
    *LINES,
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "a.model"
    return SentencePieceEncoder.train(LINES * 3, 330, path)


def by_ops(encoder, texts):
    import tensorflow as tf

    texts = [
        text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        for text in texts
    ]
    return encoder.tokenize(tf.constant(texts)).to_list()


def test_the_ids_are_those_of_the_graph(encoder):
    found = [ids.tolist() for ids in encoder.encode(ODD)]
    assert found == by_ops(encoder, ODD)
    assert encoder._words.is_wordwise
    assert all(ids.dtype == np.int32 for ids in encoder.encode(ODD))
    assert encoder.encode([]) == []


def test_an_emptied_table_changes_nothing(encoder, monkeypatch):
    before = [ids.tolist() for ids in encoder.encode(LINES)]
    monkeypatch.setattr(word_pieces, "_MOST_CHARACTERS", 0)
    for _ in range(3):
        assert [ids.tolist() for ids in encoder.encode(LINES)] == before
        assert not encoder._words._table


def foreign(**options):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 20),
        model_writer=model,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
        **{"vocab_size": 60, "hard_vocab_limit": False} | options,
    )
    return model.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram"},
        {"model_type": "bpe"},  # normalizes, puts a space before the text
        {"model_type": "bpe", "split_by_whitespace": False},
        {
            "model_type": "bpe",
            "vocab_size": 400,
            "byte_fallback": True,
            "add_dummy_prefix": False,
            "remove_extra_whitespaces": False,
            "normalization_rule_name": "identity",
            "user_defined_symbols": ["the\u2581cat"],
        },
    ],
)
def test_a_model_whose_pieces_may_cross_spaces_is_used_on_whole_texts(options):
    import sentencepiece

    model = foreign(**options)
    pieces = WordPieces(model)
    assert not pieces.is_wordwise
    texts = [text for text in LINES if isinstance(text, str)]
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert [ids.tolist() for ids in pieces.encode(texts)] == processor.encode(
        texts
    )
