"""The optimizer, and its learning rate as a plain function of the update's number (1 is the first)."""

import torch
from torch import nn

from mt.config import OptimConfig, Optimizer, Schedule


def learning_rate(update: int, config: OptimConfig, d_model: int, max_updates: int | None = None) -> float:
    """The rate of an update >= 1.

    noam (Vaswani et al. 2017, section 5.3): factor * d_model^-0.5 * min(u^-0.5, u * warmup^-1.5).
    inverse_sqrt: the same shape with its peak, reached at the end of warm-up, stated: peak_lr.
    constant: linear warm-up to peak_lr, which stays.
    In the last share `cooldown` of `max_updates` all of them fall linearly to nothing as well, which Hägele et al.
    2024, section 3, do after a constant rate.
    """
    if update < 1:
        raise ValueError(f"updates count from 1, not {update}")
    warmup = config.warmup_steps
    shape = min(update / warmup, (warmup / update) ** 0.5)  # 1 at the end of warm-up
    if config.schedule is Schedule.constant:
        shape = min(1.0, update / warmup)
    if config.cooldown and max_updates is not None:
        shape *= min(1.0, (max_updates + 1 - update) / (config.cooldown * max_updates))
    peak = config.factor * (d_model * warmup) ** -0.5 if config.schedule is Schedule.noam else config.peak_lr
    return peak * shape


def make_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """The configured optimizer over all parameters; the training loop sets its rate at each update."""
    parameters = list(model.parameters())
    rate = config.peak_lr  # overwritten before the first update
    if config.name is Optimizer.sgd:
        return torch.optim.SGD(parameters, rate, config.momentum, weight_decay=config.weight_decay)
    kind = torch.optim.Adam if config.name is Optimizer.adam else torch.optim.AdamW
    betas = config.beta1, config.beta2
    return kind(parameters, rate, betas, config.eps, weight_decay=config.weight_decay, fused=True)
