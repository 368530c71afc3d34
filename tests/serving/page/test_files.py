"""The files of the page: all there, by name only, and none asks elsewhere."""

import re

import pytest

from support.places import ROOT
from t2t_lite.serving.page.files import (
    CONTENT_SECURITY_POLICY,
    NAMES,
    page_file,
)

FOLDER = ROOT / "t2t_lite" / "serving" / "page"


@pytest.mark.parametrize("name", NAMES)
def test_each_file_is_there_with_its_headers(name):
    content, headers = page_file(name)
    assert content == (FOLDER / name).read_bytes()
    kind = {"js": "text/javascript", "svg": "image/svg+xml"}
    suffix = name.rpartition(".")[2]
    assert kind.get(suffix, f"text/{suffix}") in headers["Content-Type"]
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "files.py", "../files.py", "/etc/passwd", "page.css/", "x"]
    + ["page.css\0", "%2e%2e/files.py", "..\\files.py", "PAGE.CSS"],
)
def test_no_other_name_is_a_file(name):
    assert page_file(name) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_file_names_only_files_of_the_page(name):
    text = page_file(name)[0].decode()
    asked = re.findall(r'(?:src|href)="([^"]*)"|@import|url\(', text)
    asked += re.findall(r'^(?:import|export) .*"\./(.*)"', text, re.MULTILINE)
    assert {each.removeprefix("page/") for each in asked} <= set(NAMES)
    assert set(re.findall(r"https?://[^\"\s]*", text)) <= {
        "http://www.w3.org/2000/svg"
    }


def test_the_page_may_ask_its_own_server_only():
    rules = dict(
        rule.split(" ", 1) for rule in CONTENT_SECURITY_POLICY.split("; ")
    )
    assert rules.pop("img-src") == "'self' data:"
    own = {"script-src", "style-src", "connect-src"}
    assert {rules.pop(name) for name in own} == {"'self'"}
    assert set(rules) == {
        *("default-src", "base-uri", "form-action", "frame-ancestors")
    }
    assert set(rules.values()) == {"'none'"}
