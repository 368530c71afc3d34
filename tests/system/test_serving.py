"""The exporter, server, page and client with a tiny run."""

import contextlib
import re
import subprocess

import pytest

from support.browser import severe
from support.lines import command_line, write
from support.page import Page

LINES = ["1 2 3", "7", "4 0 4 0", "9 9"]


@pytest.fixture(scope="module")
def server(tiny_run, tmp_path_factory):
    """The REST and gRPC addresses of a server of a tiny run."""
    for package in ("aiohttp", "grpc_health", "tensorflow_serving"):
        pytest.importorskip(package)
    from t2t_lite.bin import exporter

    folder = tmp_path_factory.mktemp("export")
    flags = [f"--output_dir={tiny_run}", f"--export_dir={folder}"]
    assert exporter.main([*flags, "--attention"]) == 0
    flags = ["--port=0", "--rest_api_port=0", f"--model_base_path={folder}"]
    process = subprocess.Popen(
        [*command_line("server"), *flags], stdout=subprocess.PIPE, text=True
    )
    try:
        for line in process.stdout:
            found = re.search(r"page at (http://\S+)/, gRPC at (\S+)\.$", line)
            if found:
                break
        yield found[1], f"grpc://{found[2]}"
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()


@pytest.fixture
def translations(decode):
    """The decoder's output for the lines."""
    return decode(LINES, "--nbest=3")[1]


@pytest.mark.slow
@pytest.mark.parametrize("api", [0, 1], ids=["rest", "grpc"])
def test_client_output_equals_the_decoders(
    server, translations, run_command, tmp_path, api
):
    lines = f"--decode_from_file={write(tmp_path / 'lines', LINES)}"
    flags = [f"--server={server[api]}", lines, "--nbest=3"]
    code, out, err = run_command("query", *flags)
    assert (code, out.splitlines(), err) == (0, translations, "")


@pytest.mark.slow
def test_page_shows_the_decoders_hypotheses_and_attention(
    server, translations, browser
):
    hypotheses = translations[0].split("\t")
    chosen = next(k for k, text in enumerate(hypotheses) if text)
    page = Page(browser, server[0])
    page.type(LINES[0])
    page.wait(lambda: len(page.all(".option")) >= len(hypotheses))
    shown = [
        node.get_property("textContent")
        for node in browser.find_elements("css selector", ".option-text")
    ]
    assert shown[: len(hypotheses)] == hypotheses
    page.all(".option")[chosen].click()
    page.translation(hypotheses[chosen])
    page.words()
    page.press("Attention")
    page.wait(lambda: page.all("#lines line"))
    assert page.texts('g.word[data-side="column"]')[-1] == "⟨end⟩"
    assert not severe(browser)
