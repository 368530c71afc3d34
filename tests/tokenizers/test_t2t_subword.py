"""tensor2tensor's subword files: its ids, and round trips of any text."""

import json
import random

import pytest

from support.places import SHARED_DATA
from t2t_lite.errors import T2TLiteError
from t2t_lite.tokenizers.base import EOS_ID, PAD_ID
from t2t_lite.tokenizers.t2t_subword import T2TSubwordTokenizer

RECORDED = SHARED_DATA / "t2t"
ESCAPES = list("\\_u;0123456789")
PIECES = ["<pad>_", "<EOS>_", "men_", "Two_", "Tw", "T", "w", "o", " "]
PIECES += [". ", ".", "a", "b", "ab", "abc", "bc_", "c", "ö", *ESCAPES]


def write(path, pieces, quote="'"):
    path.write_text(
        "".join(f"{quote}{piece}{quote}\n" for piece in pieces), "utf-8"
    )
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    return T2TSubwordTokenizer(write(folder / "v.subwords", PIECES))


def pieces_of(encoder, text):
    return encoder.ids_to_pieces(encoder.encode([text])[0])


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("Two men.", ["Two_", "men_", ".", "_"]),  # the space is implied
        ("Two  men", ["Two_", " ", " ", "_", "men_"]),
        (" Two ", [" ", "_", "Two_", " ", "_"]),
        ("Two. men", ["Two_", ". ", "_", "men_"]),
        ("Two men.Two", ["Two_", "men_", ".", "_", "Two_"]),
        ("a_b", ["a", "_", "\\", "u", "_", "b", "_"]),
        ("\\", ["\\", "\\", "_"]),
        ("\n", ["\\", "1", "0", ";", "_"]),
        ("é", ["\\", "2", "3", "3", ";", "_"]),
        ("ö!", ["ö", "_", "\\", "3", "3", ";", "_"]),
        ("\0", ["\\", "0", ";", "_"]),
        ("\U0010ffff", ["\\", *"1114111", ";", "_"]),
        ("\u0663", ["\\", *"1635", ";", "_"]),  # an Arabic digit
    ],
)
def test_text_is_split_and_escaped_as_in_tensor2tensor(encoder, text, pieces):
    assert pieces_of(encoder, text) == pieces
    assert encoder.decode(encoder.encode([text])) == [text]


def test_longest_piece_is_chosen_greedily(encoder):
    assert pieces_of(encoder, "abbc") == ["ab", "bc_"]
    assert pieces_of(encoder, "abc") == ["abc", "_"]  # not "a", "bc_"
    long = "ab" * 5000
    assert pieces_of(encoder, long) == ["ab"] * 5000 + ["_"]


def test_any_text_round_trips_without_pad_or_eos(encoder):
    choose = random.Random(0)
    planes = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    odd = list("Two men.abc_\\u;0123456789 \n\r\t\0é<pad>EOS'\"")
    texts = ["<pad>", "<EOS>_", "<pad>_", "\ufeffbom", "\ufffe", *odd]
    for alphabet in (planes, odd):
        texts += [
            "".join(choose.choices(alphabet, k=choose.randint(0, 12)))
            for _ in range(2000)
        ]
    ids = encoder.encode(texts)
    assert encoder.decode(ids) == texts
    assert min(row.min() for row in ids if len(row)) > EOS_ID


def ids_of(pieces):
    return [PIECES.index(piece) for piece in pieces.split()]


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([], ""),
        ([PAD_ID, *ids_of("Two_"), EOS_ID, *ids_of("men_")], "Two"),
        (ids_of("Two_ men_"), "Two men"),
        (ids_of("Two_ . _ _ men_"), "Two.men"),
        (ids_of("T w"), "Tw"),  # a word without an end
        (ids_of(r"\ \ u _"), r"\u"),
        (ids_of("a \\ u \\"), "a_\\"),
        (ids_of(r"\ 9 7 a"), r"\97a"),  # an escape requires ;
        (ids_of(r"\ 0 9 7 ;"), "a"),
        (ids_of(r"\ 0 0 ;"), "\0"),
        (ids_of(r"\ 5 5 2 9 6 ;"), "\ufffd"),  # half a surrogate pair
        (ids_of(r"\ 1 1 1 4 1 1 2 ;"), "\u3013"),
        (ids_of(rf"\ {'9 ' * 20} ;"), "\u3013"),
        ([len(PIECES), -1, *ids_of("a")], "a"),
    ],
)
def test_any_ids_give_valid_text(encoder, ids, text):
    assert encoder.decode([ids]) == [text]


def test_file_without_quotes_loses_no_text(tmp_path):
    """Spaces at the end of lines are lost, so spaces are escaped."""
    names = ["<pad>", "<EOS>", "a_", ". .", "x", "x", *ESCAPES, ""]
    encoder = T2TSubwordTokenizer(write(tmp_path / "v", names, quote=""))
    assert pieces_of(encoder, "a x") == ["a_", "x", "_"]
    assert encoder.encode(["x"])[0][0] == 5  # the last of equal lines counts
    assert encoder.ids_to_pieces(encoder.encode([". "])[0]) == (
        ["\\", *"46", ";", "\\", *"32", ";", "_"]
    )
    assert pieces_of(encoder, ". .") == [". .", "_"]
    texts = ["a  a", ".  .", " ", ". . "]
    assert encoder.decode(encoder.encode(texts)) == texts


@pytest.mark.parametrize(
    ("pieces", "message"), [(PIECES[:-1], "lacks 9"), ([], "lacks")]
)
def test_file_without_required_pieces_is_refused(pieces, message, tmp_path):
    with pytest.raises(T2TLiteError, match=message):
        T2TSubwordTokenizer(write(tmp_path / "v", pieces))


@pytest.fixture(scope="module")
def recorded():
    if not RECORDED.is_dir():
        pytest.skip(f"needs tensor2tensor's recordings in {RECORDED}")
    lines = (RECORDED / "encode_m30k1k.jsonl").read_text("utf-8").split("\n")
    encoder = T2TSubwordTokenizer(RECORDED / "vocab.m30k_ende.1000.subwords")
    return encoder, [json.loads(line) for line in lines if line]


def test_ids_equal_those_recorded_from_tensor2tensor(recorded):
    encoder, rows = recorded
    ids = encoder.encode([row["text"] for row in rows])
    assert [row.tolist() for row in ids] == [row["ids"] for row in rows]


def test_texts_equal_those_recorded_from_tensor2tensor(recorded):
    encoder, rows = recorded
    with_eos = [[*row["ids"], EOS_ID, PAD_ID, PAD_ID] for row in rows]
    assert encoder.decode(with_eos) == [row["decoded_strip"] for row in rows]
