"""Multi30k's raw files (task 1): found in a folder, or downloaded, and checked against the published sums."""

import os
from functools import partial
from pathlib import Path

from mt.config.schema import DataConfig
from mt.corpora.download import check_sha256, fetch
from mt.corpora.formats import Bitext
from mt.corpora.sources import Report, Sources, check_direction
from mt.errors import DataUnavailable, UserError

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
LANGUAGES = ("en", "de", "fr", "cs")
TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")
# SHA-256 of each raw file of task 1, as the dataset's repository publishes them
SHA256 = dict(
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
LINES = {"train": 29000, "val": 1014} | dict(zip(TESTS, (1000, 1000, 461, 1071), strict=True))


def locate(config: DataConfig, report: Report, training: bool) -> Sources:
    """The files in the raw folder, in $MT_DATA/multi30k or in data/raw/multi30k, or else downloaded."""
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
    tests = [name for name in TESTS if {f"{name}.{language}.gz" for language in config.languages} <= SHA256.keys()]
    return Sources(train, dev, {name: partial(split, name) for name in tests})


def _find(name: str, folders: list[Path], into: Path, report: Report) -> Path:
    """The file of this name, such as train.de, in the first folder that has it, or downloaded into `into`.

    Raises UserError for a file with another checksum (if it is not compressed, another number of lines), and
    DataUnavailable if it cannot be downloaded.
    """
    packed = f"{name}.gz"
    for folder in folders:
        if (folder / packed).is_file():
            check_sha256(folder / packed, SHA256[packed])
            return folder / packed
        if (folder / name).is_file():
            _check_plain(folder / name)
            return folder / name
    try:
        fetch(f"{URL}/{packed}", into / packed, SHA256[packed], report=report)
    except DataUnavailable as error:
        raise DataUnavailable(f"{error}; or train on your own files (data=files) or experiment=captions") from None
    return into / packed


def _check_plain(path: Path) -> None:
    expected = LINES[path.name.partition(".")[0]]
    with path.open("rb") as stream:
        found = sum(1 for _ in stream)
    if found != expected:
        raise UserError(f"{path} has {found} lines, but Multi30k's file has {expected}: put the published one there")
