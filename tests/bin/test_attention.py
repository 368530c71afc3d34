"""The page of a run's attention: what is in it, and how it behaves."""

import json
import re

import numpy as np
import pytest

from support.browser import cut_off, set_screen, severe
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
    cross, encoder, decoder = data["views"]
    text = "".join(encoder["rows"]).replace("▁", " ").strip()
    assert text == "1 2 3⟨end⟩"
    assert encoder["rows"] == encoder["columns"] == cross["columns"]
    assert decoder["rows"] == cross["rows"]
    # A row is named by the token that it chooses, a column by one before it.
    assert decoder["columns"] == ["⟨start⟩", *decoder["rows"][:-1]]
    for view in data["views"]:
        weights = np.array(view["weights"])
        shape = (len(view["rows"]), len(view["columns"]))
        assert weights.shape == (1, 2, *shape)  # one layer of two heads
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-2)


def test_every_view_says_what_its_sides_are(page):
    views = data_of(page.read_text("utf-8"))["views"]
    assert [(v["name"], v["row_side"], v["column_side"]) for v in views] == [
        ("Cross", "next token", "source"),
        ("Encoder", "source", "source"),
        ("Decoder", "next token", "target so far"),
    ]
    assert len({view["about"] for view in views}) == 3


def test_without_a_target_it_is_the_models_own(run_command, tiny_run, tmp_path):
    code, out, _ = run_command(
        "attention", f"--output_dir={tiny_run}", "--text=1 2"
    )
    assert (code, out) == (0, f"{tiny_run / 'attention.html'}\n")
    (tmp_path / "source").write_text("1 2\n")
    flags = [f"--output_dir={tiny_run}"]
    flags.append(f"--decode_from_file={tmp_path / 'source'}")
    _, translation, _ = run_command("decoder", *flags)
    data = data_of((tiny_run / "attention.html").read_text("utf-8"))
    assert data["texts"] == ["1 2", translation.rstrip("\n")]


def test_the_page_loads_nothing(page):
    text = page.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"https?:|src=|href=|@import|url\(", text)


def test_a_text_cannot_end_the_script_it_lies_in():
    hostile = "</script><script>alert(1)</script>"
    assert data_of(render_page({"texts": [hostile]}))["texts"] == [hostile]


@pytest.mark.parametrize(
    "flags,message",
    [
        ([], "--text"),
        (["--text= "], "--text must hold a word; got ' '"),
        ([f"--text={'1 ' * 64}"], "A text may have 64 tokens (max_length, EO"),
        (["--text=1", f"--target={'1 ' * 64}"], "A text may have 64 tokens"),
    ],
)
def test_a_text_is_needed(run_command, tiny_run, flags, message):
    code, out, err = run_command(
        "attention", f"--output_dir={tiny_run}", *flags
    )
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]


def _lines(browser):
    """The lines drawn, as (head, row, column) and their strength."""
    return {
        tuple(
            int(line.get_attribute(f"data-{key}"))
            for key in ("head", "row", "column")
        ): float(line.get_attribute("stroke-opacity"))
        for line in browser.find_elements("css selector", "#lines line")
    }


def _press(browser, fieldset, label):
    (button,) = (
        b
        for b in browser.find_elements("css selector", f"#{fieldset} button")
        if b.text == label
    )
    button.click()


def test_in_a_browser_lines_follow_the_view_the_heads_and_the_word(
    browser, page
):
    data = data_of(page.read_text("utf-8"))
    browser.get(page.as_uri())

    def weights(view, heads=(0, 1)):
        layer = np.array(data["views"][view]["weights"])[0]
        return {
            (head, *place): weight
            for head in heads
            for place, weight in np.ndenumerate(layer[head])
            if weight >= 0.02
        }

    assert _lines(browser) == pytest.approx(weights(0))
    _press(browser, "views", "Decoder")
    assert _lines(browser) == pytest.approx(weights(2))
    _press(browser, "heads", "1")  # lets the first head go
    assert _lines(browser) == pytest.approx(weights(2, heads=[1]))
    words = browser.find_elements("css selector", 'g.word[data-side="row"]')
    assert [w.text for w in words] == data["views"][2]["rows"]
    words[1].click()
    row_one = {k: w for k, w in weights(2, [1]).items() if k[1] == 1}
    assert _lines(browser) == pytest.approx(row_one)
    assert not severe(browser)


def test_in_a_browser_the_keyboard_keeps_a_word_and_tells_its_share(
    browser, page
):
    from selenium.webdriver.common.keys import Keys

    cross = data_of(page.read_text("utf-8"))["views"][0]
    browser.get(page.as_uri())
    word = browser.find_elements("css selector", 'g.word[data-side="row"]')[1]
    word.send_keys(Keys.ENTER)
    assert word.get_attribute("aria-pressed") == "true"
    shares = np.array(cross["weights"])[0, :, 1].mean(axis=0)
    most = cross["columns"][shares.argmax()]
    told = browser.find_element("id", "most").text
    share = int(100 * shares.max() + 0.5)
    assert told.startswith(f"{cross['rows'][1]} attends to {most} {share} %")
    word.send_keys(Keys.ENTER)
    assert word.get_attribute("aria-pressed") == "false"
    assert browser.find_element("id", "most").text == ""


@pytest.mark.parametrize("width", [320, 420, 1280])
def test_in_a_browser_of_any_width_nothing_is_cut_off(browser, tmp_path, width):
    long = ["⟨start⟩", "Donaudampfschifffahrtsgesellschaft", "m" * 60]
    views = [
        {
            "name": name,
            "about": "What looks at what.",
            "row_side": "next token",
            "rows": long,
            "column_side": "target so far",
            "columns": long,
            "weights": np.full([6, 16, 3, 3], 1 / 3).tolist(),
        }
        for name in ("Cross", "Encoder", "Decoder")
    ]
    page = tmp_path / "wide.html"
    page.write_text(render_page({"texts": long[1:], "views": views}), "utf-8")
    browser.get(page.as_uri())
    # Drawn wide, it follows when the window becomes narrow.
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
