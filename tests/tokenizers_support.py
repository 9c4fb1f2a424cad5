"""Helpers for tests of tokenizers: a made-up language and its tokenizers."""

import random

import numpy as np

from mt.config.schema import TokenizerConfig, TokenizerKind
from mt.tokenizers.pair import Tokenizers
from mt.tokenizers.training import train_tokenizers

LETTERS = "abcdefghijklmnoprstuvwzäöü"


def made_up(count: int, seed: int) -> list[str]:
    """Lines of eight words, drawn from 150 made-up words."""
    generator = random.Random(seed)
    words = ["".join(generator.choices(LETTERS, k=generator.randint(2, 9))) for _ in range(150)]
    return [" ".join(generator.choices(words, k=8)) for _ in range(count)]


SOURCE, TARGET = made_up(300, 1), made_up(307, 2)
CONFIG = TokenizerConfig(vocab_size=400)
WORDS = TokenizerConfig(kind=TokenizerKind.word, vocab_size=100, min_frequency=2)


def train(config: TokenizerConfig, source=SOURCE, target=TARGET, seed=1, log=None) -> Tokenizers:
    """Train tokenizers, by default on the made-up lines."""
    lines = [lambda: iter(source), lambda: iter(target)]
    return train_tokenizers(lines, config, ("en", "de"), seed, log or (lambda line: None))


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
