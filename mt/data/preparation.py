"""Cleans and tokenizes the files of a corpus into a prepared corpus on disk."""

import hashlib
import json
from array import array
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from mt.config.schema import DataConfig, InvalidText, TokenizerConfig, walk
from mt.corpora.formats import Report, Sources, count_pairs, read_pairs
from mt.data.cleaning import CleaningReport, clean, non_nfc
from mt.data.corpus import META, ORIGINS, TEXT, IdsWriter, PreparedCorpus, own_lines
from mt.data.encoding import Encoder, encode_pairs
from mt.errors import UserError, explain_os_errors
from mt.files import Unfinished, atomic_folder, atomic_write, sha256_of
from mt.tokenizers.pair import SIDES, Tokenizers
from mt.tokenizers.tokenizer import round_trip, unknown_share
from mt.tokenizers.training import train_tokenizers

FORMAT = 5  # 4 kept duplicates of held-out pairs
# Files of an unfinished corpus only, which record the finished stages
CLEANED, TOKENIZED, ALL_ORIGINS = "cleaned.json", "tokenized", "all_origins.npy"
HASHES = "hashes.json"  # in data.prepared_dir
LARGE_FILE = 2**24  # bytes
HELD_OUT_PAIRS = 1000  # training pairs held out if there are no development files; at most a twentieth


def prepare(
    sources: Sources,
    data: DataConfig,
    tokenizer: TokenizerConfig,
    seed: int,
    log: Report,
    tokenizers_from: Path | None = None,
) -> PreparedCorpus:
    """The prepared corpus of a configuration, found by the hash of its texts and settings, or created.

    If `tokenizers_from` is a checkpoint folder, its tokenizers are used and none are trained. Raises UserError for
    invalid files.
    """
    key = _key(sources, data, tokenizer, seed, tokenizers_from)
    folder = Path(data.prepared_dir) / f"{data.corpus.value}-{data.source}-{data.target}-{key}"
    if (folder / META).exists():
        log(f"prepared corpus: {folder}")
        for line in json.loads((folder / META).read_text(encoding="utf-8"))["log"]:
            log(line)
        return PreparedCorpus.load(folder)
    if folder.exists():
        raise UserError(f"{folder} is incomplete (it has no {META}): remove the folder")
    log(f"preparing the corpus into {folder}")
    with explain_os_errors(f"cannot write {folder}"), atomic_folder(folder, resume=True) as unfinished:
        _Preparation(sources, data, unfinished, log).run(tokenizer, seed, tokenizers_from)
    return PreparedCorpus.load(folder)


