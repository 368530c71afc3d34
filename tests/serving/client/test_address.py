"""Addresses of servers."""

import pytest

from t2t_lite.errors import UsageError
from t2t_lite.serving.client.address import Address


@pytest.mark.parametrize(
    "text,address",
    [
        ("http://localhost", Address(True, "localhost", 8501, False)),
        ("http://10.0.0.1:80/", Address(True, "10.0.0.1", 80, False)),
        ("https://a.org/mt/", Address(True, "a.org", 443, True, "/mt")),
        ("grpc://localhost", Address(False, "localhost", 8500, False)),
        ("grpcs://a.org", Address(False, "a.org", 443, True)),
        ("grpc://[::1]:9", Address(False, "::1", 9, False)),
    ],
)
def test_a_url_says_where_and_how(text, address):
    assert Address.parse(text) == address


def test_an_address_of_version_six_stands_in_brackets():
    assert Address.parse("grpc://[::1]:9").netloc == "[::1]:9"


@pytest.mark.parametrize(
    "text",
    ["", "localhost:8500", "localhost", "ftp://a", "http://", "http://a:x"]
    + ["http://a:0", "http://a:70000", "grpc://a/path", "http://me:pw@a"]
    + ["http://a?b", "http://a#b", "http://[::1", "http://a..b", "http://a/ü"]
    + ["http://a/b c", f"http://{'a' * 70}"],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UsageError, match="--server must be http://HOST:PORT"):
        Address.parse(text)
