"""Turns token ids into batches: the plan of an epoch, its updates, and each process's batches of an update.

An update has up to `update_tokens` non-padding target tokens, and the same sentences on any machine. It is divided into
batches to limit memory: rows x (longest source + longest target) is at most `batch_tokens`. Lengths include EOS.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mt.tokenizers.special_ids import BOS, EOS, PAD

IdArray = NDArray[np.integer]
Indices = NDArray[np.int64]
Lengths = NDArray[np.int64]

SLICE_TOKENS = 4096  # sentences of similar length that stay together: few enough that a large update mixes many slices
POOL_SLICES = 256  # slices sorted together: enough for little padding, few enough to keep the order random
SEARCHED_UPDATES = 1000  # to find the largest batch


@dataclass(frozen=True)
class Ids:
    """Sentences of token ids without special ids. Sentence i is ids[offsets[i]:offsets[i + 1]]."""

    ids: IdArray
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, sentence: int) -> IdArray:
        return self.ids[self.offsets[sentence] : self.offsets[sentence + 1]]

    def lengths(self) -> Lengths:
        """The length of each sentence, including EOS."""
        return np.diff(self.offsets) + 1

    @classmethod
    def of(cls, sentences: Sequence[IdArray]) -> "Ids":
        """The ids of a list of sentences."""
        offsets = np.zeros(len(sentences) + 1, dtype=np.int64)
        np.cumsum([len(sentence) for sentence in sentences], out=offsets[1:])
        flat = np.concatenate(sentences) if len(sentences) else np.zeros(0, dtype=np.int32)
        return cls(flat, offsets)


@dataclass(frozen=True)
class Batch:
    """Padded ids, int64. B sentences, S longest source, T longest target; S and T count EOS.

    `target_in` begins with BOS, `target_out` ends with EOS: position t of `target_in` predicts t of `target_out`.
    """

    source: Tensor  # [B, S]
    target_in: Tensor  # [B, T]
    target_out: Tensor  # [B, T]
    non_padding: Tensor  # [target tokens] positions of the tokens in target_out.flatten()
    sentences: Indices  # [B] indices of the sentences in the corpus
    tokens: int  # non-padding tokens, source and target together

    @property
    def target_tokens(self) -> int:
        return len(self.non_padding)

    @property
    def cells(self) -> int:
        """Tokens and padding, source and target together."""
        return self.source.numel() + self.target_out.numel()

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; copies from pinned memory overlap with the computation."""
        if device.type == "cpu":
            return self
        tensors = self.source, self.target_in, self.target_out, self.non_padding
        source, target_in, target_out, non_padding = (x.pin_memory().to(device, non_blocking=True) for x in tensors)
        return replace(self, source=source, target_in=target_in, target_out=target_out, non_padding=non_padding)


@dataclass(frozen=True)
class Update:
    """One process's share of an optimizer step, in batches. An empty share has one batch whose tokens do not count."""

    batches: list[Batch]
    target_tokens: int  # of all processes, including EOS


