"""Closed vocabularies encode and decode in Python and in graphs."""

import pytest
import tensorflow as tf

from t2t_lite.errors import T2TLiteError
from t2t_lite.tokenizers.closed import ClosedVocabulary


@pytest.fixture
def encoder(tmp_path):
    return ClosedVocabulary.write(["(S", "XX", ")S", "XX"], tmp_path / "v.txt")


def test_ids_follow_the_special_tokens_in_the_order_given(encoder):
    assert encoder.vocab_size == 6
    (ids,) = encoder.encode(["(S XX XX )S"])
    assert ids.tolist() == [3, 4, 4, 5]
    assert encoder.ids_to_pieces(ids) == ["(S", "XX", "XX", ")S"]
    assert encoder.decode([ids]) == ["(S XX XX )S"]


def test_decoding_stops_at_eos_and_skips_padding(encoder):
    rows = tf.constant([[3, 0, 5, 1, 4], [99, -1, 2, 0, 0]])
    assert encoder.decode_tf(rows).numpy().tolist() == [
        b"(S )S",
        b"<unk> <unk> <unk>",
    ]


def test_graphs_encode_unknown_tokens_as_unk(encoder):
    graph = tf.function(encoder.encode_tf)
    ids = graph(tf.constant(["(S (NP  </s> <pad> )S", ""]))
    assert ids.to_list() == [[3, 2, 2, 2, 5], []]


def test_python_refuses_unknown_tokens(encoder):
    with pytest.raises(T2TLiteError, match=r"got '\(NP' in '\(S \(NP"):
        encoder.encode(["(S XX )S", "(S (NP XX )NP )S"])


def test_invalid_file_is_refused(tmp_path):
    path = tmp_path / "v.txt"
    with pytest.raises(T2TLiteError, match="Cannot read the vocabulary"):
        ClosedVocabulary(path)
    for content in (b"XX\n", b"<pad>\n</s>\n<unk>\nXX\nXX\n"):
        path.write_bytes(content)
        with pytest.raises(T2TLiteError, match="must begin with <pad>"):
            ClosedVocabulary(path)
    path.write_bytes(b"\xff")
    with pytest.raises(T2TLiteError, match="damaged"):
        ClosedVocabulary(path)
