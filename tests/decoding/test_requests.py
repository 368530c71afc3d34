"""Parsing of JSON requests, and the errors of invalid ones."""

import json

import pytest

from t2t_lite.decoding.requests import Pair, Request
from t2t_lite.errors import UsageError


def test_a_request_has_the_values_of_its_keys():
    line = {
        "text": "Two dogs.",
        "id": "a7",
        "prefix": "Zwei",
        "constraints": ["Hunde"],
        "bad_phrases": ["Köter", "Katze"],
        "seed": 5,
        "tag": "2de",
    }
    assert Request.parse(json.dumps(line)) == Request(
        text="Two dogs.",
        id="a7",
        prefix="Zwei",
        constraints=("Hunde",),
        bad_phrases=("Köter", "Katze"),
        seed=5,
        tag="2de",
    )
    assert Request.parse('{"text": "", "id": null}') == Request("")
    pair = Pair.parse(b'{"source": "one", "target": "eins", "id": 7}\n')
    assert pair == Pair("one", "eins", id=7)


def test_a_text_is_one_line_and_keeps_every_other_character():
    text = "a\r\nb\nc\rd\u2028e\0\t\x0b"
    request = Request.parse(json.dumps({"text": text}))
    assert request.text == "a b c d\u2028e\0\t\x0b"


def test_half_a_surrogate_pair_becomes_replacement_characters():
    lists = {"constraints": ["\ud83d"], "bad_phrases": ["\ud83d"]}
    line = {"text": "\ud83d", "prefix": "\ud83d", **lists}
    request, text = Request.parse(json.dumps(line)), "\ufffd" * 3
    assert (request.text, request.prefix) == (text, text)
    assert request.constraints == request.bad_phrases == (text,)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"", "not JSON"),
        (b'{"text": "a"', "not JSON"),
        (b"[" * 10**5, "not JSON"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"\xff", "not JSON"),
        (b"5", "object (got 5"),
        (b'["a"]', "object (got"),
        (b"{}", "text must be a string"),
        (b'{"text": null}', "text must be a string"),
        (b'{"text": 5}', "text must be a string; got 5"),
        (b'{"text": {"a": 1}}', "text must be a string; got"),
        (b'{"text": "a", "id": 1.5}', "id must be a string or a whole number"),
        (b'{"text": "a", "id": true}', "id must be a string or a whole number"),
        (b'{"text": "a", "seed": -1}', "seed must be a whole number from 0"),
        (b'{"text": "a", "bad_phrases": "b"}', "bad_phrases must be a list"),
        (b'{"text": "a", "bad_phrases": [" "]}', "bad_phrases must be a list"),
        (
            b'{"text": "a", "bad_phrases": [' + b"5, " * 999 + b"5]}",
            "bad_phrases must",
        ),
        (b'{"text": "a", "constraint": []}', "Did you mean constraints?"),
        (b'{"text": "a", "error": "b"}', "'error'"),
    ],
)
def test_an_invalid_line_is_a_request_with_a_short_error(line, error):
    request = Request.parse(line)
    assert request.text == ""
    assert error in request.error
    assert len(request.error) < 200


@pytest.mark.parametrize(
    ("line", "id"),
    [
        ('{"id": 7, "txt": "a"}', 7),
        ('{"prefix": 5, "id": "x"}', "x"),
        ('{"id": [], "text": "a"}', None),
    ],
)
def test_an_invalid_line_keeps_its_id(line, id):
    assert Request.parse(line).id == id
    assert Pair.parse(line).id == id


@pytest.mark.parametrize(
    "options",
    [
        {"constraints": "hund"},
        {"bad_phrases": (3,)},
        {"prefix": None},
        {"seed": -3},
        {"seed": 2**70},
    ],
)
def test_the_error_for_an_invalid_option_names_it(options):
    with pytest.raises(UsageError, match=f"{next(iter(options))} must be"):
        Request("eins", **options)
