"""Checkpoints on disk: atomic writes, verification, averages and names."""

import json

import numpy as np
import pytest
import tensorflow as tf

from support.tiny_training import tensors_of
from t2t_lite.errors import T2TLiteError
from t2t_lite.training import checkpoints

BEST = {"step": 2, "metric": "dev_bleu", "value": 30.0}


def _save(directory, step, fill=0.0, shape=(3, 2), **state):
    tensors = {
        "model/kernel": np.full(shape, fill, np.float32),
        "adam/mean/kernel": np.full(shape, -1.0, np.float32),
        "adam/applied": np.int64(step),
    }
    return checkpoints.save(directory, tensors, {"step": step, **state})


def _kernel(shape=(3, 2)):
    return {"model/kernel": tf.Variable(tf.fill(shape, 99.0))}


def _steps(directory):
    return [c.step for c in checkpoints.list_checkpoints(directory)]


def _data_file(saved):
    return saved.path / "tensors.data-00000-of-00001"


def test_list_variables_shows_saved_tensors_by_name(tmp_path):
    saved = _save(tmp_path, 7)
    listed = dict(tf.train.list_variables(str(saved.path / "tensors")))
    assert listed["model/kernel/.ATTRIBUTES/VARIABLE_VALUE"] == [3, 2]


@pytest.mark.parametrize(
    ("fills", "mean"),
    [
        ([1000.0, 10.0, 20.0, 30.0], 20.0),
        # float32 rounds 2 ** 24 + 1 to 2 ** 24.
        ([2.0**24, 1.0, 1.0], (2.0**24 + 2) / 3),
    ],
)
def test_average_is_the_mean_of_the_last_checkpoints(tmp_path, fills, mean):
    for step, fill in enumerate(fills, start=1):
        _save(tmp_path, step, fill=fill)
    made = checkpoints.average_checkpoints(tmp_path, 3)
    variables = _kernel()
    state = checkpoints.restore(made.path, variables)
    last = len(fills)
    assert made.path.name == f"average-3-step-0000000{last}"
    assert state == {"step": last, "averaged_steps": [last - 2, last - 1, last]}
    np.testing.assert_array_equal(
        variables["model/kernel"], np.full((3, 2), np.float32(mean))
    )
    assert set(tensors_of(made.path)) == {"model/kernel"}
    with pytest.raises(T2TLiteError, match="average"):  # no optimizer state
        checkpoints.restore(made.path, {"adam/applied": tf.Variable(0)})


def test_checkpoints_of_different_models_are_not_averaged(tmp_path):
    _save(tmp_path, 1)
    _save(tmp_path, 2, shape=(2, 2))
    with pytest.raises(T2TLiteError, match="step-00000002"):
        checkpoints.average_checkpoints(tmp_path, 2)


def test_remove_old_keeps_the_best_checkpoint_and_averages(tmp_path):
    for step in range(1, 7):
        _save(tmp_path, step)
        if step == 3:
            checkpoints.average_checkpoints(tmp_path, 2)
    checkpoints.mark_best(tmp_path, [BEST])
    checkpoints.remove_old(tmp_path, 3)
    assert _steps(tmp_path) == [2, 4, 5, 6]
    assert len(checkpoints.list_checkpoints(tmp_path, averages=True)) == 1
    assert not list(tmp_path.glob(".*"))


def test_resolve_finds_checkpoints_by_name(tmp_path):
    for step in (1, 2, 3):
        _save(tmp_path, step)
    checkpoints.mark_best(tmp_path, [BEST])

    def step_of(which):
        return checkpoints.resolve(tmp_path, which).step

    assert step_of("latest") == step_of("default") == 3
    assert step_of("best") == 2
    assert step_of("1") == step_of(1) == 1
    assert step_of(str(tmp_path / "step-00000001")) == 1
    assert step_of("step-00000001") == 1
    made = checkpoints.average_checkpoints(tmp_path, 2)
    assert checkpoints.resolve(tmp_path, "average") == made
    assert checkpoints.resolve(str(tmp_path), "default") == made
    assert checkpoints.resolve(tmp_path, "latest").averaged is None
    # An average is not the default if there is a newer checkpoint.
    _save(tmp_path, 4)
    assert step_of("default") == 4
    assert checkpoints.resolve(tmp_path, "average") == made


@pytest.mark.parametrize("which", ["latest", "best", "average", "ema", "12"])
def test_missing_checkpoint_is_an_error(tmp_path, which):
    with pytest.raises(T2TLiteError, match=which):
        checkpoints.resolve(tmp_path, which)


def _truncate(saved):
    data = _data_file(saved).read_bytes()
    _data_file(saved).write_bytes(data[: len(data) // 3])


def _flip_a_bit(saved, name="tensors.data-00000-of-00001", at=5):
    data = bytearray((saved.path / name).read_bytes())
    data[at] ^= 1
    (saved.path / name).write_bytes(bytes(data))


def _flip_a_bit_of_the_index(saved):
    _flip_a_bit(saved, "tensors.index", at=100)


def _flip_a_bit_of_the_state(saved):
    _flip_a_bit(saved, at=_data_file(saved).read_bytes().index(b'"seed"') + 8)


def _lose_index(saved):
    (saved.path / "tensors.index").unlink()


def _lose_data(saved):
    _data_file(saved).unlink()


@pytest.mark.parametrize(
    "damage",
    [_truncate, _flip_a_bit, _flip_a_bit_of_the_index]
    + [_flip_a_bit_of_the_state, _lose_index, _lose_data],
)
def test_damaged_checkpoint_raises_a_one_line_error(tmp_path, damage):
    saved = _save(tmp_path, 20, seed=3)
    damage(saved)
    with pytest.raises(checkpoints.DamagedError) as caught:
        checkpoints.restore(saved.path, _kernel())
    assert f"{saved.path} is damaged" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(checkpoints.DamagedError, match="step-00000020"):
        checkpoints.Reader(saved.path).verify()
    assert _steps(tmp_path) == [20]  # nothing was deleted


def test_another_models_checkpoint_is_refused(tmp_path):
    saved = _save(tmp_path, 1, shape=(4, 2))
    with pytest.raises(T2TLiteError, match=r"\[3, 2\].*\[4, 2\]"):
        checkpoints.restore(saved.path, _kernel())
    with pytest.raises(T2TLiteError, match="model/bias"):
        checkpoints.restore(saved.path, {"model/bias": tf.Variable(0.0)})


def test_a_checkpoint_of_an_older_version_is_refused(tmp_path):
    saved = _save(tmp_path, 1)
    tf.raw_ops.SaveV2(
        prefix=str(saved.path / "tensors"),
        tensor_names=["model/kernel"],
        shape_and_slices=[""],
        tensors=[tf.zeros((3, 2))],
    )
    with pytest.raises(T2TLiteError, match="older version"):
        checkpoints.restore(saved.path, _kernel())


def test_save_removes_leftovers_of_a_killed_save_of_the_step(tmp_path):
    half = tmp_path / ".step-00000005.4711.tmp"
    other = tmp_path / ".step-00000006.4711.tmp"
    for folder in (half, other):
        folder.mkdir()
        (folder / "tensors.index").write_bytes(b"half")
    assert _steps(tmp_path) == []
    _save(tmp_path, 5)
    assert not half.exists() and other.exists()


@pytest.mark.parametrize("content", ['{"step":', "[]", json.dumps({"step": 1})])
def test_damaged_best_json_is_named_in_the_error(tmp_path, content):
    (tmp_path / "best.json").write_text(content)
    with pytest.raises(checkpoints.DamagedError, match="best.json"):
        checkpoints.read_marks(tmp_path)
