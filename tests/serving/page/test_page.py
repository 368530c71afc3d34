"""The page in a real browser: typing, translations, words, trees, files."""

import pytest

from support.browser import cut_off, set_screen, severe, violations
from support.page import Page
from support.page_server import ANSWERS, REFUSED, TREE, fake_server

DOGS = "Two dogs are playing in the snow."
OLD_DOG = "The old dog sleeps in the snow."


@pytest.fixture
def server():
    with fake_server() as server:
        yield server


@pytest.fixture
def open_page(browser, server):
    def open(model):
        server.model = model
        return Page(browser, server.url)

    return open


def test_typed_text_is_translated(open_page, browser):
    page = open_page("ende")
    assert page.texts("h2") == ["English", "German", "Translate a file"]
    page.type(DOGS)
    page.translation("Zwei Hunde spielen im Schnee.")
    page.press("Clear")
    page.translation()
    assert page.one("#source").get_property("value") == ""
    assert not severe(browser)


def test_page_requests_only_the_model_and_translations(open_page, browser):
    page = open_page("ende")
    page.type(DOGS)
    page.words()
    urls = browser.execute_script(
        "return performance.getEntriesByType('resource').map(each =>"
        "  each.name.replace(location.origin, ''))"
    )
    others = {url for url in urls if not url.startswith("/page/")}
    assert others == {"/model", "/v1/models/ende:predict"}


def test_keyboard_reaches_every_control(open_page, browser):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    page = open_page("ende")
    page.type(DOGS)
    page.words()
    reached = []  # after the text field
    while "file" not in reached and len(reached) < 40:
        ActionChains(browser).send_keys(Keys.TAB).perform()
        active = browser.switch_to.active_element
        names = (active.get_attribute(name) for name in ("id", "type", "class"))
        reached.append(next(filter(None, names), active.tag_name).split()[0])
    copy_and_attention = ["button", "button"]
    details = ["summary", "radio", "summary"]
    words = ["token", "token"]
    assert reached == [*words, *copy_and_attention, *details, "file"]


def test_translation_of_outdated_text_is_never_shown(open_page, server):
    page = open_page("enfr")
    server.held.add("one")
    page.keep_all_that_is_shown(".translation")
    page.type("one")
    page.wait(lambda: ("enfr", "nbest", ["one"]) in server.asked)
    page.type(" two")
    page.translation("ONE TWO")
    server.release.set()
    page.type(" three")
    page.translation("ONE TWO THREE")
    shown = page.all_that_was_shown()
    assert {"ONE TWO", "ONE TWO THREE"} <= shown
    assert "ONE" not in shown


def test_user_can_switch_between_the_best_translations(open_page):
    page = open_page("ende")
    page.type(DOGS)
    expected = list(ANSWERS["ende", DOGS])
    page.wait(lambda: page.texts(".option-text") == expected)
    scores = [text.split()[-1] for text in page.texts(".score")]
    assert scores == ["−0.31", "−0.75", "−1.13", "−1.50"]
    page.all(".option")[1].click()
    page.translation(expected[1])
    # The arrow keys switch, too.
    from selenium.webdriver.common.keys import Keys

    page.all(".option input")[1].send_keys(Keys.ARROW_DOWN)
    page.translation(expected[2])


def test_selected_word_shows_its_attention_weights(open_page, browser):
    page = open_page("ende")
    page.type(DOGS)
    words = page.words()
    assert [w.text for w in words] == "Zwei Hunde spielen im Schnee .".split()
    assert page.text(".translation") == "Zwei Hunde spielen im Schnee."

    def weights():
        return [
            float(
                browser.execute_script(
                    "return arguments[0].style.getPropertyValue("
                    "'--weight') || 0",
                    word,
                )
            )
            for word in page.all(".source .token")
        ]

    assert sum(weights()) == 0
    words[0].click()
    assert page.texts(".source .strongest") == ["Two"]
    assert max(weights()) == weights()[0] > 0.5
    # Arrow keys move between words; screen readers announce the weights.
    from selenium.webdriver.common.keys import Keys

    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert browser.switch_to.active_element.text == "Hunde"
    assert page.texts(".source .strongest") == ["dogs"]
    status = browser.find_element("css selector", ".results [role=status]")
    assert status.get_property("textContent").startswith("Hunde: dogs ")
    # A selected source word shows the target words that attend to it.
    page.all(".source .token")[3].click()
    assert page.texts(".translation .strongest") == ["spielen"]


