"""The interface of tokenizers, which turn text into token ids and back."""

import abc
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mt.config.schema import TokenizerKind
from mt.tokenizers.special_ids import BOS, EOS, PAD, UNK

# NUL, and all characters that Python treats as line breaks. SentencePiece's own rules delete some of them, which would
# join two words; byte pieces can produce them, which would split a translation into two lines.
_BREAKS = re.compile("[\x00\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def one_line(text: str) -> str:
    """The text with NUL and all kinds of line breaks replaced by spaces."""
    return _BREAKS.sub(" ", text)


class Tokenizer(abc.ABC):
    """Turns lines of one language into ids and back. Ids 0 to 3 are PAD, UNK, BOS and EOS."""

    kind: TokenizerKind
    size: int  # vocabulary size, including special ids

    @abc.abstractmethod
    def encode(self, lines: Sequence[str]) -> list[np.ndarray]:
        """An int32 array of ids per line, without BOS and EOS; the same line always has the same ids."""

    @abc.abstractmethod
    def sample(self, lines: Sequence[str], alpha: float, seed: int) -> list[np.ndarray]:
        """Like `encode`, but with randomly drawn subwords; a pure function of its arguments, in any process."""

    @abc.abstractmethod
    def normalize(self, line: str) -> str:
        """The normalized line, which a lossless round trip reproduces."""

    @abc.abstractmethod
    def units(self) -> list[str]:
        """The token of each id; all are distinct."""

    @abc.abstractmethod
    def save(self, folder: Path, side: str) -> None:
        """Write the file of this side ("source", "target", or "" for both) into an existing folder."""

    @abc.abstractmethod
    def _text(self, ids: list[int]) -> str:
        """The detokenized text of ids that are all in the vocabulary."""

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """One line of text, without PAD, BOS and EOS; UNK becomes `UNKNOWN_TEXT`. Raises ValueError for invalid ids."""
        plain = [int(i) for i in ids]
        if outside := [i for i in plain if not 0 <= i < self.size]:
            raise ValueError(f"token id {outside[0]} is outside the vocabulary of {self.size}")
        return one_line(self._text([i for i in plain if i not in (PAD, BOS, EOS)]))


def round_trip(tokenizer: Tokenizer, lines: Sequence[str]) -> float:
    """The fraction of lines that a round trip reproduces, up to normalization."""
    pairs = zip(lines, tokenizer.encode(lines), strict=True)
    same = [tokenizer.decode(ids) == tokenizer.normalize(line) for line, ids in pairs]
    return sum(same) / len(same) if same else 1.0


def unknown_share(tokenizer: Tokenizer, lines: Sequence[str]) -> float:
    """The fraction of tokens that are unknown."""
    rows = tokenizer.encode(lines)
    tokens = sum(len(row) for row in rows)
    return sum(int((row == UNK).sum()) for row in rows) / tokens if tokens else 0.0
