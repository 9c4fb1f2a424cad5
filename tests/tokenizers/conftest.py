"""Tokenizers that tests share and do not change."""

from dataclasses import replace

import pytest
from tokenizers_support import CONFIG, train

from mt.config.schema import SubwordType
from mt.tokenizers.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def unigram() -> Tokenizer:
    return train(replace(CONFIG, symbols=["<2de>", "<IS MAN>", 'a,"b"'])).source


@pytest.fixture(scope="session")
def bpe() -> Tokenizer:
    return train(replace(CONFIG, type=SubwordType.bpe, symbols=["<2de>"])).source


@pytest.fixture(scope="session")
def without_bytes() -> Tokenizer:
    return train(replace(CONFIG, vocab_size=150, byte_fallback=False)).source
