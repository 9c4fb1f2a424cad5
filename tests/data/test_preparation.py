"""Prepared corpora are found again, are never half-written, and have only their training text cleaned."""

import json
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from data_support import TOKENIZER, run, texts
from tests_support import toy_pairs, write_pairs

from mt.config.schema import InvalidText
from mt.data import preparation
from mt.errors import UserError


def test_what_is_on_disk_is_the_text(config):
    prepared, _ = run(config)
    pairs = toy_pairs(120)
    assert list(zip(texts(prepared, "source"), texts(prepared, "target"), strict=True)) == pairs[:100]
    assert list(zip(prepared.dev.sources, prepared.dev.references, strict=True)) == pairs[100:]
    assert prepared.source.ids.dtype == np.uint16 and isinstance(prepared.source.ids, np.memmap)
    assert prepared.source.lengths().tolist() == [len(prepared.source[i]) + 1 for i in range(100)]


def test_it_is_found_again_and_other_options_or_text_make_another(config, tmp_path, monkeypatch):
    first, _ = run(config)
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "train_tokenizers", None)  # must not be needed
        again, lines = run(config)
        assert again.folder == first.folder and lines[0].startswith("prepared corpus:")
        assert any("100 kept" in line for line in lines)
    others = [
        run(config, replace(TOKENIZER, vocab_size=329))[0],
        run(replace(config, max_ratio=8.0))[0],
        run(config, seed=2)[0],
    ]
    assert run(config, replace(TOKENIZER, sampling=0.1))[0].folder == first.folder  # the ids stored are the same
    write_pairs(tmp_path, "train", toy_pairs(99))
    others.append(run(config)[0])
    assert len({first.folder, *(other.folder for other in others)}) == 5


def test_the_same_files_in_other_roles_make_another(config):
    """Holding out a part of all text gives another corpus than validating on the development files."""
    both = run(replace(config, train=[*config.train, *config.dev], dev=[]))[0]
    assert both.folder != run(config)[0].folder


def test_a_folder_without_its_description_is_refused_before_the_work(config, monkeypatch):
    folder = run(config)[0].folder
    (folder / "meta.json").unlink()
    monkeypatch.setattr(preparation, "train_tokenizers", None)  # must not be called
    with pytest.raises(UserError, match=r"is incomplete \(it has no meta\.json\): remove the folder"):
        run(config)


