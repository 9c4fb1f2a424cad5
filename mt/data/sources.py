"""Where each corpus's files are: found on disk, or fetched and checked, or generated."""

import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from mt.config import Corpus, DataConfig
from mt.data.download import (
    DataUnavailable,
    Report,
    check_recorded,
    check_sha256,
    extract,
    fetch,
    make_folder,
    recorded_sha256,
    save,
)
from mt.data.text import Bitext, read_lines, uncompressed_suffix
from mt.errors import UserError

MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
MULTI30K_TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")
# sha256 of each raw file of task 1, as the dataset's repository publishes them
MULTI30K_SHA256 = dict(
    line.split()
    for line in """
test_2016_flickr.cs.gz 200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1
test_2016_flickr.de.gz 9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8
test_2016_flickr.en.gz 611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9
test_2016_flickr.fr.gz 6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90
test_2017_flickr.de.gz a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee
test_2017_flickr.en.gz 76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074
test_2017_flickr.fr.gz 3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496
test_2017_mscoco.de.gz 799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338
test_2017_mscoco.en.gz aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58
test_2017_mscoco.fr.gz 754f3072ba9f124569ba5258b32730fc1d214bbf8e0c6dfb2b74401676220db0
test_2018_flickr.cs.gz 7d0a9db904f94c554a8c58049a9f3a5357c27f46cc3d710d70cb0b4a2585b8c2
test_2018_flickr.de.gz ddd0130c7d97482dc5197a02141dae8dd79f20f03586c480d675c09a32daf608
test_2018_flickr.en.gz ef4f4844037d4c5dea75c9a8ed5fd78905967a26f67c255e230cc9780032654d
test_2018_flickr.fr.gz fb2b83fcceb937a4f7e3e93c1c51c22aba92f1e342391e6b5ba392b16a920501
train.cs.gz a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077
train.de.gz 726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6
train.en.gz d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f
train.fr.gz 622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c
val.cs.gz b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc
val.de.gz f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a
val.en.gz 14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28
val.fr.gz ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9
""".strip().splitlines()
)

