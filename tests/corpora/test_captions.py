"""The embedded captions: their content, and how they are unpacked into the raw folder."""

import lzma
from importlib.resources import files
from pathlib import Path

import pytest
from corpora_support import all_parts, quiet

from mt.config.schema import Corpus, DataConfig
from mt.corpora import captions
from mt.corpora.formats import count_pairs, read_pairs
from mt.corpora.locate import locate
from mt.errors import UserError

CONFIG = DataConfig(corpus=Corpus.captions)
NAMES = {f"{split}.{language}" for split in ("test", "dev", "train") for language in ("en", "de")}


@pytest.fixture(scope="module")
def text() -> str:
    return lzma.decompress(files("mt.corpora").joinpath("captions.tsv.xz").read_bytes()).decode("utf-8")


def test_the_package_has_500_test_500_dev_and_20000_train_pairs(text: str) -> None:
    assert list(captions.SIZES.items()) == [("test", 500), ("dev", 500), ("train", 20_000)]
    pairs = [tuple(line.split("\t")) for line in text.removesuffix("\n").split("\n")]
    assert len(pairs) == 21_000 and all(len(pair) == 2 and all(pair) for pair in pairs)
    for column in (0, 1):
        assert len({pair[column] for pair in pairs}) == 21_000


def test_the_files_are_the_text_of_the_package(here: Path, text: str) -> None:
    found = locate(CONFIG, quiet)
    assert [count_pairs(split) for split in (found.tests["test"], found.dev, found.train)] == [500, 500, 20_000]
    assert list(found.tests) == ["test"] and not found.hold_out_dev
    pairs = [line.split("\t") for line in text.removesuffix("\n").split("\n")]
    for column, language in enumerate(("en", "de")):
        paths = [here / "data/raw/captions" / f"{split}.{language}" for split in ("test", "dev", "train")]
        assert b"".join(path.read_bytes() for path in paths) == "".join(f"{pair[column]}\n" for pair in pairs).encode()


def test_captions_are_unpacked_once_for_both_directions(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    found = locate(CONFIG, said.append)
    folder = here / "data/raw/captions"
    assert said == [f"unpacking the captions into {folder}"]
    assert {path.name for path in folder.iterdir()} == NAMES
    assert [path.name for path in folder.parent.iterdir()] == ["captions"]
    monkeypatch.setattr(captions, "_unpack", None)  # must not be needed
    assert all_parts(locate(CONFIG, said.append)) == all_parts(found)
    backwards = locate(DataConfig(corpus=Corpus.captions, source="de", target="en"), said.append)
    assert [pair[::-1] for pair in read_pairs(backwards.dev)] == list(read_pairs(found.dev))
    assert backwards.train[0].source_path == folder / "train.de"
    assert len(said) == 1


def test_only_missing_files_are_written(here: Path) -> None:
    config = DataConfig(corpus=Corpus.captions, raw_dir="mine")
    locate(config, quiet)
    folder = here / "mine"
    before = {name: (folder / name).read_bytes() for name in NAMES}
    for name in ("train.en", "dev.de", "test.en"):
        (folder / name).unlink()
    (folder / "notes.txt").write_text("mine\n")
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    locate(config, quiet)
    assert {path.name for path in folder.iterdir()} == {*NAMES, "notes.txt"}
    assert all((folder / name).read_bytes() == before[name] for name in NAMES)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert [path.name for path in here.iterdir()] == ["mine"]


def test_files_of_the_user_are_not_completed_with_the_captions(here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "train.de").write_text("nur eine Zeile\n")
    with pytest.raises(UserError, match=r"mine/train\.de is not part of this corpus: set data.raw_dir"):
        locate(DataConfig(corpus=Corpus.captions, raw_dir="mine"), quiet)
    assert (here / "mine" / "train.de").read_text() == "nur eine Zeile\n"


def test_captions_have_two_languages(here: Path) -> None:
    with pytest.raises(UserError, match=r"data\.source=fr.*en, de"):
        locate(DataConfig(corpus=Corpus.captions, source="fr"), quiet)
    assert not list(here.iterdir())


def test_a_folder_that_cannot_be_written_is_named(here: Path) -> None:
    (here / "mine").write_text("a file in the folder's place")
    with pytest.raises(UserError, match=r"cannot write .*mine.*data\.raw_dir"):
        locate(DataConfig(corpus=Corpus.captions, raw_dir="mine"), quiet)
