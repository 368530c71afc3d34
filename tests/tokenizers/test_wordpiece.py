"""WordPiece vocabularies: BERT's pieces, with PAD 0 and EOS 1."""

import pytest

from t2t_lite.tokenizers.base import EOS_ID, PAD_ID
from t2t_lite.tokenizers.wordpiece import WordPieceVocabulary

SPECIAL = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]"]
PIECES = [*SPECIAL, "two", "men", "walk", "##ing", "##s", ".", "'", "t", "don"]
PIECES += ["cafe", "a", "##a", "b", "##b"]
UNKNOWN = 2 + PIECES.index("[UNK]")


def write(path, pieces):
    path.write_text("".join(f"{piece}\n" for piece in pieces), "utf-8")
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    return WordPieceVocabulary(write(folder / "vocab.txt", PIECES))


def pieces_of(encoder, text):
    return encoder.ids_to_pieces(encoder.encode([text])[0])


def test_ids_are_line_numbers_after_pad_and_eos(encoder):
    assert encoder.vocab_size == len(PIECES) + 2
    assert encoder.encode(["two men"])[0].tolist() == [7, 8]
    assert encoder.ids_to_pieces(range(4)) == [
        "<pad>",
        "</s>",
        "[PAD]",
        "[unused0]",
    ]
    assert encoder.decode([[7, PAD_ID, 8, EOS_ID, 7]]) == ["two men"]


@pytest.mark.parametrize(
    ("text", "pieces", "back"),
    [
        ("", [], ""),
        ("Two  walkings.", ["two", "walk", "##ing", "##s", "."], None),
        ("\tdon't", ["don", "'", "t"], "don ' t"),
        ("café CAFE\u0301", ["cafe", "cafe"], "cafe cafe"),
        ("two blue men", ["two", "[UNK]", "men"], "two [UNK] men"),
        ("walkings\u732b", ["walk", "##ing", "##s", "[UNK]"], "walkings [UNK]"),
        ("[CLS]", ["[UNK]"] * 3, "[UNK] [UNK] [UNK]"),  # text is never special
        ("ab" * 50, ["a", *["##b", "##a"] * 49, "##b"], "ab" * 50),
        ("ab" * 51, ["[UNK]"], "[UNK]"),  # over 100 bytes
        ("two\u3000men\0a\u2028b", ["two", "men", "a", "b"], "two men a b"),
    ],
)
def test_decoding_gives_the_normalized_text(encoder, text, pieces, back):
    assert pieces_of(encoder, text) == pieces
    assert encoder.decode(encoder.encode([text])) == [
        "two walkings ." if back is None else back
    ]


@pytest.mark.parametrize(
    ("pieces", "text", "expected"),
    [
        (["two", "cafe"], "Two Café", ["two", "cafe"]),
        (
            ["two", "café", "\ub098"],
            "Two CAFÉ \ub098",
            ["two", "café", "\ub098"],
        ),
        (["Two", "two", "cafe"], "Two two café", ["Two", "two", "[UNK]"]),
    ],
    ids=["no capitals, no accents", "accents", "capitals"],
)
def test_case_and_accents_are_removed_if_no_piece_has_them(
    pieces, text, expected, tmp_path
):
    encoder = WordPieceVocabulary(write(tmp_path / "v", [*SPECIAL, *pieces]))
    assert pieces_of(encoder, text) == expected


def test_empty_and_repeated_lines_do_not_change_other_ids(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"[UNK]\r\ntwo\r\n\r\ntwo\r\nmen")
    encoder = WordPieceVocabulary(path)
    assert encoder.encode(["men two"])[0].tolist() == [6, 5]