@dataclass(frozen=True)
class Epoch:
    """The sentences of an epoch and the plan that divides them into updates."""

    source: Ids
    target: Ids
    plan: list[Indices]

    def __len__(self) -> int:
        return len(self.plan)

    def updates(self, done: int, batch_tokens: int, rank: int, world_size: int) -> Iterator[Update]:
        """The updates after the first `done` ones, with the batches of process `rank`."""
        lengths = self.source.lengths(), self.target.lengths()
        for rows in self.plan[done:]:
            shares = cut_batches(rows, lengths, batch_tokens, rank, world_size)
            batches = [self._batch(share) for share in shares]
            if not batches:
                batch = self._batch(rows[:1])
                batches = [replace(batch, non_padding=batch.non_padding[:0], tokens=0)]
            yield Update(batches, int(lengths[1][rows].sum()))

    def largest(self, batch_tokens: int, rank: int, world_size: int) -> Batch:
        """The batch that needs the most memory: the most cells or, if equal, the longest sentences.

        Only SEARCHED_UPDATES updates, spread over the plan, and the one with the longest pair are searched.
        """
        lengths = self.source.lengths(), self.target.lengths()
        together = lengths[0] + lengths[1]

        def need(rows: Indices) -> tuple[int, int]:
            return len(rows) * int(lengths[0][rows].max() + lengths[1][rows].max()), int(together[rows].max())

        def largest_batch(rows: Indices, of: int) -> Indices:
            return max(cut_batches(rows, lengths, batch_tokens, of, world_size) or [rows[:1]], key=need)

        longest = max(self.plan, key=lambda rows: together[rows].max())
        candidates = [*self.plan[:: -(-len(self.plan) // SEARCHED_UPDATES)], longest]
        rows = max(candidates, key=lambda rows: need(largest_batch(rows, of=0)))  # rank 0 has the longest sentences
        return self._batch(largest_batch(rows, rank))

    def _batch(self, rows: Indices) -> Batch:
        return collate([self.source[i] for i in rows], [self.target[i] for i in rows], rows)


def plan_epoch(
    source_lengths: Lengths, target_lengths: Lengths, seed: int, epoch: int, update_tokens: int
) -> list[Indices]:
    """Divide all sentences of an epoch into updates; a pure function of the arguments.

    Shuffle; sort each pool by length; cut it into slices; shuffle the slices; fill updates with whole slices. An update
    has at most `update_tokens` target tokens, unless it is a single sentence.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(target_lengths))
    slices_per_update = -(-update_tokens // SLICE_TOKENS)
    slice_tokens = update_tokens // slices_per_update
    slices: list[Indices] = []
    for pool in _cut(order, target_lengths, slice_tokens * POOL_SLICES):
        slices.extend(_cut(_by_length(pool, source_lengths, target_lengths), target_lengths, slice_tokens))
    if not slices:
        return []
    slices = [slices[i] for i in random.permutation(len(slices))]
    order, bounds = np.concatenate(slices), np.cumsum([0, *map(len, slices)])
    tokens = np.add.reduceat(target_lengths[order], bounds[:-1])
    updates = _cut(np.arange(len(slices)), tokens, update_tokens)
    return [order[bounds[run[0]] : bounds[run[-1] + 1]] for run in updates]


def _by_length(pool: Indices, source_lengths: Lengths, target_lengths: Lengths) -> Indices:
    """Sort by target length, then by source length, alternately up and down, so that neighbors differ little in both.

    Both lengths and the pool position are packed into one integer, because sorting a single key is much faster.
    """
    source, target = source_lengths[pool], target_lengths[pool]
    longest = int(source.max())
    keys = target * (longest + 1) + np.where(target % 2, source, longest - source)
    return pool[np.sort(keys * len(pool) + np.arange(len(pool))) % len(pool)]


def _cut(order: Indices, weights: Lengths, limit: int) -> list[Indices]:
    """Cut `order` into pieces of total weight <= `limit`, or of a single element."""
    ends = np.cumsum(weights[order])
    pieces, start, before = [], 0, 0
    while start < len(order):
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        pieces.append(order[start:stop])
        start, before = stop, int(ends[stop - 1])
    return pieces


def cut_batches(
    rows: Indices, lengths: tuple[Lengths, Lengths], batch_tokens: int, rank: int, world_size: int
) -> list[Indices]:
    """One process's share of some sentences, longest first, in batches. A pair above the limit raises ValueError."""
    source_lengths, target_lengths = lengths
    by_length = rows[np.lexsort((rows, source_lengths[rows], target_lengths[rows]))[::-1]]
    share = by_length[rank::world_size]
    batches, start, longest_source, longest_target = [], 0, 0, 0
    for position, sentence in enumerate(share):
        source, target = int(source_lengths[sentence]), int(target_lengths[sentence])
        if source + target > batch_tokens:
            raise ValueError(f"a pair of {source} + {target} tokens exceeds batch_tokens={batch_tokens}")
        longest_source, longest_target = max(longest_source, source), max(longest_target, target)
        if (position - start + 1) * (longest_source + longest_target) > batch_tokens:
            batches.append(share[start:position])
            start, longest_source, longest_target = position, source, target
    if start < len(share):
        batches.append(share[start:])
    return batches


def collate(sources: Sequence[IdArray], targets: Sequence[IdArray], sentences: Indices) -> Batch:
    """One batch of pairs of ids without special ids; `sentences` are their indices."""
    target_out = pad(targets)
    return Batch(
        source=pad(sources),
        target_in=pad(targets, bos=True),
        target_out=target_out,
        non_padding=(target_out != PAD).flatten().nonzero()[:, 0],
        sentences=sentences,
        tokens=sum(len(source) + len(target) + 2 for source, target in zip(sources, targets, strict=True)),
    )


def pad(sentences: Sequence[IdArray], bos: bool = False) -> Tensor:
    """Padded ids [B, longest + 1], int64: with BOS before each sentence, or with EOS after it."""
    width = max(len(ids) for ids in sentences) + 1
    padded = np.full((len(sentences), width), PAD, dtype=np.int64)
    if bos:
        padded[:, 0] = BOS
    for row, ids in zip(padded, sentences, strict=True):
        row[bos : bos + len(ids)] = ids
        if not bos:
            row[len(ids)] = EOS
    return torch.from_numpy(padded)
