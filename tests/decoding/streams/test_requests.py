"""JSON lines to requests, and what is wrong with those that are none."""

import json

import pytest

from t2t_lite.decoding.streams.requests import Pair, Request


def test_a_line_asks_for_what_its_keys_say():
    line = {
        "text": "Two dogs.",
        "id": "a7",
        "prefix": "Zwei",
        "constraints": ["Hunde"],
        "avoid": ["Köter", "Katze"],
        "seed": 5,
        "tag": "2de",
    }
    assert Request.parse(json.dumps(line)) == Request(
        text="Two dogs.",
        id="a7",
        prefix="Zwei",
        constraints=("Hunde",),
        avoid=("Köter", "Katze"),
        seed=5,
        tag="2de",
    )
    assert Request.parse('{"text": "", "id": null}') == Request("")
    pair = Pair.parse(b'{"source": "one", "target": "eins", "id": 7}\n')
    assert pair == Pair("one", "eins", id=7)


@pytest.mark.parametrize(
    ("text", "tag", "tagged"),
    [
        ("Two dogs.", "2de", "<2de> Two dogs."),
        (b"Two dogs.\n", "<2fr>", "<2fr> Two dogs.\n"),
        ("<2fr> Two dogs.", "2de", "<2fr> Two dogs."),
        (" ", "2de", " "),
        (b"Two dogs.", "", b"Two dogs."),
    ],
)
def test_a_tag_stands_before_a_text_that_has_none(text, tag, tagged):
    tags = ("<2de>", "<2fr>")
    assert Request(text, tag=tag).tagged(tags) == Request(tagged)
    assert Pair(text, "x", tag=tag).tagged(tags) == Pair(tagged, "x")


def test_an_unknown_tag_is_an_error_that_names_the_known_ones():
    request = Request("a", id=5, tag="2en").tagged(("<2de>", "<2fr>"))
    assert (request.text, request.id) == ("a", 5)
    assert request.error == (
        "tag must be one of those of the corpora, <2de>, <2fr>; got '2en'."
    )
    pair = Pair("a", "b", tag="2de").tagged(())
    assert pair.error.endswith("corpora, which have none; got '2de'.")


def test_a_text_is_one_line_and_keeps_every_other_character():
    text = "a\r\nb\nc\rd\u2028e\0\t\x0b"
    request = Request.parse(json.dumps({"text": text}))
    assert request.text == "a b c d\u2028e\0\t\x0b"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"", "it is no JSON: Expecting value"),
        (b"Two dogs.", "it is no JSON: Expecting value"),
        (b'{"text": "a"', "it is no JSON: Expecting ',' delimiter"),
        (b"[" * 10**5, "it is no JSON: maximum recursion depth"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "it is no JSON: Exceeds the limit"),
        (b"\xff", "it is no JSON"),
        (b"5", "A line must be a JSON object; got 5."),
        (b'["a"]', "A line must be a JSON object; got a list."),
        (b"{}", "text must be a string; it is missing."),
        (b'{"text": null}', "text must be a string; it is missing."),
        (b'{"text": 5}', "text must be a string; got 5."),
        (b'{"text": {"a": 1}}', "text must be a string; got an object."),
        (b'{"text": "a", "id": 1.5}', "id must be a string or a whole number"),
        (b'{"text": "a", "id": true}', "id must be a string or a whole number"),
        (b'{"text": "a", "seed": -1}', "seed must be a whole number from 0"),
        (b'{"text": "a", "avoid": "b"}', "avoid must be a list of strings"),
        (b'{"text": "a", "avoid": [" "]}', "avoid must be a list of strings"),
        (b'{"text": "a", "constraint": []}', "Did you mean constraints?"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line, error):
    request = Request.parse(line)
    assert request.text == ""
    assert error in request.error
    assert len(request.error) < 200


def test_the_id_of_a_wrong_line_is_kept():
    assert Request.parse('{"id": 7, "txt": "a"}').id == 7
    assert Request.parse('{"prefix": 5, "id": "x"}').id == "x"
    assert Request.parse('{"id": [], "text": "a"}').id is None
    assert Pair.parse('{"source": "a", "id": 3}').id == 3
