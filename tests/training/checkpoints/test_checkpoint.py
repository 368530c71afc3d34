import contextlib
import json
import resource

import numpy as np
import pytest
import tensorflow as tf

from t2t_lite import files
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.training.checkpoints import checkpoint, checkpoint_choice
from t2t_lite.training.checkpoints.averaging import average_checkpoints

BEST = {"step": 2, "metric": "dev_bleu", "value": 30.0}


def _save(directory, step, fill=0.0, shape=(3, 2), **state):
    tensors = {
        "model/kernel": np.full(shape, fill, np.float32),
        "adam/mean/kernel": np.full(shape, -1.0, np.float32),
        "adam/applied": np.int64(step),
    }
    return checkpoint.save(directory, tensors, {"step": step, **state})


def _kernel(shape=(3, 2)):
    return {"model/kernel": tf.Variable(tf.fill(shape, 99.0))}


def _steps(directory):
    return [c.step for c in checkpoint.list_checkpoints(directory)]


def _data_file(saved):
    return saved.path / "tensors.data-00000-of-00001"


def test_what_was_saved_comes_back_with_its_state(tmp_path):
    saved = _save(tmp_path, 7, fill=1.5, position=[1, 2, 3])
    variables = _kernel()
    state = checkpoint.restore(saved.path, variables)
    assert saved.path.name == "step-00000007"
    assert state == {"step": 7, "position": [1, 2, 3]}
    np.testing.assert_array_equal(
        variables["model/kernel"], np.full((3, 2), 1.5)
    )


def test_weights_filled_with_10_20_30_average_to_20(tmp_path):
    for step, fill in ((1, 1000.0), (2, 10.0), (3, 20.0), (4, 30.0)):
        _save(tmp_path, step, fill=fill)
    made = average_checkpoints(tmp_path, 3)
    variables = _kernel()
    state = checkpoint.restore(made.path, variables)
    assert made.path.name == "average-3-step-00000004"
    assert state == {"step": 4, "averaged_steps": [2, 3, 4]}
    np.testing.assert_array_equal(
        variables["model/kernel"], np.full((3, 2), 20)
    )


def test_average_of_more_than_there_are_takes_all_and_says_so(tmp_path):
    _save(tmp_path, 1, fill=1.0)
    _save(tmp_path, 2, fill=2.0)
    made = average_checkpoints(tmp_path, 20)
    assert made.averaged == 2
    assert made.path.name == "average-2-step-00000002"


def test_averages_are_summed_in_double_precision(tmp_path):
    # In float32, 2 ** 24 + 1 is 2 ** 24.
    for step, fill in ((1, 2.0**24), (2, 1.0), (3, 1.0)):
        _save(tmp_path, step, fill=fill)
    variables = _kernel()
    checkpoint.restore(average_checkpoints(tmp_path, 3).path, variables)
    expected = np.float32((2.0**24 + 2) / 3)
    np.testing.assert_array_equal(
        variables["model/kernel"], np.full((3, 2), expected)
    )


def test_an_average_cannot_be_trained_on(tmp_path):
    _save(tmp_path, 1)
    made = average_checkpoints(tmp_path, 1)
    with pytest.raises(T2TLiteError, match="cannot be trained on"):
        checkpoint.restore(
            made.path, {**_kernel(), "adam/applied": tf.Variable(0)}
        )


def test_averaging_nothing_is_an_error(tmp_path):
    with pytest.raises(T2TLiteError, match="no checkpoint to average"):
        average_checkpoints(tmp_path, 5)


def test_checkpoints_of_different_models_are_not_averaged(tmp_path):
    _save(tmp_path, 1)
    _save(tmp_path, 2, shape=(2, 2))
    with pytest.raises(T2TLiteError, match="different models"):
        average_checkpoints(tmp_path, 2)


