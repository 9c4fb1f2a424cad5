"""Subword tokenization with a SentencePiece model."""

from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np
import sentencepiece

from mt.config.schema import TokenizerKind
from mt.errors import UserError, explain_os_errors
from mt.tokenizers.special_ids import BOS, EOS, PAD, SPECIALS, UNK, UNKNOWN_TEXT
from mt.tokenizers.subword_regularization import SubwordSampler
from mt.tokenizers.tokenizer import Tokenizer, one_line

# Fixed, because a trained unigram model depends on it (each thread sums separately); encoding does not
THREADS = 4
SPM_FLAGS = "spm_train --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3"


@final
class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model (unigram or BPE), given as the content of its file.

    Text is normalized by the model's own rules (ours: nmt_nfkc), after NUL and line breaks become spaces. Raises
    UserError, which mentions `name`, if the content is not a model or its special ids differ from ours.
    """

    kind = TokenizerKind.sentencepiece

    def __init__(self, model: bytes, name: str) -> None:
        self._model = model
        try:
            # Empty content would silently give a processor without a model
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model or b"\xff")
        except (RuntimeError, ValueError):  # its message may not be text
            raise UserError(f"{name} is not a SentencePiece model") from None
        spm = self._processor
        ids = dict(zip(SPECIALS, (spm.pad_id(), spm.unk_id(), spm.bos_id(), spm.eos_id()), strict=True))
        if missing := [piece for piece, i in ids.items() if i < 0]:
            raise UserError(f"{name} has no {' and no '.join(missing)}: train it with {SPM_FLAGS}")
        if [*ids.values()] != [PAD, UNK, BOS, EOS]:
            found = ", ".join(f"{piece}={i}" for piece, i in ids.items())
            raise UserError(f"{name} has special ids other than 0 to 3 ({found}): train it with {SPM_FLAGS}")
        self.size = spm.get_piece_size()
        # Most other models decode an unknown token this way, adding spaces to the sentence
        self._shows_blanks = self._processor.decode([UNK]) == " ⁇ "
        self._sampler: SubwordSampler | None = None

    @classmethod
    def load(cls, folder: Path, side: str) -> "SentencePieceTokenizer":
        """Read the file that `save` wrote. Raises UserError if it is missing or invalid."""
        return load_model(folder / _file_name(side))

    def encode(self, lines: Sequence[str]) -> list[np.ndarray]:
        rows = self._processor.encode([one_line(line) for line in lines], out_type=int, num_threads=THREADS)
        return [np.array(row, dtype=np.int32) for row in rows]

    def sample(self, lines: Sequence[str], alpha: float, seed: int) -> list[np.ndarray]:
        """Subwords drawn with smoothing alpha (unigram) or dropout rate alpha (BPE), in (0, 1)."""
        if self._sampler is None:
            self._sampler = SubwordSampler(self._processor)
        return self._sampler.sample(self._processor.normalize([one_line(x) for x in lines]), alpha, seed)

    def normalize(self, line: str) -> str:
        return self._processor.normalize(one_line(line)).replace("▁", " ").removeprefix(" ")

    def units(self) -> list[str]:
        # Other models may have other names for their special pieces
        return [*SPECIALS, *(self._processor.id_to_piece(i) for i in range(len(SPECIALS), self.size))]

    def save(self, folder: Path, side: str) -> None:
        (folder / _file_name(side)).write_bytes(self._model)

    def _text(self, ids: list[int]) -> str:
        text = self._processor.decode(ids)
        return text.replace(" ⁇ ", UNKNOWN_TEXT) if self._shows_blanks else text


def _file_name(side: str) -> str:
    return f"tokenizer.{side}.model" if side else "tokenizer.model"


def load_model(path: Path) -> SentencePieceTokenizer:
    """Read a SentencePiece model file. Raises UserError if it is missing or invalid, or has other special ids."""
    with explain_os_errors(f"cannot read {path}"):
        return SentencePieceTokenizer(path.read_bytes(), str(path))
