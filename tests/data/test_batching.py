"""The epoch plan is a partition, repeats, and does not depend on the machine; batches keep to memory's limit."""

import numpy as np
import pytest

from mt.data import module
from mt.data.batching import _by_length, cut_batches, plan_epoch
from mt.data.corpus import Ids
from mt.data.module import Epoch

RANDOM = np.random.default_rng(5)
SOURCE = RANDOM.integers(1, 60, 3001).astype(np.int64)
TARGET = np.maximum(1, SOURCE + RANDOM.integers(-5, 6, 3001))


def test_an_epoch_is_a_partition_within_the_limit():
    updates = plan_epoch(SOURCE, TARGET, seed=1, epoch=1, update_tokens=1500)
    assert sorted(np.concatenate(updates)) == list(range(3001))
    sizes = [int(TARGET[update].sum()) for update in updates]
    assert max(sizes) <= 1500
    assert np.mean(sizes) > 0.95 * 1500


def test_updates_larger_than_a_slice_are_filled_from_several_and_mix_lengths():
    updates = plan_epoch(SOURCE, TARGET, seed=1, epoch=1, update_tokens=10_000)
    sizes = [int(TARGET[update].sum()) for update in updates]
    assert max(sizes) <= 10_000 and np.mean(sizes[:-1]) > 9_000
    assert np.mean([TARGET[update].std() for update in updates]) > 5


def test_neighbours_are_alike_on_both_sides():
    """Where the target's length changes, the source's does not jump from its longest to its shortest."""
    source = np.array([3, 1, 2, 1, 3, 2, 2, 3, 1])
    target = np.array([6, 6, 6, 7, 7, 7, 8, 8, 8])
    order = _by_length(np.arange(9), source, target)
    assert list(zip(target[order], source[order], strict=True)) == [
        *((6, 3), (6, 2), (6, 1)),
        *((7, 1), (7, 2), (7, 3)),
        *((8, 3), (8, 2), (8, 1)),
    ]


def test_a_plan_repeats_and_another_seed_or_epoch_gives_another():
    def plan(seed, epoch):
        return [update.tolist() for update in plan_epoch(SOURCE, TARGET, seed, epoch, 1500)]

    before = np.random.get_state()[1].tolist()
    assert plan(1, 1) == plan(1, 1)
    assert len({str(plan(seed, epoch)) for seed, epoch in ((1, 1), (1, 2), (2, 1))}) == 3
    assert np.random.get_state()[1].tolist() == before


def test_lengths_are_not_in_order_within_an_epoch():
    updates = plan_epoch(SOURCE, TARGET, seed=1, epoch=1, update_tokens=1500)
    means = np.array([TARGET[update].mean() for update in updates])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.4


def test_a_sentence_above_the_limit_is_an_update_of_its_own():
    lengths = np.array([3, 50, 4], dtype=np.int64)
    updates = plan_epoch(lengths, lengths, seed=1, epoch=1, update_tokens=10)
    assert sorted(sorted(update.tolist()) for update in updates) == [[0, 2], [1]]


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
@pytest.mark.parametrize("batch_tokens", [120, 400, 10**6])
def test_batches_of_all_processes_are_a_partition_of_the_update(world_size, batch_tokens):
    update = np.arange(100, 143)
    batches = [
        batch
        for rank in range(world_size)
        for batch in cut_batches(update, SOURCE, TARGET, batch_tokens, rank, world_size)
    ]
    assert sorted(np.concatenate(batches)) == update.tolist()
    for batch in batches:
        assert len(batch) * (SOURCE[batch].max() + TARGET[batch].max()) <= batch_tokens


def test_a_process_without_sentences_has_no_batches():
    assert cut_batches(np.array([4]), SOURCE, TARGET, 10**6, rank=1, world_size=2) == []


def test_one_pair_of_extreme_ratio_counts_on_both_sides():
    source, target = np.array([5, 5, 100], dtype=np.int64), np.array([5, 5, 5], dtype=np.int64)
    for batch in cut_batches(np.arange(3), source, target, 110):
        assert len(batch) * (source[batch].max() + target[batch].max()) <= 110


def test_a_pair_that_fits_nowhere_is_refused():
    with pytest.raises(ValueError, match="batch_tokens=9"):
        cut_batches(np.array([0]), np.array([5]), np.array([5]), 9)


@pytest.mark.parametrize("batch_tokens", [200, 1000, 100_000])
@pytest.mark.parametrize("world_size", [1, 3])
def test_the_largest_update_has_a_batch_as_large_as_any(batch_tokens, world_size):
    nothing = Ids.from_sentences([])
    epoch = Epoch(nothing, nothing, SOURCE, TARGET)
    plan = epoch.plan(1, 1, 1500)

    def largest(update):
        shares = [epoch.share(update, batch_tokens, rank, world_size) for rank in range(world_size)]
        return max(epoch.size(rows)[1] for share in shares for rows in share)

    chosen = epoch.largest_update(plan, batch_tokens, world_size)
    assert largest(chosen) == max(largest(update) for update in plan)


def test_in_a_long_plan_some_updates_and_the_one_with_the_longest_pair_are_looked_at(monkeypatch):
    monkeypatch.setattr(module, "LOOKED_AT", 5)
    nothing = Ids.from_sentences([])
    epoch = Epoch(nothing, nothing, SOURCE, TARGET)
    plan = epoch.plan(1, 1, 1500)
    longest = next(update for update in plan if int((SOURCE + TARGET).argmax()) in update)
    looked_at = [*plan[:: -(-len(plan) // 5)], longest]
    assert len(looked_at) <= 6 < len(plan)
    cells = [max(epoch.size(rows)[1] for rows in epoch.share(update, 400, 0, 1)) for update in looked_at]
    chosen = epoch.largest_update(plan, 400, 1)
    assert max(epoch.size(rows)[1] for rows in epoch.share(chosen, 400, 0, 1)) == max(cells)
