"""SentencePiece vocabularies: any text round-trips."""

import io
import random
import re

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from support.params import slow
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID, UNK_ID, clean_utf8
from t2t_lite.tokenizers.sentencepiece import ESCAPE, SentencePieceTokenizer

WORDS = "the cat sat on a mat while two small dogs ran over green hills".split()
VOCAB_SIZE = 340


def corpus(lines=400):
    choose = random.Random(1)
    for _ in range(lines):
        yield " ".join(choose.choices(WORDS, k=choose.randint(1, 9))) + "."


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "test.model"
    return SentencePieceTokenizer.train(corpus(), VOCAB_SIZE, path)


def byte_ids(data):
    """Return the ids of the byte pieces."""
    return [UNK_ID + 1 + byte for byte in data]


def every_character():
    return [
        chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000
    ]


def random_texts(count, alphabet, longest):
    choose = random.Random(0)
    return [
        "".join(choose.choices(alphabet, k=choose.randint(0, longest)))
        for _ in range(count)
    ]


def assert_round_trip(encoder, texts):
    back = encoder.decode(encoder.encode(texts))
    lost = [
        (text, other)
        for text, other in zip(texts, back, strict=True)
        if text != other
    ]
    assert lost == []


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "    ", "  two  men   walk ", "\t\ta\tb\t"),
        *("a\nb\r\nc\r", "a\0b\0", "\0"),
        "na\u00efve nai\u0308ve \u0301",
        "\u1100\u1161\u11a8 \uac01",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
        "\u2028\u2029\u0085\u000b\u000c\u00a0\u3000\u200b",
        "\ufeffbyte order mark",
        "\ufffd\ufffe\uffff\U0010ffff",
        "\u2581 \u2581\u2581a\u2581",
        f"{ESCAPE} {ESCAPE}A {ESCAPE}B {ESCAPE}\u2581B",
        "\u2585\u2047 \u2047",
        "<pad></s><unk><s><0x41> <0x0A>",
        "[PAD] </s>\u2581</s>",
        "\u0e44\u0e17\u0e22 \U00012000\U00013000 \u16a0",
        "word" * 5000,
        "x" * 20000,
    ],
)
def test_text_round_trips(encoder, text):
    assert_round_trip(encoder, [text, f" {text}", f"{text} ", text * 2])


def test_random_text_of_all_planes_round_trips(encoder):
    every = every_character()
    assert clean_utf8(tf.constant(every)).numpy().tolist() == [
        character.encode() for character in every
    ]
    assert_round_trip(encoder, random_texts(5000, every, 12))
    mixed = list(f"{ESCAPE}\u2581AB <>/0x\0\t\n\r\u0301\ufeffaesthö\U0001f600")
    assert_round_trip(encoder, random_texts(20000, mixed, 12))


def test_text_is_never_encoded_as_pad_eos_or_unk(encoder):
    texts = ["<pad>", "</s>", "<unk>", "\0", "\u2585", "\ufffd", "a </s> b"]
    ids = np.concatenate(encoder.encode(texts))
    assert ids.dtype == np.int32
    assert ids.min() > UNK_ID
    assert ids.max() < encoder.vocab_size


def test_invalid_utf8_is_replaced_as_in_python():
    choose = random.Random(0)
    pool = (
        b"A\x00\xe2\x96\x81\xff\xf0\x9f\x98\x80\xc3\xa9\xed\xa0\xef\xbb\xc0\xf4"
    )
    broken = [bytes(choose.choices(pool, k=8)) for _ in range(5000)]
    expected = [text.decode("utf-8", "replace").encode() for text in broken]
    assert clean_utf8(tf.constant(broken)).numpy().tolist() == expected


