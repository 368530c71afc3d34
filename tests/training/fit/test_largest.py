"""The largest batch first, and micro-batches cut into slices that fit."""

import json

import numpy as np
import pytest
import tensorflow as tf

from support.tiny_run import TinyRun, batch, packed, tiny_hparams
from support.tiny_training import require_same, weights
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.model.transformer import Transformer
from t2t_lite.training import trainer
from t2t_lite.training.distribute import choose_strategy
from t2t_lite.training.fit import memory
from t2t_lite.training.fit.largest import FACT, Trial, fitting_slices
from t2t_lite.training.options import TrainingOptions
from t2t_lite.training.state import TrainingState, prepare

# Before anything runs on TensorFlow's devices, for the tests of replicas.
choose_strategy(replicas=3)

GIB = 2**30


class FakeUpdater:
    """Takes 1 GiB, and 1 GiB more for each row, of a machine or a GPU.

    Of micro-batches that are cut, the sums take what `sums` says.
    """

    replicas = slices = 1
    strategy = tf.distribute.get_strategy()
    recompute = False

    def __init__(self, gpu, limit, sums=0):
        self.gpu, self.limit, self.sums = gpu, limit, sums
        self.tried, self.peak, self.forgot = [], 0, 0

    @property
    def adds_up(self):
        return self.slices > 1

    def try_pass(self, micro_batch):
        rows, _ = micro_batch["inputs"].shape
        self.tried.append(rows)
        needed = (1 + rows) * GIB + self.sums * self.adds_up
        if needed > self.limit:
            assert self.gpu, "the kernel has ended this process"
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when")
        self.peak = needed

    def try_update(self):
        pass

    def forget(self):
        self.forgot += 1


@pytest.fixture
def updater_of(monkeypatch):
    """A function: an updater on a device with so many GiB."""

    def make(kind, gibibytes, sums=0):
        fake = FakeUpdater(kind == "GPU", gibibytes * GIB, sums * GIB)
        monkeypatch.setattr(memory, "is_on_gpu", lambda: fake.gpu)
        monkeypatch.setattr(memory, "limit_bytes", lambda: fake.limit)
        monkeypatch.setattr(memory, "restart_peak", lambda: None)
        monkeypatch.setattr(memory, "peak_bytes", lambda: fake.peak)
        return fake

    return make


