"""The moving average of the weights: kept, evaluated, and decoded."""

import numpy as np
import pytest

from support.tiny_run import TinyRun
from support.tiny_training import metrics, train, weights
from t2t_lite.errors import T2TLiteError
from t2t_lite.training import checkpoints
from t2t_lite.training.distribute import choose_strategy

# Before anything runs on TensorFlow's devices, for the tests of replicas.
choose_strategy(replicas=3)

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


def test_a_checkpoint_holds_the_average_that_its_updates_made(trained):
    names = [name for name in weights(trained, 1) if name.startswith("model/")]
    assert set(weights(trained, "ema")) == set(names)  # and nothing else
    average = weights(trained, "step-00000001/ema")[SOFTMAX]
    for n in range(2, 7):
        keeps = min(0.9, (1 + n) / (10 + n))
        average = keeps * average + (1 - keeps) * weights(trained, n)[SOFTMAX]
    np.testing.assert_allclose(weights(trained, "ema")[SOFTMAX], average, 1e-5)


def test_the_average_is_evaluated_beside_the_weights_and_judged(trained):
    lines = [line for line in metrics(trained) if "dev_bleu" in line]
    told = [(each["step"], each.get("weights")) for each in lines]
    assert told == [(n, w) for n in (2, 4, 6) for w in (None, "ema")]
    assert [each["dev_bleu"] for each in lines[1::2]] == [4.0, 6.0, 5.0]
    raw, average = lines[-2:]
    assert raw["dev_loss"] != average["dev_loss"]
    best = {"step": 4, "metric": "dev_bleu", "value": 6.0}
    assert checkpoints.read_marks(trained.checkpoints_dir) == [best]


def test_decoding_takes_the_average_unless_told_otherwise(trained):
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
        chosen("average")  # the moving one takes its place


def test_training_itself_never_sees_the_average(trained, tmp_path):
    plain = TinyRun(tmp_path)
    train(plain, save_steps=1)
    for name, value in weights(plain, 6).items():
        np.testing.assert_array_equal(weights(trained, 6)[name], value)
    with pytest.raises(T2TLiteError, match="ema_decay"):
        checkpoints.resolve(plain.checkpoints_dir, "ema")


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_resumed_average_is_that_of_a_run_that_never_stopped(
    trained, tmp_path, replicas
):
    halves = TinyRun(tmp_path, ema_decay=0.9)
    train(halves, train_steps=3)
    train(halves, train_steps=6, replicas=replicas)
    whole = weights(trained, "ema")
    for name, value in weights(halves, "ema").items():
        np.testing.assert_allclose(value, whole[name], rtol=0, atol=1e-6)


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