WMT_URL = "https://www.statmt.org"
# per language beside English: (archive, its bitext without the language suffix, suffix after the language)
WMT14_TRAIN = {
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
WMT_SETS = {"newstest2013": ("wmt13", 3000), "newstest2014": ("wmt14/full", 3003)}

_SACREBLEU_TIMEOUT = 30.0  # seconds
_CAPTIONS_SPLITS = ("train", "dev", "test")
_SET_NAME = re.compile(r"\w[\w.-]*")


@dataclass(frozen=True)
class Sources:
    """The files of a corpus in one direction: splits as lists of parts, test sets by name.

    Without development files, `hold_out_dev` says that a part of train is to be held out for it. Test files
    are looked for only when `tests` is asked for: training goes without them.
    """

    train: list[Bitext]
    dev: list[Bitext]
    find_tests: Callable[[], dict[str, list[Bitext]]]

    @property
    def tests(self) -> dict[str, list[Bitext]]:
        return self.find_tests()

    @property
    def hold_out_dev(self) -> bool:
        return not self.dev


def locate(config: DataConfig, report: Report) -> Sources:
    """The files of the configured corpus; what is missing is downloaded or generated first.

    `report` gets a line per download and finding. DataUnavailable when files are neither here nor reachable,
    UserError for a direction the corpus lacks or for entries of data.train, dev and test that make no pairs.
    """
    if config.corpus is Corpus.files:
        return _files(config, report)
    for key in ("train", "dev", "test"):
        if getattr(config, key):
            raise UserError(
                f"data.{key} is for data=files only: data={config.corpus.value} has its own files"
            )
    if config.corpus is Corpus.multi30k:
        return _multi30k(config, report)
    if config.corpus is Corpus.wmt14:
        return _wmt14(config, report)
    return _captions(config, report)


def _check_direction(config: DataConfig, languages: tuple[str, ...]) -> None:
    for key, language in (("source", config.source), ("target", config.target)):
        if language not in languages:
            raise UserError(
                f"data.{key}={language}: the languages of {config.corpus.value} are {', '.join(languages)}"
            )


def _raw_dir(config: DataConfig, default: str) -> Path:
    return Path(config.raw_dir or f"data/raw/{default}").absolute()


def _bitext(config: DataConfig, source: Path, target: Path | None) -> Bitext:
    return Bitext(source, target, (config.source, config.target))


def _multi30k(config: DataConfig, report: Report) -> Sources:
    _check_direction(config, ("en", "de", "fr", "cs"))
    environment = os.environ.get("MT_DATA")
    candidates = (config.raw_dir, environment and f"{environment}/multi30k", "data/raw/multi30k")
    folders = [Path(folder).absolute() for folder in candidates if folder]
    into = _raw_dir(config, "multi30k")

    def split(name: str) -> list[Bitext]:
        files = [
            _multi30k_file(f"{name}.{language}", folders, into, report)
            for language in (config.source, config.target)
        ]
        return [_bitext(config, *files)]

    tests = [
        name
        for name in MULTI30K_TESTS
        if {f"{name}.{config.source}.gz", f"{name}.{config.target}.gz"} <= MULTI30K_SHA256.keys()
    ]
    sources = Sources(split("train"), split("val"), lambda: {name: split(name) for name in tests})
    report(f"Multi30k: {sources.train[0].source_path.parent}")
    return sources


def _multi30k_file(name: str, folders: list[Path], into: Path, report: Report) -> Path:
    packed = f"{name}.gz"
    for folder in folders:
        if (folder / packed).is_file():
            check_sha256(folder / packed, MULTI30K_SHA256[packed])
            return folder / packed
        if (folder / name).is_file():
            return folder / name
    try:
        fetch(f"{MULTI30K_URL}/{packed}", into / packed, MULTI30K_SHA256[packed], report=report)
    except DataUnavailable as error:
        raise DataUnavailable(
            f"{error}; or train on your own files with data=files, or on the built-in corpus with "
            "experiment=captions, which needs no network"
        ) from None
    return into / packed


def _wmt14(config: DataConfig, report: Report) -> Sources:
    foreign = config.source if config.target == "en" else config.target
    if foreign not in WMT14_TRAIN or "en" not in (config.source, config.target):
        raise UserError(
            f"data.source={config.source} data.target={config.target}: the directions of wmt14 are "
            "en-de, de-en, en-fr and fr-en"
        )
    folder = _raw_dir(config, f"wmt14_en_{foreign}")
    make_folder(folder)
    train = []
    for archive, stem, suffix in WMT14_TRAIN[foreign]:
        members = [f"{stem}.{language}{suffix}" for language in (config.source, config.target)]
        paths = [folder / Path(member).name for member in members]
        _unpack(archive, dict(zip(members, paths, strict=True)), folder, report)
        train.append(_bitext(config, *paths))
    dev, test = WMT_SETS
    return Sources(
        train,
        [_wmt_set(config, dev, folder, report)],
        lambda: {test: [_wmt_set(config, test, folder, report)]},
    )


def _unpack(archive: str, members: dict[str, Path], folder: Path, report: Report) -> None:
    """Make the archive's files be there and unchanged since they first were."""
    missing = {member: path for member, path in members.items() if not path.is_file()}
    if missing:
        local = folder / Path(archive).name
        if not local.is_file():
            fetch(f"{WMT_URL}/{archive}", local, report=report)
        if expected := recorded_sha256(local):
            check_sha256(local, expected)
        report(f"extracting {', '.join(path.name for path in missing.values())} from {local}")
        extract(local, missing)
        if not expected:
            # only now is it known to be no damaged one
            check_recorded(local, report)
    for path in members.values():
        check_recorded(path, report)


def _wmt_set(config: DataConfig, name: str, folder: Path, report: Report) -> Bitext:
    """One of sacreBLEU's named sets, written once as plain files."""
    paths = [folder / f"{name}.{language}" for language in (config.source, config.target)]
    if not all(path.is_file() for path in paths):
        known, sentences = WMT_SETS[name]
        report(f"getting {name} ({known}) through sacreBLEU")
        found = _sacrebleu_files(known, f"{config.source}-{config.target}")
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
    return _bitext(config, *paths)


def _sacrebleu_files(name: str, direction: str) -> tuple[Path, Path]:
    from sacrebleu.utils import SACREBLEU_DIR, get_reference_files, get_source_file

    try:
        with _socket_timeout(_SACREBLEU_TIMEOUT):
            return Path(get_source_file(name, direction)), Path(get_reference_files(name, direction)[0])
    # it leaves by SystemExit on a wrong checksum, and raises plain Exceptions besides the network's
    except (Exception, SystemExit) as error:
        raise DataUnavailable(
            f"sacreBLEU cannot get its test set {name} {direction} ({error}): run again when {WMT_URL} can "
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


def _files(config: DataConfig, report: Report) -> Sources:
    if not config.train:
        raise UserError(
            "data=files needs data.train: for example data.train=[train.en,train.de] or data.train=[all.tsv]"
        )
    named = isinstance(config.test, dict)
    tests = config.test if named else {"test": config.test}
    for name in map(str, tests):
        if not _SET_NAME.fullmatch(name):
            raise UserError(f"data.test: the name {name!r} must be of letters, digits, '_', '-' and '.'")
    # a mistyped test file should not come out after hours of training
    test_parts = {
        str(name): _parts(config, f"data.test.{name}" if named else "data.test", files)
        for name, files in tests.items()
        if files
    }
    train, dev = (_parts(config, f"data.{key}", getattr(config, key)) for key in ("train", "dev"))
    for part in chain(train, dev, *test_parts.values()):
        _warn_if_swapped(part, report)
    return Sources(train, dev, lambda: test_parts)


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
        raise UserError(
            f"{key}: {waiting} has no file of translations after it: give source,target,source,target"
        )
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
    folder = _raw_dir(config, "captions")
    paths = {
        split: [folder / f"{split}.{language}" for language in (config.source, config.target)]
        for split in _CAPTIONS_SPLITS
    }
    if not all(path.is_file() for split in ("train", "dev") for path in paths[split]):
        report(f"generating the captions into {folder}")
        _write_captions(folder)
    train, dev, test = ([_bitext(config, *paths[split])] for split in _CAPTIONS_SPLITS)
    return Sources(train, dev, lambda: {"test": test})


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
