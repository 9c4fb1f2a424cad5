"""The user's own files."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from corpora_support import part_names, quiet

from mt.config.schema import Corpus, DataConfig
from mt.corpora.formats import read_pairs
from mt.corpora.locate import locate
from mt.errors import UserError


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
        ({"train": ["a.en"]}, r"data\.train: .*a\.en is not followed by its translations"),
        ({"train": ["a.en", "c.tsv", "a.de"]}, r"a\.en is not followed by its translations"),
        ({"train": ["a.en", "a.de", "b.en"]}, r"b\.en is not followed by its translations"),
        ({"train": ["a.en", "no.de"]}, r"data\.train: /.*/no\.de: no such file"),
        ({"train": ["c.tsv"], "dev": ["a.en"]}, r"data\.dev: .*a\.en is not followed"),
        ({"train": ["c.tsv"], "test": {"news": ["a.en"]}}, r"data\.test\.news: .*a\.en is not followed"),
        ({"train": ["c.tsv"], "test": {"../x": ["c.tsv"]}}, r"data\.test: the name '\.\./x'"),
        ({"train": ["c.tsv"], "test": 3}, r"data\.test=3 must be a list"),
        ({"train": ["c.tsv"], "test": [["a.en", "a.de"]]}, r"must be a list of files"),
        ({"train": ["._a.en", "a.de"]}, r"\._a\.en holds macOS file attributes"),
    ],
)
def test_entries_that_make_no_pairs_are_refused(own: Path, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        locate(files(**keys), quiet)


def test_swapped_files_are_warned_of(own: Path) -> None:
    said: list[str] = []
    locate(files(train=["a.en", "a.de", "c.tsv"]), said.append)
    assert said == []
    locate(files(train=["a.de", "a.en"]), said.append)
    assert len(said) == 1 and "are they swapped?" in said[0]
