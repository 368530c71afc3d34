"""Sentence splitting: difficult cases, and no lost text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_lite.tokenizers.sentence_splitter import sentence_splitter


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Two dogs."]),
        ("en", ["Dr. Smith met Mr. J. Jones.", "They talked."]),
        ("en", ["It is 3 p.m. in the U.S. embassy.", "Did they agree?"]),
        ("en", ["It costs $3.50.", "Really... that much?", "(So I heard.)"]),
        ("en", ["See No. 5 and pp. 6-7.", "5 is more."]),
        ("en", ['"Go!" she said.', '"Why?"', "He went."]),
        ("en", ["No end"]),
        ("de", ["Herr Dr. Müller kam am 3. Mai z.B. zu uns.", "Es regnete."]),
        ("fr", ["M. Dupont est là.", "« Vraiment ? »", "Oui."]),
        ("es", ["Hola.", "¿Qué tal?", "¡Bien!"]),
        ("ru", ["Он пришёл.", "Да?", "Нет."]),
        ("ar", ["ذهبت إلى البيت.", "هل أنت هنا؟", "نعم."]),
        ("hi", ["मैं गया।", "वह आया।"]),
        ("xx", ["Mr. X is unknown.", "So what?"]),
    ],
)
def test_text_is_split_into_sentences(language, sentences):
    assert sentence_splitter(language)(" ".join(sentences)) == sentences


def test_chinese_is_split_without_spaces():
    sentences = ["我爱你。", "你好吗？", "“很好！”", "他说。"]
    assert sentence_splitter("zh")("".join(sentences)) == sentences


PARTS = st.sampled_from(
    ["Mr", "A", "b", "U.S", ".", "?", "!", "…", '"', "(", ")", " ", "\t"]
    + ["\u2028", "\u3000", "3", "é", "。", "你", "\N{DOG FACE}", "\0", "İ"]
)


@given(st.lists(PARTS, max_size=30).map("".join))
def test_only_white_space_is_lost(text):
    for language in ("en", "de", "zh"):
        sentences = sentence_splitter(language)(text)
        joined = "".join("".join(each.split()) for each in sentences)
        assert joined == "".join(text.split())
        assert sentences[-1:] == [text] or len(sentences) > 1
        assert all(each.strip() for each in sentences[:-1])
