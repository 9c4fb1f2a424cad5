"""From files to pairs of lines: reading, cleaning, and the report of what cleaning did.

A line ends at a line feed and nowhere else; whatever other characters some reader would take for a line's end
stay inside it. Nothing here changes a text: training pairs are kept or dropped whole, and counted either way.
"""

import gzip
import json
import lzma
import re
import unicodedata
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

from mt.config import DataConfig, InvalidText
from mt.errors import UserError

INVALID_UTF8 = "invalid UTF-8"
EMPTY_SOURCE = "empty source"
EMPTY_TARGET = "empty target"
ONE_SIDED = "only one side has letters or digits"
IDENTICAL = "pairs with source and target identical"
DUPLICATE = "pairs that repeat an earlier one"
UNEVEN = "pairs with one side over 3 times as long as the other, in characters"

_BOM = b"\xef\xbb\xbf"
_MARKUP = (b"<refset", b"<srcset", b"<tstset", b"<?xml", b"<mteval", b"<!doctype")
_LINE_ENDS = str.maketrans(dict.fromkeys("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " "))
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_JSON_BREAK = re.compile(r"\r\n|[\r\n\t]")
_UNEVEN_RATIO = 3
_MAX_HASHES = 5_000_000
_EXAMPLES = 5
_EXCERPT = 80


class NotUtf8(UserError):
    """A line that is no UTF-8: the one fault for which a training pair may be skipped instead."""


@dataclass(frozen=True)
class Bitext:
    """A part of a split: two files read line by line, or one .tsv or .jsonl file (then target_path is None).

    A split is a list of such parts, read in that order. Any file may be compressed (.gz, .xz).
    """

    source_path: Path
    target_path: Path | None
    languages: tuple[str, str]

    def where(self, line: int) -> str:
        beside = f" and {self.target_path.name}" if self.target_path else ""
        return f"{self.source_path}{beside}, line {line}"


class Pair(tuple[str, str]):
    """(source, target) as a plain tuple of two, which also knows its part and line number."""

    part: Bitext
    line: int

    @property
    def where(self) -> str:
        return self.part.where(self.line)


def one_line(text: str) -> str:
    """The text with a blank for every character that some reader takes for a line's end."""
    return text.translate(_LINE_ENDS)


def uncompressed_suffix(path: Path) -> str:
    """The suffix that tells the format: ".tsv" of a.tsv and of a.tsv.gz."""
    return (path.with_suffix("") if path.suffix in (".gz", ".xz") else path).suffix


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain, .gz or .xz, one at a time and without their ends.

    A byte order mark at the start and one carriage return before a line feed are dropped. UserError for a
    file that is missing, damaged, not UTF-8 (with line number and byte offset), or SGML or XML.
    """
    path = Path(path).absolute()
    for number, (offset, line) in enumerate(_byte_lines(path), 1):
        yield _decode(path, number, offset, line)


def _byte_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(byte offset of the line in the uncompressed file, line without its end)."""
    offset = 0
    try:
        with _open(path) as stream:
            for line in stream:
                start, offset = offset, offset + len(line)
                if start == 0:
                    text = line.removeprefix(_BOM)
                    if text.lstrip().lower().startswith(_MARKUP):
                        raise UserError(
                            f"{path} is SGML, XML or HTML, not plain text: extract its sentences first"
                        )
                    start = len(line) - len(text)
                    line = text
                    if not line:
                        continue
                yield start, line.removesuffix(b"\n").removesuffix(b"\r")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is damaged ({error}): fetch or compress it again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return gzip.open(path)  # type: ignore[return-value]
    if path.suffix == ".xz":
        return lzma.open(path)
    return path.open("rb")


def _decode(path: Path, number: int, offset: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotUtf8(
            f"{path}, line {number} is not UTF-8: byte 0x{line[error.start]:02x} at offset {error.start} of "
            f"the line, {offset + error.start} of the file; convert the file "
            "(or drop such training pairs with data.invalid_utf8=skip)"
        ) from None


def read_pairs(
    split: Sequence[Bitext],
    invalid_utf8: InvalidText = InvalidText.error,
    report: "CleaningReport | None" = None,
) -> Iterator[Pair]:
    """All pairs of a split, in order and unchanged, one at a time.

    UserError for what read_lines refuses, for two files of unequal length (with both counts, at their end),
    and for a malformed line of a .tsv or .jsonl file. With invalid_utf8=skip, for training data only, a pair
    with a line that is not UTF-8 is left out and counted in the report.
    """
    for part in split:
        for number, cells in enumerate(_rows(part), 1):
            try:
                pair = Pair(_texts(part, number, cells))
            except NotUtf8:
                if invalid_utf8 is InvalidText.error:
                    raise
                if report is not None:
                    report.read += 1
                    excerpts = [line.decode("utf-8", "replace") for _, line in cells]
                    report.drop(INVALID_UTF8, part.where(number), excerpts[0], "".join(excerpts[1:]))
                continue
            pair.part, pair.line = part, number
            yield pair


def count_pairs(split: Sequence[Bitext], invalid_utf8: InvalidText = InvalidText.error) -> int:
    """The number of pairs, read to the end: whatever is wrong with the files comes out before any work."""
    return sum(1 for _ in read_pairs(split, invalid_utf8))


def _rows(part: Bitext) -> Iterator[tuple[tuple[int, bytes], ...]]:
    """Per pair its lines as (offset, bytes): two of paired files, one of a .tsv or .jsonl file."""
    if part.target_path is None:
        yield from zip(_byte_lines(part.source_path))
        return
    sources, targets = _byte_lines(part.source_path), _byte_lines(part.target_path)
    number = 0
    for number, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            more = number + 1 + sum(1 for _ in (targets if source is None else sources))
            counts = (number, more) if source is None else (more, number)
            raise UserError(
                f"{part.source_path} has {counts[0]} lines but {part.target_path} has {counts[1]} lines: "
                "they must be translations of each other line by line"
            )
        yield source, target


def _texts(part: Bitext, number: int, cells: tuple[tuple[int, bytes], ...]) -> tuple[str, str]:
    source = _decode(part.source_path, number, *cells[0])
    if part.target_path is not None:
        return source, _decode(part.target_path, number, *cells[1])
    if uncompressed_suffix(part.source_path) == ".jsonl":
        return _json_pair(source, part, number)
    columns = source.split("\t")
    if len(columns) != 2:
        raise UserError(f"{part.where(number)} has {len(columns)} columns: it must be source<TAB>target")
    return columns[0], columns[1]


def _json_pair(line: str, part: Bitext, number: int) -> tuple[str, str]:
    try:
        row = json.loads(line)
        row = row.get("translation", row)
        source, target = (_JSON_BREAK.sub(" ", row[language]) for language in part.languages)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        keys = " and ".join(f'"{language}"' for language in part.languages)
        raise UserError(
            f'{part.where(number)} is no JSON object with text under {keys}, at the top or in "translation"'
        ) from None
    try:
        (source + target).encode("utf-8")
    except UnicodeEncodeError:
        raise NotUtf8(
            f"{part.where(number)} has a lone surrogate (\\ud800 to \\udfff): mend the file"
        ) from None
    return source, target


@dataclass
class CleaningReport:
    """What cleaning did: pairs read, pairs dropped by reason with examples, and things noted but kept.

    Later stages add their own reasons through `drop`; `kept` is what is left after all of them.
    """

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def kept(self) -> int:
        return self.read - self.dropped.total()

    def drop(self, reason: str, where: str, source: str, target: str) -> None:
        """Count a pair that was read as dropped; the first few of each reason become examples."""
        self.dropped[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append({"where": where, "source": _excerpt(source), "target": _excerpt(target)})

    def check_kept(self) -> None:
        """UserError when no training pair is left."""
        if self.read == 0:
            raise UserError("the training files are empty: data.train needs pairs of sentences")
        if self.kept == 0:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.most_common())
            raise UserError(
                f"all {self.read:,} training pairs were dropped ({reasons}): mend the files, or raise the "
                "limits data.max_characters, data.max_tokens and data.max_ratio"
            )

    def lines(self) -> list[str]:
        """For the log: totals, then a line per reason and example, then the notes."""
        lines = [f"training pairs: {self.read:,} read, {self.kept:,} kept, {self.dropped.total():,} dropped"]
        for reason, count in self.dropped.most_common():
            lines.append(f"{count:,} {'pair' if count == 1 else 'pairs'} dropped: {reason}")
            for example in self.examples[reason]:
                lines.append(f"  {example['where']}: {example['source']!r} | {example['target']!r}")
        lines += [f"noted, not dropped: {count:,} {what}" for what, count in self.notes.items() if count]
        return lines

    def as_dict(self) -> dict[str, Any]:
        """For JSON: read, kept, dropped {reason: count}, examples {reason: [...]}, notes {what: count}."""
        return {
            "read": self.read,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "examples": self.examples,
            "notes": dict(self.notes),
        }


def _excerpt(text: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text[:_EXCERPT])
    return printable + "…" if len(text) > _EXCERPT else printable


def clean(
    pairs: Iterable[tuple[str, str]], config: DataConfig, report: CleaningReport
) -> Iterator[tuple[str, str]]:
    """The training pairs worth keeping, unchanged; `report` is complete when the last one was taken.

    Pairs of read_pairs keep their `where`. UserError at the end when none is left.
    """
    hashes = array("q")
    for pair in pairs:
        report.read += 1
        source, target = pair
        reason = _fault(source, target, config.max_characters)
        if reason:
            where = pair.where if isinstance(pair, Pair) else f"pair {report.read}"
            report.drop(reason, where, source, target)
            continue
        if source == target:
            report.notes[IDENTICAL] += 1
        short, long = sorted((len(source), len(target)))
        if long > _UNEVEN_RATIO * short:
            report.notes[UNEVEN] += 1
        if len(hashes) < _MAX_HASHES:
            hashes.append(hash((source, target)))
        yield pair
    report.notes[DUPLICATE] += len(hashes) - _distinct(hashes)
    report.check_kept()


def _fault(source: str, target: str, max_characters: int) -> str | None:
    if not source.strip():
        return EMPTY_SOURCE
    if not target.strip():
        return EMPTY_TARGET
    if len(source) > max_characters:
        return f"source longer than {max_characters} characters"
    if len(target) > max_characters:
        return f"target longer than {max_characters} characters"
    if bool(_LETTER_OR_DIGIT.search(source)) != bool(_LETTER_OR_DIGIT.search(target)):
        return ONE_SIDED
    return None


def _distinct(hashes: "array[int]") -> int:
    import numpy as np

    # sorted 8-byte numbers take a tenth of the memory of a set
    return len(np.unique(np.frombuffer(hashes, dtype=np.int64)))


def overlap(train_pairs: Iterable[tuple[str, str]], test_pairs: Iterable[tuple[str, str]]) -> int:
    """How many of the test pairs occur in the training pairs; memory grows with the test pairs only."""
    wanted = Counter(hash((source, target)) for source, target in test_pairs)
    found = {number for pair in train_pairs if (number := hash((pair[0], pair[1]))) in wanted}
    return sum(wanted[number] for number in found)


def non_nfc(lines: Iterable[str]) -> int:
    """How many lines are not in Unicode's composed form NFC: as references they cost score invisibly."""
    return sum(not unicodedata.is_normalized("NFC", line) for line in lines)
