"""The data module: from configured files to a prepared corpus on disk, and from there to an epoch's batches."""

import hashlib
import json
import os
import shutil
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt.config import DataConfig, PrepareJob, TokenizerConfig
from mt.data.batching import Indices, cut_batches, plan_epoch
from mt.data.cleaning import CleaningReport, clean, non_nfc
from mt.data.collate import Batch, collate
from mt.data.corpus import Ids, IdsWriter
from mt.data.sources import Sources, locate
from mt.data.text import Bitext, count_pairs, read_pairs
from mt.data.tokenizer import UNK, Tokenizer, Tokenizers, round_trip, unknown_share
from mt.data.tokenizer_training import train_tokenizers
from mt.errors import UserError
from mt.jobs import walk

Log = Callable[[str], None]

FORMAT = 3
BLOCK = 8192  # lines tokenized at a time
HELD_OUT = 1000  # development pairs taken from the training pairs where there are none, at most a twentieth
_TEXT = "{split}.{side}.txt"
_ORIGINS = "origins.npy"
_SIDES = ("source", "target")


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
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        dev = [list(_own_lines(folder / _TEXT.format(split="dev", side=side))) for side in _SIDES]
        ids = [Ids.load(folder, side) for side in _SIDES]
        origins = np.load(folder / _ORIGINS, mmap_mode="r")
        return cls(
            folder, Tokenizers.load(folder), ids[0], ids[1], dev[0], dev[1], meta["cleaning"], origins, meta["parts"]
        )

    def where(self, sentence: int) -> str:
        """File and line that a training pair comes from."""
        part, line = self.origins[sentence]
        return f"{self.parts[part]}, line {line}"

    def epoch(self, sampling: float, seed: int, number: int) -> "Epoch":
        """The training ids of an epoch: those on disk, or subwords drawn anew from (seed, number)."""
        if not sampling:
            return Epoch.of(self.source, self.target)
        return Epoch.of(*(self._draw(side, sampling, seed, number) for side in _SIDES))

    def _draw(self, side: str, sampling: float, seed: int, epoch: int) -> Ids:
        stored: Ids = getattr(self, side)
        tokenizer: Tokenizer = getattr(self.tokenizers, side)
        longest = int(stored.lengths().max())
        drawn: list[NDArray[np.integer]] = []
        for start in range(0, len(stored), BLOCK):
            block = [stored[i] for i in range(start, min(start + BLOCK, len(stored)))]
            block_seed = np.random.SeedSequence([seed, epoch, _SIDES.index(side), start]).generate_state(1)[0]
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
        """The update whose batches need most memory: the largest batch, the longest sentences among equals."""
        starts = np.cumsum([0, *(len(update) for update in plan[:-1])])
        order = np.concatenate(plan)
        sides = self.source_lengths[order], self.target_lengths[order]
        longest = np.maximum.reduceat(sides[0], starts) + np.maximum.reduceat(sides[1], starts)
        rows = -(-np.array([len(update) for update in plan]) // world_size)
        return plan[int(np.lexsort((longest, np.minimum(rows * longest, batch_tokens)))[-1])]


def prepare(
    sources: Sources,
    data: DataConfig,
    tokenizer: TokenizerConfig,
    seed: int,
    log: Log,
    tokenizers_from: Path | None = None,
) -> Prepared:
    """The prepared corpus of a configuration: found by the hash of its texts and options, or made.

    Written under a temporary name and renamed, so that it is whole or not there. Raises UserError for bad files.
    With a checkpoint folder in `tokenizers_from`, its tokenizers are used and none are trained.
    """
    texts = {"train": _hash_files(_paths(sources.train)), "dev": _hash_files(_paths(sources.dev))}
    folder = (
        Path(data.prepared_dir)
        / f"{data.corpus.value}-{data.source}-{data.target}-{_key(data, tokenizer, seed, texts, tokenizers_from)}"
    )
    if (folder / "meta.json").exists():
        log(f"prepared corpus: {folder}")
        for line in json.loads((folder / "meta.json").read_text(encoding="utf-8"))["log"]:
            log(line)
        return Prepared.load(folder)
    log(f"preparing the corpus into {folder}")
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        temporary.mkdir(parents=True)
        _write(sources, data, tokenizer, seed, temporary, log, tokenizers_from)
        temporary.rename(folder)
    except OSError as error:
        if not (folder / "meta.json").exists():  # else another process was faster, with the same result
            raise UserError(f"cannot write the prepared corpus {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Prepared.load(folder)


def prepare_command(job: PrepareJob) -> None:
    """`mt prepare`: make the prepared corpus and say where it is."""
    import sys

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    sources = locate(job.data, log)
    prepared = prepare(sources, job.data, job.tokenizer, job.seed, log)
    _ = sources.tests  # so that a machine without a network can train and score
    print(prepared.folder)


def _key(
    data: DataConfig, tokenizer: TokenizerConfig, seed: int, texts: dict[str, list[str]], tokenizers_from: Path | None
) -> str:
    places = {"raw_dir", "prepared_dir", "train", "dev", "test"}  # the texts' hashes stand for them
    options: dict[str, Any] = {name: value for name, _, value in walk(data) if name not in places}
    options |= {f"tokenizer.{name}": value for name, _, value in walk(tokenizer)}
    if tokenizer.model:
        options["tokenizer.model"] = _hash_files([Path(tokenizer.model)])
    if tokenizers_from:
        options["tokenizers"] = _hash_files(sorted(tokenizers_from.glob("tokenizer.*")))
    plain = {name: value.value if isinstance(value, Enum) else value for name, value in options.items()}
    text = json.dumps({"format": FORMAT, "texts": texts, "seed": seed, **plain}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _paths(split: Sequence[Bitext]) -> list[Path]:
    return [path for part in split for path in (part.source_path, part.target_path) if path]


def _hash_files(paths: Sequence[Path]) -> list[str]:
    hashes = []
    for path in paths:
        try:
            with path.open("rb") as stream:
                hashes.append(hashlib.file_digest(stream, "sha256").hexdigest())
        except OSError as error:
            raise UserError(f"cannot read {path.absolute()}: {error.strerror or error}") from error
    return hashes


def _write(
    sources: Sources,
    data: DataConfig,
    tokenizer: TokenizerConfig,
    seed: int,
    folder: Path,
    log: Log,
    tokenizers_from: Path | None,
) -> None:
    report = CleaningReport()
    held_out, origins = _write_texts(sources, data, folder, report)
    train = [folder / _TEXT.format(split="train", side=side) for side in _SIDES]
    if tokenizers_from:
        tokenizers = Tokenizers.load(tokenizers_from)
    else:
        texts = [partial(_own_lines, path) for path in train]
        tokenizers = train_tokenizers(texts[0], texts[1], tokenizer, data.source, data.target, seed, log)
    tokenizers.save(folder)
    kept = _write_ids(tokenizers, data, folder, report)
    np.save(folder / _ORIGINS, origins[kept])
    report.check_kept(held_out)
    lines = report.lines() + _dev_remarks(tokenizers, folder)
    for line in lines:
        log(line)
    parts = [part.name for part in sources.train]
    meta = {"format": FORMAT, "cleaning": report.as_dict(), "log": lines, "parts": parts}
    (folder / "meta.json").write_text(json.dumps(meta, indent=1, ensure_ascii=False), encoding="utf-8")


def _dev_remarks(tokenizers: Tokenizers, folder: Path) -> list[str]:
    """How well the tokenizers do on text that they have not seen."""
    remarks = []
    for side in _SIDES:
        lines = list(_own_lines(folder / _TEXT.format(split="dev", side=side)))
        units = getattr(tokenizers, side)
        remarks.append(
            f"dev {side}: {len(lines)} lines, {round_trip(units, lines):.2%} come back whole from the tokenizer,"
            f" {unknown_share(units, lines):.2%} unknown tokens"
        )
        if side == "target" and (odd := non_nfc(lines)):
            remarks.append(
                f"warning: {odd} dev references are not in Unicode's NFC form: they may cost score invisibly"
            )
    return remarks


def _write_texts(
    sources: Sources, data: DataConfig, folder: Path, report: CleaningReport
) -> tuple[int, NDArray[np.int64]]:
    """Cleaned training text and the development text, a sentence a line.

    Gives the number of training pairs held out, and part and line of each other one: [pairs, 2].
    """
    total = count_pairs(sources.train, data.invalid_utf8)
    if not sources.hold_out_dev and not count_pairs(sources.dev):
        raise UserError("the development set has no lines: give another data.dev, or none to hold a part of train out")
    every = max(20, -(-total // HELD_OUT))  # spread over the corpus, whose order is often by origin
    names = {
        (split, side): folder / _TEXT.format(split=split, side=side) for split in ("train", "dev") for side in _SIDES
    }
    streams = {key: path.open("w", encoding="utf-8", newline="\n") for key, path in names.items()}

    def write(split: str, pair: tuple[str, str]) -> None:
        for side, text in zip(_SIDES, pair, strict=True):
            streams[split, side].write(text + "\n")

    held_out = 0
    origins = array("q")
    numbers = {part: number for number, part in enumerate(sources.train)}
    try:
        for number, pair in enumerate(clean(read_pairs(sources.train, data.invalid_utf8, report), data, report)):
            chosen = sources.hold_out_dev and number % every == 0
            write("dev" if chosen else "train", pair)
            held_out += chosen
            if not chosen:
                origins.extend((numbers[pair.part], pair.line))
        for pair in read_pairs(sources.dev):
            write("dev", pair)
    finally:
        for stream in streams.values():
            stream.close()
    return held_out, np.frombuffer(origins, dtype=np.int64).reshape(-1, 2)


def _write_ids(tokenizers: Tokenizers, data: DataConfig, folder: Path, report: CleaningReport) -> NDArray[np.bool_]:
    """Training ids of the pairs within the limits, in place of the training text; which pairs these are."""
    texts = [folder / _TEXT.format(split="train", side=side) for side in _SIDES]
    writers = [IdsWriter(folder, side, getattr(tokenizers, side).size) for side in _SIDES]
    kept: list[NDArray[np.bool_]] = []
    with writers[0] as source_writer, writers[1] as target_writer:
        for sources, targets in zip(*(_blocks(_own_lines(text)) for text in texts), strict=True):
            source_ids, target_ids = tokenizers.source.encode(sources), tokenizers.target.encode(targets)
            fits = []
            for row, (source, target) in enumerate(zip(source_ids, target_ids, strict=True)):
                reason = _too_long(len(source), len(target), data)
                if reason:
                    report.drop(reason, "after tokenization", sources[row], targets[row])
                fits.append(not reason)
            source_writer.append(compress(source_ids, fits))
            target_writer.append(compress(target_ids, fits))
            kept.append(np.array(fits))
    for text in texts:
        text.unlink()
    return np.concatenate(kept)


def _too_long(source: int, target: int, data: DataConfig) -> str | None:
    if not source or not target:
        return "no tokens on one side"
    if max(source, target) > data.max_tokens:
        return f"more than {data.max_tokens} tokens on one side"
    if max(source, target) > data.max_ratio * min(source, target):
        return f"one side more than {data.max_ratio:g} times as many tokens as the other"
    return None


def _own_lines(path: Path) -> Iterator[str]:
    """Lines as `_write_texts` wrote them: nothing in them is taken for an end, a mark or markup any more."""
    with path.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            yield line.removesuffix("\n")


def _blocks(lines: Iterator[str]) -> Iterator[list[str]]:
    while block := list(islice(lines, BLOCK)):
        yield block
