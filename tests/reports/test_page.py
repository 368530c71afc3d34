"""The page of runs: what is in it, and how it behaves in a browser."""

import json
import re

import pytest

from support.browser import set_screen, severe, violations
from support.written_run import (
    SENTENCES,
    evaluation,
    training,
    write_lines,
    write_run,
)
from t2t_lite.reports.page import render_report, report_of


def data_of(page):
    (text,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page
    )
    return json.loads(text)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three: ended, still in training, and of another problem."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        write_run(folder / "wmt" / "base"),
        write_run(
            folder / "wmt" / "big",
            steps=4200,
            scale=0.9,
            ended=False,
            hidden_size=1024,
        ),
        write_run(
            folder / "wsj" / "parsing",
            metric="f1",
            scale=0.6,
            problem="wsj_parsing",
            hparams_set="transformer_parsing_base",
            sampled=False,
        ),
    ]


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_report(report_of(runs)), "utf-8")
    return path


def test_every_curve_of_every_run_is_there(runs):
    told = report_of(runs)
    assert [run["name"] for run in told["runs"]] == [
        "wmt/base",
        "wmt/big",
        "wsj/parsing",
    ]
    curves = {
        chart["name"]: [(c["run"], c["weights"]) for c in chart["curves"]]
        for chart in told["charts"]
    }
    average = "average-5-step-00006000"
    assert curves["Training loss"] == [(0, None), (1, None), (2, None)]
    assert curves["BLEU on dev"] == [(0, None), (0, average), (1, None)]
    assert curves["F1 on dev"] == [(2, None), (2, average)]
    assert {
        "Loss on dev",
        "Learning rate",
        "Tokens per second",
        "Gradient norm",
        "Padding",
    } <= curves.keys()


def test_what_differs_is_marked(runs):
    rows = {row["name"]: row for row in report_of(runs)["facts"]}
    assert rows["hidden_size"]["values"] == ["512", "1024", "512"]
    assert rows["hidden_size"]["differs"] and rows["problem"]["differs"]
    assert not rows["num_heads"]["differs"]


def test_a_run_in_training_tells_what_is_left(runs):
    base, big, _ = (run["summary"] for run in report_of(runs)["runs"])
    assert (base["updates"], big["updates"]) == (
        "6,000 of 6,000",
        "4,200 of 6,000",
    )
    assert base["FLOPs, counted"] == "1.2e+16"
    assert big["time left, about"] == "1 h 3 min"
    assert big["best BLEU on dev"].endswith(" at 4,000")


def test_a_run_that_goes_on_after_its_end_tells_what_is_left(tmp_path):
    run = write_run(tmp_path / "run", train_steps=9000)
    summary = report_of([run])["runs"][0]["summary"]
    assert "time left, about" not in summary  # stopped early, say
    write_lines(run / "metrics.jsonl", [training(s) for s in (1, 6000, 7500)])
    summary = report_of([run])["runs"][0]["summary"]
    assert summary["updates"] == "7,500 of 9,000"
    assert summary["time left, about"] == "47 min 30 s"
    assert "FLOPs, counted" in summary


def test_sentences_are_told_over_at_most_twelve_evaluations(tmp_path):
    run = write_run(tmp_path / "run", steps=20_000, every=500, ended=False)
    (told,) = report_of([run])["runs"]
    pairs = [(each["source"], each["reference"]) for each in told["sentences"]]
    assert pairs == SENTENCES
    steps = [step for step, _, _ in told["sentences"][0]["translations"]]
    assert len(steps) == 12
    assert (steps[0], steps[-1]) == (500, 20_000)


def test_while_a_line_is_written_the_others_are_shown(tmp_path):
    run = write_run(tmp_path / "run", steps=500, ended=False)
    for name in ("metrics.jsonl", "samples.jsonl"):
        with open(run / name, "a") as file:
            file.write('{"step": 600, "loss": 1.')
    with open(run / "samples.jsonl", "a") as file:
        file.write('\n{"step": 700, "samples": [{"source": 3}]}\n')
    told = report_of([run])
    assert told["charts"][0]["curves"][0]["points"][-1][0] == 500
    assert len(told["runs"][0]["sentences"]) == len(SENTENCES)


@pytest.mark.parametrize("file", ["metrics.jsonl", "samples.jsonl"])
def test_a_run_may_have_no_such_file_yet(tmp_path, file):
    run = write_run(tmp_path / "run", ended=False)
    (run / file).unlink()
    told = report_of([run])
    assert bool(told["charts"]) == (file == "samples.jsonl")
    render_report(told)


def test_a_hundred_thousand_lines_are_thinned(tmp_path):
    run = write_run(tmp_path / "run", steps=100, evaluated=False)
    write_lines(
        run / "metrics.jsonl",
        [
            {"step": step, "loss": 1 + step % 7, "seconds": 2.0 * step}
            for step in range(1, 100_001)
        ],
    )
    told = report_of([run])
    points = [
        len(c["points"]) for chart in told["charts"] for c in chart["curves"]
    ]
    assert max(points) <= 1002
    assert len(render_report(told)) < 100_000


def test_the_page_loads_nothing_and_runs_only_what_is_in_it(page):
    text = page.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"https?:|src=|href=|@import|url\(", text)
    assert "default-src 'none'; style-src 'sha256-" in text