def test_a_failure_leaves_nothing_behind(config, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise UserError("no")

    monkeypatch.setattr(preparation, "train_tokenizers", fail)
    with pytest.raises(UserError, match="no"):
        run(config)
    assert list((tmp_path / "prepared").iterdir()) == []


@pytest.mark.parametrize("stage", ["_write_ids", "_dev_remarks"])
def test_a_killed_preparation_resumes_with_what_it_had_finished(config, tmp_path, monkeypatch, stage):
    config = replace(config, max_tokens=8)  # some pairs are dropped after tokenization
    expected, _ = run(config)
    sums = {path.name: path.read_bytes() for path in expected.folder.iterdir() if path.suffix == ".npy"}
    shutil.rmtree(expected.folder)

    class Killed(BaseException):
        pass

    def killed(*arguments, **options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(preparation._Preparation, stage, killed)
        with pytest.raises(Killed):
            run(config)
    (left,) = (tmp_path / "prepared").iterdir()
    dead = subprocess.Popen(["true"])
    dead.wait()
    left.rename(left.with_suffix(f".{dead.pid}"))
    with monkeypatch.context() as patch:
        patch.setattr(preparation._Preparation, "_write_texts", None)  # must not be needed
        patch.setattr(preparation, "train_tokenizers", None)
        again, lines = run(config)
    assert "resuming with the text that was cleaned before" in lines
    assert {path.name: path.read_bytes() for path in again.folder.iterdir() if path.suffix == ".npy"} == sums
    assert again.cleaning == expected.cleaning and expected.cleaning["dropped"]
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == [again.folder.name]


def test_hashes_of_large_files_are_remembered_until_they_change(config, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "LARGE_FILE", 1)
    first = run(config)[0]
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "sha256_of", None)  # must not be needed
        assert run(config)[0].folder == first.folder
    (tmp_path / "prepared" / preparation.HASHES).write_text("[1", encoding="utf-8")
    assert run(config)[0].folder == first.folder
    write_pairs(tmp_path, "train", toy_pairs(99))
    assert run(config)[0].folder != first.folder


def test_unequal_files_are_refused_before_the_tokenizer_is_trained(config, tmp_path, monkeypatch):
    (tmp_path / "dev.de").write_text("nur eine Zeile\n", encoding="utf-8")
    monkeypatch.setattr(preparation, "train_tokenizers", None)
    with pytest.raises(UserError, match=r"20 lines but .* has 1 lines"):
        run(config)


def test_cleaning_drops_training_pairs_as_pairs_with_their_reasons_and_no_development_line(config, tmp_path):
    pairs = toy_pairs(120)
    train = [*pairs[:50], ("a dog", ""), ("the cat " * 300, "das Katze " * 300), ("a", "das " * 30), *pairs[50:100]]
    write_pairs(tmp_path, "train", train)
    write_pairs(tmp_path, "dev", [("", "leer"), ("the cat " * 300, "x"), *pairs[100:]])
    prepared, lines = run(replace(config, max_tokens=100))
    assert list(zip(texts(prepared, "source"), texts(prepared, "target"), strict=True)) == pairs[:100]
    assert prepared.cleaning["dropped"] == {
        "empty target": 1,
        "more than 100 tokens on one side": 1,
        "one side has more than 9 times as many tokens as the other": 1,
    }
    assert any("1 pair dropped: empty target" in line for line in lines)
    assert len(prepared.dev.sources) == 22
    assert json.loads((prepared.folder / "meta.json").read_text())["cleaning"]["kept"] == 100


def test_training_pairs_that_are_not_utf8_stop_or_are_dropped_and_development_pairs_always_stop(config, tmp_path):
    pairs = toy_pairs(120)
    content = (tmp_path / "train.de").read_bytes().split(b"\n")
    content[3] += b"\x80"
    (tmp_path / "train.de").write_bytes(b"\n".join(content))
    with pytest.raises(UserError, match=r"train\.de, line 4 is not UTF-8"):
        run(config)
    config = replace(config, invalid_utf8=InvalidText.skip)
    prepared, _ = run(config)
    assert texts(prepared, "source") == [source for source, _ in (*pairs[:3], *pairs[4:100])]
    assert prepared.cleaning["dropped"] == {"invalid UTF-8": 1} and prepared.cleaning["kept"] == 99
    assert prepared.where(3).endswith("line 5")
    (tmp_path / "dev.en").write_bytes(b"\x80" + (tmp_path / "dev.en").read_bytes())
    with pytest.raises(UserError, match=r"dev\.en, line 1 is not UTF-8"):
        run(config)


def test_a_corpus_of_nothing_but_too_long_lines_is_refused_by_the_limits_name(config, tmp_path):
    write_pairs(tmp_path, "train", [("the cat " * 300, "das Katze " * 300)] * 3)
    with pytest.raises(UserError, match="max_tokens"):
        run(config)
    with pytest.raises(UserError, match="max_characters"):
        run(replace(config, max_characters=100))


def test_nothing_left_beside_the_held_out_pairs_is_refused(config, tmp_path):
    write_pairs(tmp_path, "train", [(f"{pair[0]} " * 9, f"{pair[1]} " * 9) for pair in toy_pairs(40)])
    with pytest.raises(UserError, match="max_tokens"):
        run(replace(config, dev=[], max_tokens=10))


def test_without_development_files_a_part_of_training_is_held_out(config):
    prepared, _ = run(replace(config, dev=[]))
    dev = list(zip(prepared.dev.sources, prepared.dev.references, strict=True))
    train = list(zip(texts(prepared, "source"), texts(prepared, "target"), strict=True))
    assert len(dev) == 5
    assert sorted(dev + train) == sorted(toy_pairs(120)[:100])


def test_an_empty_development_file_is_refused(config, tmp_path):
    write_pairs(tmp_path, "dev", [])
    with pytest.raises(UserError, match="development set is empty"):
        run(config)


def test_line_ends_and_byte_order_marks_change_nothing(config, tmp_path):
    first, _ = run(config)
    for name in config.train:
        with open(name, "rb") as stream:
            content = stream.read()
        with open(name, "wb") as stream:
            stream.write(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n").removesuffix(b"\r\n"))
    second, _ = run(config)
    assert second.folder != first.folder
    assert (first.folder / "tokenizer.model").read_bytes() == (second.folder / "tokenizer.model").read_bytes()
    assert np.array_equal(first.source.ids, second.source.ids)


def test_a_character_of_the_development_set_alone_is_unknown_to_the_tokenizer(config, tmp_path):
    write_pairs(tmp_path, "dev", [("snow ☃ man", "Schnee ☃ Mann")])
    prepared, lines = run(config, replace(TOKENIZER, byte_fallback=False, vocab_size=60))
    assert 1 in prepared.tokenizers.source.encode(["☃"])[0]
    assert any("unknown tokens" in line and " 0.00% unknown" not in line for line in lines)
