import pytest

from t2t_lite.hparam import HParams
from t2t_lite.training.schedules import (
    cooldown,
    decays_to_zero,
    fraction_of_peak,
    learning_rate,
    training_rate,
)


def test_rate_rises_linearly_to_its_peak_at_the_end_of_warm_up():
    rates = [learning_rate(step, 64, 100) for step in range(1, 200)]
    assert rates[49] == pytest.approx(rates[99] / 2)
    assert max(rates) == rates[99] == pytest.approx(64**-0.5 * 100**-0.5)
    assert learning_rate(400, 64, 100) == pytest.approx(rates[99] / 2)


def test_base_model_peaks_at_seven_ten_thousandths():
    # 512 ** -0.5 * 4000 ** -0.5, the paper's base model.
    assert learning_rate(4000, 512, 4000) == pytest.approx(6.987712e-4)


def test_cooldown_decreases_linearly_until_the_last_update():
    shares = [cooldown(step, 10, 0.4) for step in range(1, 11)]
    assert shares == pytest.approx([1.0] * 7 + [0.75, 0.5, 0.25])


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [
        # By hand: two updates of warm-up; the eighth is the last.
        ("constant", [0.5, 1, 1, 1, 1, 1, 1, 1]),
        ("inverse_sqrt", [0.5, 1, (2 / 3) ** 0.5, 0.5**0.5, 0.4**0.5]),
        ("linear", [0.5, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7]),
    ],
)
def test_schedules_match_values_by_hand(schedule, shares):
    ours = [fraction_of_peak(schedule, n + 1, 2, 8) for n in range(len(shares))]
    assert ours == pytest.approx(shares)


def test_cosine_is_a_half_in_the_middle_and_a_quarter_at_two_thirds():
    # The peak is update 1; the rate is 0 after the last update, at 13.
    shares = [fraction_of_peak("cosine", step, 1, 12) for step in (1, 7, 9)]
    assert shares == pytest.approx([1, 0.5, 0.25])
    assert 0 < fraction_of_peak("cosine", 12, 1, 12) < 0.02


def test_inverse_sqrt_with_the_peak_of_the_paper_is_its_schedule():
    paper = HParams()
    peak = training_rate(paper, 4000)
    ours = paper.replace(schedule="inverse_sqrt", learning_rate=peak)
    for step in (1, 3999, 4000, 4001, 100000):
        assert training_rate(ours, step) == pytest.approx(
            training_rate(paper, step)
        )


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "constant"])
def test_cooldown_reduces_schedules_that_do_not_end(schedule):
    hparams = HParams(
        schedule=schedule,
        learning_rate=0.01,
        warmup_steps=2,
        train_steps=8,
        cooldown=0.5,
    )
    plain = hparams.replace(cooldown=0.0)
    assert training_rate(hparams, 4) == training_rate(plain, 4)
    assert training_rate(hparams, 8) == pytest.approx(
        training_rate(plain, 8) / 4
    )


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules_that_end_are_0_after_the_last_update(schedule):
    hparams = HParams(
        schedule=schedule, learning_rate=0.01, warmup_steps=2, train_steps=8
    )
    assert decays_to_zero(hparams) and decays_to_zero(HParams(cooldown=0.1))
    assert not decays_to_zero(HParams())
    assert training_rate(hparams, 8) > training_rate(hparams, 9) == 0


def test_schedule_offset_delays_the_schedule_at_rate_0():
    plain = HParams(warmup_steps=4)
    late = plain.replace(schedule_offset=2)
    assert [training_rate(late, step) for step in (1, 2)] == [0, 0]
    for step in (3, 6, 7, 100):
        assert training_rate(late, step) == training_rate(plain, step - 2)


def test_flat_inverse_sqrt_starts_at_the_peak_rate():
    hparams = HParams(
        schedule="flat_inverse_sqrt",
        learning_rate=0.01,
        warmup_steps=4,
        schedule_offset=1,
    )
    rates = [training_rate(hparams, step) for step in (1, 2, 5, 17)]
    assert rates == pytest.approx([0.01, 0.01, 0.01, 0.005])
