"""A server finds requests that it can send to itself before it serves."""

import pytest
import tensorflow as tf

from support.warmup import logged_requests
from t2t_lite.errors import UsageError
from t2t_lite.serving.requests import (
    WARMUP_FILE,
    Request,
    at_several_lengths,
    check_warmup,
    sample_pairs,
    write_warmup,
)
from t2t_lite.training.run import Run


def test_requests_are_read_by_the_servers_own_messages(tmp_path):
    (tmp_path / WARMUP_FILE).parent.mkdir()
    requests = [
        Request("serving_default", {"inputs": ["", "😀", "x" * 70_000]}),
        Request("score", {"inputs": ["a"], "targets": ["b"]}),
        Request("empty", {"inputs": []}),
    ]
    write_warmup(tmp_path / WARMUP_FILE, requests)
    found = [
        Request(
            request.model_spec.signature_name,
            {
                name: [text.decode() for text in tf.make_ndarray(value)]
                for name, value in request.inputs.items()
            },
        )
        for request in logged_requests(tmp_path)
    ]
    assert found == requests


def test_texts_are_of_dev_where_the_data_is_and_made_up_where_not(
    tiny_run, tmp_path
):
    run = Run.open(tiny_run)
    translator = run.translator(run.load_model()[0])
    sources, targets = run.data.texts("dev")
    pairs = sample_pairs(translator, run)
    assert sorted(pairs) == sorted(zip(sources, targets, strict=True))
    run.data.folder = tmp_path
    del run.data.manifest
    made_up = sample_pairs(translator, run)
    assert made_up == sample_pairs(translator, None)
    assert made_up and not {*made_up} & {*pairs}


@pytest.mark.parametrize(
    "count, wanted",
    [(0, []), (1, ["5"]), (2, ["1", "5"]), (3, ["1", "3", "5"])]
    + [(9, list("12345"))],
)
def test_lengths_are_at_even_distances_up_to_the_longest(count, wanted):
    pairs = [(text, text) for text in "12345"]
    chosen = at_several_lengths(pairs, count)
    assert [source for source, _ in chosen] == wanted


def test_more_requests_than_the_server_takes_are_refused():
    signatures = ["serving_default", "nbest", "score"]
    check_warmup(333, signatures)
    with pytest.raises(UsageError, match="--warmup .* 333 .* got 334"):
        check_warmup(334, signatures)
