"""The files of the web page, which loads nothing from other servers."""

import functools
import importlib.resources

INDEX = "index.html"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# No other name reaches the disk.
NAMES = (
    INDEX,
    "page.css",
    "page.js",
    "server.js",
    "nodes.js",
    "answer.js",
    "alignment.js",
    "attention.js",
    "trees.js",
    "file.js",
    "heads.js",
    "heads.css",
    "icon.svg",
)
# A browser then loads only files of this folder, sends requests only to this
# server, and does not show the page in a frame of another page.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


def page_file(name: str) -> tuple[bytes, dict[str, str]] | None:
    """Return a file of the page and its HTTP headers.

    Args:
      name: such as "page.css"; "index.html" is the page itself.

    Returns:
      None if the page has no file of that name.
    """
    if name not in NAMES:
        return None
    return _content(name), {
        "Content-Type": _TYPES[name.rpartition(".")[2]],
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


@functools.cache
def _content(name: str) -> bytes:
    folder = importlib.resources.files("t2t_lite.serving.page")
    return (folder / name).read_bytes()
