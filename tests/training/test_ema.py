"""Moving average of the weights: updates, evaluation and decoding."""

import numpy as np
import pytest

from support.tiny_run import TinyRun
from support.tiny_training import metrics, require_same, train, weights
from t2t_lite.errors import T2TLiteError
from t2t_lite.training import checkpoints

SOFTMAX = "model/toy/softmax"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = TinyRun(tmp_path_factory.mktemp("run"), ema_decay=0.9)
    scores = iter([3.0, 4.0, 7.0, 6.0, 1.0, 5.0])
    train(
        run,
        lambda: {"metric": "bleu", "score": next(scores)},
        save_steps=1,
        eval_steps_every=2,
    )
    return run


def test_checkpoint_holds_the_moving_average_of_its_updates(trained):
    names = [name for name in weights(trained, 1) if name.startswith("model/")]
    assert set(weights(trained, "ema")) == set(names)  # and nothing else
    average = weights(trained, "step-00000001/ema")[SOFTMAX]
    for n in range(2, 7):
        decay = min(0.9, (1 + n) / (10 + n))
        average = decay * average + (1 - decay) * weights(trained, n)[SOFTMAX]
    np.testing.assert_allclose(weights(trained, "ema")[SOFTMAX], average, 1e-5)


def test_moving_average_is_evaluated_and_selects_the_best(trained):
    lines = [line for line in metrics(trained) if "dev_bleu" in line]
    evaluations = [(each["step"], each.get("weights")) for each in lines]
    assert evaluations == [(n, w) for n in (2, 4, 6) for w in (None, "ema")]
    assert [each["dev_bleu"] for each in lines[1::2]] == [4.0, 6.0, 5.0]
    raw, average = lines[-2:]
    assert raw["dev_loss"] != average["dev_loss"]
    best = {"step": 4, "metric": "dev_bleu", "value": 6.0}
    assert checkpoints.read_marks(trained.checkpoints_dir) == [best]


def test_default_and_best_are_the_moving_average(trained):
    def chosen(which):
        return checkpoints.resolve(trained.checkpoints_dir, which)

    for which, step in (("default", 6), ("ema", 6), ("best", 4)):
        assert chosen(which).is_ema
        assert chosen(which).step == step
        assert chosen(which).path.parent == chosen(step).path
    for which in ("latest", "6", chosen(6).path):
        assert not chosen(which).is_ema
    assert str(chosen("ema")) == "the moving average at step 6"
    assert chosen(str(chosen("ema").path)) == chosen("ema")
    assert chosen("ema").checksum != chosen("latest").checksum
    with pytest.raises(T2TLiteError, match="average"):
        chosen("average")  # the run has no other average


def test_moving_average_does_not_change_training(trained, tmp_path):
    plain = TinyRun(tmp_path)
    train(plain, save_steps=1)
    for name, value in weights(plain, 6).items():
        np.testing.assert_array_equal(weights(trained, 6)[name], value)
    with pytest.raises(T2TLiteError, match="ema_decay"):
        checkpoints.resolve(plain.checkpoints_dir, "ema")


def test_the_best_checkpoint_has_the_trained_weights(trained, tmp_path):
    run = TinyRun(tmp_path, ema_decay=0.9)
    score = lambda: {"metric": "bleu", "score": 3.0}  # noqa: E731
    train(run, score, train_steps=2, save_steps=9, eval_steps_every=2)
    require_same(weights(run, 2), weights(trained, 2))


def test_resumed_average_equals_that_of_an_uninterrupted_run(trained, tmp_path):
    halves = TinyRun(tmp_path, ema_decay=0.9)
    train(halves, train_steps=3)
    train(halves, train_steps=6, replicas=2)
    require_same(weights(halves, "ema"), weights(trained, "ema"))


def test_a_damaged_average_sets_its_checkpoint_aside(tmp_path, capsys):
    run = TinyRun(tmp_path, ema_decay=0.9)
    train(run, train_steps=2, save_steps=1)
    folder = checkpoints.resolve(run.checkpoints_dir, "ema").path
    data = folder / "tensors.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-9])
    train(run, train_steps=3)
    assert (run.checkpoints_dir / "step-00000002.damaged").is_dir()
    err = capsys.readouterr().err
    assert f"WARNING: {folder} is damaged (" in err
