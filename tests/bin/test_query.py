"""`t2t-lite-query`: N lines in, N lines out, whatever the server does."""

import json

import numpy as np
import pytest

from support.served_model import serving
from t2t_lite.serving.server.model import Signature, Version
from t2t_lite.serving.server.requests import ApiError

BAD = "bad"  # a text that the model refuses


class Model:
    """Answers in capitals, or with three hypotheses, of which one is missing.

    Attributes:
      refusals: each is the answer to one request.
      asked: signature and texts of each request.
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
    """The server's address, over REST and over gRPC."""
    (tmp_path / "m" / "7").mkdir(parents=True)
    (tmp_path / "m" / "7" / "saved_model.pb").touch()
    limits = {"max_body_bytes": 200_000, "max_characters": 150_000}
    with serving(tmp_path / "m", model.load, workers=4, **limits) as server:
        port = server.port if request.param == "grpc" else server.rest_api_port
        yield f"{request.param}://127.0.0.1:{port}"


@pytest.fixture
def ask(run_command, tmp_path, url):
    """Asks for lines: (exit code, lines out, stderr)."""

    def ask(lines, *flags):
        path = tmp_path / "lines"
        lines = [x if isinstance(x, bytes) else x.encode() for x in lines]
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        given = [f"--server={url}", f"--decode_from_file={path}"]
        if not any(flag.startswith("--model_name") for flag in flags):
            given.append("--model_name=m")
        code, out, err = run_command("query", *given, *flags)
        return code, out.split("\n")[:-1], err

    return ask


def test_lines_come_back_in_order(ask, model):
    lines = [f"line {i} {'x' * (i * 7 % 50)}" for i in range(100)] + ["", "ü"]
    code, out, _ = ask(lines, "--batch_size=8", "--concurrency=3")
    assert (code, out) == (0, [line.upper() for line in lines])
    assert max(len(texts) for _, texts in model.asked) == 8
    assert {name for name, _ in model.asked} == {"serving_default"}


def test_whatever_is_in_a_line_it_stays_one(ask, model):
    lines = ["a\tb", "\0", "😀", "x" * 100_000, "", "  ", "crlf\r", b"\xff"]
    code, out, _ = ask([*lines, "a\rb"])
    assert code == 0
    assert out[:-1] == [
        *("A\tB", "\0", "😀", "X" * 100_000, "", "  ", "CRLF", "\ufffd")
    ]
    # A line end inside an answer must not make two of it.
    assert out[-1] == "A B"


def test_the_version_and_the_best_hypotheses_are_asked_for(ask, model):
    code, out, _ = ask(["a\tb"], "--version=7", "--nbest=3")
    # Of three, one does not exist.
    assert (code, out) == (0, ["A B 0\tA B 1"])
    assert model.asked == [("nbest", ["a\tb"])]
    code, _, err = ask(["a"], "--version=8")
    assert code == 1 and "version 8" in err


def test_json_has_the_keys_of_the_decoder(ask):
    code, out, _ = ask(["a"], "--format=json", "--nbest=2")
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


def test_a_bad_line_is_empty_and_named_and_costs_no_other(ask):
    lines = ["a", "b", BAD, "c", "d"]
    code, out, err = ask(lines)
    assert (code, out) == (1, ["A", "B", "", "C", "D"])
    assert err.splitlines() == [
        "line 3: A text is bad.",
        "t2t-lite-query: 1 line(s) have no translation.",
    ]
    code, out, _ = ask(lines, "--format=json")
    assert code == 1
    assert json.loads(out[2]) == {"line": 3, "error": "A text is bad."}


def test_a_busy_server_is_asked_again(ask, model):
    model.refusals = [ApiError("full", "RESOURCE_EXHAUSTED")]
    code, out, _ = ask(["a", "b"], "--concurrency=1")
    assert (code, out) == (0, ["A", "B"])
    assert len(model.asked) == 2


def test_a_message_that_is_too_large_is_halved(ask, model):
    long = "x" * 90_000
    code, out, _ = ask(
        ["a", long, long, long], "--timeout=3", "--concurrency=1"
    )
    assert (code, out) == (0, ["A", *[long.upper()] * 3])
    assert [len(texts) for _, texts in model.asked] == [2, 2]


def test_an_unknown_model_is_asked_for_once(ask, model):
    code, out, err = ask(["a", "b", "c"], "--model_name=other")
    assert (code, out) == (1, ["", "", ""])
    assert "got other" in err
    assert not model.asked


def test_a_text_that_was_cut_is_remarked(ask):
    code, out, err = ask(["a", "b" * 101])
    assert (code, out) == (0, ["A", "B" * 101])
    assert err == "line 2: too long: translated only its beginning.\n"


def test_answers_go_into_a_file_that_is_complete(ask, tmp_path):
    target = tmp_path / "out"
    assert ask(["a", "ü"], f"--decode_to_file={target}") == (0, [], "")
    assert target.read_text("utf-8") == "A\nÜ\n"
    link = tmp_path / "link"
    link.symlink_to(target)
    assert ask(["b"], f"--decode_to_file={link}") == (0, [], "")
    assert link.is_symlink() and target.read_text() == "B\n"


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_server_that_is_not_there_is_an_error_of_every_line(
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
    waits, *of_lines, _ = err.splitlines()
    assert waits.startswith(f"Waiting for {url}, ") and "--timeout" in waits
    assert [line[:8] for line in of_lines] == ["line 1: ", "line 2: "]


@pytest.mark.parametrize(
    "flags,message",
    [
        (["--server=127.0.0.1:8500"], "--server must be http://HOST:PORT"),
        (["--decode_to_file=/dev/null"], "/dev/null"),
        (["--decode_from_file=/nothing"], "there is no file /nothing"),
        (["--nbest=0"], "--nbest"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(run_command, flags, message):
    code, out, err = run_command("query", *flags)
    assert code in (1, 2) and out == ""
    assert message in err
