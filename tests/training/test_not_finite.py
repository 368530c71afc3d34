"""What is left of an update whose gradients are not finite, made again."""

import json

import numpy as np
import pytest
import tensorflow as tf

from support.tiny_run import TinyRun, ToyModel
from t2t_lite.errors import T2TLiteError
from t2t_lite.training import not_finite, trainer
from t2t_lite.training.options import TrainingOptions


class Stumbling(ToyModel):
    """Loss or gradients that are not finite, by the first token."""

    def loss_sum(self, features, label_smoothing=0.0, seed=None):
        loss, tokens = super().loss_sum(features, label_smoothing, seed)
        first = features["inputs"][0, 0]
        root = tf.sqrt(self.softmax_table.value[0, 0] * 0.0)  # 0, gradient inf
        return (
            loss * tf.where(first == 13, np.nan, 1.0)
            + tf.where(first == 12, root, 0.0),
            tokens,
        )


def batches_with(firsts):
    """An endless run of micro-batches that begin with these tokens."""

    def batches(position=(0, 0, 0)):
        number = int(position[2])
        while True:
            ids = tf.constant([[firsts[number % len(firsts)], 6, 1], [7, 1, 0]])
            number += 1
            position = tf.constant([0, 0, number])
            yield {"inputs": ids, "targets": ids, "position": position}

    return batches


@pytest.fixture
def stopped(tmp_path):
    """A run of three micro-batches an update: sound, bad loss, bad gradient."""
    run = TinyRun(tmp_path, make_model=Stumbling)
    run.data.training_batches = batches_with([5, 13, 12])
    options = TrainingOptions(train_steps=50)
    with pytest.raises(T2TLiteError) as caught:
        trainer.train(run, options, evaluate_text=lambda: {})
    return run, tmp_path / "not-finite", str(caught.value)


def test_the_error_names_the_folder_and_the_command(stopped):
    run, folder, told = stopped
    assert "10 updates in a row, up to update 10, were not finite" in told
    flags = f"--output_dir={run.output_dir} --replay={folder}"
    assert f"t2t-lite-trainer {flags} makes it again" in told


def test_the_folder_holds_ids_texts_and_state(stopped):
    _, folder, _ = stopped
    with np.load(folder / "batches.npz") as arrays:
        names = {f"{n}/{side}" for n in range(3) for side in not_finite.SIDES}
        assert set(arrays) == names | {"slices"}
        assert arrays["1/inputs"].tolist() == [[13, 6, 1], [7, 1, 0]]
    lines = (folder / "texts.jsonl").read_text().splitlines()
    assert json.loads(lines[2]) == {
        "micro_batch": 1,
        "source": "13 6 1",
        "target": "13 6 1",
    }
    assert json.loads(lines[5])["source"] == "7 1"
    state = json.loads((folder / "step-00000010" / "state.json").read_text())
    assert state["state"]["position"] == [0, 0, 30]


def test_a_replay_says_where_the_first_value_is_not_finite(stopped):
    run, folder, _ = stopped
    done = not_finite.replay(run, folder)
    assert (done.step, done.skipped) == (10, True)
    sound, bad_loss, bad_gradient = done.passes
    assert np.isfinite(sound.loss) and not sound.not_finite
    assert np.isnan(bad_loss.loss)
    assert set(bad_loss.not_finite) == {
        "toy/source",
        "toy/target",
        "toy/softmax",
    }
    assert np.isfinite(bad_gradient.loss)
    assert bad_gradient.not_finite == {"toy/softmax": "1 of 128 values"}
    lines = str(done).splitlines()
    assert lines[0] == "update: 10"
    assert lines[1].startswith("weights: finite, the largest is 0.")
    assert "gradients are finite, their norm is" in lines[2]
    assert "2 x 3 inputs and 2 x 3 targets: loss nan a token" in lines[3]
    assert "not finite: first the loss; the gradients of 3 of 3" in lines[3]
    assert "first gradients; the gradients of 1 of 3 variables" in lines[4]
    assert "toy/softmax (1 of 128 values)" in lines[4]
    assert lines[5].startswith("the update: skipped again")


def test_a_replay_changes_nothing_on_disk(stopped):
    run, folder, _ = stopped
    before = sorted(folder.rglob("*"))
    not_finite.replay(run, folder)
    assert sorted(folder.rglob("*")) == before


def test_a_norm_too_large_for_float32_is_named():
    shapes = {"inputs": (1, 2), "targets": (1, 2)}
    told = str(not_finite.Pass(shapes, 3.0, 1e25, 4, {}))
    assert "norm is 1e+25, whose square is too large for float32" in told


def test_any_other_folder_is_refused(tmp_path):
    with pytest.raises(T2TLiteError, match="does not hold an update to replay"):
        not_finite.replay(TinyRun(tmp_path), tmp_path)


@pytest.mark.slow
def test_an_enormous_learning_rate_is_told_of(
    run_command, tiny_flags, tmp_path
):
    flags = [f for f in tiny_flags if not f.startswith("--hparams_override")]
    code, _, err = run_command(
        "trainer",
        *flags,
        f"--output_dir={tmp_path}",
        "--hparams_override=learning_rate=1e30,train_steps=40",
    )
    assert code == 1
    folder = tmp_path / "not-finite"
    assert f"--replay={folder} makes it again" in err
    texts = (folder / "texts.jsonl").read_text().splitlines()
    pair = json.loads(texts[0])
    words = "zero one two three four five six seven eight nine".split()
    assert [words[int(digit)] for digit in pair["source"].split()] == pair[
        "target"
    ].split()
    code, out, err = run_command(
        "trainer", f"--output_dir={tmp_path}", f"--replay={folder}"
    )
    assert code == 0, err
    assert "weights: finite, the largest is " in out
    assert out.count("pass ") == 2
    assert "not finite: first " in out or "too large for float32" in out
    assert "the update: skipped again" in out
