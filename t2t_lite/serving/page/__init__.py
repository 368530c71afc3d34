"""The web page of a server, without resources from other servers."""

from pathlib import Path

FOLDER = Path(__file__).with_name("static")
# The browser loads files only from this folder, sends requests only to this
# server, and does not display the page in a frame of another page.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
