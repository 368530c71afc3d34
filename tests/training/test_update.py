"""Updates are equal for any number of replicas, passes and slices."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from support.params import slow
from support.tiny_run import VOCAB_SIZE, ToyModel, batch, packed, tiny_hparams
from support.tiny_training import require_same
from t2t_lite.model.transformer import Transformer
from t2t_lite.training import distribute
from t2t_lite.training.distribute import choose_strategy
from t2t_lite.training.trainer import seed_everything
from t2t_lite.training.update import Updater

CLIPPED = {"clip_norm": 0.05}
ADAMW = {"optimizer": "adamw", "weight_decay": 0.1, "ema_decay": 0.9, **CLIPPED}
VARIANTS = {
    "adam": {},
    "clipped": CLIPPED,
    "adamw": ADAMW,
    "adafactor": {"optimizer": "adafactor"},
}


def _updater(
    replicas,
    freeze=(),
    make_model=ToyModel,
    gradient_checkpointing=False,
    **changes,
):
    hparams = tiny_hparams(**changes)
    seed_everything(1, deterministic=False)
    strategy = choose_strategy(replicas)
    with strategy.scope():
        model = make_model.from_hparams(hparams, VOCAB_SIZE, VOCAB_SIZE)
        model.build_weights()
    model.gradient_checkpointing = gradient_checkpointing
    return model, Updater(model, hparams, strategy, 1, freeze)


def _batches(step):
    return [batch(1, 0, 3 * step + number) for number in range(3)]


def _all_variables(model, updater):
    variables = {v.path: v.value for v in model.weights} | updater.tensors()
    averages = updater.averages().items()
    variables |= {f"average/{path}": average for path, average in averages}
    return {name: v.numpy() for name, v in variables.items()}


@functools.cache
def _after(replicas, updates, name="adam"):
    model, updater = _updater(replicas, **VARIANTS[name])
    norms = [
        updater.update(_batches(step), step).read().gradient_norm
        for step in range(1, updates + 1)
    ]
    return _all_variables(model, updater), norms


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_updates_on_replicas_equal_updates_on_one(name):
    one, norms_of_one = _after(1, 4, name)
    three, norms = _after(3, 4, name)
    require_same(three, one, within=1e-5)
    np.testing.assert_allclose(norms, norms_of_one, rtol=1e-4)


def test_update_of_one_pass_equals_one_that_sums_passes():
    results = []
    for count in (1, 3):
        model, updater = _updater(1, gradient_accumulation_steps=count, **ADAMW)
        stats = [updater.update(_batches(s)[:1], s).read() for s in (1, 2)]
        results.append((_all_variables(model, updater), stats))
    (alone, stats), (summed, other_stats) = results
    assert stats == other_stats
    require_same(alone, summed, within=0)


def test_adam_gets_the_clipped_gradient():
    clipped, norms = _after(1, 1, "clipped")
    free, unclipped_norms = _after(1, 1)
    # The reported norm is that before clipping.
    assert norms == unclipped_norms
    assert norms[0] > 0.05

    def norm(values):
        means = [v for name, v in values.items() if "adam/mean" in name]
        return np.sqrt(sum(np.sum(mean**2) for mean in means))

    # Adam's first mean is a tenth of the gradient.
    assert norm(clipped) == pytest.approx(0.1 * 0.05, rel=1e-4)
    assert norm(free) == pytest.approx(0.1 * norms[0], rel=1e-4)
    # A gradient with a smaller norm is not clipped.
    model, updater = _updater(1, clip_norm=2 * norms[0])
    updater.update(_batches(1), 1)
    require_same(_all_variables(model, updater), free, within=0)


@pytest.mark.parametrize("replicas", [1, 2])
def test_frozen_weights_have_no_state_and_do_not_change(replicas):
    model, updater = _updater(replicas, ["target"], **ADAMW)
    before = {v.path: v.numpy() for v in model.weights}
    norms = [
        updater.update(_batches(n), n).read().gradient_norm for n in (1, 2)
    ]
    moved = [
        v.path
        for v in model.weights
        if not np.array_equal(v.numpy(), before[v.path])
    ]
    assert moved == ["toy/source", "toy/softmax"]
    assert not any("toy/target" in name for name in updater.tensors())
    assert "toy/target" not in updater.averages()
    assert updater.trained_parameters == 2 * VOCAB_SIZE * 8
    assert norms[0] < _after(1, 1)[1][0]  # frozen weights do not count


class _InfiniteLoss(ToyModel):
    def loss_sum(self, features, label_smoothing=0.0, seed=None):
        loss, tokens = super().loss_sum(features, label_smoothing, seed)
        return loss * np.inf, tokens


@pytest.mark.parametrize(("replicas", "passes"), [(1, 1), (1, 3), (2, 3)])
def test_non_finite_update_changes_nothing(replicas, passes):
    model, updater = _updater(
        replicas,
        make_model=_InfiniteLoss,
        gradient_accumulation_steps=passes,
        **ADAMW,
    )
    before = _all_variables(model, updater)
    assert updater.update(_batches(1)[:passes], 1).read().skipped == 1
    require_same(_all_variables(model, updater), before, within=0)


def _transformer_after(replicas, **options):
    """Return the variables after two updates, and the second one's stats."""
    model, updater = _updater(
        replicas,
        make_model=Transformer,
        residual_dropout=0.3,
        relu_dropout=0.3,
        **options,
    )
    for step in (1, 2):
        stats = updater.update(_batches(step), step).read()
    return _all_variables(model, updater), stats


@pytest.mark.parametrize("replicas", [1, slow(2)])
def test_gradient_checkpointing_gives_the_same_updates(replicas):
    ours, stats = _transformer_after(replicas, gradient_checkpointing=True)
    theirs, other_stats = _transformer_after(1)
    np.testing.assert_allclose(stats, other_stats, rtol=1e-5)
    require_same(ours, theirs, within=1e-5)


def _rows(count, width=5):
    random = np.random.default_rng(count)
    ids = random.integers(2, VOCAB_SIZE, (count, width)).astype(np.int32)
    for row, line in enumerate(ids):
        line[width - row % 3 :] = 0
    return {"inputs": tf.constant(ids), "targets": tf.constant(ids[:, ::-1])}


@pytest.mark.parametrize(
    ("rows", "packing"), [slow(1, False), slow(5, False), (4, True)]
)
def test_slices_of_a_pass_sum_to_the_whole_pass(monkeypatch, rows, packing):
    features = _rows(rows)
    if packing:
        parts = [packed(_rows(count)) for count in (4, 4, 4)]
        features = {
            name: tf.concat([part[name] for part in parts], axis=0)
            for name in parts[0]
        }
    results = []
    for cores in (1, 2):
        monkeypatch.setattr(distribute, "num_cpus", lambda n=cores: n)
        model, updater = _updater(
            1,
            make_model=Transformer,
            gradient_accumulation_steps=1,
            packing=packing,
            residual_dropout=0.5,
            attention_dropout=0.3,
        )
        assert updater.slices == cores
        stats = updater.update([features], 1).read()
        tensors = updater.tensors().items()
        means = {name: v.numpy() for name, v in tensors if "/mean/" in name}
        results.append((means, stats))
    (whole, stats), (halves, other_stats) = results
    np.testing.assert_allclose(other_stats, stats, rtol=1e-5)
    require_same(halves, whole, within=1e-6)