def test_invalid_utf8_becomes_replacement_characters(encoder):
    texts = [b"a\xffb", b"\xed\xa0\x80", "lone \ud800 surrogate", b"ok"]
    back = encoder.decode(encoder.encode(texts))
    assert back == [
        "a\ufffdb",
        "\ufffd\ufffd\ufffd",
        "lone \ufffd\ufffd\ufffd surrogate",
        "ok",
    ]


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([], ""),
        ([PAD_ID, PAD_ID], ""),
        ([EOS_ID], ""),
        (byte_ids(b"a") + [EOS_ID] + byte_ids(b"b"), "a"),
        (byte_ids(b"a") + [PAD_ID] + byte_ids(b"b"), "ab"),
        ([PAD_ID, EOS_ID] + byte_ids(b"b"), ""),
        ([UNK_ID], "\ufffd"),
        (byte_ids(b"a") + [VOCAB_SIZE, 10**9, -1], "a\ufffd\ufffd\ufffd"),
        (byte_ids(b"\xff\xfe"), "\ufffd\ufffd"),
        (byte_ids("é".encode()), "é"),
        (byte_ids("é".encode()[:1]) + byte_ids(b"a"), "\ufffda"),
        (byte_ids(b"\0"), "\0"),
        (byte_ids(ESCAPE.encode()), ESCAPE),
    ],
)
def test_any_ids_give_valid_text(encoder, ids, text):
    assert encoder.decode([ids]) == [text]


def test_same_lines_and_seed_give_the_same_file(encoder, tmp_path):
    again = SentencePieceTokenizer.train(corpus(), VOCAB_SIZE, tmp_path / "m")
    assert again.sha256 == encoder.sha256
    assert again.path.read_bytes() == encoder.path.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_training_uses_lines_of_any_length_and_characters(tmp_path):
    odd = ["\tword", "\u2585word", "word\0", "wo\u2581rd", "word " * 9000]
    path = tmp_path / "m"
    for line in odd:
        encoder = SentencePieceTokenizer.train([line] * 3, 266, path)
        ids = encoder.encode(["word"])[0]
        assert min(ids) > max(byte_ids(b"\xff"))  # no byte pieces
    # A single very long word does not stop the trainer either.
    SentencePieceTokenizer.train(["ab" * 50_000], 264, path)


@pytest.mark.parametrize("lines", [[], [""], ["", ""], [" ", "\t\u3000"]])
def test_an_empty_corpus_is_refused(tmp_path, lines):
    with pytest.raises(T2TLiteError, match="text.*corpus"):
        SentencePieceTokenizer.train(lines, 300, tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("size", "bound"),
    [
        (5000, "at most"),
        slow(10**20, "at most"),
        (0, "at least"),
        (100, "at least"),
    ],
)
def test_error_for_an_invalid_size_names_the_bound(tmp_path, size, bound):
    with pytest.raises(T2TLiteError, match=f"vocab_size={size}") as raised:
        SentencePieceTokenizer.train(corpus(), size, tmp_path / "m")
    number = re.search(rf"{bound} (\d+)", str(raised.value))[1]
    encoder = SentencePieceTokenizer.train(
        corpus(), int(number), tmp_path / "m"
    )
    assert encoder.vocab_size == int(number)


