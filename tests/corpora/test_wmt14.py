"""WMT14: small archives with the real layout on a server, and sacreBLEU's test sets."""

import gzip
import io
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from corpora_support import all_parts, part_names, quiet

from mt.config.schema import Corpus, DataConfig
from mt.corpora import wmt14 as wmt14_files
from mt.corpora.formats import count_pairs, read_pairs
from mt.corpora.locate import locate
from mt.errors import DataUnavailable, UserError


def tar(path: Path, files: dict[str, bytes]) -> None:
    """Write an archive with the given files and some malicious members."""
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
    assert wmt.asked == [("wmt13", "en-de")]  # the test set is not fetched yet
    parts = all_parts(found)
    assert wmt.asked == [("wmt13", "en-de"), ("wmt14/full", "en-de")]
    assert (count_pairs(found.dev), count_pairs(found.tests["newstest2014"])) == (2, 3)
    assert next(read_pairs(found.dev)) == ("wmt13.en-de.src", "wmt13.en-de.ref")

    folder = wmt.here / "data/raw/wmt14_en_de"
    names = {path.name for path in folder.iterdir()}
    assert len(names) == 3 + 6 + 4 + 1 and not any(name.startswith(".") for name in names)
    assert not list(wmt.here.rglob("escaped")) and not list(wmt.here.rglob("link"))

    # Once all files exist, neither direction needs the server, sacreBLEU or the archives
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


@pytest.mark.parametrize(("source", "target"), [("fr", "de"), ("en", "cs")])
def test_wmt14_has_four_directions(here: Path, source: str, target: str) -> None:
    with pytest.raises(UserError, match="en-de, de-en, en-fr and fr-en"):
        locate(wmt14(source, target), quiet)
    assert not list(here.iterdir())
