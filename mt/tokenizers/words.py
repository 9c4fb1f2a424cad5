"""Word tokenization with Moses rules (sacremoses) and a vocabulary of frequent words (torchtext 0.6)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import final

import numpy as np

from mt.config.schema import TokenizerConfig, TokenizerKind
from mt.errors import UserError, explain_os_errors, first_line
from mt.tokenizers.special_ids import SPECIALS, UNK, UNKNOWN_TEXT
from mt.tokenizers.tokenizer import Tokenizer, one_line


@final
class WordTokenizer(Tokenizer):
    """Moses tokenization of one language, without escaping; `words` is the vocabulary, special ids first."""

    kind = TokenizerKind.word

    def __init__(self, words: Sequence[str], language: str) -> None:
        from sacremoses import MosesDetokenizer, MosesTokenizer

        assert tuple(words[: len(SPECIALS)]) == SPECIALS
        self.size = len(words)
        self.words = list(words)
        # Without the special tokens, so that text cannot produce them
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
        (folder / _file_name(side)).write_bytes("".join(f"{word}\n" for word in self.words).encode())

    @classmethod
    def load(cls, folder: Path, side: str, language: str) -> "WordTokenizer":
        """Read the file that `save` wrote, without torchtext. Raises UserError if it is missing or invalid."""
        path = folder / _file_name(side)
        with explain_os_errors(f"cannot read {path}"):
            content = path.read_bytes()
        words: list[str] = []
        with suppress(UnicodeDecodeError):
            words = content.decode().removesuffix("\n").split("\n")
        if tuple(words[: len(SPECIALS)]) != SPECIALS or len(set(words)) != len(words):
            raise UserError(f"{path} is not a vocabulary of mt (one word per line, {' '.join(SPECIALS)} first)")
        return cls(words, language)

    def _text(self, ids: list[int]) -> str:
        words = [UNKNOWN_TEXT if i == UNK else self.words[i] for i in ids]
        try:
            return self._detokenizer.detokenize(words, unescape=False)
        except TypeError:
            # sacremoses fails on a Czech word with an apostrophe before "- li": use language-neutral rules
            return self._plain_detokenizer.detokenize(words, unescape=False)


def _file_name(side: str) -> str:
    return f"tokenizer.{side}.vocab.txt" if side else "tokenizer.vocab.txt"


def train_words(
    lines: Sequence[Iterable[str]], config: TokenizerConfig, languages: tuple[str, str], log: Callable[[str], None]
) -> list[WordTokenizer]:
    """Train the source and target tokenizers, with one vocabulary for both if `config.joint`."""
    counts = []
    for side, language in zip(lines, languages, strict=True):
        splitter = WordTokenizer(SPECIALS, language)
        counts.append(Counter(word for line in side for word in splitter.split(line)))
    if config.joint:
        vocabularies = [_vocabulary(counts[0] + counts[1], "joint", config, log)] * 2
    else:
        vocabularies = [_vocabulary(*each, config, log) for each in zip(counts, ("source", "target"), strict=True)]
    return [WordTokenizer(*each) for each in zip(vocabularies, languages, strict=True)]


def _vocabulary(counts: Counter[str], side: str, config: TokenizerConfig, log: Callable[[str], None]) -> list[str]:
    try:
        from torchtext.vocab import Vocab

        most, least = config.vocab_size - len(SPECIALS), config.min_frequency
        words = list(Vocab(counts, max_size=most, min_freq=least, specials=list(SPECIALS)).itos)
    except (ImportError, OSError, RuntimeError, AttributeError, TypeError) as error:
        why = first_line(error)
        raise UserError(f"tokenizer.kind=word needs torchtext 0.6.0 ({why}): pip install torchtext==0.6.0") from None
    if len(words) == len(SPECIALS):
        raise UserError(f"no {side} word occurs {config.min_frequency} times: lower tokenizer.min_frequency")
    known = sum(counts[word] for word in words[len(SPECIALS) :]) / counts.total()
    log(f"tokenizer: the {side} vocabulary has {len(words)} words, which cover {known:.2%} of the text")
    return words
