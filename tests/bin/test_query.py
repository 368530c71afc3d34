"""`t2t-lite-query`: N lines in, N lines out, whatever the server does."""

import json

import numpy as np
import pytest

from support.served_model import serving
from t2t_lite.serving.server.model import Signature, Version
from t2t_lite.serving.server.requests import ApiError

BAD = "bad"  # a text that the model rejects


class Model:
    """A model that returns capitals; one of three nbest hypotheses is missing.

    Attributes:
      refusals: errors to raise, one per request.
      asked: the signature and texts of each request.
    """

    def __init__(self):
        self.refusals = []
        self.asked = []

    def load(self, folder):
        signatures = {
            name: Signature(
                ("inputs",), lambda x, n=name: self.run(n, x), False
            )
            for name in ("serving_default", "nbest")
        }
        return Version(int(folder.name), signatures)

    def run(self, name, inputs):
        texts = [text.decode() for text in inputs["inputs"]]
        self.asked.append((name, texts))
        if self.refusals:
            raise self.refusals.pop(0)
        if BAD in texts:
            raise ApiError("A text is\nbad.")
        outputs = [text.upper().encode() for text in texts]
        scores = [-0.5] * len(texts)
        if name == "nbest":
            outputs = [[b"%s %d" % (x, k) for k in range(3)] for x in outputs]
            scores = [[-0.5, -1.25, -1e9]] * len(texts)
        return {
            "outputs": np.array(outputs, object),
            "scores": np.array(scores, np.float32),
            "cut": np.array([len(text) > 100 for text in texts]),
        }


@pytest.fixture
def model():
    return Model()


@pytest.fixture(params=["http", "grpc"])
def url(request, model, tmp_path):
    """The address of a server, for REST and for gRPC."""
    (tmp_path / "m" / "7").mkdir(parents=True)
    (tmp_path / "m" / "7" / "saved_model.pb").touch()
    limits = {"max_body_bytes": 200_000, "max_characters": 150_000}
    with serving(tmp_path / "m", model.load, workers=4, **limits) as server:
        port = server.port if request.param == "grpc" else server.rest_api_port
        yield f"{request.param}://127.0.0.1:{port}"


@pytest.fixture
def query(run_command, tmp_path, url):
    """Return a function that queries lines: (exit code, lines, stderr)."""

    def query(lines, *flags):
        path = tmp_path / "lines"
        lines = [x if isinstance(x, bytes) else x.encode() for x in lines]
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        base_flags = [f"--server={url}", f"--decode_from_file={path}"]
        if not any(flag.startswith("--model_name") for flag in flags):
            base_flags.append("--model_name=m")
        code, out, err = run_command("query", *base_flags, *flags)
        return code, out.split("\n")[:-1], err

    return query


def test_translations_keep_the_order_of_the_lines(query, model):
    lines = [f"line {i} {'x' * (i * 7 % 50)}" for i in range(100)] + ["", "ü"]
    code, out, _ = query(lines, "--batch_size=8", "--concurrency=3")
    assert (code, out) == (0, [line.upper() for line in lines])
    assert max(len(texts) for _, texts in model.asked) == 8
    assert {name for name, _ in model.asked} == {"serving_default"}


def test_a_line_with_any_characters_gives_one_line(query):
    lines = ["a\tb", "\0", "😀", "x" * 100_000, "", "  ", "crlf\r", b"\xff"]
    code, out, _ = query([*lines, "a\rb"])
    assert code == 0
    assert out[:-1] == [
        *("A\tB", "\0", "😀", "X" * 100_000, "", "  ", "CRLF", "\ufffd")
    ]
    # A line end inside a translation must not split its line.
    assert out[-1] == "A B"


