"""From configured files to a prepared corpus on disk: cleaned, tokenized, made once."""

import hashlib
import json
import shutil
from array import array
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt.config import DataConfig, PrepareJob, TokenizerConfig
from mt.data.cleaning import CleaningReport, clean, non_nfc
from mt.data.corpus import IdsWriter
from mt.data.encoding import encode_pairs
from mt.data.module import META, ORIGINS, SIDES, TEXT, Prepared, own_lines
from mt.data.sources import Sources, locate
from mt.data.text import Bitext, count_pairs, read_pairs
from mt.data.tokenizer import Tokenizers, round_trip, unknown_share
from mt.data.tokenizer_training import train_tokenizers
from mt.errors import UserError
from mt.jobs import walk
from mt.runtime.files import temporary_beside, write_whole

Log = Callable[[str], None]

FORMAT = 5  # 4 trained on pairs like those held out
SPLITS = ("train", "dev")
# These stand in a half-made corpus for what is done of it
CLEANED, TOKENIZED, ALL_ORIGINS = "cleaned.json", "tokenized", "all_origins.npy"
HASHES = "hashes.json"  # in data.prepared_dir
LARGE_FILE = 2**24  # bytes
HELD_OUT = 1000  # development pairs taken from the training pairs where there are none, at most a twentieth


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
    cache = Path(data.prepared_dir) / HASHES
    texts = {"train": _hash_files(_paths(sources.train), cache), "dev": _hash_files(_paths(sources.dev), cache)}
    folder = (
        Path(data.prepared_dir)
        / f"{data.corpus.value}-{data.source}-{data.target}-{_key(data, tokenizer, seed, texts, tokenizers_from)}"
    )
    if (folder / META).exists():
        log(f"prepared corpus: {folder}")
        for line in json.loads((folder / META).read_text(encoding="utf-8"))["log"]:
            log(line)
        return Prepared.load(folder)
    log(f"preparing the corpus into {folder}")
    temporary = temporary_beside(folder, take_over=True)
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        _write(sources, data, tokenizer, seed, temporary, log, tokenizers_from)
        temporary.rename(folder)
    except BrokenProcessPool:
        raise UserError(
            f"a process that encoded the text was killed, perhaps for want of memory; {temporary} stays, and the same"
            " command goes on from there"
        ) from None
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if not (folder / META).exists():  # else another process was faster, with the same result
            raise UserError(f"cannot write the prepared corpus {folder}: {error.strerror or error}") from error
    except Exception:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
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
    options |= {f"tokenizer.{name}": value for name, _, value in walk(tokenizer) if name != "sampling"}
    if tokenizer.model:
        options["tokenizer.model"] = _hash_files([Path(tokenizer.model)])
    if tokenizers_from:
        options["tokenizers"] = _hash_files(sorted(tokenizers_from.glob("tokenizer.*")))
    plain = {name: value.value if isinstance(value, Enum) else value for name, value in options.items()}
    text = json.dumps({"format": FORMAT, "texts": texts, "seed": seed, **plain}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _paths(split: Sequence[Bitext]) -> list[Path]:
    return [path for part in split for path in (part.source_path, part.target_path) if path]


def _hash_files(paths: Sequence[Path], cache: Path | None = None) -> list[str]:
    """SHA-256 of each file. Those of large files are remembered in `cache` for as long as size and times stay."""
    known = _known_hashes(cache)
    hashes = []
    for path in paths:
        try:
            status = path.stat()
            key = f"{path.resolve()} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
            if key not in known:
                with path.open("rb") as stream:
                    known[key] = hashlib.file_digest(stream, "sha256").hexdigest()
                if cache and status.st_size >= LARGE_FILE:
                    _remember(cache, key, known[key])
            hashes.append(known[key])
        except OSError as error:
            raise UserError(f"cannot read {path.absolute()}: {error.strerror or error}") from error
    return hashes


def _known_hashes(cache: Path | None) -> dict[str, str]:
    try:
        return dict(json.loads(cache.read_text(encoding="utf-8"))) if cache else {}
    except (OSError, ValueError, TypeError):
        return {}


def _remember(cache: Path, key: str, digest: str) -> None:
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_whole(cache, json.dumps({**_known_hashes(cache), key: digest}, indent=1))


def _write(
    sources: Sources,
    data: DataConfig,
    tokenizer: TokenizerConfig,
    seed: int,
    folder: Path,
    log: Log,
    tokenizers_from: Path | None,
) -> None:
    """All of a corpus into a folder; what a killed process had finished of it is not done again."""
    texts = {(split, side): folder / TEXT.format(split=split, side=side) for split in SPLITS for side in SIDES}
    cleaned = folder / CLEANED
    files = [*texts.values(), folder / ALL_ORIGINS]
    state = json.loads(cleaned.read_text(encoding="utf-8")) if cleaned.exists() else {}
    if state and state["sizes"] == [path.stat().st_size if path.exists() else -1 for path in files]:
        log("going on with the text that was cleaned before")
    else:
        cleaned.unlink(missing_ok=True)
        (folder / TOKENIZED).unlink(missing_ok=True)
        report = CleaningReport()
        held_out, origins = _write_texts(sources, data, texts, report)
        np.save(folder / ALL_ORIGINS, origins)
        sizes = [path.stat().st_size for path in files]
        state = {"held_out": held_out, "report": report.as_dict(), "sizes": sizes}
        write_whole(cleaned, json.dumps(state))
    report = CleaningReport.from_dict(state["report"])
    report.check_kept(state["held_out"])
    origins = np.load(folder / ALL_ORIGINS)
    train = [texts["train", side] for side in SIDES]
    if tokenizers_from:
        tokenizers = Tokenizers.load(tokenizers_from)
        tokenizers.save(folder)
    elif (folder / TOKENIZED).exists():
        tokenizers = Tokenizers.load(folder)
        log("going on with the tokenizer that was made before")
    else:
        lines = [partial(own_lines, path) for path in train]
        tokenizers = train_tokenizers(lines[0], lines[1], tokenizer, data.source, data.target, seed, log)
        tokenizers.save(folder)
        (folder / TOKENIZED).touch()
    dev = zip(own_lines(texts["dev", "source"]), own_lines(texts["dev", "target"]), strict=True)
    left_out = frozenset(dev if sources.hold_out_dev else ())
    kept = _write_ids(tokenizers, data, folder, len(origins), report, left_out)
    np.save(folder / ORIGINS, origins[kept])
    report.check_kept(state["held_out"])
    remarks = report.lines() + _dev_remarks(tokenizers, folder)
    for line in remarks:
        log(line)
    for path in (cleaned, folder / TOKENIZED, folder / ALL_ORIGINS, *train):
        path.unlink(missing_ok=True)
    parts = [part.name for part in sources.train]
    meta = {"format": FORMAT, "cleaning": report.as_dict(), "log": remarks, "parts": parts}
    (folder / META).write_text(json.dumps(meta, indent=1, ensure_ascii=False), encoding="utf-8")


def _dev_remarks(tokenizers: Tokenizers, folder: Path) -> list[str]:
    """How well the tokenizers do on text that they have not seen."""
    remarks = []
    for side in SIDES:
        lines = list(own_lines(folder / TEXT.format(split="dev", side=side)))
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
    sources: Sources, data: DataConfig, paths: Mapping[tuple[str, str], Path], report: CleaningReport
) -> tuple[int, NDArray[np.int64]]:
    """Cleaned training text and the development text, a sentence a line.

    Gives the number of training pairs held out, and part and line of each other one: [pairs, 2].
    """
    total = count_pairs(sources.train, data.invalid_utf8)
    if not sources.hold_out_dev and not count_pairs(sources.dev):
        raise UserError("the development set has no lines: give another data.dev, or none to hold a part of train out")
    every = max(20, -(-total // HELD_OUT))  # spread over the corpus, whose order is often by origin
    streams = {key: path.open("w", encoding="utf-8", newline="\n") for key, path in paths.items()}

    def write(split: str, pair: tuple[str, str]) -> None:
        for side, text in zip(SIDES, pair, strict=True):
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


def _write_ids(
    tokenizers: Tokenizers,
    data: DataConfig,
    folder: Path,
    pairs: int,
    report: CleaningReport,
    held_out: Set[tuple[str, str]],
) -> NDArray[np.bool_]:
    """Training ids of the pairs that are within the limits and not like one held out; which pairs these are."""
    lines = [own_lines(folder / TEXT.format(split="train", side=side)) for side in SIDES]
    writers = [IdsWriter(folder, side, getattr(tokenizers, side).size) for side in SIDES]
    kept: list[NDArray[np.bool_]] = []
    with writers[0] as source_writer, writers[1] as target_writer:
        for block in encode_pairs(lines[0], lines[1], pairs, tokenizers, folder, data, held_out):
            for reason, source, target in block.dropped:
                report.drop(reason, "after tokenization", source, target)
            source_writer.append(block.source, block.source_lengths)
            target_writer.append(block.target, block.target_lengths)
            kept.append(block.kept)
    return np.concatenate(kept)
