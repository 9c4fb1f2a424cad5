"""The classic baseline: Moses words (sacremoses) with a vocabulary of the frequent ones (torchtext 0.6)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import final

import numpy as np

from mt.config import TokenizerConfig
from mt.data.tokenizer import SPECIALS, UNK, UNKNOWN_TEXT, Tokenizer, one_line
from mt.errors import UserError


@final
class WordTokenizer(Tokenizer):
    """Moses tokenization of one language without escaping; `words` are the vocabulary, specials first."""

    def __init__(self, words: Sequence[str], language: str) -> None:
        from sacremoses import MosesDetokenizer, MosesTokenizer

        assert tuple(words[: len(SPECIALS)]) == SPECIALS
        self.size = len(words)
        self.words = list(words)
        self._language = language
        # the specials are left out, so that no text can spell them
        self._ids = {word: i for i, word in enumerate(words) if i >= len(SPECIALS)}
        self._tokenizer = MosesTokenizer(lang=language)
        self._detokenizer = MosesDetokenizer(lang=language)
        self._plain_detokenizer = MosesDetokenizer(lang="")

    def split(self, line: str) -> list[str]:
        """The line's Moses tokens."""
        return self._tokenizer.tokenize(one_line(line), aggressive_dash_splits=False, escape=False)

    def encode(self, lines: Sequence[str]) -> list[np.ndarray]:
        return [np.array([self._ids.get(w, UNK) for w in self.split(x)], dtype=np.int32) for x in lines]

    def sample(self, lines: Sequence[str], alpha: float, seed: int) -> list[np.ndarray]:
        raise ValueError("words have no subwords to sample: tokenizer.sampling needs a sentencepiece tokenizer")

    def normalize(self, line: str) -> str:
        return " ".join(one_line(line).split())

    def units(self) -> list[str]:
        return list(self.words)

    def save(self, folder: Path, side: str) -> None:
        (folder / vocabulary_name(side)).write_bytes("".join(f"{word}\n" for word in self.words).encode())

    @classmethod
    def load(cls, folder: Path, side: str, language: str) -> "WordTokenizer":
        """Read what `save` wrote, without torchtext. Raises UserError where a file is missing or foreign."""
        path = folder / vocabulary_name(side)
        try:
            words = path.read_bytes().decode().removesuffix("\n").split("\n")
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            words = []
        if tuple(words[: len(SPECIALS)]) != SPECIALS or len(set(words)) != len(words):
            raise UserError(f"{path} is not a vocabulary of mt (a word a line, {' '.join(SPECIALS)} first)")
        return cls(words, language)

    def _text(self, ids: list[int]) -> str:
        words = [UNKNOWN_TEXT if i == UNK else self.words[i] for i in ids]
        try:
            return self._detokenizer.detokenize(words, unescape=False)
        except TypeError:
            # sacremoses fails on a Czech word with an apostrophe before "- li": rules of no language then
            return self._plain_detokenizer.detokenize(words, unescape=False)


def vocabulary_name(side: str) -> str:
    """File name of a side's vocabulary."""
    return f"tokenizer.{side}.vocab.txt" if side else "tokenizer.vocab.txt"


def train_words(
    source_lines: Iterable[str],
    target_lines: Iterable[str],
    config: TokenizerConfig,
    source_language: str,
    target_language: str,
    log: Callable[[str], None],
) -> tuple[WordTokenizer, WordTokenizer]:
    """The source and target tokenizers: two vocabularies, or with `config.joint` one over both sides."""
    source = _count(source_lines, source_language)
    target = _count(target_lines, target_language)
    if config.joint:
        vocabularies = [_vocabulary(source + target, "joint", config, log)] * 2
    else:
        vocabularies = [
            _vocabulary(counts, side, config, log) for side, counts in (("source", source), ("target", target))
        ]
    return WordTokenizer(vocabularies[0], source_language), WordTokenizer(vocabularies[1], target_language)


def _count(lines: Iterable[str], language: str) -> Counter[str]:
    splitter = WordTokenizer(SPECIALS, language)
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(splitter.split(line))
    return counts


def _vocabulary(counts: Counter[str], side: str, config: TokenizerConfig, log: Callable[[str], None]) -> list[str]:
    try:
        from torchtext.vocab import Vocab

        vocabulary = Vocab(
            counts,
            max_size=config.vocab_size - len(SPECIALS),
            min_freq=config.min_frequency,
            specials=list(SPECIALS),
        )
        words = list(vocabulary.itos)
    except (ImportError, OSError, RuntimeError, AttributeError, TypeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"tokenizer.kind=word needs torchtext 0.6.0 ({reason}): pip install torchtext==0.6.0") from None
    if len(words) == len(SPECIALS):
        raise UserError(f"the {side} text has no word {config.min_frequency} times: lower tokenizer.min_frequency")
    known = sum(counts[word] for word in words[len(SPECIALS) :]) / counts.total()
    log(f"tokenizer: the {side} vocabulary has {len(words)} words, {known:.2%} of the text")
    return words
