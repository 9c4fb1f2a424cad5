"""Multi30k: the real files, and small files with the same names in folders or on a server."""

import gzip
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from corpora_support import all_parts, part_names, quiet

from mt.config.schema import DataConfig
from mt.corpora import multi30k
from mt.corpora.formats import count_pairs, read_pairs
from mt.corpora.locate import locate
from mt.errors import DataUnavailable, UserError
from mt.files import sha256_of

MT_DATA = os.environ.get("MT_DATA", "absent")
needs_multi30k = pytest.mark.skipif(not Path(MT_DATA, "multi30k").is_dir(), reason="MT_DATA with multi30k is not there")


@needs_multi30k
def test_multi30k_on_the_real_files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MT_DATA", MT_DATA)
    found = locate(DataConfig(), quiet)
    assert (count_pairs(found.train), count_pairs(found.dev)) == (29_000, 1014)
    assert {name: count_pairs(split) for name, split in found.tests.items()} == {
        "test_2016_flickr": 1000,
        "test_2017_flickr": 1000,
        "test_2017_mscoco": 461,
        "test_2018_flickr": 1071,
    }
    assert not found.hold_out_dev
    assert not list(here.iterdir())
    assert next(read_pairs(found.train))[1] == ("Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.")


@needs_multi30k
@pytest.mark.parametrize(
    ("source", "target", "tests"), [("de", "en", 4), ("en", "fr", 4), ("en", "cs", 2), ("cs", "fr", 2)]
)
def test_multi30k_directions(source: str, target: str, tests: int, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MT_DATA", MT_DATA)
    found = locate(DataConfig(source=source, target=target), quiet)
    assert len(found.tests) == tests
    assert part_names(found.train) == [f"train.{source}.gz", f"train.{target}.gz"]
    assert count_pairs(found.train) == 29_000


@needs_multi30k
def test_multi30k_sums_are_the_published_ones() -> None:
    published = (line.split() for line in Path(MT_DATA, "multi30k", "SHA256SUMS").read_text().splitlines())
    assert {name: sha256 for sha256, name in published} == multi30k.checksums()


def multi30k_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write small files with all names, and replace the real checksums by theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in multi30k.checksums():
        (folder / name).write_bytes(gzip.compress(f"{name}\n".encode(), mtime=0))
    sums = {name: sha256_of(folder / name) for name in multi30k.checksums()}
    monkeypatch.setattr(multi30k, "checksums", lambda: sums)


def test_multi30k_is_downloaded_once(web: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    multi30k_files(web.root, monkeypatch)
    web.cuts["train.de.gz"] = 10
    found = locate(DataConfig(), quiet)
    folder = web.here / "data/raw/multi30k"
    assert len(list(folder.iterdir())) == 4  # no test sets yet
    parts = all_parts(found)
    assert len(list(folder.iterdir())) == 12
    assert list(read_pairs(found.train)) == [("train.en.gz", "train.de.gz")]
    monkeypatch.setattr(multi30k, "URL", "http://127.0.0.1:9")
    assert all_parts(locate(DataConfig(), quiet)) == parts


def test_multi30k_raw_dir_comes_before_mt_data(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("mine", "env/multi30k", "data/raw/multi30k"):
        multi30k_files(here / folder, monkeypatch)
    monkeypatch.setenv("MT_DATA", "env")

    def folder_of(config: DataConfig) -> Path:
        return locate(config, quiet).train[0].source_path.parent

    assert folder_of(DataConfig(raw_dir="mine")) == here / "mine"
    assert folder_of(DataConfig(raw_dir="nowhere")) == here / "env/multi30k"
    assert folder_of(DataConfig()) == here / "env/multi30k"
    monkeypatch.delenv("MT_DATA")
    assert folder_of(DataConfig(raw_dir="nowhere")) == here / "data/raw/multi30k"


def test_multi30k_takes_plain_files_and_no_mac_attributes(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = here / "data/raw/multi30k"
    multi30k_files(folder, monkeypatch)
    (folder / "train.en.gz").unlink()
    (folder / "train.en").write_text("plain\n")
    monkeypatch.setitem(multi30k.LINES, "train", 1)
    (folder / "._train.en.gz").write_bytes(b"\x00\x05\x16\x07")
    assert next(read_pairs(locate(DataConfig(), quiet).train))[0] == "plain"
    (folder / "train.en").write_text("made up\n" * 20)
    with pytest.raises(UserError, match="20 lines"):
        locate(DataConfig(), quiet)


def test_multi30k_damaged_file_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    multi30k_files(here / "mine", monkeypatch)
    (here / "mine/val.de.gz").write_bytes(gzip.compress(b"changed\n"))
    with pytest.raises(UserError) as caught:
        locate(DataConfig(raw_dir="mine"), quiet)
    path, expected = here / "mine/val.de.gz", multi30k.checksums()["val.de.gz"]
    assert all(word in str(caught.value) for word in (str(path), expected, sha256_of(path)))


def test_multi30k_out_of_reach_names_the_ways_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    start = time.monotonic()
    with pytest.raises(DataUnavailable) as caught:
        locate(DataConfig(), quiet)
    assert time.monotonic() - start < 5
    ways = (
        "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/train.en.gz",
        str(here / "data/raw/multi30k"),
        "data=files",
        "experiment=captions",
    )
    assert all(way in str(caught.value) for way in ways) and "\n" not in str(caught.value)


def test_multi30k_has_four_languages(here: Path) -> None:
    with pytest.raises(UserError, match=r"data\.target=es.*en, de, fr, cs"):
        locate(DataConfig(target="es"), quiet)
    assert not list(here.iterdir())
