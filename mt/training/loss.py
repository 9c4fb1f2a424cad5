"""Label-smoothed cross-entropy, computed without ever holding all logits.

Definition (as torch's `label_smoothing`, Szegedy et al. 2016): the target distribution is (1 - e) on the reference
token plus e/V on each of the V classes, the reference among them. Padding positions count nowhere. Losses are sums;
the caller divides once by the number of real tokens.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 4_000_000  # logits held at a time: 16 MB in float32, so that a chunk stays in a CPU's cache


@dataclass(frozen=True)
class Loss:
    """Sums over the real target tokens, in nats."""

    smoothed: Tensor  # what is minimized
    nll: Tensor  # the unsmoothed loss, which perplexity is made of; carries no gradient


def label_smoothed_loss(states: Tensor, weight: Tensor, targets: Tensor, smoothing: float, pad: int) -> Loss:
    """Loss of states [B, T, D] under output matrix weight [V, D] for targets [B, T].

    Under autocast the matrix products are in its type; everything else is float32.
    """
    real = targets.flatten() != pad
    rows, kept = states.flatten(0, 1)[real], targets.flatten()[real]
    kind = rows.device.type
    # The gradients of most logits are too small for float16.
    rounded = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != torch.float16
    products = torch.get_autocast_dtype(kind) if rounded else weight.dtype
    with torch.autocast(kind, enabled=False):
        smoothed, nll = _LinearCrossEntropy.apply(rows, weight, kept, smoothing, products, torch.is_grad_enabled())
    return Loss(smoothed, nll)


class _LinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy of rows @ weight.T in chunks of rows; the gradients are made while a chunk's logits are there."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        targets: Tensor,
        smoothing: float,
        products: torch.dtype,
        gradients: bool,  # here grad mode is always off, so that the caller must say
    ) -> tuple[Tensor, Tensor]:
        wanted = gradients and (rows.requires_grad or weight.requires_grad)
        matrix = weight.to(products)
        total, total_nll = (torch.zeros((), dtype=torch.float64, device=rows.device) for _ in range(2))
        rows_gradient = torch.empty_like(rows) if wanted else None
        weight_gradient = torch.zeros_like(weight) if wanted else None
        step = max(1, CHUNK_ELEMENTS // weight.shape[0])
        for start in range(0, len(rows), step):
            chunk, target = rows[start : start + step].to(matrix.dtype), targets[start : start + step, None]
            logits = (chunk @ matrix.T).to(weight.dtype)
            log_normalizer = logits.logsumexp(1, keepdim=True)
            nll = log_normalizer - logits.gather(1, target)
            total_nll += nll.sum()
            uniform = log_normalizer - logits.mean(1, keepdim=True)  # cross-entropy against 1/V everywhere
            total += ((1 - smoothing) * nll + smoothing * uniform).sum()
            if rows_gradient is not None and weight_gradient is not None:
                # d loss / d logits = softmax - target distribution
                gradient = logits.sub_(log_normalizer).exp_().sub_(smoothing / weight.shape[0])
                gradient.scatter_add_(1, target, torch.full_like(nll, smoothing - 1))
                gradient = gradient.to(matrix.dtype)
                rows_gradient[start : start + step] = gradient @ matrix
                weight_gradient += gradient.T @ chunk
        if wanted:
            ctx.save_for_backward(rows_gradient, weight_gradient)
        ctx.mark_non_differentiable(total_nll)
        return total, total_nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        rows_gradient, weight_gradient = ctx.saved_tensors
        scale = gradients[0].to(weight_gradient.dtype)
        return rows_gradient * scale.to(rows_gradient.dtype), weight_gradient * scale, None, None, None, None
