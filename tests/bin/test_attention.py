"""The attention page of a run: its data, and its behavior in a browser."""

import json
import re

import numpy as np
import pytest

from support.browser import cut_off, set_screen, severe
from t2t_lite.decoding.results import Attention
from t2t_lite.serving.page.attention_page import render_page


def data_of(page):
    (text,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page
    )
    return json.loads(text)


@pytest.fixture(scope="module")
def page(tiny_run, tmp_path_factory):
    from t2t_lite.bin import attention

    path = tmp_path_factory.mktemp("page") / "made.html"
    flags = ["--text=1 2 3", "--target=one two", f"--html_file={path}"]
    assert attention.main([f"--output_dir={tiny_run}", *flags]) == 0
    return path


def test_every_word_layer_and_head_is_in_the_page(page):
    data = data_of(page.read_text("utf-8"))
    assert data["texts"] == ["1 2 3", "one two"]
    assert (
        "".join(data["source_tokens"]).replace("▁", " ").strip() == "1 2 3⟨end⟩"
    )
    source, target = len(data["source_tokens"]), len(data["target_tokens"])
    for name, shape in (
        ("cross", (target, source)),
        ("encoder", (source, source)),
        ("decoder", (target, target)),
    ):
        weights = np.array(data[name])
        assert weights.shape == (1, 2, *shape)  # one layer of two heads
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-2)


@pytest.mark.slow
def test_default_target_is_the_translation(run_command, tiny_run, decode):
    flags = [f"--output_dir={tiny_run}", "--text=1 2"]
    code, out, _ = run_command("attention", *flags)
    path = tiny_run / "attention.html"
    assert (code, out) == (0, f"{path}\n")
    _, (translation,), _ = decode(["1 2"])
    assert data_of(path.read_text("utf-8"))["texts"] == ["1 2", translation]


def test_the_page_loads_nothing_and_escapes_its_texts(page):
    text = page.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"https?:|src=|href=|@import|url\(", text)
    hostile = "</script><script>alert(1)</script>"
    attention = Attention((hostile, hostile), [], [], *[np.zeros([0])] * 3)
    assert data_of(render_page(attention))["texts"] == [hostile] * 2


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ([], "--text"),
        (["--text= "], "--text"),
        ([f"--text={'1 ' * 64}"], "max_length"),
        (["--text=1", f"--target={'1 ' * 64}"], "max_length"),
    ],
)
def test_texts_of_a_wrong_length_are_refused(
    run_command, tiny_run, flags, word
):
    flags = [f"--output_dir={tiny_run}", *flags]
    code, out, err = run_command("attention", *flags)
    assert (code, out) == (2, "")
    assert word in err.splitlines()[-1]


def _lines(browser):
    """Return the opacity of each drawn line by (head, row, column)."""
    return {
        tuple(
            int(line.get_attribute(f"data-{key}"))
            for key in ("head", "row", "column")
        ): float(line.get_attribute("stroke-opacity"))
        for line in browser.find_elements("css selector", "#lines line")
    }


def _press(browser, fieldset, label):
    buttons = browser.find_elements("css selector", f"#{fieldset} button")
    (button,) = (each for each in buttons if each.text == label)
    button.click()


def test_lines_in_a_browser_follow_the_view_the_heads_and_the_word(
    browser, page
):
    from selenium.webdriver.common.keys import Keys

    data = data_of(page.read_text("utf-8"))
    browser.get(page.as_uri())

    def weights(view, heads=(0, 1)):
        layer = np.array(data[view])[0]
        return {
            (head, *index): weight
            for head in heads
            for index, weight in np.ndenumerate(layer[head])
            if weight >= 0.02
        }

    assert _lines(browser) == pytest.approx(weights("cross"))
    _press(browser, "views", "Decoder")
    assert _lines(browser) == pytest.approx(weights("decoder"))
    _press(browser, "heads", "1")  # hides the first head
    assert _lines(browser) == pytest.approx(weights("decoder", heads=[1]))
    words = browser.find_elements("css selector", 'g.word[data-side="row"]')
    assert [word.text for word in words] == data["target_tokens"]
    words[1].click()
    row_one = {k: w for k, w in weights("decoder", [1]).items() if k[1] == 1}
    assert _lines(browser) == pytest.approx(row_one)
    shown = browser.find_element("id", "summary").text
    assert shown.startswith(f"{words[1].text} attends to ")
    words[1].send_keys(Keys.ENTER)  # the keyboard does the same
    assert words[1].get_attribute("aria-pressed") == "false"
    assert not severe(browser)


@pytest.mark.parametrize("width", [320, 1280])
def test_the_page_fits_narrow_and_wide_screens(browser, tmp_path, width):
    long = ["⟨start⟩", "Donaudampfschifffahrtsgesellschaft", "m" * 60]
    weights = np.full([6, 16, 3, 3], 1 / 3)
    attention = Attention(tuple(long[1:]), long, long, *[weights] * 3)
    page = tmp_path / "wide.html"
    page.write_text(render_page(attention), "utf-8")
    browser.get(page.as_uri())
    # Drawn at a width of 1280 pixels, the page must adapt to another.
    set_screen(browser, width)
    browser.execute_async_script(
        "const drawn = arguments[0];"
        "requestAnimationFrame(() => requestAnimationFrame(drawn))"
    )
    words = browser.find_elements("css selector", 'g.word[data-side="row"]')
    words[1].click()
    assert not cut_off(browser)
    figure = browser.find_element("id", "figure")
    assert figure.get_property("scrollWidth") <= width
