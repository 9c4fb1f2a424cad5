"""The logged training metrics, summed over updates and processes, then divided once."""

import math
from dataclasses import dataclass

from mt.runtime import distributed
from mt.training.step import StepMetrics

SHARES = ("loss", "nll", "tokens", "cells", "target_tokens", "all_target_tokens")  # sums of this process only


@dataclass
class TrainingMetrics:
    """Sums since the last log line: those named in SHARES over this process's share, the others over whole updates."""

    loss: float = 0.0  # label-smoothed, in nats
    nll: float = 0.0  # in nats
    tokens: float = 0  # source and target together
    cells: float = 0  # tokens and padding
    target_tokens: float = 0  # without skipped updates
    all_target_tokens: float = 0
    updates: int = 0  # skipped ones do not count
    grad_norm: float = 0.0
    seconds: float = 0.0  # without validating and saving

    def add(self, step: StepMetrics, seconds: float) -> None:
        """Add one update."""
        self.tokens += step.tokens
        self.cells += step.cells
        self.all_target_tokens += step.target_tokens
        self.seconds += seconds
        if step.finite:
            self.updates += 1
            self.target_tokens += step.target_tokens
            self.loss += sum(step.losses)
            self.nll += step.nll
            self.grad_norm += step.grad_norm

    def values(self, lr: float, target_tokens: int, memory: float, epoch: int) -> dict[str, float]:
        """The metrics to log, over all processes; each must call this. Add new metrics here and to `in_words`."""
        sums = dict(zip(SHARES, distributed.all_reduce([getattr(self, name) for name in SHARES]), strict=True))
        counted = sums["target_tokens"] or math.nan  # NaN if every update was skipped
        return {
            "loss": sums["loss"] / counted,
            "nll": sums["nll"] / counted,
            "perplexity": perplexity(sums["nll"] / counted),
            "learning_rate": lr,
            "gradient_norm": self.grad_norm / max(1, self.updates),
            "target_tokens": target_tokens,
            "target_tokens_per_second": sums["all_target_tokens"] / self.seconds,
            "padding_share": 1 - sums["tokens"] / max(1, sums["cells"]),
            "memory_gib": memory,
            "epoch": epoch,
        }


def in_words(values: dict[str, float]) -> str:
    """The metrics that train.log shows; metrics.jsonl and TensorBoard have all of them."""
    return (
        f"loss {values['loss']:.3f}, perplexity {values['perplexity']:.2f}, lr {values['learning_rate']:.2e}, grad norm"
        f" {values['gradient_norm']:.2f}, {values['target_tokens_per_second']:,.0f} target tokens/s, padding"
        f" {values['padding_share']:.1%}"
    )


def perplexity(nll: float) -> float:
    """exp of the unsmoothed loss per token; infinity if that is too large for a float."""
    return math.inf if nll > 700 else math.exp(nll)
