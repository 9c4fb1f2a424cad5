"""Encoding training text: in one process or several, without the pairs that are held out."""

import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from data_support import run, texts
from tests_support import toy_pairs, write_pairs

from mt.config.schema import DataConfig
from mt.data import encoding
from mt.data.encoding import Encoder


def test_a_block_keeps_the_order_and_says_what_was_dropped(toy_tokenizers):
    pairs = [*toy_pairs(2), ("a", "das " * 30), ("the cat", "das Katze"), ("", "x"), ("a dog", "ein Hund")]
    block = Encoder(toy_tokenizers, DataConfig(max_tokens=200), frozenset({("the cat", "das Katze")})).encode(pairs)
    assert block.kept.tolist() == [True, True, False, False, False, True]
    assert block.dropped == [
        ("one side has more than 9 times as many tokens as the other", *pairs[2]),
        ("the same as a pair held out for development", *pairs[3]),
        ("no tokens on one side", *pairs[4]),
    ]
    for column, side in enumerate(("source", "target")):
        kept = getattr(toy_tokenizers, side).encode([pairs[i][column] for i in (0, 1, 5)])
        assert np.array_equal(getattr(block, side), np.concatenate(kept))
        assert getattr(block, f"{side}_lengths").tolist() == [len(ids) for ids in kept]


def test_a_block_of_which_nothing_is_kept_is_empty(toy_tokenizers):
    block = Encoder(toy_tokenizers, DataConfig(), frozenset()).encode([("", "x"), ("x", "")])
    assert len(block.source) == len(block.target) == len(block.source_lengths) == len(block.target_lengths) == 0
    assert block.kept.tolist() == [False, False] and len(block.dropped) == 2


def test_many_pairs_are_encoded_by_several_processes_to_the_same_ids(config, monkeypatch):
    one = run(replace(config, max_tokens=8))[0]
    monkeypatch.setattr(encoding, "MANY_PAIRS", 1)
    monkeypatch.setattr(encoding, "BLOCK", 7)
    monkeypatch.setattr(encoding, "usable_cores", lambda: 2)
    shutil.copytree(one.folder, one.folder.with_name("kept"))
    shutil.rmtree(one.folder)
    many = run(replace(config, max_tokens=8))[0]
    assert many.cleaning == one.cleaning and many.cleaning["dropped"]
    for file in ("source.ids.npy", "target.ids.npy", "source.offsets.npy", "target.offsets.npy", "origins.npy"):
        assert (many.folder / file).read_bytes() == (one.folder.with_name("kept") / file).read_bytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pair_held_out_for_development_is_not_trained_on_where_it_comes_again(config, tmp_path, monkeypatch, workers):
    monkeypatch.setattr(encoding, "MANY_PAIRS", 10 if workers == 2 else 10**6)
    monkeypatch.setattr(encoding, "usable_cores", lambda: workers)
    pairs = list(dict.fromkeys(toy_pairs(120)))
    whole = [*pairs, *pairs[::-1]]
    write_pairs(tmp_path, "train", whole)
    prepared, lines = run(replace(config, dev=[]))
    dev = set(zip(prepared.dev.sources, prepared.dev.references, strict=True))
    kept = list(zip(texts(prepared, "source"), texts(prepared, "target"), strict=True))
    assert dev and kept == [pair for pair in whole if pair not in dev]
    dropped = len(whole) - len(prepared.dev.sources) - len(kept)
    assert dropped > 0 and any(f"{dropped} pairs dropped: the same as a pair held out" in line for line in lines)
    numbers = [int(prepared.where(row).rsplit(" ", 1)[1]) for row in range(len(kept))]
    assert [whole[number - 1] for number in numbers] == kept and numbers == sorted(numbers)


def test_the_worker_processes_need_no_torch():
    """Workers import only this module; torch would cost each of them a second and a few hundred megabytes."""
    code = "import sys, mt.data.encoding; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
