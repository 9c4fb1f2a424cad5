"""Text to token ids and back: SentencePiece units here, Moses words in `mt.data.words`, one interface."""

import abc
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from mt.config import TokenizerKind
from mt.errors import UserError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN_TEXT = "⁇"
"""What the text shows for an unknown id, with no blanks around it but those of the sentence."""

# Fixed, because a trained unigram model depends on it (sums are taken thread by thread); encoding does not.
THREADS = 4
META = "tokenizer.json"
SPM_FLAGS = "spm_train --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3"

# NUL and all that Python takes for an end of line. SentencePiece's own rules delete some of these, which
# would glue two words together; and byte pieces can spell them, which would cut a translation in two lines.
_BREAKS = re.compile("[\x00\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def one_line(text: str) -> str:
    """The text with NUL and every kind of line separator replaced by a blank."""
    return _BREAKS.sub(" ", text)


class Tokenizer(abc.ABC):
    """Turns lines of ONE language side into ids and back. Ids 0 to 3 are PAD, UNK, BOS, EOS."""

    size: int
    """Number of ids: the rows of an embedding."""

    @abc.abstractmethod
    def encode(self, lines: Sequence[str]) -> list[np.ndarray]:
        """One int32 array of ids per line, without BOS and EOS; always the same ids for the same line."""

    @abc.abstractmethod
    def sample(self, lines: Sequence[str], alpha: float, seed: int) -> list[np.ndarray]:
        """Like `encode`, with randomly drawn subwords; a pure function of its arguments, in any process."""

    @abc.abstractmethod
    def normalize(self, line: str) -> str:
        """The line as the tokenizer sees it: what a lossless round trip gives back."""

    @abc.abstractmethod
    def units(self) -> list[str]:
        """What each id stands for, all different."""

    @abc.abstractmethod
    def save(self, folder: Path, side: str) -> None:
        """Write the file of this side ("source", "target", or "" for both) into an existing folder."""

    @abc.abstractmethod
    def _text(self, ids: list[int]) -> str:
        """Detokenized text of ids that are all in the vocabulary."""

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Detokenized text, always one line: PAD, BOS and EOS give nothing, UNK gives `UNKNOWN_TEXT`.

        Raises ValueError for an id outside the vocabulary.
        """
        plain = [int(i) for i in ids]
        outside = [i for i in plain if not 0 <= i < self.size]
        if outside:
            raise ValueError(f"token id {outside[0]} is outside the vocabulary of {self.size}")
        return one_line(self._text([i for i in plain if i not in (PAD, BOS, EOS)]))


@final
class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model (unigram or BPE), given as the bytes of its file.

    Text is normalized by the model's own rules (ours: nmt_nfkc), after NUL and line separators became blanks.
    Raises UserError, with `name` in it, where the bytes are no model or its special ids are not ours.
    """

    def __init__(self, model: bytes, name: str) -> None:
        import sentencepiece

        self._model = model
        try:
            # no bytes at all would silently give a processor without a model
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model or b"\xff")
        except (RuntimeError, ValueError):  # its own message may be no text
            raise UserError(f"{name} is not a SentencePiece model") from None
        self._check_special_ids(name)
        self.size = self._processor.get_piece_size()
        # models made elsewhere usually show an unknown as this, with blanks that the sentence does not have
        self._shows_blanks = self._processor.decode([UNK]) == " ⁇ "
        self._sampler: Any = None

    def _check_special_ids(self, name: str) -> None:
        model = self._processor
        ids = [model.pad_id(), model.unk_id(), model.bos_id(), model.eos_id()]
        missing = [piece for piece, i in zip(SPECIALS, ids, strict=True) if i < 0]
        if missing:
            raise UserError(f"{name} has no {' and no '.join(missing)}: train it with {SPM_FLAGS}")
        if ids != [PAD, UNK, BOS, EOS]:
            found = ", ".join(f"{piece}={i}" for piece, i in zip(SPECIALS, ids, strict=True))
            raise UserError(f"{name} has other special ids than 0 to 3 ({found}): train it with {SPM_FLAGS}")

    def encode(self, lines: Sequence[str]) -> list[np.ndarray]:
        rows = self._processor.encode([one_line(line) for line in lines], out_type=int, num_threads=THREADS)
        return [np.array(row, dtype=np.int32) for row in rows]

    def sample(self, lines: Sequence[str], alpha: float, seed: int) -> list[np.ndarray]:
        """Subwords drawn by `mt.data.sampling`: smoothing alpha (unigram) or dropout rate (BPE) in (0, 1)."""
        if self._sampler is None:
            from mt.data.sampling import SubwordSampler

            self._sampler = SubwordSampler(self._processor)
        return self._sampler.sample(self._processor.normalize([one_line(x) for x in lines]), alpha, seed)

    def normalize(self, line: str) -> str:
        return self._processor.normalize(one_line(line)).replace("▁", " ").removeprefix(" ")

    def units(self) -> list[str]:
        # a model made elsewhere may name its special pieces otherwise
        return [*SPECIALS, *(self._processor.id_to_piece(i) for i in range(len(SPECIALS), self.size))]

    def save(self, folder: Path, side: str) -> None:
        (folder / model_name(side)).write_bytes(self._model)

    def _text(self, ids: list[int]) -> str:
        text = self._processor.decode(ids)
        return text.replace(" ⁇ ", UNKNOWN_TEXT) if self._shows_blanks else text


