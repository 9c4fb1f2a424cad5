"""`mt prepare` prints the folder of the prepared corpus and looks for the test sets."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests_support import toy_pairs, write_pairs

from mt.cli import main
from mt.commands import COMMANDS
from mt.config.compose import compose
from mt.corpora import locate as corpora
from mt.data.corpus import PreparedCorpus
from mt.data.preparation import prepare
from mt.errors import DataUnavailable


@pytest.fixture
def corpus(tmp_path):
    """Overrides that name the files of a toy corpus."""
    pairs = toy_pairs(260)
    parts = {"train": pairs[:200], "dev": pairs[200:220], "test": pairs[220:]}
    files = {split: write_pairs(tmp_path, split, part) for split, part in parts.items()}
    overrides = [f"data.{split}=[{','.join(paths)}]" for split, paths in files.items()]
    return ["data=files", *overrides, f"data.prepared_dir={tmp_path / 'prepared'}", "tokenizer.vocab_size=330"]


def test_it_prints_the_folder_of_the_prepared_corpus(corpus, tmp_path, capsys):
    assert main(["prepare", *corpus]) == 0
    out, err = capsys.readouterr()
    folder = Path(out.removesuffix("\n"))
    assert folder.parent == tmp_path / "prepared" and folder.name.startswith("files-en-de-")
    assert f"preparing the corpus into {folder}" in err
    prepared = PreparedCorpus.load(folder)
    assert (len(prepared.source), len(prepared.dev.sources)) == (200, 20)
    assert 256 < prepared.tokenizers.source.size <= 330
    assert main(["prepare", *corpus]) == 0  # finds the prepared corpus
    again, err = capsys.readouterr()
    assert again == out and f"prepared corpus: {folder}" in err


def test_a_training_finds_what_was_prepared(corpus, capsys):
    assert main(["prepare", *corpus]) == 0
    folder = Path(capsys.readouterr().out.strip())
    config = compose(COMMANDS["train"], [*corpus, "model=base", "optim.warmup_steps=7"])
    told = []
    sources = corpora.locate(config.data, told.append)
    found = prepare(sources, config.data, config.tokenizer, config.seed, told.append)
    assert found.folder == folder and told[0] == f"prepared corpus: {folder}"


@pytest.mark.parametrize("override", ["tokenizer.vocab_size=340", "seed=2", "data.max_tokens=100"])
def test_other_text_or_tokenizers_are_another_corpus(override, corpus, capsys):
    folders = []
    for overrides in (corpus, [*corpus, override]):
        assert main(["prepare", *overrides]) == 0
        folders.append(capsys.readouterr().out)
    assert folders[0] != folders[1]


def test_it_looks_for_every_test_set_once_all_is_prepared(corpus, tmp_path, monkeypatch, capsys):
    locate, looked = corpora.locate, []

    def look(name):
        looked.append((name, len(list((tmp_path / "prepared").glob("files-en-de-*/meta.json")))))
        return []

    def with_tests(config, report):
        finders = {name: lambda name=name: look(name) for name in ("test_2016", "test_2017")}
        return replace(locate(config, report), find_tests=finders)

    monkeypatch.setattr("mt.corpora.locate.locate", with_tests)
    assert main(["prepare", *corpus]) == 0
    assert looked == [("test_2016", 1), ("test_2017", 1)]
    assert capsys.readouterr().out


def test_a_test_set_that_is_not_there_ends_it_with_its_own_exit_code(corpus, tmp_path, monkeypatch, capsys):
    locate = corpora.locate

    def missing():
        raise DataUnavailable("https://example.org/test_2016: no route")

    def with_tests(config, report):
        return replace(locate(config, report), find_tests={"test_2016": missing})

    monkeypatch.setattr("mt.corpora.locate.locate", with_tests)
    assert main(["prepare", *corpus]) == 3
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines()[-1] == "error: https://example.org/test_2016: no route"
    assert len(list((tmp_path / "prepared").glob("files-en-de-*/meta.json"))) == 1  # the prepared corpus is kept


def test_a_file_of_a_test_set_that_does_not_exist_is_a_mistake(corpus, tmp_path, capsys):
    test = f"data.test=[{tmp_path / 'no.en'},{tmp_path / 'no.de'}]"
    assert main(["prepare", *corpus, test]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == f"error: data.test: {tmp_path / 'no.en'}: no such file\n"
    assert not (tmp_path / "prepared").exists()
