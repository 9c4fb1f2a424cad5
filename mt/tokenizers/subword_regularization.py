"""Subword regularization: random segmentations with the pieces and scores of a SentencePiece model.

SentencePiece (0.2.3) mixes a process number into the seed, so that a resumed run would see other data; this does not.
"""

import itertools
import math
import re
import zlib
from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from mt.tokenizers.special_ids import UNK

VARIANTS = 32  # random segmentations per word, determined by its spelling; each occurrence uses one
_REMEMBERED = 1 << 19
_WORD = re.compile("▁*[^▁]+|▁+")


@final
class SubwordSampler:
    """Unigram sampling (Kudo 2018) or BPE-dropout (Provilkov et al. 2020), word by word, as the model was trained."""

    def __init__(self, processor: Any) -> None:
        size = processor.get_piece_size()
        names = [processor.id_to_piece(i) for i in range(size)]
        scores = [processor.get_score(i) for i in range(size)]
        special = processor.is_control, processor.is_unknown, processor.is_byte, processor.is_unused
        plain = [i for i in range(size) if not any(is_kind(i) for is_kind in special)]
        self._is_bpe = False
        try:
            processor.nbest_encode("a", nbest_size=2, out_type=int)
        except RuntimeError:  # only unigram models have n-best lists; the API does not expose the type
            self._is_bpe = True
        # Besides user-defined symbols, only the first BPE merge has score 0 (the second has -1)
        first_merge = next((i for i in plain if self._is_bpe and scores[i : i + 2] == [0, -1]), None)
        symbols = sorted((names[i] for i in plain if scores[i] == 0 and i != first_merge), key=len, reverse=True)
        self._symbols = re.compile(f"({'|'.join(map(re.escape, symbols)) or '(?!)'})")
        self._ids = {names[i]: i for i in plain}
        self._scores = {names[i]: scores[i] for i in plain}
        self._longest = max(map(len, self._ids), default=1)
        self._unknown_score = min(self._scores.values(), default=0.0) - 10.0
        self._bytes = [i for i in range(size) if processor.is_byte(i)]
        self._lattices: dict[tuple[str, float], list[tuple[list[int], list[float]]]] = {}
        self._drawn: dict[tuple[str, float, int], tuple[int, ...]] = {}

    def sample(self, lines: Sequence[str], alpha: float, seed: int) -> list[np.ndarray]:
        """One int32 array of ids per line of normalized text, where blanks are ▁; alpha is in (0, 1)."""
        if not 0 < alpha < 1:
            raise ValueError(f"alpha={alpha} must be between 0 and 1")
        rows = []
        for line in lines:
            words: list[str] = []
            for i, part in enumerate(self._symbols.split(line)):
                words += [part] if i % 2 else _WORD.findall(part)  # every second part is a symbol
            rows.append(words)
        variants = iter(np.random.default_rng(seed).integers(VARIANTS, size=sum(map(len, rows))).tolist())
        drawn = self._drawn
        result = []
        for words in rows:
            ids: list[int] = []
            for word in words:
                key = (word, alpha, next(variants))
                found = drawn.get(key)
                if found is None:
                    if len(drawn) >= _REMEMBERED:
                        drawn.clear()
                    found = drawn[key] = self._draw(*key)
                ids.extend(found)
            result.append(np.array(ids, dtype=np.int32))
        return result

    def _draw(self, word: str, alpha: float, variant: int) -> tuple[int, ...]:
        if self._symbols.fullmatch(word):
            return (self._ids[word],)
        draw = self._draw_bpe if self._is_bpe else self._draw_unigram
        pieces = draw(word, alpha, _uniforms(zlib.crc32(word.encode()) * VARIANTS + variant))
        ids: list[int] = []
        for piece in pieces:
            if piece in self._ids:
                ids.append(self._ids[piece])
            elif self._bytes:
                ids.extend(self._bytes[byte] for byte in piece.encode())
            elif not ids or ids[-1] != UNK:
                # Adjacent unknown characters are one unknown token, as in SentencePiece
                ids.append(UNK)
        return tuple(ids)

    def _draw_unigram(self, word: str, alpha: float, uniforms: Iterator[float]) -> list[str]:
        lattice = self._lattices.get((word, alpha))
        if lattice is None:
            if len(self._lattices) >= _REMEMBERED // 8:
                self._lattices.clear()
            lattice = self._lattices[word, alpha] = self._lattice(word, alpha)
        pieces: list[str] = []
        end = len(word)
        while end:
            starts, cumulative = lattice[end]
            # Because of rounding, the last cumulative probability may be less than 1
            start = starts[min(bisect(cumulative, next(uniforms)), len(starts) - 1)]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _lattice(self, word: str, alpha: float) -> list[tuple[list[int], list[float]]]:
        """For each end of a piece, its possible starts and their cumulative probabilities, given alpha."""
        scores = self._scores
        totals = [0.0]
        lattice: list[tuple[list[int], list[float]]] = [([], [])]
        for end in range(1, len(word) + 1):
            starts = [s for s in range(max(0, end - self._longest), end) if word[s:end] in scores]
            weights = [totals[s] + alpha * scores[word[s:end]] for s in starts]
            if word[end - 1] not in scores:
                starts.append(end - 1)
                weights.append(totals[end - 1] + alpha * self._unknown_score)
            top = max(weights)
            shares = [math.exp(weight - top) for weight in weights]
            total = sum(shares)
            totals.append(top + math.log(total))
            lattice.append((starts, [share / total for share in itertools.accumulate(shares)]))
        return lattice

    def _draw_bpe(self, word: str, dropout: float, uniforms: Iterator[float]) -> list[str]:
        """Merge the best pair first, but skip a pair with probability `dropout` until a neighbor has changed."""
        nothing = -math.inf
        scores = self._scores
        pieces = list(word)
        merges = [scores.get(a + b, nothing) for a, b in itertools.pairwise(pieces)]
        while merges:
            best = max(merges)
            if best == nothing:
                break
            at = merges.index(best)
            if next(uniforms) < dropout:
                merges[at] = nothing
                continue
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
            del merges[at]
            for pair in (at - 1, at):
                if 0 <= pair < len(merges):
                    merges[pair] = scores.get(pieces[pair] + pieces[pair + 1], nothing)
        return pieces


def _uniforms(state: int) -> Iterator[float]:
    """Random numbers in [0, 1) from a generator that is cheap to seed (SplitMix64: Steele, Lea and Flood 2014)."""
    mask = (1 << 64) - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        mixed = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & mask
        yield ((mixed ^ mixed >> 31) >> 11) / (1 << 53)