def test_version_and_number_of_hypotheses_are_requested(query, model):
    code, out, _ = query(["a\tb"], "--version=7", "--nbest=3")
    # The third hypothesis does not exist.
    assert (code, out) == (0, ["A B 0\tA B 1"])
    assert model.asked == [("nbest", ["a\tb"])]
    code, _, err = query(["a"], "--version=8")
    assert code == 1 and "version 8" in err


def test_json_has_the_same_keys_as_the_decoder(query):
    code, out, _ = query(["a"], "--format=json", "--nbest=2")
    assert code == 0
    assert [json.loads(line) for line in out] == [
        {
            "line": 1,
            "source": "a",
            "hypotheses": [
                {"text": "A 0", "score": -0.5, "tokens": None},
                {"text": "A 1", "score": -1.25, "tokens": None},
            ],
        }
    ]


def test_a_bad_line_is_reported_and_affects_no_other(query):
    lines = ["a", "b", BAD, "c", "d"]
    code, out, err = query(lines)
    assert (code, out) == (1, ["A", "B", "", "C", "D"])
    assert err.splitlines() == [
        "line 3: A text is bad.",
        "t2t-lite-query: 1 line(s) have no translation.",
    ]
    code, out, _ = query(lines, "--format=json")
    assert code == 1
    assert json.loads(out[2]) == {"line": 3, "error": "A text is bad."}


def test_a_request_to_a_busy_server_is_retried(query, model):
    model.refusals = [ApiError("full", "RESOURCE_EXHAUSTED")]
    code, out, _ = query(["a", "b"], "--concurrency=1")
    assert (code, out) == (0, ["A", "B"])
    assert len(model.asked) == 2


def test_a_request_that_is_too_large_is_halved(query, model):
    long = "x" * 90_000
    code, out, _ = query(
        ["a", long, long, long], "--timeout=3", "--concurrency=1"
    )
    assert (code, out) == (0, ["A", *[long.upper()] * 3])
    assert [len(texts) for _, texts in model.asked] == [2, 2]


def test_an_unknown_model_is_an_error(query, model):
    code, out, err = query(["a", "b", "c"], "--model_name=other")
    assert (code, out) == (1, ["", "", ""])
    assert "not other" in err
    assert not model.asked


def test_a_truncated_text_is_reported(query):
    code, out, err = query(["a", "b" * 101])
    assert (code, out) == (0, ["A", "B" * 101])
    assert err == "line 2: too long: translated only its beginning.\n"


def test_translations_are_written_to_a_file_or_link(query, tmp_path):
    target = tmp_path / "out"
    assert query(["a", "ü"], f"--decode_to_file={target}") == (0, [], "")
    assert target.read_text("utf-8") == "A\nÜ\n"
    link = tmp_path / "link"
    link.symlink_to(target)
    assert query(["b"], f"--decode_to_file={link}") == (0, [], "")
    assert link.is_symlink() and target.read_text() == "B\n"


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_an_unreachable_server_is_an_error_for_every_line(
    run_command, tmp_path, scheme
):
    (tmp_path / "lines").write_text("a\nb\n")
    url = f"{scheme}://127.0.0.1:1"
    code, out, err = run_command(
        "query",
        f"--server={url}",
        "--timeout=1",
        f"--decode_from_file={tmp_path / 'lines'}",
    )
    assert (code, out) == (1, "\n\n")
    notice, *line_errors, _ = err.splitlines()
    assert notice.startswith(f"Waiting for {url}, ") and "--timeout" in notice
    assert [line[:8] for line in line_errors] == ["line 1: ", "line 2: "]


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--server=127.0.0.1:8500"], 2, "--server must be http://HOST:PORT"),
        (["--decode_to_file=/dev/null"], 2, "/dev/null"),
        (["--decode_from_file=/nothing"], 1, "there is no file /nothing"),
        (["--nbest=0"], 2, "--nbest"),
    ],
)
def test_invalid_flags_are_refused(run_command, flags, code, message):
    found, out, err = run_command("query", *flags)
    assert (found, out) == (code, "")
    assert message in err
