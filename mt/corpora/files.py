"""The user's own files: data.train, data.dev and data.test."""

import re
from functools import partial
from itertools import chain
from pathlib import Path

from mt.config.schema import DataConfig
from mt.corpora.formats import PAIR_FORMATS, Bitext, Report, Sources, count_pairs, uncompressed_suffix
from mt.errors import UserError

_SET_NAME = re.compile(r"\w[\w.-]*")


def locate(config: DataConfig, report: Report, training: bool) -> Sources:
    """The user's files, which must exist. Test files are read now, so that errors appear before training."""
    if training and not config.train:
        raise UserError("data=files needs data.train, such as data.train=[train.en,train.de] or data.train=[all.tsv]")
    named = isinstance(config.test, dict)
    tests = config.test if named else {"test": config.test}
    for name in map(str, tests):
        if not _SET_NAME.fullmatch(name):
            raise UserError(f"data.test: the name {name!r} may only have letters, digits, '_', '-' and '.'")
    find_tests = {
        str(name): partial(_parts, config, f"data.test.{name}" if named else "data.test", files)
        for name, files in tests.items()
        if files
    }
    train = _parts(config, "data.train", config.train) if training else []
    dev = _parts(config, "data.dev", config.dev)
    sources = Sources(train, dev, find_tests)
    if training:
        for parts in sources.tests.values():
            count_pairs(parts)
        for part in chain(train, dev, *sources.tests.values()):
            suffixes = [uncompressed_suffix(path) for path in (part.source_path, part.target_path) if path]
            if suffixes == [f".{config.target}", f".{config.source}"]:
                report(f"warning: {part.name} are given as {config.source} and {config.target}: are they swapped?")
    return sources


def _parts(config: DataConfig, key: str, entries: object) -> list[Bitext]:
    """Group a list of files into parts: a file with both sides is one part, two other files form one part."""
    if isinstance(entries, str):
        entries = [entries]
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise UserError(f"{key}={entries!r} must be a list of files: [a.{config.source},a.{config.target}]")
    parts: list[Bitext] = []
    waiting: Path | None = None
    for path in (Path(entry).absolute() for entry in entries):
        if path.name.startswith("._"):
            raise UserError(f"{key}: {path} holds macOS file attributes, not text: leave it out")
        if not path.is_file():
            raise UserError(f"{key}: {path}: no such file")
        both_sides = uncompressed_suffix(path) in PAIR_FORMATS
        if both_sides and waiting:
            break
        if waiting or both_sides:
            parts.append(Bitext(waiting or path, path if waiting else None, config.languages))
        waiting = None if waiting or both_sides else path
    if waiting:
        raise UserError(f"{key}: {waiting} is not followed by its translations: list source,target,source,target")
    return parts
