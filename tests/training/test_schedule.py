from dataclasses import replace

import pytest
import torch

from mt.config.schema import OptimConfig, Optimizer, Schedule
from mt.training.schedule import learning_rate, make_optimizer


@pytest.mark.parametrize(("update", "rate"), [(1, 1.746928e-07), (4000, 6.987712e-04), (8000, 4.941059e-04)])
def test_noam_is_the_papers(update, rate):
    config = OptimConfig(schedule=Schedule.noam, factor=1.0, warmup_steps=4000)
    assert learning_rate(update, config, 512) == pytest.approx(rate, rel=1e-6)


def test_inverse_sqrt_reaches_its_stated_peak():
    config = OptimConfig(schedule=Schedule.inverse_sqrt, peak_lr=0.005, warmup_steps=1000)
    assert [learning_rate(u, config, 7) for u in (1, 500, 1000, 4000)] == pytest.approx([5e-6, 0.0025, 0.005, 0.0025])


def test_noam_with_a_factor_is_inverse_sqrt_with_its_peak():
    noam = OptimConfig(schedule=Schedule.noam, factor=1.79, warmup_steps=1000)
    peak = learning_rate(1000, noam, 128)
    assert peak == pytest.approx(0.005, rel=2e-3)
    stated = OptimConfig(schedule=Schedule.inverse_sqrt, peak_lr=peak, warmup_steps=1000)
    for update in (1, 77, 1000, 5000):
        assert learning_rate(update, noam, 128) == pytest.approx(learning_rate(update, stated, 128))


def test_constant_warms_up_and_stays():
    config = OptimConfig(schedule=Schedule.constant, peak_lr=0.1, warmup_steps=4)
    assert [learning_rate(u, config, 7) for u in (1, 4, 400)] == pytest.approx([0.025, 0.1, 0.1])


@pytest.mark.parametrize("schedule", list(Schedule))
def test_the_rate_cools_down_to_nothing_after_the_last_update(schedule):
    plain = OptimConfig(schedule=schedule, warmup_steps=10)
    cooled = replace(plain, cooldown=0.08)
    shares = [learning_rate(u, cooled, 64, 50) / learning_rate(u, plain, 64, 50) for u in (5, 46, 47, 48, 49, 50)]
    assert shares == pytest.approx([1, 1, 1, 0.75, 0.5, 0.25])
    assert learning_rate(50, cooled, 64) == learning_rate(50, plain, 64)


def test_updates_count_from_one():
    with pytest.raises(ValueError, match="from 1"):
        learning_rate(0, OptimConfig(), 512)


def test_a_warm_up_of_one_update_begins_at_the_peak():
    config = OptimConfig(schedule=Schedule.inverse_sqrt, peak_lr=0.3, warmup_steps=1)
    assert learning_rate(1, config, 7) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)]
)
def test_the_configured_optimizer(name, kind):
    optimizer = make_optimizer(
        torch.nn.Linear(2, 2), OptimConfig(name=Optimizer(name), weight_decay=0.25, momentum=0.5)
    )
    assert type(optimizer) is kind
    assert optimizer.param_groups[0]["weight_decay"] == 0.25
    if name == "sgd":
        assert optimizer.param_groups[0]["momentum"] == 0.5
    else:
        assert optimizer.param_groups[0]["betas"] == (0.9, 0.98)
        assert optimizer.param_groups[0]["eps"] == 1e-9
