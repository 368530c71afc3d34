"""Hypothesis strategies: valid inputs with a few changes, and any bytes."""

import copy

from hypothesis import strategies as st

# Bytes that break readers: line ends, encodings, control characters.
ODD = (
    *(b"", b"\0", b"\n", b"\r", b"\r\n", b"\t", b" ", b"\x0b", b"\x1b"),
    *(b"\xff", b"\xe9", b"\xc3", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80"),
    *(b"\xef\xbf\xbe", b"\xc2\x85", b"\xe2\x80\xa8", b"\\", b'"', b"9" * 5000),
)


@st.composite
def mutated(draw, valid, parts=(), changes=4):
    """Draw a valid content; copy, remove or replace slices of it."""
    content = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(0, changes))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(len(content), start + 30)))
        twice = content[start:end] * 2
        new = st.sampled_from((twice, *ODD, *parts)) | st.binary(max_size=4)
        content = content[:start] + draw(new) + content[end:]
    return content


def hostile(*valid, parts=()):
    """Return a strategy of mutated valid contents or of any bytes."""
    return mutated(valid, parts) | st.binary(max_size=60)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["\0", "..", "/", "\ud800", "train", "x" * 999]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def mutated_json(draw, record):
    """Draw a JSON value, with one inner value removed or replaced."""
    record = copy.deepcopy(record)
    inner = record
    while inner:
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        key = draw(st.sampled_from(list(keys)))
        value = inner[key]
        if value and isinstance(value, dict | list) and draw(st.integers(0, 3)):
            inner = value
            continue
        if draw(st.booleans()):
            inner[key] = draw(JSON)
        else:
            del inner[key]
        break
    return record