def test_old_ones_are_removed_but_never_the_best_or_an_average(tmp_path):
    for step in range(1, 7):
        _save(tmp_path, step)
        if step == 3:
            average_checkpoints(tmp_path, 2)
    checkpoint_choice.mark_best(tmp_path, [BEST])
    checkpoint_choice.remove_old(tmp_path, 3)
    assert _steps(tmp_path) == [2, 4, 5, 6]
    assert len(checkpoint.list_checkpoints(tmp_path, averages=True)) == 1
    assert not list(tmp_path.glob(".*"))


def test_a_new_mark_is_ranked_among_those_by_its_metric():
    def mark(step, value, metric="dev_bleu"):
        return {"step": step, "metric": metric, "value": value}

    marks = [mark(4, 30.0), mark(6, 20.0), mark(8, 99.0, "dev_loss")]
    ranked = checkpoint_choice.ranked
    assert ranked(marks, mark(10, 20.0)) == [*marks[:2], mark(10, 20.0)]
    assert ranked(marks, mark(6, 40.0)) == [mark(6, 40.0), marks[0]]
    assert ranked([], mark(2, 0.0)) == [mark(2, 0.0)]


def test_names_stand_for_checkpoints(tmp_path):
    for step in (1, 2, 3):
        _save(tmp_path, step)
    checkpoint_choice.mark_best(tmp_path, [BEST])

    def step_of(which):
        return checkpoint_choice.resolve(tmp_path, which).step

    assert step_of("latest") == step_of("default") == 3
    assert step_of("best") == 2
    assert step_of("1") == step_of(1) == 1
    assert step_of(str(tmp_path / "step-00000001")) == 1
    assert step_of("step-00000001") == 1
    assert checkpoint_choice.resolve(str(tmp_path), "step-00000001").step == 1
    made = average_checkpoints(tmp_path, 2)
    assert checkpoint_choice.resolve(tmp_path, "average") == made
    assert checkpoint_choice.resolve(tmp_path, "default") == made
    assert checkpoint_choice.resolve(tmp_path, "latest").averaged is None
    # An average made of older checkpoints is not the default any more.
    _save(tmp_path, 4)
    assert step_of("default") == 4
    assert checkpoint_choice.resolve(tmp_path, "average") == made


