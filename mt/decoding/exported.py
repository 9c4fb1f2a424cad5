"""Translates with an export through CTranslate2 (OpenNMT's C++ engine), without torch.

CTranslate2's search differs from `mt.decoding.search`: a new hypothesis fills the beam slot of a finished one, so that
the best translation may differ; and probabilities are normalized over the allowed tokens only, so that they are
slightly larger. Recorded scores come from our own search.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mt.config.schema import DecodeConfig
from mt.decoding.translation import Translation
from mt.errors import Corrupt, UserError, explain_os_errors
from mt.files import verify_hash
from mt.run_folder import EXPORT_META
from mt.runtime.process import usable_cores
from mt.tokenizers.pair import Tokenizers
from mt.tokenizers.special_ids import EOS, SPECIALS

EXPORT_FORMAT = 1
POSITIONS = 4096  # sinusoidal positions in an export; a learned table has its own


def is_export(folder: Path) -> bool:
    """Whether a folder is an exported model."""
    return (folder / EXPORT_META).exists()


class ExportedTranslator:
    """An exported model, its tokenizers and decoding options. A translation is independent of its batch."""

    def __init__(self, engine: Any, tokenizers: Tokenizers, decode: DecodeConfig, positions: int, name: str) -> None:
        """`engine` is a ctranslate2.Translator; each side has `positions` positions."""
        self.engine, self.tokenizers, self.decode = engine, tokenizers, decode
        self.positions, self.name = positions, name
        self._units = tokenizers.source.units()
        self._ids = {unit: number for number, unit in enumerate(tokenizers.target.units())}

    @classmethod
    def load(cls, folder: Path, decode: DecodeConfig, threads: int = 0) -> "ExportedTranslator":
        """Load an export; threads=0 uses all cores. Raises UserError, Corrupt."""
        try:
            meta = json.loads((folder / EXPORT_META).read_text(encoding="utf-8"))
            complete = meta["format"] == EXPORT_FORMAT and meta["positions"] > 0 and meta["weights"] and meta["hashes"]
        except (OSError, ValueError, TypeError, KeyError):
            complete = None
        if not complete:
            raise UserError(f"{folder} is not an export of this mt: make it again with mt export")
        for name, expected in meta["hashes"].items():
            verify_hash(folder / name, expected)
        with explain_os_errors(f"{folder} needs CTranslate2 (pip install ctranslate2)", others=(ImportError,)):
            import ctranslate2
        workers = threads or usable_cores()
        with explain_os_errors(f"{folder} cannot be read", Corrupt, (RuntimeError, ValueError)):
            # For short sentences, one worker per core is faster than one worker with several cores
            engine = ctranslate2.Translator(
                str(folder), device="cpu", compute_type=meta["type"], inter_threads=workers, intra_threads=1
            )
        name = f"CTranslate2 {ctranslate2.__version__}, cpu, {workers} threads, {meta['type']}"
        return cls(engine, Tokenizers.load(folder), decode, meta["positions"], name)

    def describe(self) -> str:
        """For example "CTranslate2 4.8.5, cpu, 2 threads, float32"."""
        return self.name

    def too_long(self, lines: Sequence[str]) -> int:
        """The number of lines that exceed the model's maximum length, and so are truncated."""
        return sum(len(ids) >= self.positions for ids in self.tokenizers.source.encode(lines))

    def translate_nbest(self, lines: Sequence[str]) -> list[list[Translation]]:
        """Up to decode.nbest different hypotheses of each line, best first; at least one."""
        sources = [ids[: self.positions - 1] for ids in self.tokenizers.source.encode(lines)]
        found: list[list[Translation]] = [[Translation("", 0.0, 0.0, (EOS,), False)] for _ in lines]
        groups: dict[int, list[int]] = {}  # rows by length limit, because a call takes only one
        for row, ids in enumerate(sources):
            if len(ids) and self._limit(len(ids)) > 1:
                groups.setdefault(self._limit(len(ids)), []).append(row)
        begun = {limit: self._begin(limit, [sources[row] for row in rows]) for limit, rows in groups.items()}
        for limit, rows in groups.items():
            for row, result in zip(rows, begun[limit], strict=True):
                found[row] = self._translations(result.result(), limit)
        return found

    def _limit(self, length: int) -> int:
        """The longest output of a source of this length, EOS counted."""
        return min(int(self.decode.max_length_a * length + self.decode.max_length_b), self.positions)

    def _begin(self, limit: int, sources: list[Any]) -> list[Any]:
        """Start translating; returns a future for each source."""
        decode, longest = self.decode, limit - 1
        results: list[Any] = self.engine.translate_batch(
            [[self._units[i] for i in ids] for ids in sources],
            beam_size=decode.beam_size,
            num_hypotheses=decode.nbest,
            length_penalty=decode.length_penalty,
            max_decoding_length=longest,
            min_decoding_length=min(decode.min_length, longest),
            max_input_length=0,
            suppress_sequences=[[SPECIALS[0]], [SPECIALS[1]], [SPECIALS[2]]],
            return_scores=True,
            max_batch_size=max(1, decode.batch_tokens // decode.beam_size),
            batch_type="tokens",
            asynchronous=True,
        )
        return results

    def _translations(self, result: Any, limit: int) -> list[Translation]:
        translations = []
        for units, score in zip(result.hypotheses, result.scores, strict=True):
            ids = tuple(self._ids[unit] for unit in units)
            at_limit = len(ids) + 1 >= limit  # then it was cut off, and its score excludes EOS
            length = len(ids) + (not at_limit)
            log_probability = score * length**self.decode.length_penalty
            text = self.tokenizers.target.decode(ids)
            translations.append(Translation(text, score, log_probability, (*ids, EOS), at_limit))
        return translations