def test_attention_button_shows_the_heads(open_page, browser):
    page = open_page("trees")
    page.type(OLD_DOG)
    page.wait(lambda: page.all("svg.drawing"))
    page.press("Attention")
    page.wait(lambda: page.all("#lines line"))
    assert page.texts("#views button") == ["Cross", "Encoder", "Decoder"]
    assert len(page.all("#layers button")) == 3
    rows = page.texts('g.word[data-side="row"]')
    # The request has the tree in the format of the model.
    assert rows[:3] + rows[-1:] == ["▁(S", "▁(NP", "▁DT", "⟨end⟩"]
    page.press("Decoder")
    columns = page.texts('g.word[data-side="column"]')
    assert columns[:2] == ["⟨start⟩", "▁(S"]
    assert not violations(browser)
    page.press("Close")
    assert not page.all("dialog")
    assert not severe(browser)


def test_page_explains_how_to_export_attention(open_page):
    page = open_page("enfr")
    page.type(DOGS)
    page.translation(*list(ANSWERS["enfr", DOGS])[:1])
    assert not page.all(".token")
    assert "Attention" not in page.texts("button")
    page.one(".about summary").click()
    assert "t2t-lite-exporter --attention" in page.text(".about")
    assert "65,140,736" in page.text(".about dl")
    assert "bleu 27.3 (split test)" in page.text(".about dl")


def test_parse_tree_is_drawn(open_page, browser):
    page = open_page("trees")
    page.type(OLD_DOG)
    page.wait(lambda: page.all("svg.drawing"))
    assert page.texts("svg .word:not(path)") == (
        "The old dog sleeps in the snow .".split()
    )
    assert page.texts("svg .label").count("NP") == 2
    assert page.text(".brackets") == TREE
    assert not violations(browser)


def _call(page, module, function, *arguments):
    return page.browser.execute_async_script(
        "const [file, name, given, done] = arguments;"
        "import(`/page/${file}`).then(module => done(module[name](...given)));",
        module,
        function,
        arguments,
    )


SPANS = [
    (
        ["▁Two", "▁do", "gs", "."],
        "Two  dogs.",
        [[0, 3], [5, 7], [7, 9], [9, 10]],
    ),
    (["▁", "a"], " a", [None, [1, 2]]),
    (["snow", "##ing"], "snowing", [[0, 4], [4, 7]]),
    (["a_", "b_"], "a b", [[0, 1], [2, 3]]),
    (["a", "c"], "a b", None),
    (["a"], "a b", None),
    ([], "", []),
]


def test_find_spans_aligns_pieces_with_the_text(open_page):
    page = open_page("ende")
    for pieces, text, spans in SPANS:
        found = _call(page, "alignment.js", "findSpans", pieces, text)
        assert found == spans


def test_unchanged_lines_are_not_requested_again(open_page, server):
    page = open_page("enfr")
    page.type("one\ntwo\n\none")
    page.translation("ONE", "TWO", "ONE")
    page.type(" more")
    page.translation("ONE", "TWO", "ONE MORE")
    texts = [text for _, _, texts in server.asked for text in texts]
    assert texts.count("two") == 1


def test_text_direction_follows_the_language(open_page):
    page = open_page("enar")
    page.type(DOGS)
    page.wait(lambda: page.all(".translation"))
    nodes = (page.one("#source"), page.one(".translation"))
    assert [node.get_attribute("lang") for node in nodes] == ["en", "ar"]
    (left, *_, right) = page.words()
    assert left.location["x"] > right.location["x"]


