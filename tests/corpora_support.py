"""Helpers for tests of corpora."""

from pathlib import Path

from mt.corpora.formats import Bitext, Sources


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def paired(folder: Path, source: bytes, target: bytes) -> list[Bitext]:
    return [Bitext(write(folder / "a.en", source), write(folder / "a.de", target), ("en", "de"))]


def quiet(line: str) -> None:
    """A report that discards its lines."""


def all_parts(found: Sources) -> tuple[list[Bitext], list[Bitext], dict[str, list[Bitext]]]:
    """Every split. This call finds the test files."""
    return found.train, found.dev, found.tests


def part_names(split: list[Bitext]) -> list[str]:
    return [path.name for part in split for path in (part.source_path, part.target_path) if path]