@pytest.mark.parametrize(
    "which, message",
    [
        ("latest", "no checkpoint in .*; train first"),
        ("best", "marked as the best yet"),
        ("average", "no average of checkpoints"),
        ("12", "no checkpoint of step 12 in .*; there are none"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_an_error(tmp_path, which, message):
    with pytest.raises(T2TLiteError, match=message):
        checkpoint_choice.resolve(tmp_path, which)


def test_another_word_for_a_checkpoint_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="latest.*got 'lastest'"):
        checkpoint_choice.resolve(tmp_path, "lastest")


def _truncate(saved):
    data = _data_file(saved).read_bytes()
    _data_file(saved).write_bytes(data[: len(data) // 3])


def _flip_a_bit(saved):
    data = bytearray(_data_file(saved).read_bytes())
    data[5] ^= 1
    _data_file(saved).write_bytes(bytes(data))


def _flip_a_bit_of_the_index(saved):
    path = saved.path / "tensors.index"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(bytes(data))


def _lose_index(saved):
    (saved.path / "tensors.index").unlink()


def _lose_data(saved):
    _data_file(saved).unlink()


def _lose_state(saved):
    (saved.path / "state.json").unlink()


def _empty_state(saved):
    (saved.path / "state.json").write_text("")


def _change_state(saved):
    path = saved.path / "state.json"
    record = json.loads(path.read_text())
    record["state"]["seed"] = 4
    path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _flip_a_bit,
        _flip_a_bit_of_the_index,
        _lose_index,
        _lose_data,
        _lose_state,
        _empty_state,
        _change_state,
    ],
)
def test_damage_is_noticed_and_the_way_out_is_told(tmp_path, damage):
    _save(tmp_path, 10, seed=3)
    saved = _save(tmp_path, 20, seed=3)
    damage(saved)
    variables = _kernel()
    with pytest.raises(T2TLiteError) as caught:
        checkpoint.restore(saved.path, variables)
    message = str(caught.value)
    assert f"{saved.path} is damaged" in message
    assert "remove this folder to go on from step 10" in message
    assert "\n" not in message
    # Nothing was deleted, and nothing half restored.
    assert _steps(tmp_path) == [10, 20]
    np.testing.assert_array_equal(
        variables["model/kernel"], np.full((3, 2), 99)
    )


def test_a_damaged_source_is_named_when_averaging(tmp_path):
    _save(tmp_path, 10)
    saved = _save(tmp_path, 20)
    _flip_a_bit(saved)
    with pytest.raises(T2TLiteError, match="step-00000020 is damaged"):
        average_checkpoints(tmp_path, 2)


def test_another_models_checkpoint_is_refused(tmp_path):
    saved = _save(tmp_path, 1, shape=(4, 2))
    with pytest.raises(
        T2TLiteError, match=r"another model.*\[4, 2\].*\[3, 2\]"
    ):
        checkpoint.restore(saved.path, _kernel())
    with pytest.raises(T2TLiteError, match="does not hold model/bias"):
        checkpoint.restore(saved.path, {"model/bias": tf.Variable(0.0)})


@contextlib.contextmanager
def full_disk():
    """No file may grow beyond 4 kB: writes fail half-way, as on a full disk.

    Not a fixture, whose limit would still hold while pytest writes its report.
    """
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_a_save_that_fails_leaves_what_was_saved_before(tmp_path):
    _save(tmp_path, 1)
    with full_disk(), pytest.raises(T2TLiteError) as caught:
        _save(tmp_path, 2, shape=(1000, 100))
    message = str(caught.value)
    assert "step-00000002 cannot be saved" in message
    assert "What was saved before is intact" in message
    assert "\n" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    checkpoint.restore(tmp_path / "step-00000001", _kernel())


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "checkpoints").write_text("a file in the way")
    with pytest.raises(T2TLiteError, match="cannot be saved: .*[Ee]xists"):
        _save(tmp_path / "checkpoints", 1)


def test_what_an_interrupted_save_left_is_no_checkpoint(tmp_path):
    _save(tmp_path, 1)
    left = tmp_path / ".step-00000002.new.123.tmp"
    left.mkdir()
    assert _steps(tmp_path) == [1]
    files.remove_unfinished(tmp_path)
    assert not left.exists()
    assert _steps(tmp_path) == [1]


def test_saving_removes_what_a_killed_save_of_it_left(tmp_path):
    half = tmp_path / ".step-00000005.4711.tmp"
    other = tmp_path / ".step-00000006.4711.tmp"
    for folder in (half, other):
        folder.mkdir()
        (folder / "tensors.index").write_bytes(b"half")
    _save(tmp_path, 5)
    assert not half.exists() and other.exists()


def test_saving_a_step_again_replaces_it(tmp_path):
    _save(tmp_path, 1, fill=1.0)
    saved = _save(tmp_path, 1, fill=2.0)
    variables = _kernel()
    checkpoint.restore(saved.path, variables)
    assert variables["model/kernel"].numpy()[0, 0] == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_damaged_checkpoint_among_others_is_not_the_end_of_the_run(tmp_path):
    for step in (10, 20, 30):
        _save(tmp_path, step)
    _data_file(checkpoint_choice.resolve(tmp_path, 10)).write_bytes(b"")
    with pytest.raises(T2TLiteError) as caught:
        average_checkpoints(tmp_path, 3)
    assert "step-00000010 is damaged (Read less bytes" in str(caught.value)
    assert "remove this folder to go on without it." in str(caught.value)


def test_a_damaged_mark_of_the_best_is_one_clear_error(tmp_path):
    (tmp_path / "best.json").write_text('{"step":')
    with pytest.raises(T2TLiteError, match="best.json is damaged"):
        checkpoint_choice.read_best(tmp_path)
