"""WMT14's files: training archives of statmt.org, development and test sets through sacreBLEU.

What statmt.org publishes no sums for is recorded when it first comes, and must not change afterwards.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mt.data.download import (
    DataUnavailable,
    Report,
    check_recorded,
    check_sha256,
    extract,
    fetch,
    recorded_sha256,
    save,
)
from mt.data.text import read_lines
from mt.errors import UserError

URL = "https://www.statmt.org"
# per language beside English: (archive, its bitext without the language suffix, suffix after the language)
TRAIN = {
    "de": (
        ("wmt13/training-parallel-europarl-v7.tgz", "training/europarl-v7.de-en", ""),
        ("wmt13/training-parallel-commoncrawl.tgz", "commoncrawl.de-en", ""),
        ("wmt14/training-parallel-nc-v9.tgz", "training/news-commentary-v9.de-en", ""),
    ),
    "fr": (
        ("wmt13/training-parallel-europarl-v7.tgz", "training/europarl-v7.fr-en", ""),
        ("wmt13/training-parallel-commoncrawl.tgz", "commoncrawl.fr-en", ""),
        ("wmt13/training-parallel-un.tgz", "un/undoc.2000.fr-en", ""),
        ("wmt14/training-parallel-nc-v9.tgz", "training/news-commentary-v9.fr-en", ""),
        ("wmt10/training-giga-fren.tar", "giga-fren.release2.fixed", ".gz"),
    ),
}
# name here: (sacreBLEU's test set, its number of sentences)
SETS = {"newstest2013": ("wmt13", 3000), "newstest2014": ("wmt14/full", 3003)}

_SACREBLEU_TIMEOUT = 30.0  # seconds


def training(source: str, target: str, folder: Path, report: Report) -> list[tuple[Path, Path]]:
    """The two sides of each training corpus, extracted into the folder."""
    found = []
    for archive, stem, suffix in TRAIN[source if target == "en" else target]:
        members = f"{stem}.{source}{suffix}", f"{stem}.{target}{suffix}"
        paths = folder / Path(members[0]).name, folder / Path(members[1]).name
        _unpack(archive, dict(zip(members, paths, strict=True)), folder, report)
        found.append(paths)
    return found


def _unpack(archive: str, members: dict[str, Path], folder: Path, report: Report) -> None:
    """Make the archive's files be there and unchanged since they first were."""
    missing = {member: path for member, path in members.items() if not path.is_file()}
    if missing:
        local = folder / Path(archive).name
        if not local.is_file():
            fetch(f"{URL}/{archive}", local, report=report)
        if expected := recorded_sha256(local):
            check_sha256(local, expected)
        report(f"extracting {', '.join(path.name for path in missing.values())} from {local}")
        extract(local, missing)
        if not expected:
            # only now is it known to be no damaged one
            check_recorded(local, report)
    for path in members.values():
        check_recorded(path, report)


def named_set(name: str, source: str, target: str, folder: Path, report: Report) -> tuple[Path, Path]:
    """The two sides of one of `SETS`, which sacreBLEU fetches, written once as plain files."""
    paths = folder / f"{name}.{source}", folder / f"{name}.{target}"
    if not all(path.is_file() for path in paths):
        known, sentences = SETS[name]
        report(f"getting {name} ({known}) through sacreBLEU")
        found = _sacrebleu_files(known, f"{source}-{target}")
        for origin, path in zip(found, paths, strict=True):
            lines = sum(1 for _ in read_lines(origin))
            if lines != sentences:
                raise UserError(f"{origin} has {lines} lines instead of {sentences}: delete it and run again")
            try:
                with origin.open("rb") as content:
                    save(content, path)
            except OSError as error:
                raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    for path in paths:
        check_recorded(path, report)
    return paths


def _sacrebleu_files(name: str, direction: str) -> tuple[Path, Path]:
    from sacrebleu.utils import SACREBLEU_DIR, get_reference_files, get_source_file

    try:
        with _socket_timeout(_SACREBLEU_TIMEOUT):
            return Path(get_source_file(name, direction)), Path(get_reference_files(name, direction)[0])
    # it leaves by SystemExit on a wrong checksum, and raises plain Exceptions besides the network's
    except (Exception, SystemExit) as error:
        raise DataUnavailable(
            f"sacreBLEU cannot get its test set {name} {direction} ({error}): run again when {URL} can "
            f"be reached; if a download was cut, delete {Path(SACREBLEU_DIR) / name} first"
        ) from None


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """sacreBLEU sets no timeout of its own and would wait for minutes."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