@dataclass(frozen=True)
class Tokenizers:
    """Both sides' tokenizers. `joint`: one vocabulary (SentencePiece: source and target are one object)."""

    source: Tokenizer
    target: Tokenizer
    joint: bool
    source_language: str = ""
    target_language: str = ""

    def save(self, folder: Path) -> None:
        """Write all files of both tokenizers into an existing folder; `load` needs nothing else."""
        word = not isinstance(self.source, SentencePieceTokenizer)
        meta = {
            "kind": (TokenizerKind.word if word else TokenizerKind.sentencepiece).value,
            "joint": self.joint,
            "source": self.source_language,
            "target": self.target_language,
        }
        if self.joint:
            self.source.save(folder, "")
        else:
            self.source.save(folder, "source")
            self.target.save(folder, "target")
        (folder / META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Tokenizers":
        """Read what `save` wrote. Raises UserError where a file is missing or is something else."""
        path = folder / META
        try:
            meta = json.loads(_read(path))
            kind, joint = TokenizerKind(meta["kind"]), bool(meta["joint"])
            languages = str(meta["source"]), str(meta["target"])
        except (KeyError, TypeError, UnicodeDecodeError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{path} is not a tokenizer description of mt") from None
        sides = ("", "") if joint else ("source", "target")
        source: Tokenizer
        target: Tokenizer
        if kind is TokenizerKind.word:
            from mt.data.words import WordTokenizer

            source, target = (
                WordTokenizer.load(folder, side, language) for side, language in zip(sides, languages, strict=True)
            )
        else:
            source = load_model(folder / model_name(sides[0]))
            target = source if joint else load_model(folder / model_name(sides[1]))
        return cls(source, target, joint, *languages)


def model_name(side: str) -> str:
    """File name of a side's SentencePiece model."""
    return f"tokenizer.{side}.model" if side else "tokenizer.model"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def load_model(path: Path) -> SentencePieceTokenizer:
    """A SentencePiece model file. Raises UserError where it is missing, foreign or has other special ids."""
    return SentencePieceTokenizer(_read(path), str(path))


def round_trip(tokenizer: Tokenizer, lines: Sequence[str]) -> float:
    """Share of lines that come back from ids as they were after the tokenizer's own normalization."""
    same = [
        tokenizer.decode(ids) == tokenizer.normalize(line)
        for line, ids in zip(lines, tokenizer.encode(lines), strict=True)
    ]
    return sum(same) / len(same) if same else 1.0


def unknown_share(tokenizer: Tokenizer, lines: Sequence[str]) -> float:
    """Share of the lines' tokens that are unknown."""
    rows = tokenizer.encode(lines)
    tokens = sum(len(row) for row in rows)
    return sum(int((row == UNK).sum()) for row in rows) / tokens if tokens else 0.0
