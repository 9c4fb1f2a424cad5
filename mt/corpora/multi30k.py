"""Multi30k's raw files (task 1), local or downloaded; archives are checked against published SHA-256 sums."""

import os
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

from mt.config.schema import DataConfig
from mt.corpora.download import check_sha256, fetch
from mt.corpora.formats import Bitext, Report, Sources, check_direction
from mt.errors import DataUnavailable, UserError

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
LANGUAGES = ("en", "de", "fr", "cs")
TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")
LINES = {"train": 29000, "val": 1014} | dict(zip(TESTS, (1000, 1000, 461, 1071), strict=True))


@cache
def checksums() -> dict[str, str]:
    """The SHA-256 of each raw file of task 1, as the dataset's repository publishes them."""
    lines = files("mt.corpora").joinpath("multi30k.sha256").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def locate(config: DataConfig, report: Report, training: bool) -> Sources:
    """The files in the raw folder, $MT_DATA/multi30k or data/raw/multi30k; missing ones are downloaded."""
    check_direction(config, LANGUAGES)
    environment = os.environ.get("MT_DATA")
    into = Path(config.raw_folder).absolute()
    default = Path("data/raw/multi30k").absolute()
    folders = [Path(environment).absolute() / "multi30k"] if environment else []
    folders = [*folders, default] if into == default else [into, *folders, default]

    def split(name: str) -> list[Bitext]:
        source, target = (_find(f"{name}.{language}", folders, into, report) for language in config.languages)
        return [Bitext(source, target, config.languages)]

    train = split("train") if training else []
    dev = split("val")
    report(f"Multi30k: {dev[0].source_path.parent}")
    # The test sets that have both languages
    tests = [name for name in TESTS if {f"{name}.{language}.gz" for language in config.languages} <= checksums().keys()]
    return Sources(train, dev, {name: partial(split, name) for name in tests})


def _find(name: str, folders: list[Path], into: Path, report: Report) -> Path:
    """A file, such as train.de: the published one, from the first folder that has it, or downloaded into `into`."""
    packed = f"{name}.gz"
    for folder in folders:
        if (folder / packed).is_file():
            check_sha256(folder / packed, checksums()[packed])
            return folder / packed
        if (folder / name).is_file():
            with (folder / name).open("rb") as stream:
                found, expected = sum(1 for _ in stream), LINES[name.partition(".")[0]]
            if found != expected:
                raise UserError(f"{folder / name} has {found} lines, but Multi30k's has {expected}: replace it")
            return folder / name
    try:
        fetch(f"{URL}/{packed}", into / packed, checksums()[packed], report=report)
    except DataUnavailable as error:
        raise DataUnavailable(f"{error}; or train on your own files (data=files) or experiment=captions") from None
    return into / packed