def test_busy_server_is_retried_and_an_error_is_shown(open_page, server):
    page = open_page("enfr")
    server.busy = 1
    page.type("again")
    page.translation("AGAIN")
    assert [texts for *_, texts in server.asked].count(["again"]) == 2
    page.press("Clear")
    page.type(REFUSED)
    message = "A text may have 1,000 characters."
    page.wait(lambda: page.text(".results .warning") == message)
    page.type("!")
    page.translation(f"{REFUSED}!".upper())
    assert not page.all(".results .warning")


def test_page_reports_a_missing_model_until_it_is_loaded(open_page, server):
    page = open_page(None)
    assert "No version is loaded." in page.text("#connection-error")
    server.model = "enfr"
    page.press("Try again")
    page.wait(lambda: not page.all("#connection-error"))
    page.type("one")
    page.translation("ONE")


def test_html_in_a_text_is_not_rendered(open_page, browser):
    page = open_page("enfr")
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    page.type(hostile)
    page.translation(hostile.upper())
    assert not browser.find_elements("css selector", "main img, main script")
    assert not severe(browser)


LINES = [f"line {i}" for i in range(40)]


def _file(folder, lines):
    path = folder / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def _downloaded(page, folder):
    """Download the file that the page offers; return its name and content."""
    folder.mkdir()
    page.browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior",
        {"behavior": "allow", "downloadPath": str(folder)},
    )
    (link,) = page.wait(lambda: page.all("#download"))
    link.click()
    saved = folder / link.get_attribute("download")
    page.wait(saved.exists)
    return saved.name, saved.read_text("utf-8")


def test_uploaded_file_is_translated_line_by_line(open_page, server, tmp_path):
    page = open_page("ende")
    server.busy = 2
    lines = [*LINES[:20], "", *LINES[20:], ""]
    page.browser.find_element("id", "file").send_keys(
        str(_file(tmp_path, lines))
    )
    page.wait(lambda: page.text("#file-status") == "Done.")
    expected = "".join(f"{line.upper()}\n" for line in lines)
    assert _downloaded(page, tmp_path / "saved") == ("lines.de.txt", expected)
    assert page.text("#file-count") == "42 of 42 lines"
    progress = page.one("#file-progress")
    assert progress.get_property("value") == progress.get_property("max") == 42
    sizes = [len(texts) for *_, texts in server.asked]
    assert max(sizes) == 16 and sum(sizes) == 42 + 2 * 16


def test_dropped_file_can_be_stopped(open_page, server, browser):
    page = open_page("ende")
    server.held.update(LINES)
    browser.execute_script(
        "const data = new DataTransfer();"
        "data.items.add(new File([arguments[0]], 'dropped.txt'));"
        "const drop = new DragEvent('drop', {dataTransfer: data,"
        "  bubbles: true, cancelable: true});"
        "document.querySelector('h1').dispatchEvent(drop);",
        "\n".join(LINES),
    )
    page.wait(lambda: page.text("#file-name") == "dropped.txt")
    assert page.text("#file-count") == "0 of 40 lines"
    page.press("Stop")
    page.wait(lambda: page.text("#file-status") == "Stopped.")
    assert not page.all("#download")


def test_rejected_line_stays_empty(open_page, server, tmp_path):
    page = open_page("ende")
    lines = [*LINES[:3], REFUSED, *LINES[3:]]
    page.browser.find_element("id", "file").send_keys(
        str(_file(tmp_path, lines))
    )
    _, content = _downloaded(page, tmp_path / "saved")
    expected = [line.upper() for line in lines]
    expected[3] = ""
    assert content.splitlines() == expected
    assert page.text("#file-status") == (
        "Line 4 has no translation: A text may have 1,000 characters. "
        "(1 in total)"
    )


@pytest.mark.parametrize(
    "width,dark", [(320, False), (768, True), (1600, False)]
)
def test_layout_fits_the_window_and_has_no_axe_violations(
    open_page, server, browser, width, dark
):
    set_screen(browser, width, dark)
    page = open_page("enar")
    page.type(f"{DOGS}\n{'m' * 90}")
    page.wait(lambda: len(page.all(".answer")) == 2)
    page.all(".nbest summary")[0].click()
    page.all(".about summary")[0].click()
    page.words()[0].click()
    assert not violations(browser)
    assert not cut_off(browser)
    assert not severe(browser)
