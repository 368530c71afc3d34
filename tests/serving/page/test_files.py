"""References of the page's files, and its content security policy."""

import re

import pytest

from t2t_lite.serving import page

FILES = {file.name: file for file in page.FOLDER.iterdir()}


@pytest.mark.parametrize("name", FILES)
def test_page_file_refers_only_to_page_files(name):
    text = FILES[name].read_text("utf-8")
    urls = re.findall(r'(?:src|href)="([^"]*)"|@import|url\(', text)
    urls += re.findall(r'^(?:import|export) .*"\./(.*)"', text, re.MULTILINE)
    assert {each.removeprefix("page/") for each in urls} <= FILES.keys()
    assert set(re.findall(r"https?://[^\"\s]*", text)) <= {
        "http://www.w3.org/2000/svg"
    }


def test_policy_allows_only_the_pages_own_server():
    policy = page.HEADERS["Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules.pop("img-src") == "'self' data:"
    own = {"script-src", "style-src", "connect-src"}
    assert {rules.pop(name) for name in own} == {"'self'"}
    assert set(rules) == {
        *("default-src", "base-uri", "form-action", "frame-ancestors")
    }
    assert set(rules.values()) == {"'none'"}
