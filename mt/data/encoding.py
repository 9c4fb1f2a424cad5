"""Encodes training text as ids, in order and with bounded memory; large texts use all cores."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator, Set
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.config.schema import DataConfig
from mt.data.cleaning import HELD_OUT, fault_in_tokens
from mt.runtime.process import end_with_parent, usable_cores
from mt.tokenizers.pair import Tokenizers

BLOCK = 8192  # sentences tokenized at a time
MANY_PAIRS = 200_000  # from this number on, worker processes pay off

Block = list[tuple[str, str]]  # (source, target)


@dataclass(frozen=True)
class Encoded:
    """The ids of a block without special ids, and the pairs that were dropped from it."""

    source: NDArray[np.int32]  # of all kept sentences, concatenated
    target: NDArray[np.int32]
    source_lengths: NDArray[np.int64]
    target_lengths: NDArray[np.int64]
    kept: NDArray[np.bool_]  # [lines]
    dropped: list[tuple[str, str, str]]  # (reason, source, target)


@dataclass(frozen=True)
class Encoder:
    """Encodes pairs of lines, and drops those that are held out or rejected for their token counts."""

    tokenizers: Tokenizers
    data: DataConfig
    held_out: Set[tuple[str, str]]

    def encode(self, block: Block) -> Encoded:
        """The ids of a block."""
        source_ids = self.tokenizers.source.encode([source for source, _ in block])
        target_ids = self.tokenizers.target.encode([target for _, target in block])
        kept, dropped = [], []
        for pair, source, target in zip(block, source_ids, target_ids, strict=True):
            reason = HELD_OUT if pair in self.held_out else fault_in_tokens(len(source), len(target), self.data)
            kept.append(not reason)
            if reason:
                dropped.append((reason, *pair))
        sides = [[ids for ids, fits in zip(side, kept, strict=True) if fits] for side in (source_ids, target_ids)]
        flat = [np.concatenate(side) if side else np.zeros(0, dtype=np.int32) for side in sides]
        lengths = [np.array([len(ids) for ids in side], dtype=np.int64) for side in sides]
        return Encoded(flat[0], flat[1], lengths[0], lengths[1], np.array(kept, dtype=np.bool_), dropped)


def encode_pairs(lines: Iterator[tuple[str, str]], pairs: int, encoder: Encoder, folder: Path) -> Iterator[Encoded]:
    """The ids of pairs of lines, a block at a time, in order. Worker processes load the tokenizers from `folder`."""
    blocks = iter(lambda: list(islice(lines, BLOCK)), [])
    if pairs < MANY_PAIRS or usable_cores() == 1:
        yield from map(encoder.encode, blocks)
        return
    context = multiprocessing.get_context("spawn")  # this process has threads, which a fork would not copy
    with ProcessPoolExecutor(usable_cores(), context, _start_worker, (folder, encoder.data, encoder.held_out)) as pool:
        waiting: deque[Future[Encoded]] = deque()
        for block in blocks:
            waiting.append(pool.submit(_encode_in_worker, block))
            if len(waiting) > 2 * usable_cores():
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


_encoder: Encoder | None = None  # of a worker process, loaded once


def _start_worker(folder: Path, data: DataConfig, held_out: Set[tuple[str, str]]) -> None:
    global _encoder
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    _encoder = Encoder(Tokenizers.load(folder), data, held_out)


def _encode_in_worker(block: Block) -> Encoded:
    assert _encoder
    return _encoder.encode(block)
