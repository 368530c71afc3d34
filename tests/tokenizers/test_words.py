"""The words that each piece covers: by hand and for random text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_lite.tokenizers.base import words_of_prefixes
from t2t_lite.tokenizers.sentencepiece import SentencePieceTokenizer
from t2t_lite.tokenizers.t2t_subword import T2TSubwordTokenizer
from t2t_lite.tokenizers.wordpiece import WordPieceVocabulary

LINES = ["two small men eat a soup.", "the cat sat on the mat"] * 40
SUBWORDS = ["<pad>_", "<EOS>_", "men_", "Two_", "Two", "a", "b", "é"]
SUBWORDS += [*"\\_u;0123456789"]
WORDPIECES = ["[UNK]", "two", "men", "##s", ".", "'", "don", "t"]
# White space of all kinds, letters and marks.
TEXTS = st.text(
    st.one_of(st.sampled_from("ab é\u3000\xa0\t_\\.;1"), st.characters()),
    max_size=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("vocabularies")


@pytest.fixture(scope="module")
def sentencepiece(folder):
    return SentencePieceTokenizer.train(LINES, 300, folder / "v.model")


@pytest.fixture(scope="module")
def subwords(folder):
    path = folder / "v.subwords"
    path.write_text("".join(f"'{p}'\n" for p in SUBWORDS), "utf-8")
    return T2TSubwordTokenizer(path)


def as_lists(words):
    """Return the list of words of each piece: one, none or several."""
    return [list(each) for each in words]


def words_of_ids(encoder, ids):
    prefixes = encoder.decode([ids[: n + 1] for n in range(len(ids))])
    return as_lists(words_of_prefixes(prefixes))


def test_partial_characters_cover_the_word_where_they_end():
    prefixes = ["a", "a\ufffd", "a\ufffd", "a \u20ac", "a \u20ac", "a \u20acb"]
    assert as_lists(words_of_prefixes(prefixes)) == [[0], *[[1]] * 5]


def test_piece_covers_each_word_of_which_it_has_a_character():
    prefixes = ["T", "Two", "Two ", "Two m", "Two m", "Two men a", "Two men a "]
    words = as_lists(words_of_prefixes([*prefixes, "Two men a \u3000x"]))
    assert words == [[0], [0], [], [1], [1], [1, 2], [], [3]]
    assert words_of_prefixes([]) == []


def test_wordpieces_cover_words_of_the_original_text(folder):
    path = folder / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in WORDPIECES))
    encoder = WordPieceVocabulary(path)
    text = "Two  mens. Don't \u732b\u732b men"
    # two men ##s . don ' t [UNK] [UNK] men
    words = as_lists(encoder.words_of_text(text))
    assert words == [[n] for n in (0, 1, 1, 1, 2, 2, 2, 3, 3, 4)]
    ids = encoder.encode([text])[0]
    assert words_of_ids(encoder, ids) == [
        [n] for n in (0, 1, 1, 2, 3, 4, 5, 6, 7, 8)
    ]


@pytest.mark.slow
@settings(max_examples=30)  # slow
@given(text=TEXTS)
def test_pieces_cover_all_words_in_order(sentencepiece, subwords, text):
    text = text.encode("utf-8", "replace").decode()
    for encoder in (sentencepiece, subwords):
        ids = encoder.encode([text])[0]
        words = as_lists(encoder.words_of_text(text))
        assert words == words_of_ids(encoder, ids)
        assert len(words) == len(ids)
        found = sorted({n for each in words for n in each})
        assert found == [*range(len(text.split()))]
        firsts = [each[0] for each in words if each]
        assert firsts == sorted(firsts)
