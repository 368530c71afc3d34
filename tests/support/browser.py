"""A Chromium for tests, and checks of the page that it shows."""

import contextlib
import pathlib
import shutil

import pytest


@contextlib.contextmanager
def started():
    """Start a headless Chromium; skip the test if it is not installed."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    webdriver = pytest.importorskip("selenium.webdriver")
    if not (chromium and driver):
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--window-size=1280,900",
    ):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=driver)
    with webdriver.Chrome(options=options, service=service) as browser:
        yield browser


def set_screen(browser, width, dark=False):
    """Set the width of the page in pixels, and its light or dark mode."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1}
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {**size, "mobile": False}
    )
    scheme = {"name": "prefers-color-scheme"}
    scheme["value"] = "dark" if dark else "light"
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [scheme]}
    )


def severe(browser):
    """Return the errors in the browser's console since the last call."""
    log = browser.get_log("browser")
    return [entry for entry in log if entry["level"] == "SEVERE"]


def cut_off(browser):
    """Return the elements that extend beyond the window."""
    return browser.execute_script(
        "return [...document.querySelectorAll('body *')].filter(node => {"
        "  const box = node.getBoundingClientRect();"
        "  return box.left < 0 || box.right > innerWidth;"
        "}).map(node => node.outerHTML.slice(0, 200))"
    )


def violations(browser):
    """Return the serious violations of axe-core as (rule, element) pairs."""
    package = pytest.importorskip("axe_core_python")
    axe = pathlib.Path(package.__file__).with_name("axe.min.js")
    browser.execute_script(axe.read_text("utf-8"))
    found = browser.execute_async_script(
        "axe.run().then(arguments[0], error => arguments[0](String(error)))"
    )
    return [
        (each["id"], node["html"])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
