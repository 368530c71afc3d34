"""A server of the page with made-up models, fast and deterministic.

Like the real server, it serves the page's files, `/model` and
`/v1/models/NAME:predict`. It translates an unknown text into capitals.
"""

import contextlib
import http.server
import json
import mimetypes
import re
import threading

from t2t_lite.serving import page

END = "⟨end⟩"
LAYERS, HEADS = 3, 2
REFUSED = "refuse me"


def about(source, target, *signatures, form=None):
    return {
        "format": 1,
        "t2t_lite": "1.0",
        "problem": "made_up",
        "source_language": source,
        "target_language": target,
        "parameters": 65_140_736,
        "precision": "float32",
        "max_length": 256,
        "form": form,
        "step": 100_000,
        "averaged": 5,
        "signatures": ["serving_default", *signatures],
        "scores": [
            {"split": "test", "metric": "bleu", "score": 27.31, "sentences": 9}
        ],
    }


ABOUT = {
    "ende": about("en", "de", "nbest", "attention"),
    "enfr": about("en", "fr", "nbest"),
    "enar": about("en", "ar", "nbest", "attention"),
    "trees": about("en", None, "nbest", "attention", form="trees"),
}
TREE = (
    "(S (NP (DT The) (JJ old) (NN dog)) (VP (VBZ sleeps) "
    "(PP (IN in) (NP (DT the) (NN snow)))) (. .))"
)
ANSWERS = {
    ("ende", "Two dogs are playing in the snow."): {
        "Zwei Hunde spielen im Schnee.": -0.3125,
        "Zwei Hunde spielen in dem Schnee.": -0.75,
        "Zwei Hunde toben im Schnee.": -1.125,
        "Es spielen zwei Hunde im Schnee.": -1.5,
    },
    ("enfr", "Two dogs are playing in the snow."): {
        "Deux chiens jouent dans la neige.": -0.25,
        "Deux chiens s'amusent dans la neige.": -0.875,
    },
    ("enar", "Two dogs are playing in the snow."): {
        "كلبان يلعبان في الثلج.": -0.375,
        "يلعب كلبان في الثلج.": -0.5,
    },
    ("trees", "The old dog sleeps in the snow."): {TREE: -0.125},
}


def hypotheses(model, text):
    """Return the translations of a text with their scores, best first."""
    return ANSWERS.get((model, text), {text.upper(): -1.0})


def pieces(text):
    """Return words as SentencePiece pieces, with a separate final period."""
    words = [f"▁{word}" for word in text.split()]
    if words and words[-1].endswith("."):
        words[-1:] = [words[-1][:-1], "."]
    return words


def _row(row, rows, columns, sharp):
    at = row * (columns - 1) / max(rows - 1, 1)
    shares = [2.0 ** (-sharp * abs(column - at)) for column in range(columns)]
    return [share / sum(shares) for share in shares]


def _heads(rows, columns):
    return [
        [
            [_row(r, rows, columns, 1 + layer + head) for r in range(rows)]
            for head in range(HEADS)
        ]
        for layer in range(LAYERS)
    ]


class FakeServer(http.server.ThreadingHTTPServer):
    """A fake server that records its requests.

    Attributes:
      model: the name of its model, or None.
      busy: number of requests that it will still reject with 503.
      asked: (model, signature, texts) of each request to a model.
      held: texts whose responses wait for `release`.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = "ende"
        self.busy = 0
        self.asked = []
        self.held = set()
        self.release = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def answer(self, path, body):
        """Return the status and the JSON response to a request to a model."""
        model = path
        signature = body.get("signature_name", "serving_default")
        texts = body["inputs"]["inputs"]
        self.asked.append((model, signature, texts))
        if self.busy:
            self.busy -= 1
            return 503, {"error": "The queue is full; try again."}
        if self.held.intersection(texts):
            self.release.wait(20)
        if model != self.model:
            return 404, {"error": f"Servable not found for request: {model}"}
        if signature not in ABOUT[model]["signatures"]:
            return 400, {"error": f"There is no signature {signature}"}
        if REFUSED in texts:
            return 400, {"error": "A text may have 1,000 characters."}
        if signature == "attention":
            return 200, {
                "outputs": _attention(*texts, *body["inputs"]["targets"])
            }
        found = [hypotheses(model, text) for text in texts]
        outputs = {
            "outputs": [list(each) for each in found],
            "scores": [list(each.values()) for each in found],
        }
        if ABOUT[model]["form"]:
            outputs["targets"] = [
                [_as_written(tree) for tree in each] for each in found
            ]
        if signature == "serving_default":
            outputs = {
                name: [row[0] for row in rows] for name, rows in outputs.items()
            }
        outputs["cut"] = [len(text) > 1000 for text in texts]
        return 200, {"outputs": outputs}


def _as_written(tree):
    """Return a tree in the format of the model, without the words."""
    return re.sub(r"\((\S+) [^\s()]+\)", r"\1", tree)


def _attention(source, target):
    read, written = [*pieces(source), END], [*pieces(target), END]
    s, t = len(read), len(written)
    return {
        "source_tokens": [read],
        "target_tokens": [written],
        "encoder": [_heads(s, s)],
        "decoder": [_heads(t, t)],
        "cross": [_heads(t, s)],
        "cut": [False],
    }


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = self.server.model
        if self.path == "/model" and not name:
            return self._json(404, {"error": "No version is loaded."})
        if self.path == "/model":
            about = {"version": 3, "about": ABOUT[name]}
            return self._json(200, {"name": name, **about})
        name = self.path.removeprefix("/").removeprefix("page/")
        file = page.FOLDER / (name or "index.html")
        if not file.is_file():
            return self._json(404, {"error": "Not found"})
        kind = mimetypes.guess_type(file.name)[0]
        headers = {"Content-Type": f"{kind}; charset=utf-8", **page.HEADERS}
        self._send(200, file.read_bytes(), headers)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = self.path.removeprefix("/v1/models/").partition(":")[0]
        self._json(*self.server.answer(model, body))

    def _json(self, status, value):
        self._send(status, json.dumps(value).encode(), {})

    def _send(self, status, content, headers):
        # The browser closes the connection if it no longer needs the response.
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def fake_server():
    """Run a FakeServer on a free port."""
    with FakeServer() as server:
        threading.Thread(
            target=server.serve_forever, args=(0.02,), daemon=True
        ).start()
        try:
            yield server
        finally:
            server.release.set()
            server.shutdown()