def _key(
    sources: Sources, data: DataConfig, tokenizer: TokenizerConfig, seed: int, tokenizers_from: Path | None
) -> str:
    texts = {}
    for split, parts in (("train", sources.train), ("dev", sources.dev)):
        paths = [path for part in parts for path in (part.source_path, part.target_path) if path]
        texts[split] = _hash_files(paths, Path(data.prepared_dir) / HASHES)
    places = {"raw_dir", "prepared_dir", "train", "dev", "test"}  # replaced by the hashes of the texts
    options: dict[str, Any] = {name: value for name, _, value in walk(data) if name not in places}
    options |= {f"tokenizer.{name}": value for name, _, value in walk(tokenizer) if name != "sampling"}
    if tokenizer.model:
        options["tokenizer.model"] = _hash_files([Path(tokenizer.model)])
    if tokenizers_from:
        options["tokenizers"] = _hash_files(sorted(tokenizers_from.glob("tokenizer.*")))
    plain = {name: value.value if isinstance(value, Enum) else value for name, value in options.items()}
    text = json.dumps({"format": FORMAT, "texts": texts, "seed": seed, **plain}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _hash_files(paths: Sequence[Path], cache: Path | None = None) -> list[str]:
    """The SHA-256 of each file. `cache` keeps those of large files until their size or times change."""
    known: dict[str, str] = {}
    with suppress(OSError, ValueError, TypeError):
        known = dict(json.loads(cache.read_text(encoding="utf-8"))) if cache else {}
    hashes, remembered = [], dict(known)
    for path in paths:
        with explain_os_errors(f"cannot read {path.absolute()}"):
            status = path.stat()
            key = f"{path.resolve()} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
            hashes.append(known.get(key) or sha256_of(path))
            if status.st_size >= LARGE_FILE:
                remembered[key] = hashes[-1]
    if cache and remembered != known:
        with suppress(OSError):
            cache.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(cache, json.dumps(remembered, indent=1))
    return hashes


@dataclass(frozen=True)
class _Preparation:
    """Creates the files of a corpus. Stages that a killed process finished are not repeated."""

    sources: Sources
    data: DataConfig
    folder: Path
    log: Report

    def run(self, tokenizer: TokenizerConfig, seed: int, tokenizers_from: Path | None) -> None:
        """Clean, tokenize and encode the text, and describe the corpus in meta.json."""
        report, held_out, origins = self._cleaned()
        report.check_kept(held_out)
        tokenizers = self._tokenizers(tokenizer, seed, tokenizers_from)
        kept = self._write_ids(tokenizers, len(origins), report)
        np.save(self.folder / ORIGINS, origins[kept])
        report.check_kept(held_out)
        remarks = report.lines() + self._dev_remarks(tokenizers)
        for line in remarks:
            self.log(line)
        for path in (*(self.folder / name for name in (CLEANED, TOKENIZED, ALL_ORIGINS)), *self._texts("train")):
            path.unlink(missing_ok=True)
        parts = [part.name for part in self.sources.train]
        meta = {"format": FORMAT, "cleaning": report.as_dict(), "log": remarks, "parts": parts}
        (self.folder / META).write_text(json.dumps(meta, indent=1), encoding="utf-8")

    def _texts(self, split: str) -> list[Path]:
        return [self.folder / TEXT.format(split=split, side=side) for side in SIDES]

    def _cleaned(self) -> tuple[CleaningReport, int, NDArray[np.int64]]:
        """Clean the text if necessary; returns the report, the number of held-out pairs, and the origins [pairs, 2]."""
        done, all_origins = self.folder / CLEANED, self.folder / ALL_ORIGINS
        files = [*self._texts("train"), *self._texts("dev"), all_origins]
        state = json.loads(done.read_text(encoding="utf-8")) if done.exists() else {}
        if state and state["sizes"] == [path.stat().st_size if path.exists() else -1 for path in files]:
            self.log("resuming with the text that was cleaned before")
        else:
            for path in (done, self.folder / TOKENIZED):
                path.unlink(missing_ok=True)
            report = CleaningReport()
            held_out, origins = self._write_texts(report)
            np.save(all_origins, origins)
            state = {"held_out": held_out, "report": report.as_dict(), "sizes": [path.stat().st_size for path in files]}
            atomic_write(done, json.dumps(state))
        return CleaningReport.from_dict(state["report"]), state["held_out"], np.load(all_origins)

    def _write_texts(self, report: CleaningReport) -> tuple[int, NDArray[np.int64]]:
        """Write the cleaned training text and the development text, one sentence per line; see `_cleaned`."""
        sources, skip = self.sources, self.data.invalid_utf8 is InvalidText.skip
        total = count_pairs(sources.train, skip)
        if not sources.hold_out_dev and not count_pairs(sources.dev):
            raise UserError("the development set is empty: correct data.dev, or omit it to hold out pairs")
        every = max(20, -(-total // HELD_OUT_PAIRS))  # spread evenly, because corpora are often ordered by origin
        held_out, origins, numbers = 0, array("q"), {part: number for number, part in enumerate(sources.train)}
        with ExitStack() as stack:

            def create(path: Path) -> TextIO:
                return stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))

            streams = {split: [create(path) for path in self._texts(split)] for split in ("train", "dev")}
            for number, pair in enumerate(clean(read_pairs(sources.train, skip), self.data, report)):
                chosen = sources.hold_out_dev and number % every == 0
                for stream, text in zip(streams["dev" if chosen else "train"], pair, strict=True):
                    stream.write(text + "\n")
                held_out += chosen
                if not chosen:
                    origins.extend((numbers[pair.part], pair.line))
            for pair in read_pairs(sources.dev):
                for stream, text in zip(streams["dev"], pair, strict=True):
                    stream.write(text + "\n")
        return held_out, np.frombuffer(origins, dtype=np.int64).reshape(-1, 2)

    def _tokenizers(self, config: TokenizerConfig, seed: int, copied_from: Path | None) -> Tokenizers:
        """Copy the tokenizers from a checkpoint, or train them, unless they exist."""
        if copied_from:
            tokenizers = Tokenizers.load(copied_from)
            tokenizers.save(self.folder)
        elif (self.folder / TOKENIZED).exists():
            tokenizers = Tokenizers.load(self.folder)
            self.log("resuming with the tokenizer that was trained before")
        else:
            lines = [partial(own_lines, path) for path in self._texts("train")]
            tokenizers = train_tokenizers(lines, config, self.data.languages, seed, self.log)
            tokenizers.save(self.folder)
            (self.folder / TOKENIZED).touch()
        return tokenizers

    def _write_ids(self, tokenizers: Tokenizers, pairs: int, report: CleaningReport) -> NDArray[np.bool_]:
        """Write the ids of the training pairs; returns a mask [pairs] of those kept."""
        dev = zip(*map(own_lines, self._texts("dev")), strict=True)
        encoder = Encoder(tokenizers, self.data, frozenset(dev if self.sources.hold_out_dev else ()))
        source_writer, target_writer = (IdsWriter(self.folder, side, getattr(tokenizers, side).size) for side in SIDES)
        kept: list[NDArray[np.bool_]] = []
        with source_writer, target_writer:
            try:
                lines = zip(*map(own_lines, self._texts("train")), strict=True)
                for block in encode_pairs(lines, pairs, encoder, self.folder):
                    for reason, source, target in block.dropped:
                        report.drop(reason, "after tokenization", source, target)
                    source_writer.append(block.source, block.source_lengths)
                    target_writer.append(block.target, block.target_lengths)
                    kept.append(block.kept)
            except BrokenProcessPool:
                why = "an encoding process was killed, perhaps because memory ran out"
                raise Unfinished(f"{why}: run the same command again to resume the preparation") from None
        return np.concatenate(kept)

    def _dev_remarks(self, tokenizers: Tokenizers) -> list[str]:
        """Log lines on how well the tokenizers represent text they were not trained on."""
        remarks = []
        for side, path in zip(SIDES, self._texts("dev"), strict=True):
            lines, units = list(own_lines(path)), getattr(tokenizers, side)
            remarks.append(
                f"dev {side}: {len(lines)} lines, {round_trip(units, lines):.2%} survive tokenization unchanged,"
                f" {unknown_share(units, lines):.2%} unknown tokens"
            )
            if side == "target" and (odd := non_nfc(lines)):
                remarks.append(f"warning: {odd} dev references are not in Unicode's NFC form, which may lower scores")
        return remarks
