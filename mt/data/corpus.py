"""Token ids on disk: one flat array and its offsets per side, memory-mapped, written as a stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ids:
    """Sentences of token ids without special tokens. Sentence i is ids[offsets[i]:offsets[i + 1]]."""

    ids: NDArray[np.integer]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, sentence: int) -> NDArray[np.integer]:
        return self.ids[self.offsets[sentence] : self.offsets[sentence + 1]]

    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sentence, the end-of-sentence token counted."""
        return np.diff(self.offsets) + 1

    @classmethod
    def from_sentences(cls, sentences: Sequence[NDArray[np.integer]]) -> "Ids":
        """In memory."""
        offsets = np.zeros(len(sentences) + 1, dtype=np.int64)
        np.cumsum([len(sentence) for sentence in sentences], out=offsets[1:])
        flat = np.concatenate(sentences) if sentences else np.zeros(0, dtype=np.int32)
        return cls(flat, offsets)

    @classmethod
    def load(cls, folder: Path, side: str) -> "Ids":
        """Memory-mapped: opening reads nothing but the headers."""
        ids = np.load(folder / f"{side}.ids.npy", mmap_mode="r")
        return cls(ids, np.load(folder / f"{side}.offsets.npy", mmap_mode="r"))


class IdsWriter:
    """Writes an `Ids` block by block; memory does not grow with the corpus but for 8 bytes a sentence."""

    def __init__(self, folder: Path, side: str, vocabulary_size: int) -> None:
        self.dtype = np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.uint32)
        self._folder, self._side = folder, side
        self._lengths: list[NDArray[np.int64]] = []
        self._stream: IO[bytes] = (folder / f"{side}.ids.npy").open("wb")
        self._write_header(0)

    def append(self, ids: NDArray[np.integer], lengths: NDArray[np.int64]) -> None:
        """Add sentences at the end, given one after the other, and how long each is."""
        self._stream.write(ids.astype(self.dtype).tobytes())
        self._lengths.append(lengths)

    def __enter__(self) -> "IdsWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lengths = np.concatenate([np.zeros(1, dtype=np.int64), *self._lengths])
        offsets = np.cumsum(lengths)
        with self._stream:
            self._stream.seek(0)
            self._write_header(int(offsets[-1]))
        np.save(self._folder / f"{self._side}.offsets.npy", offsets)

    def _write_header(self, size: int) -> None:
        # numpy pads the header so that a longer array's fits in the same place
        description = {"descr": self.dtype.str, "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(self._stream, description)
