"""Reads pairs of unchanged lines from two parallel files, or from one .tsv or .jsonl file; plain or compressed.

Only a line feed ends a line. Other characters that some readers treat as a line break stay in the text.
"""

import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from mt.config.schema import DataConfig
from mt.errors import UserError

_BOM = b"\xef\xbb\xbf"
_MARKUP = (b"<refset", b"<srcset", b"<tstset", b"<?xml", b"<mteval", b"<!doctype")
Report = Callable[[str], None]
_JSON_BREAK = re.compile(r"\r\n|[\r\n\t]")


class NotUtf8(UserError):
    """A line that is not UTF-8. Training may drop its pair instead of stopping."""


@dataclass(frozen=True)
class Bitext:
    """A part of a split: two files read in parallel, or one file with both sides; each may be compressed."""

    source_path: Path
    target_path: Path | None
    languages: tuple[str, str]

    @property
    def name(self) -> str:
        return f"{self.source_path} and {self.target_path.name}" if self.target_path else str(self.source_path)

    def where(self, line: int) -> str:
        return f"{self.name}, line {line}"


class Pair(tuple[str, str]):
    """A tuple (source, target) that also has its part and line number."""

    part: Bitext
    line: int
    valid: bool  # False if a side is not UTF-8; its invalid bytes became U+FFFD

    @property
    def where(self) -> str:
        return self.part.where(self.line)


@dataclass(frozen=True)
class Sources:
    """The files of a corpus in one direction. Test sets are fetched one by one, when `find_tests[name]` is called."""

    train: list[Bitext]
    dev: list[Bitext]
    find_tests: Mapping[str, Callable[[], list[Bitext]]]

    @property
    def tests(self) -> dict[str, list[Bitext]]:
        return {name: find() for name, find in self.find_tests.items()}

    @property
    def hold_out_dev(self) -> bool:
        return not self.dev  # then a part of train is held out


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or compressed, without their line ends.

    A byte order mark at the start, and one carriage return before each line feed, are dropped. Raises UserError for a
    file that is missing, damaged, not UTF-8 (with line number and byte offset), or SGML or XML.
    """
    path = Path(path).absolute()
    for number, (offset, line) in enumerate(_byte_lines(path), 1):
        yield _decode(path, number, offset, line)


def read_pairs(split: Sequence[Bitext], keep_invalid: bool = False) -> Iterator[Pair]:
    """All pairs of a split, in order and unchanged.

    Raises UserError for everything that read_lines rejects, for two files of unequal length (with both counts, at
    their end), and for a malformed line of a file with both sides. With `keep_invalid`, a pair that is not UTF-8 is
    marked as invalid instead.
    """
    for part in split:
        for number, cells in enumerate(_rows(part), 1):
            try:
                source = _decode(part.source_path, number, *cells[0])
                if part.target_path:
                    pair = Pair((source, _decode(part.target_path, number, *cells[1])))
                else:
                    pair = Pair(PAIR_FORMATS[uncompressed_suffix(part.source_path)](source, part, number))
                pair.valid = True
            except NotUtf8:
                if not keep_invalid:
                    raise
                first, *rest = (line.decode("utf-8", "replace") for _, line in cells)
                pair = Pair((first, "".join(rest)))
                pair.valid = False
            pair.part, pair.line = part, number
            yield pair


def count_pairs(split: Sequence[Bitext], keep_invalid: bool = False) -> int:
    """The number of valid pairs. Reads all files to the end, so that errors appear before any work is done."""
    return sum(pair.valid for pair in read_pairs(split, keep_invalid))


def _rows(part: Bitext) -> Iterator[tuple[tuple[int, bytes], ...]]:
    """The lines of each pair as (offset, bytes): one from each of two files, or one from a file with both sides."""
    if part.target_path is None:
        yield from zip(_byte_lines(part.source_path))
        return
    sources, targets = _byte_lines(part.source_path), _byte_lines(part.target_path)
    for number, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            more = number + 1 + sum(1 for _ in (targets if source is None else sources))
            counts = (number, more) if source is None else (more, number)
            lines = f"{part.source_path} has {counts[0]} lines but {part.target_path} has {counts[1]} lines"
            raise UserError(f"{lines}: they must be translations of each other, line by line")
        yield source, target


def _tsv_pair(line: str, part: Bitext, number: int) -> tuple[str, str]:
    columns = line.split("\t")
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
        where = part.where(number)
        raise UserError(f'{where} is not a JSON object with {keys}, at the top or in "translation"') from None
    try:
        (source + target).encode("utf-8")
    except UnicodeEncodeError:
        raise NotUtf8(f"{part.where(number)} has a lone surrogate (\\ud800 to \\udfff): correct the file") from None
    return source, target


# Formats with a pair in each line: suffix to the function that reads a line. To add one, register it here.
PAIR_FORMATS: dict[str, Callable[[str, Bitext, int], tuple[str, str]]] = {".tsv": _tsv_pair, ".jsonl": _json_pair}
COMPRESSIONS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open}


def uncompressed_suffix(path: Path) -> str:
    """The suffix that names the format: ".tsv" for a.tsv and for a.tsv.gz."""
    return (path.with_suffix("") if path.suffix in COMPRESSIONS else path).suffix


def _byte_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(byte offset of the line in the uncompressed file, line without its end)."""
    offset = 0
    try:
        with COMPRESSIONS.get(path.suffix, Path.open)(path, "rb") as stream:
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
        raise UserError(f"{path} is damaged ({error}): download or compress it again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def _decode(path: Path, number: int, offset: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{line[error.start]:02x} at offset {error.start} of the line, {offset + error.start} of the file"
        way_out = "convert the file (or drop such training pairs with data.invalid_utf8=skip)"
        raise NotUtf8(f"{path}, line {number} is not UTF-8: {byte}; {way_out}") from None


def check_direction(config: DataConfig, languages: tuple[str, ...]) -> None:
    """Raise UserError for a language that the corpus does not have."""
    for key, language in (("source", config.source), ("target", config.target)):
        if language not in languages:
            raise UserError(f"data.{key}={language}: the languages of {config.corpus.value} are {', '.join(languages)}")
