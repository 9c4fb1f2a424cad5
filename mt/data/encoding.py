"""Training text to ids, on all cores where there is much of it, in order and with bounded memory."""

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

from mt.config import DataConfig
from mt.data.tokenizer import Tokenizers
from mt.runtime.cores import usable_cores
from mt.runtime.signals import end_with_parent

BLOCK = 8192  # lines tokenized at a time
MANY_PAIRS = 200_000  # from here on processes of their own are worth starting

Block = tuple[list[str], list[str]]


@dataclass(frozen=True)
class Encoded:
    """A block's ids without special tokens, and what was dropped of it."""

    source: NDArray[np.int32]  # of all sentences kept, one after the other
    target: NDArray[np.int32]
    source_lengths: NDArray[np.int64]
    target_lengths: NDArray[np.int64]
    kept: NDArray[np.bool_]  # [lines]
    dropped: list[tuple[str, str, str]]  # (reason, source, target)


def encode_pairs(
    sources: Iterator[str],
    targets: Iterator[str],
    pairs: int,
    tokenizers: Tokenizers,
    folder: Path,
    data: DataConfig,
    held_out: Set[tuple[str, str]] = frozenset(),
) -> Iterator[Encoded]:
    """Ids of parallel lines, a block at a time, in order. `folder` holds the tokenizers' files for other processes.

    Pairs like those in `held_out` are left out.
    """
    blocks = _blocks(sources, targets)
    if pairs < MANY_PAIRS or usable_cores() == 1:
        yield from (encode_block(tokenizers, data, block, held_out) for block in blocks)
        return
    context = multiprocessing.get_context("spawn")  # this process has threads, which a fork would not take along
    with ProcessPoolExecutor(usable_cores(), context, _start_worker, (folder, data, held_out)) as pool:
        waiting: deque[Future[Encoded]] = deque()
        for block in blocks:
            waiting.append(pool.submit(_encode_in_worker, block))
            if len(waiting) > 2 * usable_cores():
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def encode_block(
    tokenizers: Tokenizers, data: DataConfig, block: Block, held_out: Set[tuple[str, str]] = frozenset()
) -> Encoded:
    """One block's ids; pairs beyond the limits of `data`, or like those held out, are left out."""
    sources, targets = block
    source_ids, target_ids = tokenizers.source.encode(sources), tokenizers.target.encode(targets)
    kept, dropped = [], []
    for row, (source, target) in enumerate(zip(source_ids, target_ids, strict=True)):
        reason = _too_long(len(source), len(target), data)
        if (sources[row], targets[row]) in held_out:
            reason = "the same as a pair held out for development"
        kept.append(not reason)
        if reason:
            dropped.append((reason, sources[row], targets[row]))
    flat, lengths = [], []
    for side in (source_ids, target_ids):
        fitting = [ids for ids, fits in zip(side, kept, strict=True) if fits]
        flat.append(np.concatenate(fitting) if fitting else np.zeros(0, dtype=np.int32))
        lengths.append(np.array([len(ids) for ids in fitting], dtype=np.int64))
    return Encoded(flat[0], flat[1], lengths[0], lengths[1], np.array(kept, dtype=np.bool_), dropped)


def _too_long(source: int, target: int, data: DataConfig) -> str | None:
    if not source or not target:
        return "no tokens on one side"
    if max(source, target) > data.max_tokens:
        return f"more than {data.max_tokens} tokens on one side"
    if max(source, target) > data.max_ratio * min(source, target):
        return f"one side more than {data.max_ratio:g} times as many tokens as the other"
    return None


def _blocks(sources: Iterator[str], targets: Iterator[str]) -> Iterator[Block]:
    while lines := list(islice(sources, BLOCK)):
        yield lines, list(islice(targets, BLOCK))


# What a worker process works with, loaded once
_tokenizers: Tokenizers | None = None
_data: DataConfig | None = None
_held_out: Set[tuple[str, str]] = frozenset()


def _start_worker(folder: Path, data: DataConfig, held_out: Set[tuple[str, str]]) -> None:
    global _tokenizers, _data, _held_out
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    _tokenizers, _data, _held_out = Tokenizers.load(folder), data, held_out


def _encode_in_worker(block: Block) -> Encoded:
    assert _tokenizers and _data
    return encode_block(_tokenizers, _data, block, _held_out)
