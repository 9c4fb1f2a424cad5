"""Multi-head attention (Vaswani et al. 2017, section 3.2), with caches for decoding.

B sentences, Q queries, K keys, D model width, H heads. Masks are boolean, True means "may attend".
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.errors import UserError

SHORT = 64 * 64  # queries x keys up to which a CPU is faster without the fused kernel


@dataclass(frozen=True)
class KeyValues:
    """Projected keys and values of one layer, kept between decoding steps: each [B, H, K, D/H]."""

    keys: Tensor
    values: Tensor

    def append(self, other: "KeyValues") -> "KeyValues":
        """Concatenate with `other` along K."""
        return KeyValues(torch.cat((self.keys, other.keys), 2), torch.cat((self.values, other.values), 2))

    def select(self, rows: Tensor) -> "KeyValues":
        """Select rows in the given order, as beams move and sentences finish."""
        return KeyValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class Attention(nn.Module):
    """One attention sublayer without its residual: queries [B, Q, D] attend to a memory's keys and values."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads:
            raise UserError(f"model.d_model={d_model} must be divisible by model.heads={heads}")
        self.heads = heads
        self.query = nn.Linear(d_model, d_model)
        # A key bias cancels in the softmax, so its gradient would be noise that Adam amplifies; a value bias would be
        # redundant with the output bias
        self.key_value = nn.Linear(d_model, 2 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model)

    def project(self, memory: Tensor) -> KeyValues:
        """The keys and values of a memory [B, K, D]."""
        keys, values = self.key_value(memory).chunk(2, dim=-1)
        return KeyValues(self._split(keys), self._split(values))

    def forward(self, queries: Tensor, memory: KeyValues, mask: Tensor | None, causal: bool = False) -> Tensor:
        """[B, Q, D]. `mask` broadcasts to [B, H, Q, K]; `causal` lets query i see keys 0..i (needs Q = K)."""
        attended = _attend(self._split(self.query(queries)), memory, mask, causal)
        return self.output(attended.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, T, D] -> [B, H, T, D/H]


def _attend(query: Tensor, memory: KeyValues, mask: Tensor | None, causal: bool) -> Tensor:
    keys, values = memory.keys, memory.values
    if query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=causal)
    # On a CPU, the backward pass is about ten times slower in bfloat16 than in float32. For short sentences, plain
    # matrix products are faster than the fused kernel, twice as fast in training
    with torch.autocast("cpu", enabled=False):
        query, keys, values = query.float(), keys.float(), values.float()
        if query.shape[2] * keys.shape[2] <= SHORT:
            return _plain_attention(query, keys, values, mask, causal)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=causal)


def _plain_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    assert not (causal and mask is not None), "one or the other, as in the fused kernel"
    scores = (query * query.shape[-1] ** -0.5) @ keys.transpose(2, 3)  # [B, H, Q, K]
    if causal:
        mask = torch.ones(scores.shape[2:], dtype=torch.bool).tril()
    if mask is not None:  # not -inf, which would turn a row that may attend to nothing into NaN
        scores += torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min / 2)
    return scores.softmax(-1) @ values
