"""A prepared corpus on disk: token ids of the training text, memory-mapped, and the development text."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mt.data.batching import Batch, Epoch, IdArray, Ids, plan_epoch
from mt.data.encoding import BLOCK
from mt.tokenizers.pair import SIDES, Tokenizers
from mt.tokenizers.special_ids import UNK
from mt.tokenizers.tokenizer import Tokenizer

META, ORIGINS, TEXT = "meta.json", "origins.npy", "{split}.{side}.txt"
IDS, OFFSETS = "{side}.ids.npy", "{side}.offsets.npy"


@dataclass(frozen=True)
class DevelopmentSet:
    """The development set as text, for BLEU, and as ids, for the loss."""

    sources: list[str]
    references: list[str]
    source_ids: list[IdArray]
    reference_ids: list[IdArray]

    def batches(self, batch_tokens: int, longest: int) -> list[Batch]:
        """All sentences in batches, truncated to `longest` tokens. Pairs that exceed `batch_tokens` are kept."""
        source, target = (Ids.of([ids[:longest] for ids in side]) for side in (self.source_ids, self.reference_ids))
        limit = max(batch_tokens, int((source.lengths() + target.lengths()).max()))
        (update,) = Epoch(source, target, [np.arange(len(source))]).updates(0, limit, rank=0, world_size=1)
        return update.batches


@dataclass(frozen=True)
class PreparedCorpus:
    """A tokenized corpus."""

    folder: Path
    tokenizers: Tokenizers
    source: Ids
    target: Ids
    dev: DevelopmentSet
    cleaning: dict[str, Any]  # the report
    origins: NDArray[np.int64]  # [pairs, 2]: the part of the training text and the line in it, from 1
    parts: list[str]  # the files of the training text

    @classmethod
    def load(cls, folder: Path) -> "PreparedCorpus":
        """Open a prepared corpus."""
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        tokenizers = Tokenizers.load(folder)
        sources, references = (list(own_lines(folder / TEXT.format(split="dev", side=side))) for side in SIDES)
        encoded = tokenizers.source.encode(sources), tokenizers.target.encode(references)
        dev = DevelopmentSet(sources, references, *encoded)
        source, target = (load_ids(folder, side) for side in SIDES)
        origins = np.load(folder / ORIGINS, mmap_mode="r")
        return cls(folder, tokenizers, source, target, dev, meta["cleaning"], origins, meta["parts"])

    def where(self, sentence: int) -> str:
        """The file and line that a training pair comes from."""
        part, line = self.origins[sentence]
        return f"{self.parts[part]}, line {line}"

    def epoch(
        self, number: int, seed: int, update_tokens: int, sampling: float, between: Callable[[], None] = lambda: None
    ) -> Epoch:
        """An epoch over stored ids or sampled subwords. Sampling is slow: `between` is called between blocks."""
        source, target = self.source, self.target
        if sampling:
            source, target = (self._draw(side, sampling, seed, number, between) for side in SIDES)
        return Epoch(source, target, plan_epoch(source.lengths(), target.lengths(), seed, number, update_tokens))

    def _draw(self, side: str, sampling: float, seed: int, epoch: int, between: Callable[[], None]) -> Ids:
        stored: Ids = getattr(self, side)
        tokenizer: Tokenizer = getattr(self.tokenizers, side)
        longest = int(stored.lengths().max())
        drawn: list[IdArray] = []
        for start in range(0, len(stored), BLOCK):
            between()
            block = [stored[i] for i in range(start, min(start + BLOCK, len(stored)))]
            block_seed = np.random.SeedSequence([seed, epoch, SIDES.index(side), start]).generate_state(1)[0]
            sampled = tokenizer.sample([tokenizer.decode(ids) for ids in block], sampling, int(block_seed))
            # Samples longer than all stored sentences could exceed the limits of batches and positions, and unknown
            # tokens have lost their text: such sentences keep their stored ids
            pairs = zip(sampled, block, strict=True)
            drawn += [new if len(new) < longest and UNK not in old else old for new, old in pairs]
        return Ids.of(drawn)


def own_lines(path: Path) -> Iterator[str]:
    """The lines of a text file in a prepared corpus. Only a line feed ends a line."""
    with path.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            yield line.removesuffix("\n")


def load_ids(folder: Path, side: str) -> Ids:
    """One side's ids, memory-mapped: only the headers are read now."""
    return Ids(*(np.load(folder / name.format(side=side), mmap_mode="r") for name in (IDS, OFFSETS)))


class IdsWriter(AbstractContextManager["IdsWriter"]):
    """Writes one side's ids block by block; memory grows by 8 bytes per sentence only."""

    def __init__(self, folder: Path, side: str, vocabulary_size: int) -> None:
        self.dtype = np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.uint32)
        self._offsets_path = folder / OFFSETS.format(side=side)
        self._lengths: list[NDArray[np.int64]] = []
        self._stream: IO[bytes] = (folder / IDS.format(side=side)).open("wb")
        self._write_header(0)

    def append(self, ids: IdArray, lengths: NDArray[np.int64]) -> None:
        """Append sentences: their ids one after the other, and the length of each."""
        self._stream.write(ids.astype(self.dtype).tobytes())
        self._lengths.append(lengths)

    def __exit__(self, *error: object) -> None:
        offsets = np.cumsum(np.concatenate([np.zeros(1, dtype=np.int64), *self._lengths]))
        with self._stream:
            self._stream.seek(0)
            self._write_header(int(offsets[-1]))
        np.save(self._offsets_path, offsets)

    def _write_header(self, size: int) -> None:
        description = {"descr": self.dtype.str, "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(self._stream, description)  # padded to the same length for every size
