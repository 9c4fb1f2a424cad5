"""The epoch plan: which sentences make an update, and how an update is cut into batches. Pure numpy.

An update is a matter of learning: up to `update_tokens` real target tokens, the same sentences whatever the
machine. A batch is a matter of memory: rows x (longest source + longest target) up to `batch_tokens`.
Lengths count the end-of-sentence token everywhere.
"""

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Lengths = NDArray[np.int64]

SLICE_TOKENS = 4096  # sentences of similar length that stay together: short enough that big updates mix many
POOL_SLICES = 256  # slices sorted together: long enough for little padding, short enough to keep the order random


def plan_epoch(
    source_lengths: Lengths, target_lengths: Lengths, seed: int, epoch: int, update_tokens: int
) -> list[Indices]:
    """The updates of an epoch: a partition of all sentences, a pure function of the arguments.

    Shuffle; sort each pool by length; cut into slices; shuffle the slices; fill updates with whole slices. An
    update holds at most `update_tokens` target tokens, or else a single sentence.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(target_lengths))
    slices_per_update = -(-update_tokens // SLICE_TOKENS)
    slice_tokens = update_tokens // slices_per_update
    slices: list[Indices] = []
    for pool in _cut(order, target_lengths, slice_tokens * POOL_SLICES):
        slices.extend(_cut(_by_length(pool, source_lengths, target_lengths), target_lengths, slice_tokens))
    slices = [slices[i] for i in random.permutation(len(slices))]
    return _fill(slices, target_lengths, update_tokens)


def _by_length(pool: Indices, source_lengths: Lengths, target_lengths: Lengths) -> Indices:
    """By target length, then by source length up and down in turn, so that no neighbours differ much in either.

    Both lengths and the place in the pool become one number, which sorts several times faster than keys do.
    """
    source, target = source_lengths[pool], target_lengths[pool]
    longest = int(source.max())
    keys = target * (longest + 1) + np.where(target % 2, source, longest - source)
    return pool[np.sort(keys * len(pool) + np.arange(len(pool))) % len(pool)]


def _cut(order: Indices, weights: Lengths, limit: int) -> list[Indices]:
    """Runs of `order` whose weights sum to at most `limit`, or hold one element."""
    ends = np.cumsum(weights[order])
    pieces, start, before = [], 0, 0
    while start < len(order):
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        pieces.append(order[start:stop])
        start, before = stop, int(ends[stop - 1])
    return pieces


def _fill(slices: list[Indices], target_lengths: Lengths, update_tokens: int) -> list[Indices]:
    if not slices:
        return []
    order = np.concatenate(slices)
    bounds = np.cumsum([0, *map(len, slices)])
    tokens = np.add.reduceat(target_lengths[order], bounds[:-1])
    runs = _cut(np.arange(len(slices)), tokens, update_tokens)
    return [order[bounds[run[0]] : bounds[run[-1] + 1]] for run in runs]


def cut_batches(
    update: Indices,
    source_lengths: Lengths,
    target_lengths: Lengths,
    batch_tokens: int,
    rank: int = 0,
    world_size: int = 1,
) -> list[Indices]:
    """One process's share of an update, longest first, in batches within `batch_tokens`; empty for no share.

    A single pair above the limit is a ValueError: pairs that can't fit are dropped before, by data.max_tokens.
    """
    by_length = update[np.lexsort((update, source_lengths[update], target_lengths[update]))[::-1]]
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
