"""The plan of an epoch is a reproducible partition, and batches stay within their limit."""

from itertools import islice

import numpy as np
import pytest
import torch

from mt.data import batching
from mt.data.batching import Epoch, Ids, _by_length, collate, cut_batches, pad, plan_epoch
from mt.tokenizers.special_ids import BOS, EOS, PAD

RANDOM = np.random.default_rng(5)
SOURCE = RANDOM.integers(1, 60, 3001).astype(np.int64)
TARGET = np.maximum(1, SOURCE + RANDOM.integers(-5, 6, 3001))


def ids_of(lengths):
    """Sentences of random ids with these lengths, including EOS."""
    random = np.random.default_rng(7)
    return Ids.of([random.integers(4, 1000, length - 1, dtype=np.int32) for length in lengths])


@pytest.fixture(scope="module")
def epoch():
    return Epoch(ids_of(SOURCE), ids_of(TARGET), plan_epoch(SOURCE, TARGET, seed=1, epoch=1, update_tokens=1500))


def epoch_of(source_lengths, target_lengths, plan):
    return Epoch(ids_of(source_lengths), ids_of(target_lengths), [np.array(rows) for rows in plan])


def sentences(update):
    """The numbers of the sentences in one process's update, without batches that count for nothing."""
    return [int(i) for batch in update.batches if batch.tokens for i in batch.sentences]


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
    """The source length does not jump from longest to shortest if the target length changes."""
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
        for batch in cut_batches(update, (SOURCE, TARGET), batch_tokens, rank, world_size)
    ]
    assert sorted(np.concatenate(batches)) == update.tolist()
    for batch in batches:
        assert len(batch) * (SOURCE[batch].max() + TARGET[batch].max()) <= batch_tokens


def test_a_process_without_sentences_has_no_batches():
    assert cut_batches(np.array([4]), (SOURCE, TARGET), 10**6, rank=1, world_size=2) == []


def test_one_pair_of_extreme_ratio_counts_on_both_sides():
    source, target = np.array([5, 5, 100], dtype=np.int64), np.array([5, 5, 5], dtype=np.int64)
    for batch in cut_batches(np.arange(3), (source, target), 110, rank=0, world_size=1):
        assert len(batch) * (source[batch].max() + target[batch].max()) <= 110


def test_a_pair_that_fits_nowhere_is_refused():
    with pytest.raises(ValueError, match="batch_tokens=9"):
        cut_batches(np.array([0]), (np.array([5]), np.array([5])), 9, rank=0, world_size=1)


def test_the_given_lengths_are_those_of_the_sentences(epoch):
    assert np.array_equal(epoch.source.lengths(), SOURCE) and np.array_equal(epoch.target.lengths(), TARGET)
    assert len(Ids.of([])) == 0 and Ids.of([]).lengths().tolist() == []


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("batch_tokens", [200, 1000])
def test_the_updates_of_all_processes_are_the_plan(epoch, world_size, batch_tokens):
    of_ranks = [list(epoch.updates(0, batch_tokens, rank, world_size)) for rank in range(world_size)]
    assert {len(updates) for updates in of_ranks} == {len(epoch)} == {len(epoch.plan)}
    for rows, shares in zip(epoch.plan, zip(*of_ranks, strict=True), strict=True):
        assert sorted(i for share in shares for i in sentences(share)) == sorted(rows.tolist())
        batches = [batch for share in shares for batch in share.batches]
        target_tokens = int(TARGET[rows].sum())
        assert {share.target_tokens for share in shares} == {target_tokens}
        assert sum(batch.target_tokens for batch in batches) == target_tokens
        assert sum(batch.tokens for batch in batches) == int(SOURCE[rows].sum()) + target_tokens
        assert max(batch.cells for batch in batches) <= batch_tokens


def test_a_batch_of_an_update_holds_the_ids_of_its_sentences(epoch):
    for update in islice(epoch.updates(0, 1000, 1, 2), 5):
        for batch in update.batches:
            for row, sentence in enumerate(batch.sentences):
                source, target = epoch.source[sentence].tolist(), epoch.target[sentence].tolist()
                padding = [PAD] * (batch.source.shape[1] - len(source) - 1)
                assert batch.source[row].tolist() == [*source, EOS, *padding]
                padding = [PAD] * (batch.target_out.shape[1] - len(target) - 1)
                assert batch.target_in[row].tolist() == [BOS, *target, *padding]
                assert batch.target_out[row].tolist() == [*target, EOS, *padding]
            assert torch.equal(batch.non_padding, torch.nonzero(batch.target_out.flatten() != PAD)[:, 0])


@pytest.mark.parametrize("rank", [0, 1])
def test_updates_that_are_done_are_skipped(epoch, rank):
    everything = list(epoch.updates(0, 400, rank, 2))
    for done in (1, 7, len(epoch)):
        rest = list(epoch.updates(done, 400, rank, 2))
        assert [sentences(update) for update in rest] == [sentences(update) for update in everything[done:]]
        assert [update.target_tokens for update in rest] == [update.target_tokens for update in everything[done:]]


