"""A prepared corpus: its ids on disk, its epochs and its development set."""

from dataclasses import replace

import numpy as np
import pytest
from data_support import TOKENIZER, run, texts
from tests_support import toy_pairs, write_pairs

from mt.config.schema import SubwordType, TokenizerConfig, TokenizerKind
from mt.data import corpus
from mt.data.batching import Ids, plan_epoch
from mt.data.corpus import DevelopmentSet, IdsWriter, PreparedCorpus, load_ids
from mt.tokenizers.special_ids import EOS


@pytest.mark.parametrize("kind", list(SubwordType))
def test_sampled_epochs_repeat_differ_and_keep_the_text(config, kind):
    tokenizer = replace(TOKENIZER, sampling=0.2, type=kind)
    prepared, _ = run(config, tokenizer)
    one, again, two = (prepared.epoch(number, 1, 500, 0.2) for number in (1, 1, 2))
    assert np.array_equal(one.source.ids, again.source.ids)
    assert not np.array_equal(one.source.ids, two.source.ids)
    for side in ("source", "target"):
        drawn, stored = getattr(two, side), getattr(prepared, side)
        tokenizer_of_side = getattr(prepared.tokenizers, side)
        assert [tokenizer_of_side.decode(drawn[i]) for i in range(100)] == texts(prepared, side)
        assert drawn.lengths().max() <= stored.lengths().max()
    plain = prepared.epoch(1, 1, 500, 0.0)
    assert plain.source is prepared.source


def test_drawing_an_epoch_can_be_given_up(config, monkeypatch):
    prepared, _ = run(config)
    monkeypatch.setattr(corpus, "BLOCK", 30)
    called = []
    prepared.epoch(1, 1, 500, 0.2, lambda: called.append(1))
    assert len(called) == 8  # two sides of 100 sentences, in blocks of 30
    with pytest.raises(ZeroDivisionError):
        prepared.epoch(1, 1, 500, 0.2, lambda: 1 // 0)


def test_a_sampled_epoch_keeps_unknown_characters_unknown(config, tmp_path):
    pairs = toy_pairs(100)
    write_pairs(tmp_path, "train", [*pairs, (pairs[0][0] + " ☃", pairs[0][1] + " ☃")])
    tokenizer = replace(TOKENIZER, sampling=0.3, byte_fallback=False, vocab_size=60, character_coverage=0.99)
    prepared, _ = run(config, tokenizer)
    drawn = prepared.epoch(1, 1, 500, 0.3)
    assert 1 in prepared.source[100] and drawn.source[100].tolist() == prepared.source[100].tolist()


def test_a_corpus_of_words(config):
    prepared, _ = run(config, TokenizerConfig(kind=TokenizerKind.word, joint=False))
    assert texts(prepared, "target") == [target for _, target in toy_pairs(120)[:100]]
    assert PreparedCorpus.load(prepared.folder).tokenizers.source.size == prepared.tokenizers.source.size


def test_ids_are_written_as_a_stream_and_a_large_vocabulary_takes_32_bits(tmp_path):
    sentences = [np.array([70000, 4]), np.array([], dtype=np.int64), np.array([5])]
    with IdsWriter(tmp_path, "source", 70001) as writer:
        for block in (sentences[:1], sentences[1:]):
            writer.append(np.concatenate(block), np.array([len(ids) for ids in block]))
    loaded = load_ids(tmp_path, "source")
    assert loaded.ids.dtype == np.uint32
    assert [loaded[i].tolist() for i in range(3)] == [[70000, 4], [], [5]]
    assert loaded.lengths().tolist() == [3, 1, 2]
    memory = Ids.of(sentences)
    assert [memory[i].tolist() for i in range(3)] == [[70000, 4], [], [5]]


def test_the_plan_of_an_epoch_is_that_of_its_number_seed_and_update_tokens(config):
    prepared, _ = run(config)
    lengths = prepared.source.lengths(), prepared.target.lengths()
    plans = []
    for number, seed, update_tokens in ((1, 1, 200), (2, 1, 200), (1, 2, 200), (1, 1, 100)):
        epoch = prepared.epoch(number, seed, update_tokens, sampling=0.0)
        plans.append([rows.tolist() for rows in epoch.plan])
        assert plans[-1] == [rows.tolist() for rows in plan_epoch(*lengths, seed, number, update_tokens)]
        assert sorted(np.concatenate(epoch.plan)) == list(range(100)) and len(epoch) == len(epoch.plan)
    assert len(set(map(str, plans))) == 4


def test_the_plan_of_a_sampled_epoch_is_that_of_the_drawn_lengths(config):
    prepared, _ = run(config, replace(TOKENIZER, sampling=0.2))
    epoch = prepared.epoch(1, 1, 200, 0.2)
    expected = plan_epoch(epoch.source.lengths(), epoch.target.lengths(), 1, 1, 200)
    assert [rows.tolist() for rows in epoch.plan] == [rows.tolist() for rows in expected]
    assert max(int(epoch.target.lengths()[rows].sum()) for rows in epoch.plan) <= 200


def test_development_batches_hold_every_sentence_cut_where_it_is_too_long():
    sides = [[np.arange(4, 4 + length) for length in lengths] for lengths in ((3, 12, 1, 5, 0), (4, 2, 9, 5, 1))]
    batches = DevelopmentSet(["a"] * 5, ["b"] * 5, *sides).batches(batch_tokens=4, longest=6)
    assert sorted(int(i) for batch in batches for i in batch.sentences) == list(range(5))
    assert max(batch.cells for batch in batches) <= 6 + 6  # the longest cut pair, though it exceeds batch_tokens
    for batch in batches:
        for row, sentence in enumerate(batch.sentences):
            source, target = (side[sentence][:6].tolist() for side in sides)
            assert batch.source[row].tolist()[: len(source) + 1] == [*source, EOS]
            assert batch.target_out[row].tolist()[: len(target) + 1] == [*target, EOS]
    assert len(DevelopmentSet(["a"] * 5, ["b"] * 5, *sides).batches(batch_tokens=1000, longest=6)) == 1
