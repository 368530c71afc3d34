"""A server of the page with made-up models: fast, and the same each time.

It answers as the real one does: the page's files, `/models` and
`/v1/models/NAME:predict`. Texts that it does not know come back in capitals.
"""

import contextlib
import http.server
import json
import re
import threading

from t2t_lite.serving.page.files import (
    CONTENT_SECURITY_POLICY,
    INDEX,
    page_file,
)

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
        "max_batch": None,
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
    "stock": None,
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
    """The translations of a text with their scores, best first."""
    return ANSWERS.get((model, text), {text.upper(): -1.0})


def pieces(text):
    """Words as SentencePiece would have them, the last sign by itself."""
    words = [f"▁{word}" for word in text.split()]
    if words and words[-1].endswith("."):
        words[-1:] = [words[-1][:-1], "."]
    return words


def _row(row, rows, columns, sharp):
    at = row * (columns - 1) / max(rows - 1, 1)
    shares = [2.0 ** (-sharp * abs(column - at)) for column in range(columns)]
    return [share / sum(shares) for share in shares]


def _heads(rows, columns):
    """Weights [layers, heads, rows, columns] along the diagonal."""
    return [
        [
            [_row(r, rows, columns, 1 + layer + head) for r in range(rows)]
            for head in range(HEADS)
        ]
        for layer in range(LAYERS)
    ]


class FakeServer(http.server.ThreadingHTTPServer):
    """The server, and what it was asked.

    Attributes:
      models: the names of those that it has, in order.
      versions: of each model, newest first; other than the newest, they answer
        with texts turned around, and have no attention.
      busy: so many requests to come are answered with 503.
      asked: (model, signature, texts) of each request to a model.
      held: texts that wait for `release` before they are answered.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.models = ["ende"]
        self.versions = ["3"]
        self.busy = 0
        self.asked = []
        self.held = set()
        self.release = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def listed(self):
        return {
            "models": [
                {
                    "name": name,
                    "versions": [
                        {
                            "version": version,
                            "state": "AVAILABLE",
                            "about": self._about(name, version),
                        }
                        for version in self.versions
                    ],
                    "about": ABOUT[name],
                }
                for name in self.models
            ]
        }

    def _about(self, name, version):
        if version == self.versions[0] or not ABOUT[name]:
            return ABOUT[name]
        return {**ABOUT[name], "step": 5, "signatures": ["serving_default"]}

    def answer(self, path, body):
        """Status and JSON of a request to a model."""
        model, _, version = path.partition("/versions/")
        signature = body.get("signature_name", "serving_default")
        texts = body["inputs"]["inputs"]
        self.asked.append((model, signature, texts))
        if self.busy:
            self.busy -= 1
            return 503, {"error": "The queue is full; try again."}
        if self.held.intersection(texts):
            self.release.wait(20)
        if model not in self.models:
            return 404, {"error": f"Servable not found for request: {model}"}
        known = (ABOUT[model] or about("", "", "nbest"))["signatures"]
        if signature not in known or (model, signature) == ("stock", "nbest"):
            return 400, {"error": f'Serving signature "{signature}" not found'}
        if REFUSED in texts:
            return 400, {"error": "A text may have 1,000 characters."}
        if signature == "attention":
            return 200, {
                "outputs": _attention(*texts, *body["inputs"]["targets"])
            }
        found = [hypotheses(model, text) for text in texts]
        if version:
            found = [{text[::-1]: -2.0} for text in texts]
        outputs = {
            "outputs": [list(each) for each in found],
            "scores": [list(each.values()) for each in found],
        }
        if ABOUT[model] and ABOUT[model]["form"]:
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
    """A tree as a model writes it, without the words."""
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
        path = self.path.removeprefix("/").removeprefix("page/")
        if self.path == "/models":
            return self._json(200, self.server.listed())
        found = page_file(path or INDEX)
        if found is None:
            return self._json(404, {"error": "Not found"})
        self._send(200, *found)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = self.path.removeprefix("/v1/models/").partition(":")[0]
        self._json(*self.server.answer(model, body))

    def _json(self, status, value):
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status, content, content_type):
        # A browser that no longer wants the answer has closed the connection.
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def fake_server():
    """A running FakeServer, on a port of its own."""
    with FakeServer() as server:
        threading.Thread(
            target=server.serve_forever, args=(0.02,), daemon=True
        ).start()
        try:
            yield server
        finally:
            server.release.set()
            server.shutdown()
