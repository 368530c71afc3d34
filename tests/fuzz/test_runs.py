"""Fuzzing of the files of a run: it opens or raises a T2TLiteError."""

import contextlib
import json
import shutil

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from support.mutations import hostile, mutated_json
from t2t_lite.errors import T2TLiteError
from t2t_lite.training import checkpoints
from t2t_lite.training.comparison import compare_runs, list_runs
from t2t_lite.training.config import CONFIG, read_config, require_same
from t2t_lite.training.model_card import write_card
from t2t_lite.training.problem_choice import choose_problem
from t2t_lite.training.run import Run

SOME = settings(max_examples=settings().max_examples // 2)  # slow


@pytest.fixture(scope="module")
def run(tiny_run, tmp_path_factory):
    copy = shutil.copytree(tiny_run, tmp_path_factory.mktemp("copy") / "run")
    mark = {"metric": "dev_bleu", "value": 3.5}
    marks = [{"step": step, **mark} for step in (4, 2)]
    checkpoints.mark_best(copy / checkpoints.FOLDER, marks)
    return copy


@pytest.fixture(scope="module")
def directory(run):
    return run / checkpoints.FOLDER


@given(data=st.data())
def test_configs_and_marks_of_the_best_checkpoints(run, directory, data):
    config = read_config(run)
    path = data.draw(st.sampled_from([run / CONFIG, directory / "best.json"]))
    original = path.read_bytes()
    record = json.loads(original)
    as_json = mutated_json(record).map(lambda x: json.dumps(x).encode())
    parts = [json.dumps(key).encode() for key in record]
    path.write_bytes(data.draw(as_json | hostile(original, parts=parts)))
    uses = [
        lambda: require_same(run, read_config(run), config),
        lambda: choose_problem(None, {}, None, run, read_config(run)),
        lambda: compare_runs([run]),
        lambda: list_runs(run.parent),
    ]
    with contextlib.suppress(T2TLiteError):
        opened = Run.open(run, to_decode=True)
        uses += [lambda: opened.progress.best_text, lambda: write_card(opened)]
        uses += [opened.data.attended_lengths, lambda: opened.data.texts("dev")]
    for use in uses:
        with contextlib.suppress(T2TLiteError):
            use()
    path.write_bytes(original)


def use_checkpoints(directory):
    """Find, read and average checkpoints; allow a T2TLiteError."""
    with contextlib.suppress(T2TLiteError):
        checkpoints.average_checkpoints(directory, 2)
    for found in checkpoints.list_checkpoints(directory):
        with contextlib.suppress(T2TLiteError):
            reader = checkpoints.Reader(found.path)
            assert isinstance(reader.state["step"], int)
            reader.verify()


@SOME
@given(data=st.data())
def test_files_of_checkpoints(directory, data):
    paths = sorted((directory / "step-00000004").iterdir())
    path = data.draw(st.sampled_from(paths))
    content = path.read_bytes()
    path.write_bytes(data.draw(hostile(content)))
    use_checkpoints(directory)
    path.write_bytes(content)


@SOME
@given(data=st.data())
def test_states_of_checkpoints(directory, data):
    state = {"step": 7, "position": [0, 0, 3], "seed": 1, "seconds": 1.5}
    text = json.dumps(state)
    as_json = mutated_json(state).map(json.dumps)
    text = data.draw(as_json | hostile(text.encode()))
    folder = directory / "step-00000007"
    checkpoint = tf.train.Checkpoint(state=tf.Variable(text))
    checkpoint.write(str(folder / "tensors"))
    use_checkpoints(directory)
    shutil.rmtree(folder)
