"""From files to pairs of lines, as they are: plain or compressed, two files side by side, .tsv or .jsonl.

A line ends at a line feed and nowhere else; whatever other characters some reader would take for a line's end
stay inside it.
"""

import gzip
import json
import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, cast

from mt.config import InvalidText
from mt.data.cleaning import INVALID_UTF8, CleaningReport
from mt.errors import UserError

_BOM = b"\xef\xbb\xbf"
_MARKUP = (b"<refset", b"<srcset", b"<tstset", b"<?xml", b"<mteval", b"<!doctype")
_JSON_BREAK = re.compile(r"\r\n|[\r\n\t]")


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

    @property
    def name(self) -> str:
        return f"{self.source_path} and {self.target_path.name}" if self.target_path else str(self.source_path)

    def where(self, line: int) -> str:
        return f"{self.name}, line {line}"


class Pair(tuple[str, str]):
    """(source, target) as a plain tuple of two, which also knows its part and line number."""

    part: Bitext
    line: int

    @property
    def where(self) -> str:
        return self.part.where(self.line)


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
                        raise UserError(f"{path} is SGML, XML or HTML, not plain text: extract its sentences first")
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
        return cast(IO[bytes], gzip.open(path))
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
    report: CleaningReport | None = None,
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
        raise NotUtf8(f"{part.where(number)} has a lone surrogate (\\ud800 to \\udfff): mend the file") from None
    return source, target
