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
    target_tokens: int  # real ones in target_out

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; copies from pinned memory run beside the computation."""
        if device.type == "cpu":
            return self
        source, target_in, target_out = (
            tensor.pin_memory().to(device, non_blocking=True)
            for tensor in (self.source, self.target_in, self.target_out)
        )
        return Batch(source, target_in, target_out, self.target_tokens)


def pad_source(sources: Sequence[NDArray[np.integer]]) -> Tensor:
    """Sources with EOS, padded: [B, S] int64."""
    return _pad(sources, bos=False)


def collate(sources: Sequence[NDArray[np.integer]], targets: Sequence[NDArray[np.integer]]) -> Batch:
    """Pairs of ids without special tokens to a Batch."""
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources, {len(targets)} targets")
    return Batch(
        source=pad_source(sources),
        target_in=_pad(targets, bos=True),
        target_out=_pad(targets, bos=False),
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
