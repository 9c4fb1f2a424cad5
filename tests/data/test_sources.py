"""Where the files of each corpus come from: folders, a local server in the network's place, the generator."""

import gzip
import io
import os
import tarfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mt.config import Corpus, DataConfig
from mt.data import multi30k
from mt.data import wmt14 as wmt14_files
from mt.data.download import DataUnavailable, sha256_of
from mt.data.sources import Sources, locate
from mt.data.text import Bitext, count_pairs, read_lines, read_pairs
from mt.errors import UserError

MT_DATA = os.environ.get("MT_DATA", "absent")
needs_multi30k = pytest.mark.skipif(not Path(MT_DATA, "multi30k").is_dir(), reason="MT_DATA with multi30k is not there")


def quiet(line: str) -> None:
    pass


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; the first answer for a name in `cuts` ends after that many bytes, ranges are known."""

    cuts: dict[str, int]

    def do_GET(self) -> None:
        name = self.path.rsplit("/", 1)[-1]
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            return self.send_error(404)
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        body = file.read_bytes()
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        self.wfile.write(body[start : self.cuts.pop(name, None)])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A folder served in place of the real addresses; the current folder is a new one, without MT_DATA."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("MT_DATA", raising=False)
    root, here = tmp_path / "web", tmp_path / "here"
    root.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(Handler, "cuts", {}, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(multi30k, "URL", url)
    monkeypatch.setattr(wmt14_files, "URL", url)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield SimpleNamespace(root=root, here=here, url=url, cuts=Handler.cuts)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MT_DATA", raising=False)
    return tmp_path


def all_parts(found: Sources) -> tuple[list[Bitext], list[Bitext], dict[str, list[Bitext]]]:
    """Every split; test files are looked for only now."""
    return found.train, found.dev, found.tests


def part_names(split: list[Bitext]) -> list[str]:
    return [path.name for part in split for path in (part.source_path, part.target_path) if path]


# Multi30k


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
    assert {name: sha256 for sha256, name in published} == multi30k.SHA256


def multi30k_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files of all names, with their own sums in place of the real ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in multi30k.SHA256:
        (folder / name).write_bytes(gzip.compress(f"{name}\n".encode(), mtime=0))
    sums = {name: sha256_of(folder / name) for name in multi30k.SHA256}
    monkeypatch.setattr(multi30k, "SHA256", sums)


def test_multi30k_is_downloaded_once(web: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    multi30k_files(web.root, monkeypatch)
    web.cuts["train.de.gz"] = 10
    found = locate(DataConfig(), quiet)
    folder = web.here / "data/raw/multi30k"
    assert len(list(folder.iterdir())) == 4  # nothing of the test sets yet
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
    path, expected = here / "mine/val.de.gz", multi30k.SHA256["val.de.gz"]
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


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (DataConfig(target="es"), "data.target=es.*en, de, fr, cs"),
        (DataConfig(corpus=Corpus.wmt14, source="fr", target="de"), "en-de, de-en, en-fr and fr-en"),
        (DataConfig(corpus=Corpus.wmt14, target="cs"), "en-de, de-en, en-fr and fr-en"),
        (DataConfig(corpus=Corpus.captions, source="fr"), "data.source=fr.*en, de"),
        (DataConfig(train=["a.en", "a.de"]), "data.train is for data=files only"),
        (DataConfig(corpus=Corpus.captions, test={"t": ["a.en", "a.de"]}), "data.test is for data=files"),
    ],
)
def test_impossible_requests_are_refused(here: Path, config: DataConfig, words: str) -> None:
    with pytest.raises(UserError, match=words):
        locate(config, quiet)
    assert not list(here.iterdir())


# WMT14


def tar(path: Path, files: dict[str, bytes]) -> None:
    """An archive with the given files, and with traps around them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    traps = {"../escaped": b"x", "training/._attributes": b"\x00", "training/europarl-v7.cs-en.cs": b"x\n"}
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        link = tarfile.TarInfo("training/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
        for name, content in {**traps, **files}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


WMT_LAYOUT = {
    "wmt13/training-parallel-europarl-v7.tgz": "training/europarl-v7.{}-en.{}",
    "wmt13/training-parallel-commoncrawl.tgz": "commoncrawl.{}-en.{}",
    "wmt13/training-parallel-un.tgz": "un/undoc.2000.{}-en.{}",
    "wmt14/training-parallel-nc-v9.tgz": "training/news-commentary-v9.{}-en.{}",
    "wmt10/training-giga-fren.tar": "giga-fren.release2.fixed.{1}.gz",
}


@pytest.fixture
def wmt(web: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Small archives with the real layout on the server, and sacreBLEU's sets as files of 2 and 3 lines."""
    for archive, layout in WMT_LAYOUT.items():
        files = {}
        for other in ("de", "fr"):
            for language in ("en", other):
                name = layout.format(other, language)
                content = f"{archive} {language}\u2028\nsecond\n".encode()
                files[name] = gzip.compress(content) if name.endswith(".gz") else content
        tar(web.root / archive, files)
    web.asked = []

    def sacrebleu_files(name: str, direction: str) -> tuple[Path, Path]:
        web.asked.append((name, direction))
        paths = tuple(web.root / f"{name.replace('/', '_')}.{direction}.{side}" for side in ("src", "ref"))
        for path in paths:
            path.write_text(f"{path.name}\n" * (2 if name == "wmt13" else 3), "utf-8")
        return paths[0], paths[1]

    monkeypatch.setattr(wmt14_files, "_sacrebleu_files", sacrebleu_files)
    monkeypatch.setattr(wmt14_files, "SETS", {"newstest2013": ("wmt13", 2), "newstest2014": ("wmt14/full", 3)})
    return web


def wmt14(source: str, target: str, **keys: Any) -> DataConfig:
    return DataConfig(corpus=Corpus.wmt14, source=source, target=target, **keys)


def test_wmt14_from_nothing_to_pairs(wmt: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    wmt.cuts["training-parallel-commoncrawl.tgz"] = 100
    found = locate(wmt14("en", "de"), quiet)
    assert part_names(found.train) == [
        f"{stem}.de-en.{language}"
        for stem in ("europarl-v7", "commoncrawl", "news-commentary-v9")
        for language in ("en", "de")
    ]
    pairs = list(read_pairs(found.train))
    archives = ("wmt13/training-parallel-europarl-v7.tgz", "wmt13/training-parallel-commoncrawl.tgz")
    assert [pairs[0][0], pairs[2][1]] == [f"{archives[0]} en\u2028", f"{archives[1]} de\u2028"]
    assert len(pairs) == 6
    assert wmt.asked == [("wmt13", "en-de")]  # the test set comes when it is asked for
    parts = all_parts(found)
    assert wmt.asked == [("wmt13", "en-de"), ("wmt14/full", "en-de")]
    assert (count_pairs(found.dev), count_pairs(found.tests["newstest2014"])) == (2, 3)
    assert next(read_pairs(found.dev)) == ("wmt13.en-de.src", "wmt13.en-de.ref")

    folder = wmt.here / "data/raw/wmt14_en_de"
    names = {path.name for path in folder.iterdir()}
    assert len(names) == 3 + 6 + 4 + 1 and not any(name.startswith(".") for name in names)
    assert not list(wmt.here.rglob("escaped")) and not list(wmt.here.rglob("link"))

    # all there: neither the server nor sacreBLEU nor the archives are needed again, in either direction
    monkeypatch.setattr(wmt14_files, "URL", "http://127.0.0.1:9")
    for archive in folder.glob("*.tgz"):
        archive.unlink()
    assert all_parts(locate(wmt14("en", "de"), quiet)) == parts
    assert [pair[::-1] for pair in read_pairs(locate(wmt14("de", "en"), quiet).train)] == pairs
    assert len(wmt.asked) == 2


def test_wmt14_french_has_its_own_list(wmt: SimpleNamespace) -> None:
    found = locate(wmt14("fr", "en", raw_dir="mine"), quiet)
    assert part_names(found.train)[::2] == [
        "europarl-v7.fr-en.fr",
        "commoncrawl.fr-en.fr",
        "undoc.2000.fr-en.fr",
        "news-commentary-v9.fr-en.fr",
        "giga-fren.release2.fixed.fr.gz",
    ]
    assert list(read_pairs(found.train))[-2:] == [
        ("wmt10/training-giga-fren.tar fr\u2028", "wmt10/training-giga-fren.tar en\u2028"),
        ("second", "second"),
    ]
    assert {path.parent for part in found.train for path in (part.source_path,)} == {wmt.here / "mine"}


def test_wmt14_changed_files_are_refused(wmt: SimpleNamespace) -> None:
    all_parts(locate(wmt14("en", "de"), quiet))
    folder = wmt.here / "data/raw/wmt14_en_de"
    for name in ("commoncrawl.de-en.de", "newstest2014.en"):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(before + b"more\n")
        with pytest.raises(UserError, match=name):
            all_parts(locate(wmt14("en", "de"), quiet))
        (folder / name).write_bytes(before)
    archive = folder / "training-parallel-nc-v9.tgz"
    archive.write_bytes(b"another")
    (folder / "news-commentary-v9.de-en.en").unlink()
    with pytest.raises(UserError, match="training-parallel-nc-v9"):
        locate(wmt14("en", "de"), quiet)


def test_wmt14_lost_file_comes_back_from_its_archive(wmt: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = locate(wmt14("en", "de"), quiet)
    parts = all_parts(found)
    found.train[1].source_path.unlink()
    monkeypatch.setattr(wmt14_files, "URL", "http://127.0.0.1:9")
    assert all_parts(locate(wmt14("en", "de"), quiet)) == parts
    assert count_pairs(found.train) == 6


def test_wmt14_damaged_download_can_be_repeated(wmt: SimpleNamespace) -> None:
    served = wmt.root / "wmt14/training-parallel-nc-v9.tgz"
    good = served.read_bytes()
    served.write_bytes(good[: len(good) // 2])
    with pytest.raises(UserError, match=r"training-parallel-nc-v9\.tgz .* delete it and run again"):
        locate(wmt14("en", "de"), quiet)
    served.write_bytes(good)
    (wmt.here / "data/raw/wmt14_en_de" / served.name).unlink()
    assert count_pairs(locate(wmt14("en", "de"), quiet).train) == 6


def test_wmt14_test_set_of_another_size_is_refused(wmt: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wmt14_files, "SETS", {"newstest2013": ("wmt13", 2), "newstest2014": ("wmt14/full", 3003)})
    found = locate(wmt14("en", "de"), quiet)
    with pytest.raises(UserError, match="3 lines instead of 3003"):
        found.find_tests["newstest2014"]()


def test_wmt14_out_of_reach(web: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wmt14_files, "URL", "http://127.0.0.1:9")
    with pytest.raises(DataUnavailable, match=r"training-parallel-europarl-v7\.tgz .*data/raw/wmt14_en_de"):
        locate(wmt14("en", "de"), quiet)


def test_sacrebleu_sets_are_the_full_ones() -> None:
    from sacrebleu.dataset import DATASETS

    assert wmt14_files.SETS == {"newstest2013": ("wmt13", 3000), "newstest2014": ("wmt14/full", 3003)}
    for name, _ in wmt14_files.SETS.values():
        assert {"en-de", "de-en", "en-fr", "fr-en"} <= DATASETS[name].langpairs.keys()


def test_sacrebleu_is_asked_for_source_and_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sacrebleu.dataset import DATASETS

    monkeypatch.setattr(DATASETS["wmt14/full"], "_outdir", str(tmp_path))
    for field in ("src", "ref", "docid", "genre", "origlang"):
        (tmp_path / f"wmt14_full.de-en.{field}").write_text(field)
    found = wmt14_files._sacrebleu_files("wmt14/full", "de-en")
    assert [path.read_text() for path in found] == ["src", "ref"]


@pytest.mark.parametrize("error", [SystemExit(1), OSError("no route"), Exception("No such pair")])
def test_sacrebleu_failures_are_one_line(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    from sacrebleu import utils

    def fail(name: str, direction: str) -> str:
        assert socket.getdefaulttimeout() is not None
        raise error

    monkeypatch.setattr(utils, "get_source_file", fail)
    with pytest.raises(DataUnavailable, match="wmt13 en-de"):
        wmt14_files._sacrebleu_files("wmt13", "en-de")
    assert socket.getdefaulttimeout() is None


# The user's own files


@pytest.fixture
def own(here: Path) -> Path:
    for name in ("a.en", "a.de", "b.en", "b.de"):
        (here / name).write_text(f"{name}\n")
    (here / "c.tsv").write_text("c.en\tc.de\n")
    (here / "d.jsonl.gz").write_bytes(gzip.compress(b'{"en": "d.en", "de": "d.de"}\n'))
    return here


def files(**keys: Any) -> DataConfig:
    return DataConfig(corpus=Corpus.files, **keys)


def test_own_files_in_every_form(own: Path) -> None:
    found = locate(files(train=["a.en", "a.de", "c.tsv", "b.en", "b.de", "d.jsonl.gz"]), quiet)
    assert list(read_pairs(found.train)) == [(f"{name}.en", f"{name}.de") for name in "acbd"]
    assert found.train[0].source_path == own / "a.en"
    assert (found.dev, found.tests, found.hold_out_dev) == ([], {}, True)
    backwards = locate(files(train=["d.jsonl.gz"], source="de", target="en"), quiet)
    assert list(read_pairs(backwards.train)) == [("d.de", "d.en")]


def test_own_test_sets_are_one_list_or_named(own: Path) -> None:
    found = locate(files(train=["c.tsv"], dev=["a.en", "a.de"], test=["b.en", "b.de"]), quiet)
    assert not found.hold_out_dev
    assert {name: part_names(split) for name, split in found.tests.items()} == {"test": ["b.en", "b.de"]}
    assert list(locate(files(train=["c.tsv"], test="c.tsv"), quiet).tests) == ["test"]
    named = locate(files(train=["c.tsv"], test={"news": ["c.tsv"], 2016: ["a.en", "a.de"], "no": []}), quiet)
    assert {name: part_names(split) for name, split in named.tests.items()} == {
        "news": ["c.tsv"],
        "2016": ["a.en", "a.de"],
    }
    assert locate(files(train=["c.tsv"], test=[]), quiet).tests == {}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, r"data\.train=\[train\.en,train\.de\]"),
        ({"train": ["a.en"]}, r"data\.train: .*a\.en has no file of translations"),
        ({"train": ["a.en", "c.tsv", "a.de"]}, r"a\.en has no file of translations"),
        ({"train": ["a.en", "a.de", "b.en"]}, r"b\.en has no file of translations"),
        ({"train": ["a.en", "no.de"]}, r"data\.train: /.*/no\.de: no such file"),
        ({"train": ["c.tsv"], "dev": ["a.en"]}, r"data\.dev: .*a\.en has no"),
        ({"train": ["c.tsv"], "test": {"news": ["a.en"]}}, r"data\.test\.news: .*a\.en has no"),
        ({"train": ["c.tsv"], "test": {"../x": ["c.tsv"]}}, r"data\.test: the name '\.\./x'"),
        ({"train": ["c.tsv"], "test": 3}, r"data\.test=3 must be a list"),
        ({"train": ["c.tsv"], "test": [["a.en", "a.de"]]}, r"must be a list of files"),
        ({"train": ["._a.en", "a.de"]}, r"\._a\.en holds a Mac's file attributes"),
    ],
)
def test_entries_that_make_no_pairs_are_refused(own: Path, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        locate(files(**keys), quiet)


def test_files_the_wrong_way_round_are_warned_of(own: Path) -> None:
    said: list[str] = []
    locate(files(train=["a.en", "a.de", "c.tsv"]), said.append)
    assert said == []
    locate(files(train=["a.de", "a.en"]), said.append)
    assert len(said) == 1 and "wrong way round" in said[0]


# Captions


@pytest.fixture
def generated(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A generator of a few pairs in the real one's place; the list grows with each use."""
    from mt.data import captions

    uses: list[int] = []

    def generate() -> SimpleNamespace:
        uses.append(1)
        splits = {"train": 3, "dev": 2, "test": 1}
        return SimpleNamespace(
            **{name: [(f"{name} {n}", f"{name} {n} ä") for n in range(size)] for name, size in splits.items()}
        )

    monkeypatch.setattr(captions, "generate", generate, raising=False)
    return uses


def test_captions_are_generated_once(here: Path, generated: list[int]) -> None:
    found = locate(DataConfig(corpus=Corpus.captions), quiet)
    folder = here / "data/raw/captions"
    assert {path.name for path in folder.iterdir()} == {
        f"{split}.{language}" for split in ("train", "dev", "test") for language in ("en", "de")
    }
    assert [path.name for path in folder.parent.iterdir()] == ["captions"]
    assert [count_pairs(split) for split in (found.train, found.dev, found.tests["test"])] == [3, 2, 1]
    assert list(found.tests) == ["test"]
    assert list(read_lines(folder / "train.de"))[2] == "train 2 ä"
    backwards = locate(DataConfig(corpus=Corpus.captions, source="de", target="en"), quiet)
    assert next(read_pairs(backwards.train)) == ("train 0 ä", "train 0")
    assert len(generated) == 1


def test_captions_spare_a_folder_with_other_files(here: Path, generated: list[int]) -> None:
    (here / "mine").mkdir()
    assert count_pairs(locate(DataConfig(corpus=Corpus.captions, raw_dir="mine"), quiet).train) == 3
    (here / "mine/train.en").unlink()
    with pytest.raises(UserError, match=r"cannot make .*mine.*data\.raw_dir"):
        locate(DataConfig(corpus=Corpus.captions, raw_dir="mine"), quiet)
    assert [path.name for path in here.iterdir()] == ["mine"]


def test_a_run_that_moved_finds_its_sets_where_they_lie_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for split in ("train", "dev", "test"):
        for language in ("en", "de"):
            path = tmp_path / "data/raw/captions" / f"{split}.{language}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a\n")
    gone = DataConfig(corpus=Corpus.captions, raw_dir=str(tmp_path / "elsewhere" / "captions"))
    found = locate(gone, quiet, training=False)
    assert found.dev[0].source_path == tmp_path / "data/raw/captions/dev.en"
    assert not (tmp_path / "elsewhere").exists()