def test_a_process_without_a_sentence_gets_one_batch_that_counts_for_nothing():
    epoch = epoch_of([4, 6, 3], [5, 2, 7], [[1, 2], [0]])
    for rank, expected in ((0, [[2], [0]]), (1, [[1], []]), (2, [[], []])):
        updates = list(epoch.updates(0, 100, rank, 3))
        assert [sentences(update) for update in updates] == expected
        assert [update.target_tokens for update in updates] == [2 + 7, 5]  # of all processes
        for update, share in zip(updates, expected, strict=True):
            (batch,) = update.batches
            if not share:
                assert (batch.target_tokens, batch.tokens) == (0, 0)
                assert batch.non_padding.dtype == torch.int64 and len(batch.source) == len(batch.target_in) == 1


@pytest.mark.parametrize("batch_tokens", [200, 1000, 100_000])
@pytest.mark.parametrize("world_size", [1, 3])
def test_the_largest_batch_is_as_large_as_any_of_the_epoch(epoch, batch_tokens, world_size):
    largest = [epoch.largest(batch_tokens, rank, world_size) for rank in range(world_size)]
    everything = [
        batch
        for rank in range(world_size)
        for update in epoch.updates(0, batch_tokens, rank, world_size)
        for batch in update.batches
    ]
    most = max(batch.cells for batch in everything)
    assert largest[0].cells == max(batch.cells for batch in largest) == most


@pytest.mark.parametrize("batch_tokens", [200, 1000])
def test_the_largest_batches_of_all_processes_are_of_one_update(epoch, batch_tokens):
    largest = [epoch.largest(batch_tokens, rank, 3) for rank in range(3)]
    (number,) = (number for number, rows in enumerate(epoch.plan) if largest[0].sentences[0] in rows)
    for rank, batch in enumerate(largest):
        update = next(epoch.updates(number, batch_tokens, rank, 3))
        assert batch.sentences.tolist() in [each.sentences.tolist() for each in update.batches]
        assert batch.cells == max(each.cells for each in update.batches)
        assert batch.tokens and batch.target_tokens


def test_among_batches_of_equal_size_the_one_with_the_longest_sentence_is_the_largest():
    for plan in ([[0, 1], [2]], [[2], [0, 1]]):
        batch = epoch_of([5, 5, 10], [5, 5, 10], plan).largest(20, 0, 1)
        assert batch.cells == 20 and batch.sentences.tolist() == [2]


def test_the_largest_batch_of_a_process_without_a_sentence_is_a_whole_one():
    batch = epoch_of([4, 6], [5, 2], [[0], [1]]).largest(100, 1, 2)
    assert batch.sentences.tolist() == [0] and batch.cells == 9 and batch.target_tokens == 5


def test_in_a_long_plan_some_updates_and_the_one_with_the_longest_pair_are_searched(epoch, monkeypatch):
    monkeypatch.setattr(batching, "SEARCHED_UPDATES", 5)
    plan = epoch.plan
    longest = next(number for number, rows in enumerate(plan) if int((SOURCE + TARGET).argmax()) in rows)
    searched = [*range(0, len(plan), -(-len(plan) // 5)), longest]
    assert len(searched) <= 6 < len(plan)
    updates = list(epoch.updates(0, 400, 0, 1))
    cells = [max(batch.cells for batch in updates[number].batches) for number in searched]
    chosen = epoch.largest(400, 0, 1)
    assert chosen.cells == max(cells)
    assert any(chosen.sentences[0] in plan[number] for number in searched)
    monkeypatch.setattr(batching, "SEARCHED_UPDATES", 1)
    assert epoch_of([5, 7, 6], [5, 9, 4], [[0], [1], [2]]).largest(100, 0, 1).sentences.tolist() == [1]


def test_a_batch_by_hand():
    sources = [np.array([7, 8]), np.array([9])]
    batch = collate(sources, [np.array([], dtype=np.int32), np.array([5, 6, 7])], np.array([11, 4]))
    assert batch.source.tolist() == [[7, 8, 3], [9, 3, 0]]
    assert batch.target_in.tolist() == [[2, 0, 0, 0], [2, 5, 6, 7]]
    assert batch.target_out.tolist() == [[3, 0, 0, 0], [5, 6, 7, 3]]
    assert batch.target_tokens == 5 and batch.non_padding.tolist() == [0, 4, 5, 6, 7]
    assert batch.sentences.tolist() == [11, 4] and batch.tokens == 10 and batch.cells == 14
    assert batch.to(torch.device("cpu")) is batch


def test_both_sides_must_have_the_same_number_of_sentences():
    with pytest.raises(ValueError):
        collate([np.array([7])], [np.array([7]), np.array([8])], np.arange(2))


def test_stored_16_bit_ids_do_not_overflow():
    assert pad([np.array([65535], dtype=np.uint16)]).tolist() == [[65535, 3]]
