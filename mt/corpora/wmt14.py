"""WMT14. statmt.org publishes no checksums, so they are recorded at download and must not change afterwards."""

import socket
from functools import partial
from pathlib import Path

from mt.config.schema import DataConfig
from mt.corpora.download import check_recorded, check_sha256, extract, fetch, recorded_sha256
from mt.corpora.formats import Bitext, Report, Sources, read_lines
from mt.errors import DataUnavailable, UserError, explain_os_errors
from mt.files import atomic_write

URL = "https://www.statmt.org"
# (languages beside English, archive, its bitext for one of them and English, suffix after the language)
TRAIN = (
    ("de fr", "wmt13/training-parallel-europarl-v7.tgz", "training/europarl-v7.{}-en", ""),
    ("de fr", "wmt13/training-parallel-commoncrawl.tgz", "commoncrawl.{}-en", ""),
    ("fr", "wmt13/training-parallel-un.tgz", "un/undoc.2000.{}-en", ""),
    ("de fr", "wmt14/training-parallel-nc-v9.tgz", "training/news-commentary-v9.{}-en", ""),
    ("fr", "wmt10/training-giga-fren.tar", "giga-fren.release2.fixed", ".gz"),
)
# Name here: (sacreBLEU's test set, its number of sentences)
SETS = {"newstest2013": ("wmt13", 3000), "newstest2014": ("wmt14/full", 3003)}

_SACREBLEU_TIMEOUT = 30.0  # seconds


def locate(config: DataConfig, report: Report, training: bool) -> Sources:
    """The training archives unpacked in the raw folder, newstest2013 for development and newstest2014 for testing."""
    foreign = config.source if config.target == "en" else config.target
    if foreign not in ("de", "fr") or "en" not in (config.source, config.target):
        given = f"data.source={config.source} data.target={config.target}"
        raise UserError(f"{given}: the directions of wmt14 are en-de, de-en, en-fr and fr-en")
    folder = Path(config.raw_folder).absolute()
    with explain_os_errors(f"cannot write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    train = []
    for archive, bitext, suffix in [row[1:] for row in TRAIN if training and foreign in row[0]]:
        stem = bitext.format(foreign)
        members = f"{stem}.{config.source}{suffix}", f"{stem}.{config.target}{suffix}"
        paths = folder / Path(members[0]).name, folder / Path(members[1]).name
        _unpack(archive, dict(zip(members, paths, strict=True)), folder, report)
        train.append(Bitext(*paths, config.languages))
    dev, test = SETS
    return Sources(train, _named_set(dev, config, report), {test: partial(_named_set, test, config, report)})


def _unpack(archive: str, members: dict[str, Path], folder: Path, report: Report) -> None:
    """Make sure that the files of an archive are there, and are the same as when they first arrived."""
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
            check_recorded(local, report)  # only now, because extracting it has shown that it is not damaged
    for path in members.values():
        check_recorded(path, report)


def _named_set(name: str, config: DataConfig, report: Report) -> list[Bitext]:
    """One of `SETS`, downloaded by sacreBLEU and written as plain files."""
    folder = Path(config.raw_folder).absolute()
    paths = folder / f"{name}.{config.source}", folder / f"{name}.{config.target}"
    if not all(path.is_file() for path in paths):
        known, sentences = SETS[name]
        report(f"getting {name} ({known}) through sacreBLEU")
        found = _sacrebleu_files(known, f"{config.source}-{config.target}")
        for origin, path in zip(found, paths, strict=True):
            lines = sum(1 for _ in read_lines(origin))
            if lines != sentences:
                raise UserError(f"{origin} has {lines} lines instead of {sentences}: delete it and run again")
            with explain_os_errors(f"cannot write {path}"), origin.open("rb") as content:
                atomic_write(path, content)
    for path in paths:
        check_recorded(path, report)
    return [Bitext(*paths, config.languages)]


def _sacrebleu_files(name: str, direction: str) -> tuple[Path, Path]:
    from sacrebleu.utils import SACREBLEU_DIR, get_reference_files, get_source_file

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SACREBLEU_TIMEOUT)  # sacreBLEU sets none of its own, and would wait for minutes
    try:
        return Path(get_source_file(name, direction)), Path(get_reference_files(name, direction)[0])
    except (Exception, SystemExit) as error:  # it exits on a wrong checksum
        way_out = f"run again when {URL} can be reached (after a broken download, delete {Path(SACREBLEU_DIR) / name})"
        raise DataUnavailable(f"sacreBLEU cannot get {name} {direction} ({error}): {way_out}") from None
    finally:
        socket.setdefaulttimeout(before)
