"""Word tokenizers: small vocabularies, and Moses tokenization."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from tokenizers_support import CONFIG, WORDS, same, train

from mt.errors import UserError
from mt.tokenizers.special_ids import BOS, EOS, PAD, UNK
from mt.tokenizers.words import WordTokenizer


def test_word_vocabulary_by_hand():
    config = replace(WORDS, joint=False, vocab_size=7)
    source = ["Don't stop, don't!", "stop it , it <unk> it"]
    made = train(config, source=source, target=["Ja ja ja"])
    # Sorted by frequency, then code point: "it" occurs 4 times; "'t", "," and "stop" twice, with room for two of them
    assert made.source.words == ["<pad>", "<unk>", "<s>", "</s>", "it", "'t", ","]
    assert made.target.words == ["<pad>", "<unk>", "<s>", "</s>", "ja"]
    assert made.source.encode(["it <unk> , \u2028it"])[0].tolist() == [4, UNK, UNK, UNK, 6, 4]
    assert made.source.decode([BOS, 4, 6, UNK, EOS]) == "it, ⁇"
    joint = train(replace(config, joint=True), source=["x y"], target=["x z", "z z"])
    assert joint.source.words == joint.target.words == ["<pad>", "<unk>", "<s>", "</s>", "z", "x"]
    assert same(joint.source.encode(["x z"]), joint.target.encode(["x z"]))


def test_words_are_moses_without_escapes_and_come_back():
    lines = ["A \"big\" dog & cat's [toy], isn't it?", "5,300 p.m. <b> | x;", "A </s> B"]
    made = train(replace(WORDS, min_frequency=1), source=lines, target=lines).source
    assert made.split("isn't [x] & y.") == ["isn", "'t", "[", "x", "]", "&", "y", "."]
    assert not {PAD, UNK, BOS, EOS} & {int(i) for row in made.encode(lines) for i in row}
    assert made.decode(made.encode(["A big dog, isn't it?"])[0]) == "A big dog, isn't it?"
    assert made.encode([""])[0].dtype == np.int32 and made.decode([]) == ""
    with pytest.raises(ValueError, match="no subwords"):
        made.sample(lines, 0.1, 1)
    with pytest.raises(ValueError, match="outside"):
        made.decode([made.size])


def test_czech_apostrophe_before_a_dash_is_detokenized():
    czech = WordTokenizer(["<pad>", "<unk>", "<s>", "</s>", "a'", "-", "li", "x"], "cs")
    assert czech.decode([7, 4, 5, 6]) == "x a' - li"


def test_without_torchtext_the_word_tokenizer_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchtext.vocab", None)
    with pytest.raises(UserError, match=r"pip install torchtext==0\.6\.0") as error:
        train(WORDS)
    assert "\n" not in str(error.value)
    assert train(CONFIG).source.size == 400


def test_words_all_too_rare_are_an_error():
    with pytest.raises(UserError, match="min_frequency"):
        train(WORDS, source=["a b"], target=["c d"])
