"""The files of the page name only files of the page."""

import re

import pytest

from t2t_lite.serving import page

FILES = {file.name: file for file in page.FOLDER.iterdir()}


@pytest.mark.parametrize("name", FILES)
def test_a_file_names_only_files_of_the_page(name):
    text = FILES[name].read_text("utf-8")
    asked = re.findall(r'(?:src|href)="([^"]*)"|@import|url\(', text)
    asked += re.findall(r'^(?:import|export) .*"\./(.*)"', text, re.MULTILINE)
    assert {each.removeprefix("page/") for each in asked} <= FILES.keys()
    assert set(re.findall(r"https?://[^\"\s]*", text)) <= {
        "http://www.w3.org/2000/svg"
    }


def test_the_page_may_ask_its_own_server_only():
    policy = page.HEADERS["Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules.pop("img-src") == "'self' data:"
    own = {"script-src", "style-src", "connect-src"}
    assert {rules.pop(name) for name in own} == {"'self'"}
    assert set(rules) == {
        *("default-src", "base-uri", "form-action", "frame-ancestors")
    }
    assert set(rules.values()) == {"'none'"}
