"""Label-smoothed cross-entropy, computed without holding all logits at once.

Definition (as in torch's `label_smoothing`, Szegedy et al. 2016): the target distribution is (1 - e) on the reference
token plus e/V on each of the V classes, the reference included. Padding never counts. Losses are sums; the caller
divides once by the number of non-padding tokens.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = {"cpu": 8_000_000, "cuda": 64_000_000}  # logits held at a time: 32 and 256 MB in float32


@dataclass(frozen=True)
class Loss:
    """Sums over the non-padding target tokens, in nats."""

    smoothed: Tensor  # the loss that training minimizes
    nll: Tensor  # the unsmoothed loss, for the perplexity; without a gradient


def label_smoothed_loss(states: Tensor, weight: Tensor, targets: Tensor, smoothing: float, non_padding: Tensor) -> Loss:
    """The loss of states [B, T, D] under output matrix weight [V, D] for targets [B, T].

    `non_padding` [N] are the positions of the tokens in the flattened targets. (Finding them here would make the CPU
    wait for the GPU.) Under bfloat16 autocast, matrix multiplications are in bfloat16; all else is float32.
    """
    rows = states.flatten(0, 1).index_select(0, non_padding).to(weight.dtype)
    kept = targets.flatten().index_select(0, non_padding)
    kind = rows.device.type
    # Not in float16: the gradients of most logits would underflow
    rounded = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != torch.float16
    dtype = torch.get_autocast_dtype(kind) if rounded else weight.dtype
    with torch.autocast(kind, enabled=False):
        smoothed, nll = _LinearCrossEntropy.apply(rows, weight, kept, smoothing, dtype, torch.is_grad_enabled())
    return Loss(smoothed, nll)


class _LinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy of rows @ weight.T in chunks of rows; each chunk's gradients are computed with its logits.

    Only the softmax reads all logits. The smoothing term of the loss is linear in them, e rows . mean(weight), and is
    computed without them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        targets: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        gradients: bool,  # grad mode is always off here, so the caller passes it
    ) -> tuple[Tensor, Tensor]:
        wanted = gradients and (rows.requires_grad or weight.requires_grad)
        matrix, inputs = weight.to(dtype), rows.to(dtype)
        log_normalizer, target_logit = (rows.new_empty(len(rows), 1) for _ in range(2))
        rows_gradient = torch.empty_like(rows) if wanted else None
        weight_gradient = torch.zeros_like(weight) if wanted else None
        step = max(1, CHUNK_ELEMENTS[rows.device.type] // weight.shape[0])
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            logits = (inputs[part] @ matrix.T).to(rows.dtype)
            target_logit[part] = logits.gather(1, targets[part, None])
            highest = logits.amax(1, keepdim=True)
            exponentials = logits.sub_(highest).exp_()
            total = exponentials.sum(1, keepdim=True)
            log_normalizer[part] = highest + total.log()
            if rows_gradient is not None and weight_gradient is not None:
                # Subtract the target's share before rounding, which would lose most of the difference
                exponentials.scatter_add_(1, targets[part, None], (smoothing - 1) * total)
                exponentials = exponentials.to(dtype)
                rows_gradient[part] = (exponentials @ matrix) / total
                scaled = (rows[part] / total).to(dtype)
                if dtype == weight.dtype:
                    weight_gradient.addmm_(exponentials.T, scaled)
                else:
                    weight_gradient += exponentials.T @ scaled
        mean = weight.mean(0)
        if rows_gradient is not None and weight_gradient is not None:
            rows_gradient -= smoothing * mean
            weight_gradient -= rows.sum(0) * (smoothing / len(weight))
            ctx.save_for_backward(rows_gradient, weight_gradient)
        nll = (log_normalizer - target_logit).sum(dtype=torch.float64)
        uniform = (log_normalizer[:, 0] - rows @ mean).sum(dtype=torch.float64)  # cross-entropy against 1/V everywhere
        ctx.mark_non_differentiable(nll)
        return (1 - smoothing) * nll + smoothing * uniform, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        rows_gradient, weight_gradient = ctx.saved_tensors
        scale = gradients[0].to(weight_gradient.dtype)
        return rows_gradient * scale.to(rows_gradient.dtype), weight_gradient * scale, None, None, None, None
