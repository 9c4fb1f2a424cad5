"""Where each corpus's files are: found on disk, or fetched and checked, or generated."""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from mt.config import Corpus, DataConfig
from mt.data import multi30k, wmt14
from mt.data.download import Report, make_folder
from mt.data.text import Bitext, count_pairs, uncompressed_suffix
from mt.errors import UserError
from mt.jobs import raw_dir

_CAPTIONS_SPLITS = ("train", "dev", "test")
_SET_NAME = re.compile(r"\w[\w.-]*")


@dataclass(frozen=True)
class Sources:
    """The files of a corpus in one direction: splits as lists of parts, test sets by name.

    Without development files, `hold_out_dev` says that a part of train is to be held out for it. A named corpus's
    test files are looked for one set at a time, when `find_tests[name]` is called: training goes without them.
    """

    train: list[Bitext]
    dev: list[Bitext]
    find_tests: Mapping[str, Callable[[], list[Bitext]]]

    @property
    def tests(self) -> dict[str, list[Bitext]]:
        return {name: find() for name, find in self.find_tests.items()}

    @property
    def hold_out_dev(self) -> bool:
        return not self.dev


def locate(config: DataConfig, report: Report, training: bool = True) -> Sources:
    """The files of the configured corpus; what is missing is downloaded or generated first.

    Scoring alone goes without the training files: with training=False they are not looked for, and a folder that a run
    knows from another machine need not be here. `report` gets a line per download and finding. DataUnavailable when
    files are neither here nor reachable, UserError for a direction the corpus lacks or for entries of data.train, dev
    and test that make no pairs.
    """
    if config.corpus is Corpus.files:
        return _files(config, report, training)
    if not training and config.raw_dir and not Path(config.raw_dir).exists():
        config = replace(config, raw_dir=None)
    for key in ("train", "dev", "test"):
        if getattr(config, key):
            raise UserError(f"data.{key} is for data=files only: data={config.corpus.value} has its own files")
    if config.corpus is Corpus.multi30k:
        return _multi30k(config, report, training)
    if config.corpus is Corpus.wmt14:
        return _wmt14(config, report, training)
    return _captions(config, report)


def _check_direction(config: DataConfig, languages: tuple[str, ...]) -> None:
    for key, language in (("source", config.source), ("target", config.target)):
        if language not in languages:
            raise UserError(f"data.{key}={language}: the languages of {config.corpus.value} are {', '.join(languages)}")


def _bitext(config: DataConfig, source: Path, target: Path | None) -> Bitext:
    return Bitext(source, target, (config.source, config.target))


def _multi30k(config: DataConfig, report: Report, training: bool) -> Sources:
    _check_direction(config, multi30k.LANGUAGES)
    environment = os.environ.get("MT_DATA")
    into = Path(raw_dir(config)).absolute()
    default = Path("data/raw/multi30k").absolute()
    folders = [Path(environment).absolute() / "multi30k"] if environment else []
    folders = [*folders, default] if into == default else [into, *folders, default]

    def split(name: str) -> list[Bitext]:
        source, target = (
            multi30k.find(f"{name}.{language}", folders, into, report) for language in (config.source, config.target)
        )
        return [_bitext(config, source, target)]

    tests = multi30k.tests(config.source, config.target)
    train = split("train") if training else []
    dev = split("val")
    report(f"Multi30k: {dev[0].source_path.parent}")
    return Sources(train, dev, {name: partial(split, name) for name in tests})


def _wmt14(config: DataConfig, report: Report, training: bool) -> Sources:
    foreign = config.source if config.target == "en" else config.target
    if foreign not in wmt14.TRAIN or "en" not in (config.source, config.target):
        raise UserError(
            f"data.source={config.source} data.target={config.target}: the directions of wmt14 are "
            "en-de, de-en, en-fr and fr-en"
        )
    folder = Path(raw_dir(config)).absolute()
    make_folder(folder)

    def named(name: str) -> list[Bitext]:
        return [_bitext(config, *wmt14.named_set(name, config.source, config.target, folder, report))]

    train = wmt14.training(config.source, config.target, folder, report) if training else []
    dev, test = wmt14.SETS
    return Sources([_bitext(config, *paths) for paths in train], named(dev), {test: partial(named, test)})


