"""The optimizer, and its learning rate as a function of the update number, which starts at 1."""

from collections.abc import Callable

import torch
from torch import nn

from mt.config.schema import OptimConfig, Optimizer, Schedule


def noam(update: int, config: OptimConfig, d_model: int) -> tuple[float, float]:
    """factor * d_model^-0.5 * min(update^-0.5, update * warmup^-1.5) (Vaswani et al. 2017, section 5.3)."""
    return config.factor * (d_model * config.warmup_steps) ** -0.5, _warm_up_and_decay(update, config.warmup_steps)


def inverse_sqrt(update: int, config: OptimConfig, d_model: int) -> tuple[float, float]:
    """Like noam, but with the peak peak_lr."""
    return config.peak_lr, _warm_up_and_decay(update, config.warmup_steps)


def constant(update: int, config: OptimConfig, d_model: int) -> tuple[float, float]:
    """Linear warm-up to peak_lr, then constant."""
    return config.peak_lr, min(1.0, update / config.warmup_steps)


# A schedule returns its peak lr and the fraction of it at an update. To add one, name it in mt.config.schema.Schedule
# and register it here. If it depends on train.max_updates, mt.config.rules must treat it like optim.cooldown.
SCHEDULES: dict[Schedule, Callable[[int, OptimConfig, int], tuple[float, float]]] = {
    Schedule.noam: noam,
    Schedule.inverse_sqrt: inverse_sqrt,
    Schedule.constant: constant,
}


def learning_rate(update: int, config: OptimConfig, d_model: int, max_updates: int | None = None) -> float:
    """The learning rate of an update >= 1, with `cooldown` (linear to 0: Hägele et al. 2024, section 3)."""
    if update < 1:
        raise ValueError(f"updates count from 1, not {update}")
    peak, share = SCHEDULES[config.schedule](update, config, d_model)
    if config.cooldown and max_updates is not None:
        share *= min(1.0, (max_updates + 1 - update) / (config.cooldown * max_updates))
    return peak * share


def _warm_up_and_decay(update: int, warmup: int) -> float:
    """1 at the end of warm-up, proportional to update^-0.5 after it."""
    return min(update / warmup, (warmup / update) ** 0.5)


def make_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """The configured optimizer of all parameters; each step sets its learning rate."""
    parameters = list(model.parameters())
    lr = config.peak_lr  # replaced before the first update
    if config.name is Optimizer.sgd:
        return torch.optim.SGD(parameters, lr, config.momentum, weight_decay=config.weight_decay)
    kind = torch.optim.Adam if config.name is Optimizer.adam else torch.optim.AdamW
    return kind(parameters, lr, (config.beta1, config.beta2), config.eps, weight_decay=config.weight_decay, fused=True)
