"""Sampled subwords are reproducible, keep the text, and have SentencePiece's distribution."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from tokenizers_support import SOURCE, same


def digest(rows: list[np.ndarray]) -> str:
    return hashlib.sha256(b"|".join(row.tobytes() for row in rows)).hexdigest()


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sampling_repeats_keeps_the_text_and_leaves_encode_alone(kind, request):
    tokenizer = request.getfixturevalue(kind)
    lines = [*SOURCE[:100], "", "ab ☃☃ <2de> cd"]
    before = tokenizer.encode(lines)
    drawn = tokenizer.sample(lines, 0.2, 7)
    assert same(drawn, tokenizer.sample(lines, 0.2, 7))
    assert not same(drawn, tokenizer.sample(lines, 0.2, 8))
    assert not same(drawn, before)
    assert same(before, tokenizer.encode(lines))
    assert [tokenizer.decode(row) for row in drawn] == [tokenizer.normalize(line) for line in lines]
    with pytest.raises(ValueError, match="alpha=0"):
        tokenizer.sample(lines, 0, 7)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sampling_repeats_in_another_process(kind, request, tmp_path):
    tokenizer = request.getfixturevalue(kind)
    tokenizer.save(tmp_path, "")
    program = (
        "import sys, pathlib, hashlib; from mt.tokenizers.sentencepiece import load_model;"
        "rows = load_model(pathlib.Path(sys.argv[1])).sample(sys.argv[2:], 0.2, 7);"
        "print(hashlib.sha256(b'|'.join(r.tobytes() for r in rows)).hexdigest())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "tokenizer.model"), *SOURCE[:20]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest(tokenizer.sample(SOURCE[:20], 0.2, 7))


@pytest.mark.parametrize(("kind", "alpha"), [("unigram", 0.2), ("unigram", 0.9), ("bpe", 0.1), ("bpe", 0.5)])
def test_sampling_has_sentencepieces_distribution(kind, alpha, request):
    tokenizer = request.getfixturevalue(kind)
    counts = {"ours": np.zeros(tokenizer.size), "theirs": np.zeros(tokenizer.size)}
    for row in tokenizer.sample(SOURCE * 4, alpha, 3):
        counts["ours"] += np.bincount(row, minlength=tokenizer.size)
    theirs = tokenizer._processor.encode(
        SOURCE * 4, enable_sampling=True, nbest_size=-1, alpha=alpha, out_type=int, num_threads=1
    )
    for row in theirs:
        counts["theirs"] += np.bincount(row, minlength=tokenizer.size)
    assert counts["ours"].sum() == pytest.approx(counts["theirs"].sum(), rel=0.02)
    assert np.abs(counts["ours"] - counts["theirs"]).sum() < 0.08 * counts["theirs"].sum()