def _files(config: DataConfig, report: Report, training: bool) -> Sources:
    if training and not config.train:
        raise UserError(
            "data=files needs data.train: for example data.train=[train.en,train.de] or data.train=[all.tsv]"
        )
    named = isinstance(config.test, dict)
    tests = config.test if named else {"test": config.test}
    for name in map(str, tests):
        if not _SET_NAME.fullmatch(name):
            raise UserError(f"data.test: the name {name!r} must be of letters, digits, '_', '-' and '.'")
    find_tests = {
        str(name): partial(_parts, config, f"data.test.{name}" if named else "data.test", files)
        for name, files in tests.items()
        if files
    }
    train = _parts(config, "data.train", config.train) if training else []
    dev = _parts(config, "data.dev", config.dev)
    sources = Sources(train, dev, find_tests)
    if training:
        # a mistyped test file, or two of unequal length, should not come out after hours of training
        for parts in sources.tests.values():
            count_pairs(parts)
        for part in chain(train, dev, *sources.tests.values()):
            _warn_if_swapped(part, report)
    return sources


def _parts(config: DataConfig, key: str, entries: object) -> list[Bitext]:
    """The parts of a flat list: .tsv and .jsonl files stand alone, the others two by two."""
    if isinstance(entries, str):
        entries = [entries]
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise UserError(f"{key}={entries!r} must be a list of files: [a.{config.source},a.{config.target}]")
    parts: list[Bitext] = []
    waiting: Path | None = None
    for path in (Path(entry).absolute() for entry in entries):
        if path.name.startswith("._"):
            raise UserError(f"{key}: {path} holds a Mac's file attributes, not text: leave it out")
        if not path.is_file():
            raise UserError(f"{key}: {path}: no such file")
        alone = uncompressed_suffix(path) in (".tsv", ".jsonl")
        if alone and waiting is not None:
            break
        if alone:
            parts.append(_bitext(config, path, None))
        elif waiting is None:
            waiting = path
        else:
            parts.append(_bitext(config, waiting, path))
            waiting = None
    if waiting is not None:
        raise UserError(f"{key}: {waiting} has no file of translations after it: give source,target,source,target")
    return parts


def _warn_if_swapped(part: Bitext, report: Report) -> None:
    if part.target_path is None:
        return
    source, target = part.languages
    suffixes = (uncompressed_suffix(part.source_path), uncompressed_suffix(part.target_path))
    if suffixes == (f".{target}", f".{source}"):
        paths = f"{part.source_path} and {part.target_path}"
        report(f"warning: {paths} are given as {source} and {target}: are they the wrong way round?")


def _captions(config: DataConfig, report: Report) -> Sources:
    _check_direction(config, ("en", "de"))
    folder = Path(raw_dir(config)).absolute()
    paths = {
        split: [folder / f"{split}.{language}" for language in (config.source, config.target)]
        for split in _CAPTIONS_SPLITS
    }
    if not all(path.is_file() for split in ("train", "dev") for path in paths[split]):
        report(f"generating the captions into {folder}")
        _write_captions(folder)
    train, dev, test = ([_bitext(config, *paths[split])] for split in _CAPTIONS_SPLITS)
    return Sources(train, dev, {"test": lambda: test})


def _write_captions(folder: Path) -> None:
    from mt.data import captions

    corpus = captions.generate()
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    make_folder(temporary)
    try:
        for split in _CAPTIONS_SPLITS:
            pairs = getattr(corpus, split)
            for column, language in enumerate(("en", "de")):
                text = "".join(f"{pair[column]}\n" for pair in pairs)
                (temporary / f"{split}.{language}").write_text(text, "utf-8", newline="\n")
        os.replace(temporary, folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(
            f"cannot make {folder} ({error.strerror}): give an empty or new folder as data.raw_dir"
        ) from None
