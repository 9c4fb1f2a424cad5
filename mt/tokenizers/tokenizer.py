"""Text to token ids and back: the interface of both kinds of tokenizers, and the pair of a translation model."""

import abc
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mt.config.schema import TokenizerKind
from mt.errors import UserError, explain_os_errors
from mt.tokenizers.special_ids import BOS, EOS, PAD, UNK

META = "tokenizer.json"
SIDES = ("source", "target")
# NUL and everything that Python takes for the end of a line. SentencePiece's own rules delete some of these, which
# would join two words; and byte pieces can spell them, which would split a translation into two lines.
_BREAKS = re.compile("[\x00\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def one_line(text: str) -> str:
    """The text with NUL and every kind of line separator replaced by a blank."""
    return _BREAKS.sub(" ", text)


class Tokenizer(abc.ABC):
    """Turns lines of one language into ids and back. Ids 0 to 3 are PAD, UNK, BOS and EOS."""

    kind: TokenizerKind
    size: int  # the number of ids, which is the number of rows of an embedding

    @abc.abstractmethod
    def encode(self, lines: Sequence[str]) -> list[np.ndarray]:
        """An int32 array of ids per line, without BOS and EOS; always the same ids for the same line."""

    @abc.abstractmethod
    def sample(self, lines: Sequence[str], alpha: float, seed: int) -> list[np.ndarray]:
        """Like `encode`, with randomly drawn subwords; a pure function of its arguments, in any process."""

    @abc.abstractmethod
    def normalize(self, line: str) -> str:
        """The line as the tokenizer sees it, which a lossless round trip gives back."""

    @abc.abstractmethod
    def units(self) -> list[str]:
        """The text of each id, all different."""

    @abc.abstractmethod
    def save(self, folder: Path, side: str) -> None:
        """Write the file of this side ("source", "target", or "" for both) into an existing folder."""

    @abc.abstractmethod
    def _text(self, ids: list[int]) -> str:
        """The detokenized text of ids that are all in the vocabulary."""

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Detokenized text, always one line: PAD, BOS and EOS give nothing, UNK gives `UNKNOWN_TEXT`.

        Raises ValueError for an id outside the vocabulary.
        """
        plain = [int(i) for i in ids]
        if outside := [i for i in plain if not 0 <= i < self.size]:
            raise ValueError(f"token id {outside[0]} is outside the vocabulary of {self.size}")
        return one_line(self._text([i for i in plain if i not in (PAD, BOS, EOS)]))


@dataclass(frozen=True)
class Tokenizers:
    """Both sides' tokenizers. `joint`: one vocabulary (with SentencePiece, one object)."""

    source: Tokenizer
    target: Tokenizer
    joint: bool
    source_language: str = ""
    target_language: str = ""

    def save(self, folder: Path) -> None:
        """Write all files of both tokenizers into an existing folder; `load` needs nothing else."""
        languages = {"source": self.source_language, "target": self.target_language}
        meta = {"kind": self.source.kind.value, "joint": self.joint, **languages}
        for side in ("",) if self.joint else SIDES:
            getattr(self, side or "source").save(folder, side)
        (folder / META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Tokenizers":
        """Read the files that `save` wrote. Raises UserError if one is missing or is something else."""
        path = folder / META
        with explain_os_errors(f"cannot read {path}"):
            content = path.read_bytes()
        try:
            meta = json.loads(content)
            kind, joint = TokenizerKind(meta["kind"]), bool(meta["joint"])
            languages = str(meta["source"]), str(meta["target"])
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{path} is not a tokenizer description of mt") from None
        sides = ("", "") if joint else SIDES
        if kind is TokenizerKind.word:
            from mt.tokenizers.words import WordTokenizer

            words = [WordTokenizer.load(folder, *each) for each in zip(sides, languages, strict=True)]
            return cls(words[0], words[1], joint, *languages)
        from mt.tokenizers.sentencepiece import SentencePieceTokenizer

        source = SentencePieceTokenizer.load(folder, sides[0])
        return cls(source, source if joint else SentencePieceTokenizer.load(folder, sides[1]), joint, *languages)


def round_trip(tokenizer: Tokenizer, lines: Sequence[str]) -> float:
    """The share of lines that come back from their ids unchanged, but for the tokenizer's own normalization."""
    pairs = zip(lines, tokenizer.encode(lines), strict=True)
    same = [tokenizer.decode(ids) == tokenizer.normalize(line) for line, ids in pairs]
    return sum(same) / len(same) if same else 1.0


def unknown_share(tokenizer: Tokenizer, lines: Sequence[str]) -> float:
    """The share of the lines' tokens that are unknown."""
    rows = tokenizer.encode(lines)
    tokens = sum(len(row) for row in rows)
    return sum(int((row == UNK).sum()) for row in rows) / tokens if tokens else 0.0
