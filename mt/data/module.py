"""The data module: a prepared corpus on disk, and from there an epoch's updates and batches."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt.data.batching import Indices, cut_batches, plan_epoch
from mt.data.collate import Batch, collate
from mt.data.corpus import Ids
from mt.data.encoding import BLOCK
from mt.data.tokenizer import UNK, Tokenizer, Tokenizers

LOOKED_AT = 1000
TEXT = "{split}.{side}.txt"
ORIGINS = "origins.npy"
META = "meta.json"
SIDES = ("source", "target")


@dataclass(frozen=True)
class Prepared:
    """A tokenized corpus. Development text is kept as text: it is decoded and scored as such."""

    folder: Path
    tokenizers: Tokenizers
    source: Ids
    target: Ids
    dev_source: list[str]
    dev_target: list[str]
    cleaning: dict[str, Any]  # the report of it
    origins: NDArray[np.int64]  # [pairs, 2]: the part of the training text and the line in it, from 1
    parts: list[str]  # the training text's files

    @classmethod
    def load(cls, folder: Path) -> "Prepared":
        """Open a prepared corpus."""
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        dev = [list(own_lines(folder / TEXT.format(split="dev", side=side))) for side in SIDES]
        ids = [Ids.load(folder, side) for side in SIDES]
        origins = np.load(folder / ORIGINS, mmap_mode="r")
        return cls(
            folder, Tokenizers.load(folder), ids[0], ids[1], dev[0], dev[1], meta["cleaning"], origins, meta["parts"]
        )

    def where(self, sentence: int) -> str:
        """File and line that a training pair comes from."""
        part, line = self.origins[sentence]
        return f"{self.parts[part]}, line {line}"

    def epoch(self, sampling: float, seed: int, number: int, between: Callable[[], None] = lambda: None) -> "Epoch":
        """The training ids of an epoch: those on disk, or subwords drawn anew from (seed, number).

        Drawing takes long; `between` is called every few seconds and may raise.
        """
        if not sampling:
            return Epoch.of(self.source, self.target)
        return Epoch.of(*(self._draw(side, sampling, seed, number, between) for side in SIDES))

    def _draw(self, side: str, sampling: float, seed: int, epoch: int, between: Callable[[], None]) -> Ids:
        stored: Ids = getattr(self, side)
        tokenizer: Tokenizer = getattr(self.tokenizers, side)
        longest = int(stored.lengths().max())
        drawn: list[NDArray[np.integer]] = []
        for start in range(0, len(stored), BLOCK):
            between()
            block = [stored[i] for i in range(start, min(start + BLOCK, len(stored)))]
            block_seed = np.random.SeedSequence([seed, epoch, SIDES.index(side), start]).generate_state(1)[0]
            sampled = tokenizer.sample([tokenizer.decode(ids) for ids in block], sampling, int(block_seed))
            # a drawing longer than every stored sentence could break the limits that those passed
            # and what an unknown token stood for is not known any more
            drawn += [
                new if len(new) < longest and UNK not in old else old for new, old in zip(sampled, block, strict=True)
            ]
        return Ids.from_sentences(drawn)


@dataclass(frozen=True)
class Epoch:
    """The training sentences as one epoch sees them. Lengths count the end-of-sentence token."""

    source: Ids
    target: Ids
    source_lengths: NDArray[np.int64]
    target_lengths: NDArray[np.int64]

    @classmethod
    def of(cls, source: Ids, target: Ids) -> "Epoch":
        """Of two sides' ids."""
        return cls(source, target, source.lengths(), target.lengths())

    def plan(self, seed: int, number: int, update_tokens: int) -> list[Indices]:
        """The sentences of each update, see `mt.data.batching`."""
        return plan_epoch(self.source_lengths, self.target_lengths, seed, number, update_tokens)

    def target_tokens(self, update: Indices) -> int:
        """Real target tokens of an update over all processes."""
        return int(self.target_lengths[update].sum())

    def share(self, update: Indices, batch_tokens: int, rank: int, world_size: int) -> list[Indices]:
        """One process's share of an update, cut into batches; none where there are fewer sentences than processes."""
        return cut_batches(update, self.source_lengths, self.target_lengths, batch_tokens, rank, world_size)

    def batch(self, rows: Indices) -> Batch:
        """The sentences, padded."""
        return collate([self.source[i] for i in rows], [self.target[i] for i in rows])

    def size(self, rows: Indices) -> tuple[int, int]:
        """Real and padded tokens of the sentences as one batch, source and target together."""
        source, target = self.source_lengths[rows], self.target_lengths[rows]
        return int(source.sum() + target.sum()), len(rows) * int(source.max() + target.max())

    def largest_update(self, plan: list[Indices], batch_tokens: int, world_size: int) -> Indices:
        """The update with the batch that needs most memory: most cells, the longest sentences among equals.

        Looked for in up to LOOKED_AT updates, spread over the plan, and in the one with the longest pair.
        """
        together = self.source_lengths + self.target_lengths
        longest = max(plan, key=lambda update: together[update].max())

        def need(update: Indices) -> tuple[int, int]:
            shares = self.share(update, batch_tokens, 0, world_size)  # rank 0 has the longest sentences
            return max((self.size(rows)[1], int(together[rows].max())) for rows in shares)

        return max([*plan[:: -(-len(plan) // LOOKED_AT)], longest], key=need)


def own_lines(path: Path) -> Iterator[str]:
    """Lines of a prepared corpus's text: nothing in them is taken for an end, a mark or markup any more."""
    with path.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            yield line.removesuffix("\n")
