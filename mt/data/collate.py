"""Padding: sentences of ids to one rectangular Batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mt.data.tokenizer import BOS, EOS, PAD


@dataclass(frozen=True)
class Batch:
    """Padded ids, int64. B sentences, S longest source, T longest target, end-of-sentence included.

    `target_in` begins with BOS, `target_out` ends with EOS: position t of the one predicts position t of the other.
    """

    source: Tensor  # [B, S]
    target_in: Tensor  # [B, T]
    target_out: Tensor  # [B, T]
    real: Tensor  # [target_tokens] where the real tokens of target_out stand in it, flattened
    target_tokens: int

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; copies from pinned memory run beside the computation."""
        if device.type == "cpu":
            return self
        source, target_in, target_out, real = (
            tensor.pin_memory().to(device, non_blocking=True)
            for tensor in (self.source, self.target_in, self.target_out, self.real)
        )
        return Batch(source, target_in, target_out, real, self.target_tokens)


def pad_source(sources: Sequence[NDArray[np.integer]]) -> Tensor:
    """Sources with EOS, padded: [B, S] int64."""
    return _pad(sources, bos=False)


def collate(sources: Sequence[NDArray[np.integer]], targets: Sequence[NDArray[np.integer]]) -> Batch:
    """Pairs of ids without special tokens to a Batch."""
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources, {len(targets)} targets")
    target_out = _pad(targets, bos=False)
    return Batch(
        source=pad_source(sources),
        target_in=_pad(targets, bos=True),
        target_out=target_out,
        real=(target_out != PAD).flatten().nonzero()[:, 0],
        target_tokens=sum(len(ids) + 1 for ids in targets),
    )


def _pad(sentences: Sequence[NDArray[np.integer]], bos: bool) -> Tensor:
    """[B, longest + 1]: BOS before each sentence, or EOS after it."""
    width = max(len(ids) for ids in sentences) + 1
    padded = np.full((len(sentences), width), PAD, dtype=np.int64)
    if bos:
        padded[:, 0] = BOS
    for row, ids in zip(padded, sentences, strict=True):
        row[bos : bos + len(ids)] = ids
        if not bos:
            row[len(ids)] = EOS
    return torch.from_numpy(padded)