def test_the_command_writes_the_page_into_the_first_run(run_command, tmp_path):
    runs = [write_run(tmp_path / name, steps=500) for name in "ab"]
    code, out, err = run_command("report", *runs)
    assert (code, out, err) == (0, f"{runs[0] / 'report.html'}\n", "")
    data = data_of((runs[0] / "report.html").read_text("utf-8"))
    assert [run["name"] for run in data["runs"]] == ["a", "b"]
    chosen = tmp_path / "page.html"
    assert run_command("report", runs[0], f"--output={chosen}")[0] == 0
    assert data_of(chosen.read_text("utf-8"))["title"] == "a"


def test_the_command_names_a_folder_without_a_run(run_command, tmp_path):
    code, out, err = run_command("report", tmp_path)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert f"There is no run in {tmp_path}" in err
    code, _, err = run_command("report")
    assert (code, "RUN" in err) == (2, True)


def test_the_curves_are_a_picture_too(run_command, tmp_path):
    pytest.importorskip("matplotlib")
    runs = [
        write_run(tmp_path / name, steps=500) for name in ("$a_b$", "_hidden")
    ]
    picture = tmp_path / "curves.png"
    code, out, err = run_command("report", *runs, f"--png={picture}")
    assert (code, out.splitlines()[1]) == (0, str(picture)), err
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_a_picture_says_what_to_install(
    run_command, tmp_path, monkeypatch
):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    run = write_run(tmp_path / "run", steps=500)
    code, _, err = run_command("report", run, f"--png={tmp_path / 'a.png'}")
    assert (code, "pip install 't2t-lite[png]'" in err) == (1, True)


# In a browser.


def _curves(browser):
    """How many lines each chart draws, by its name."""
    return {
        plot.get_attribute("aria-label"): len(
            plot.find_elements("css selector", "polyline")
        )
        for plot in browser.find_elements("css selector", ".plot")
    }


def _press(browser, place, label):
    (button,) = (
        each
        for each in browser.find_elements("css selector", f"#{place} button")
        if each.text == label
    )
    button.click()


def _drawn(browser):
    browser.execute_async_script(
        "const drawn = arguments[0];"
        "requestAnimationFrame(() => requestAnimationFrame(drawn))"
    )


@pytest.mark.slow
def test_in_a_browser_the_curves_are_drawn_and_follow_the_switches(
    browser, page
):
    browser.get(page.as_uri())
    _drawn(browser)
    curves = _curves(browser)
    assert (curves["Training loss"], curves["BLEU on dev"]) == (3, 3)
    first = browser.find_element("css selector", "polyline")
    places = {first.get_attribute("points")}
    for switch in ("time", "log"):
        _press(browser, "controls", switch)
        _drawn(browser)
        first = browser.find_element("css selector", "polyline")
        places.add(first.get_attribute("points"))
    assert len(places) == 3
    browser.find_elements("css selector", "#runs input")[1].click()
    _drawn(browser)
    assert _curves(browser)["Training loss"] == 2
    assert not severe(browser)


@pytest.mark.slow
def test_in_a_browser_the_keyboard_and_the_mouse_tell_values(browser, page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.get(page.as_uri())
    _drawn(browser)
    plot = browser.find_elements("css selector", ".plot")[1]
    assert plot.get_attribute("aria-valuetext").startswith("last, wmt/base: ")
    plot.send_keys(Keys.HOME)
    plot.send_keys(Keys.ARROW_RIGHT)
    told = plot.get_attribute("aria-valuetext")
    value = f"{evaluation(1000)['dev_loss']:.4g}"
    assert told.startswith(f"step 1,000, wmt/base: {value}, wmt/big: ")
    plot.send_keys(Keys.ESCAPE)
    ActionChains(browser).move_to_element(plot).perform()
    readout = plot.find_element("xpath", "following-sibling::p").text
    assert readout.startswith(("step 2,500\n", "step 3,000\n"))
    assert not severe(browser)


@pytest.mark.slow
def test_in_a_browser_texts_of_users_are_texts(browser, tmp_path):
    hostile = "</script><img src=x onerror=\"document.title='broken'\">"
    run = write_run(tmp_path / "run", steps=500, problem=hostile)
    samples = [{"source": hostile, "translation": hostile, "reference": "r"}]
    write_lines(run / "samples.jsonl", [{"step": 500, "samples": samples}])
    page = tmp_path / "page.html"
    page.write_text(render_report(report_of([run])), "utf-8")
    browser.get(page.as_uri())
    _drawn(browser)
    assert browser.title == "run: t2t-lite"
    assert not browser.find_elements("css selector", "img")
    text = browser.find_element("id", "sentences").text
    assert text.count(hostile) == 2
    assert not severe(browser)


@pytest.mark.slow
def test_in_a_browser_only_what_differs_is_shown_when_asked(browser, page):
    browser.get(page.as_uri())
    rows = len(browser.find_elements("css selector", "#facts tbody tr"))
    _press(browser, "choose-facts", "what differs \u2260")
    shown = browser.find_elements("css selector", "#facts tbody th")
    names = [each.text for each in shown]
    assert names == ["problem \u2260", "set \u2260", "hidden_size \u2260"]
    assert rows > len(names)


@pytest.mark.slow
@pytest.mark.parametrize("width,dark", [(360, False), (1280, True)])
def test_in_a_browser_nothing_is_cut_off_and_axe_core_finds_nothing_serious(
    browser, page, width, dark
):
    set_screen(browser, width, dark)
    browser.get(page.as_uri())
    _drawn(browser)
    assert not violations(browser)
    size = "return document.documentElement.scrollWidth"
    assert browser.execute_script(size) <= width
    assert not severe(browser)