@pytest.mark.parametrize("size", [280, 600, 1200])
def test_characters_outside_the_vocabulary_become_bytes(tmp_path, size):
    lines = [chr(0x4E00 + i) * (1 + 5000 // (i + 1)) for i in range(2000)]
    with pytest.raises(T2TLiteError, match="character_coverage") as raised:
        SentencePieceTokenizer.train(lines, size, tmp_path / "m")
    share = float(re.search(r"at most (0\.\d+)", str(raised.value))[1])
    with pytest.raises(T2TLiteError, match=f"at most {share:g}"):
        SentencePieceTokenizer.train(
            lines, size, tmp_path / "m", character_coverage=(share + 1) / 2
        )
    encoder = SentencePieceTokenizer.train(
        lines, size, tmp_path / "m", character_coverage=share
    )
    assert encoder.vocab_size == size
    (frequent, *_), (rare, *_) = encoder.encode([lines[0][:1], lines[-1]])
    assert frequent > 258 > rare
    assert encoder.decode(encoder.encode(lines)) == lines


@pytest.mark.parametrize("cut", [slice(0), slice(0, 1000), slice(5, None)])
def test_damaged_vocabulary_is_named(encoder, tmp_path, cut):
    path = tmp_path / "damaged.model"
    path.write_bytes(encoder.path.read_bytes()[cut])
    with pytest.raises(T2TLiteError, match="damaged.model"):
        SentencePieceTokenizer(path)


@pytest.mark.parametrize(
    "options",
    [
        {},  # <unk>, <s>, </s>
        {"model_type": "unigram", "vocab_size": 34},
        {"pad_id": 3, "bos_id": -1, "unk_id": 1, "eos_id": 0},
        {"eos_id": -1, "control_symbols": ["<to>"]},
        {"byte_fallback": True, "vocab_size": 320},
        {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    ],
)
def test_models_of_other_trainers_give_the_same_pieces(tmp_path, options):
    path = tmp_path / "other.model"
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=corpus(),
            model_writer=file,
            minloglevel=2,
            **{"model_type": "bpe", "vocab_size": 60, **options},
        )
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    encoder = SentencePieceTokenizer(path)
    texts = ["the cat sat.", "  two  dogs", "", "<s> the </s> <pad>", "猫 ran"]
    ids = encoder.encode(texts)
    assert encoder.encode_tf(tf.constant(texts)).to_list() == [
        row.tolist() for row in ids
    ]
    assert encoder.decode(ids) == [
        theirs.decode(theirs.encode(text)) for text in texts
    ]
    for text, row in zip(texts, ids, strict=True):
        expected = theirs.encode_as_pieces(text)
        for i in np.flatnonzero(row == encoder.unknown_id):
            # SentencePiece returns the text itself.
            assert theirs[expected[i]] == theirs.unk_id()
            expected[i] = "<unk>"
        assert encoder.ids_to_pieces(row) == expected
        assert row.min(initial=EOS_ID + 1) > EOS_ID
    assert (encoder.unknown_id is None) == ("byte_fallback" in options)


@pytest.mark.parametrize("most", [0, 500_000])
def test_python_gives_the_ids_of_the_graph(encoder, most, monkeypatch):
    name = "t2t_lite.tokenizers.sentencepiece.MAX_TABLE_CHARACTERS"
    monkeypatch.setattr(name, most)
    texts = ["  two  dogs  ", "the\tcat ", "\u2581 a\0 </s>", "größer\u3000猫 "]
    texts += [*corpus(50), " ", ""]
    for _ in range(2):
        ids = encoder.encode(texts)
        assert all(row.dtype == np.int32 for row in ids)
        expected = encoder.encode_tf(tf.constant(texts)).to_list()
        assert [row.tolist() for row in ids] == expected


def test_traced_encoder_works_after_a_new_random_seed(encoder):
    # tf.random.set_seed drops the kernels that TensorFlow has cached.
    tokenize = tf.function(lambda text: encoder.encode_tf(text).to_tensor())
    back = tf.function(encoder.decode_tf)
    ids = tokenize(tf.constant(["two small dogs"]))
    tf.random.set_seed(1)
    assert back(tokenize(tf.constant(["two small dogs"]))) == b"two small dogs"
    np.testing.assert_array_equal(
        tokenize(tf.constant(["two small dogs"])), ids
    )


def test_dropped_merges_keep_the_text_and_depend_on_the_seed(encoder):
    texts = [*corpus(50), "", "a \u2581 b\n\ufffd", "\U0001f600 \uf8f0"]
    rows = encoder.encode(texts)
    for rate in (0.1, 0.9):
        dropped = encoder.drop_merges(rows, rate, seed=5)
        assert encoder.decode(dropped) == texts
        again = encoder.drop_merges(rows, rate, seed=5)
        assert list(map(list, again)) == list(map(list, dropped))
        other = encoder.drop_merges(rows, rate, seed=6)
        assert list(map(list, other)) != list(map(list, dropped))
    mean = [sum(map(len, x)) for x in (rows, encoder.drop_merges(rows, 0.1, 5))]
    assert mean[0] < mean[1] < sum(map(len, dropped))


def test_dropping_merges_requires_bpe(tmp_path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=corpus(), model_writer=model, vocab_size=30
    )
    path = tmp_path / "unigram.model"
    path.write_bytes(model.getvalue())
    with pytest.raises(UsageError, match=r"BPE.*unigram\.model"):
        SentencePieceTokenizer(path).drop_merges([np.array([5])], 0.1, seed=1)