# The largest micro-batch has 16 rows of 10 tokens.
HPARAMS = tiny_hparams(batch_tokens=480, micro_batches=3, max_length=10)


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize(
    ("gibibytes", "slices"),
    # 16 rows, 8, 6 (of 16 / 3), 4.
    [(17, 1), (16.9, 2), (9, 2), (8.9, 3), (7, 3), (5, 4)],
)
def test_the_fewest_slices_that_fit_are_found(
    updater_of, kind, gibibytes, slices
):
    trial = Trial(updater_of(kind, gibibytes), HPARAMS)
    assert trial.fewest() == slices
    assert trial.peak == (1 + -(-16 // slices)) * GIB


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_what_fits_without_sums_is_tried_again_with_them(updater_of, kind):
    # 16 rows take 17 GiB. Cut, 8 rows take 9 and the sums 4, 6 rows 7 and 4.
    trial = Trial(updater_of(kind, 12, sums=4), HPARAMS)
    assert trial.fewest() == 3
    assert trial.peak == 11 * GIB


def test_a_kernel_never_has_to_end_a_process_on_a_cpu(updater_of):
    # The fake fails its test if a pass takes more than there is.
    updater = updater_of("CPU", 9)
    with pytest.raises(T2TLiteError) as caught:
        Trial(updater, HPARAMS).require(1)
    assert updater.tried == [1, 2, 4, 8]
    assert str(caught.value) == (
        "The largest batch, 16 x 10 tokens a side on each of 1 device(s), does "
        "not fit: it takes 17.00 GiB of memory or more, and CPU has 9.00 GiB "
        "of memory. Give --micro_batches=auto, or --micro_batches=6: more "
        "passes, the same update."
    )


def test_smaller_passes_end_where_the_largest_fits_by_any_measure(updater_of):
    # 4 rows take 5 GiB, so 16 rows take at most 20. 2 rows might mean 24.
    updater = updater_of("CPU", 20)
    assert Trial(updater, HPARAMS).require(1) == 1
    assert updater.tried == [1, 2, 4, 16]


def test_a_gpu_is_asked_at_once(updater_of):
    updater = updater_of("GPU", 20)
    assert Trial(updater, HPARAMS).require(1) == 1
    assert updater.tried == [16]


def test_what_an_update_that_did_not_fit_has_left_is_dropped(updater_of):
    updater = updater_of("GPU", 3)
    with pytest.raises(T2TLiteError, match="16 x 10 tokens a side"):
        Trial(updater, HPARAMS).require(1)
    assert updater.forgot == 1


def test_single_rows_may_be_all_that_fits(updater_of):
    assert Trial(updater_of("GPU", 2), HPARAMS).fewest() == 16


def test_a_row_that_does_not_fit_cannot_be_cut(updater_of):
    with pytest.raises(T2TLiteError, match="Lower max_length or the sizes"):
        Trial(updater_of("GPU", 1.5), HPARAMS).fewest()


def test_a_run_remembers_what_fits(updater_of):
    config = {}
    updater = updater_of("GPU", 9)

    def slices(asked):
        return fitting_slices(
            updater, HPARAMS, asked, config, lambda **f: config.update(f)
        )

    assert slices(None) == 2
    (key,) = config[FACT]
    assert key.endswith(" x 1, float32, 16 x 10")
    json.dumps(config)
    tried = len(updater.tried)
    # Known: the fewest, those, and more of them.
    assert [slices(None), slices(2), slices(5)] == [2, 2, 5]
    assert len(updater.tried) == tried
    # Fewer than the fewest are tried, and do not fit.
    with pytest.raises(T2TLiteError, match="does not fit"):
        slices(1)
    # A smaller device of the same name is asked again.
    updater.limit = 5 * GIB
    assert slices(None) == 4


@pytest.mark.parametrize("passes", [0, 2, 4, "some"])
def test_passes_are_a_multiple_of_the_planned_micro_batches(passes):
    with pytest.raises(UsageError, match="micro_batches"):
        TrainingOptions(micro_batches=passes).slices(planned=3)


def test_passes_as_slices():
    def slices(passes):
        return TrainingOptions(micro_batches=passes).slices(planned=3)

    assert [slices(p) for p in (None, 3, 6, "auto")] == [1, 1, 2, None]


def _state(folder, replicas=1, **changes):
    run = TinyRun(folder, **changes)
    prepare(run.seed, deterministic=False)
    return TrainingState(run, choose_strategy(replicas))


@pytest.mark.parametrize("replicas", [1, 2])
def test_trying_the_largest_batch_changes_nothing(tmp_path, replicas):
    tried, plain = (
        _state(tmp_path, replicas, residual_dropout=0.3) for _ in range(2)
    )
    assert Trial(tried.updater, tried.run.hparams).require(1) == 1
    for name, value in tried._tensors().items():
        expected = plain._tensors()[name].numpy()
        np.testing.assert_array_equal(value.numpy(), expected, err_msg=name)
    for state in (tried, plain):
        for _ in range(3):
            state.update(between_passes=lambda: None)
        state.meter.read()
    assert tried.meter.totals()["skipped"] == 0
    assert tried.epoch == plain.epoch
    for name, value in tried._tensors().items():
        expected = plain._tensors()[name].numpy()
        np.testing.assert_array_equal(value.numpy(), expected, err_msg=name)


@pytest.mark.parametrize(
    ("slices", "replicas", "packing"),
    [(2, 1, False), (3, 2, False), (9, 1, True)],
)
def test_slices_do_not_change_an_update(tmp_path, slices, replicas, packing):
    whole = _state(tmp_path, packing=packing)
    cut = _state(tmp_path, replicas, packing=packing)
    cut.updater.slices = slices
    for state in (whole, cut):
        for _ in range(5):
            state.update(between_passes=lambda: None)
        state.meter.read()
    for name in ("source_tokens", "target_tokens", "skipped"):
        assert whole.meter.totals()[name] == cut.meter.totals()[name]
    np.testing.assert_allclose(cut.meter.loss, whole.meter.loss, rtol=1e-5)
    weights = zip(
        cut.model.get_weights(), whole.model.get_weights(), strict=True
    )
    for ours, theirs in weights:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_slices_do_not_change_updates_of_a_transformer(tmp_path, replicas):
    changes = {"make_model": Transformer, "residual_dropout": 0.3}
    whole = _state(tmp_path, **changes)
    cut = _state(tmp_path, replicas, **changes)
    cut.updater.slices = 3
    for state in (whole, cut):
        for _ in range(10):
            state.update(between_passes=lambda: None)
    weights = zip(
        cut.model.get_weights(), whole.model.get_weights(), strict=True
    )
    for ours, theirs in weights:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("slices", [1, 2, 3, 100])
@pytest.mark.parametrize("is_packed", [False, True])
def test_slices_lose_no_row_and_hold_as_many_rows(tmp_path, slices, is_packed):
    state = _state(tmp_path, packing=is_packed)
    batches = [batch(1, 0, number) for number in range(4)]
    if is_packed:
        batches = [packed(features) for features in batches]
    state.updater.slices = slices
    passes = state.updater.passes(batches, step=7)
    for name in batches[0]:
        rows = [row.tolist() for b in batches for row in b[name].numpy()]
        cut = [row.tolist() for p in passes for row in np.asarray(p[name])]
        assert cut == rows
    most = max(-(-len(b["inputs"]) // slices) for b in batches)
    assert max(len(p["inputs"]) for p in passes) == most
    seeds = {tuple(p["seed"]) for p in passes}
    assert len(seeds) == len(passes)


def test_a_run_is_tried_once_and_goes_on_with_other_slices(
    tmp_path, monkeypatch, capsys
):
    def train(run, steps, **options):
        options = TrainingOptions(train_steps=steps, **options)
        trainer.train(run, options, evaluate_text=lambda: {})
        return capsys.readouterr().err

    whole = TinyRun(tmp_path / "whole")
    train(whole, 6)
    run = TinyRun(tmp_path / "run")
    assert "Trying the largest batch." in train(run, 2, micro_batches=6)
    assert "auto: 3 passes an update." in train(run, 4, micro_batches="auto")
    # From here on it is known, and not tried again.
    monkeypatch.setattr(Trial, "_pass_fits", None)
    train(run, 5, micro_batches="auto")
    train(run, 6)
    require_same(weights(run, 6), weights(whole, 6))
