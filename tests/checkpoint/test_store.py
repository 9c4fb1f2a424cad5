"""The checkpoints of a run: saved, found again, and skipped if they are corrupt."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from tests_support import save_checkpoint

from mt.checkpoint.folder import Checkpoint
from mt.config.schema import Which
from mt.errors import UserError
from mt.run_folder import find_checkpoint


def test_the_average_is_the_mean_and_of_one_the_same(store, toy_model, toy_tokenizers):
    save_checkpoint(store, toy_model, toy_tokenizers, 900)
    before = {name: parameter.detach().clone() for name, parameter in toy_model.named_parameters()}
    with torch.no_grad():
        for parameter in toy_model.parameters():
            parameter.add_(1)
    save_checkpoint(store, toy_model, toy_tokenizers, 1000)
    mean = Checkpoint.open(store.average(["update-0000900", "update-0001000"])).load_weights()
    for name, parameter in before.items():
        torch.testing.assert_close(mean[name], parameter + 0.5)
    one = Checkpoint.open(store.average(["update-0000900"])).load_weights()
    assert all(torch.equal(one[name], before[name]) for name in before)


def test_checkpoints_are_picked_by_number_or_by_score(store, toy_model, toy_tokenizers):
    for update, score in ((9_999_900, 30.0), (9_999_999, 10.0), (10_000_000, 20.0), (10_000_001, None)):
        save_checkpoint(store, toy_model, toy_tokenizers, update, score)
    assert store.pick(2, Which.last) == ["update-10000000", "update-10000001"]
    assert store.pick(2, Which.best) == ["update-9999900", "update-10000000"]


def test_deleting_spares_what_the_index_names(store, toy_model, toy_tokenizers):
    for update in (1, 2, 3):
        save_checkpoint(store, toy_model, toy_tokenizers, update)
    store.set(best="update-0000001")
    store.delete(store.names())
    assert store.names() == ["update-0000001", "update-0000003"]


def test_a_failed_save_leaves_nothing_and_keeps_the_old(store, toy_model, toy_tokenizers, monkeypatch):
    save_checkpoint(store, toy_model, toy_tokenizers, 1)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"update-0000002.*No space"):
        save_checkpoint(store, toy_model, toy_tokenizers, 2)
    monkeypatch.undo()
    assert sorted(path.name for path in store.folder.iterdir()) == ["index.json", "update-0000001"]
    assert find_checkpoint(store.run.path).name == "update-0000001"


@pytest.mark.parametrize(
    "error", [SafetensorError("No space left\n(os error 28)"), RuntimeError("file write failed\n")]
)
def test_what_the_writers_raise_for_a_full_disk_is_one_line(store, toy_model, toy_tokenizers, monkeypatch, error):
    save_checkpoint(store, toy_model, toy_tokenizers, 1)

    def full(*arguments):
        raise error

    monkeypatch.setattr("mt.checkpoint.folder.save_file", full)
    with pytest.raises(UserError, match="cannot save") as told:
        save_checkpoint(store, toy_model, toy_tokenizers, 2)
    assert "\n" not in str(told.value)
    assert store.names() == ["update-0000001"]


def test_what_a_killed_process_left_is_removed(store, toy_model, toy_tokenizers):
    folder = save_checkpoint(store, toy_model, toy_tokenizers, 1)
    (folder.parent / ".update-0000002.123").mkdir()
    (folder.parent / ".index.json.123").write_text("")
    store.clean()
    assert sorted(path.name for path in store.folder.iterdir()) == ["index.json", "update-0000001"]


@pytest.fixture
def three(store, toy_model, toy_tokenizers):
    """A store with checkpoints of updates 1 to 3; the second is the best."""
    for update in (1, 2, 3):
        save_checkpoint(store, toy_model, toy_tokenizers, update)
    store.set(best="update-0000002", previous="update-0000002")
    return store


def newest(store):
    said: list[str] = []
    found = store.newest(said.append)
    return (found.folder.name if found else None), said


FILES = ["model.safetensors", "config.yaml", "tokenizer.model", "tokenizer.json", "meta.json"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("fault", ["gone", "empty", "cut", "changed"])
def test_a_corrupt_checkpoint_is_put_aside_with_a_warning_and_the_one_before_it_is_taken(three, file, fault):
    path = three.folder / "update-0000003" / file
    content = path.read_bytes()
    if fault == "gone":
        path.unlink()
    else:
        changed = content[:-20] + bytes(byte ^ 1 for byte in content[-20:])
        path.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "changed": changed}[fault])
    name, said = newest(three)
    assert name == "update-0000002"
    assert len(said) == 1 and "renamed to damaged-update-0000003, and the run resumes from update-0000002" in said[0]
    assert three.index() == {"last": "update-0000002", "best": "update-0000002", "previous": "update-0000002"}
    assert three.names() == ["update-0000001", "update-0000002"]
    assert (three.folder / "damaged-update-0000003").is_dir()  # nothing is deleted
    assert newest(three) == ("update-0000002", [])


def test_an_empty_folder_is_corrupt_and_several_may_be(three):
    for path in (three.folder / "update-0000003").iterdir():
        path.unlink()
    (three.folder / "update-0000002" / "model.safetensors").write_bytes(b"")
    name, said = newest(three)
    assert name == "update-0000001" and len(said) == 2
    assert three.index() == {"last": "update-0000001"}


def test_a_run_with_a_past_never_begins_again_by_itself(three):
    for name in three.names():
        (three.folder / name / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"no intact checkpoint to resume from.*remove .*run to start again"):
        newest(three)
    assert len(three.names()) == 3  # none is renamed
    for name in three.names():
        (three.folder / name / "meta.json").unlink()
    with pytest.raises(UserError, match="no intact checkpoint"):
        newest(three)


def test_nothing_saved_is_no_past(store):
    assert newest(store) == (None, [])
    store.folder.mkdir(parents=True)
    assert newest(store) == (None, [])


def test_a_newer_format_is_refused_and_not_taken_for_corrupt(three):
    path = three.folder / "update-0000003" / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(UserError, match="format 99"):
        newest(three)
    assert (three.folder / "update-0000003").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"last": 3}', '{"last": "update-0000001"}'])
def test_an_index_that_is_corrupt_or_behind_is_repaired(three, text):
    (three.folder / "index.json").write_text(text)
    name, said = newest(three)
    assert name == "update-0000003" == three.index()["last"]
    assert len(said) == (not text.endswith('1"}'))


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_kill_while_a_checkpoint_is_replaced_loses_none(three, toy_model, toy_tokenizers, monkeypatch, moment):
    """A run saves a checkpoint again if a signal interrupted its validation."""
    before = (three.folder / "update-0000003" / "meta.json").read_text()
    calls = 0
    real = Path.rename

    class Killed(BaseException):
        pass

    def rename(path, target):
        nonlocal calls
        calls += 1
        if calls == moment:
            raise Killed
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    if moment < 3:
        with pytest.raises(Killed):
            save_checkpoint(three, toy_model, toy_tokenizers, 3, score=5.0)
    else:
        save_checkpoint(three, toy_model, toy_tokenizers, 3, score=5.0)
    monkeypatch.undo()
    three.clean()
    assert newest(three) == ("update-0000003", [])
    after = (three.folder / "update-0000003" / "meta.json").read_text()
    assert (after == before) == (moment < 3)
    assert not list(three.folder.glob(".*"))


def test_an_index_that_cannot_be_written_is_one_line_and_the_old_one_remains(three, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match="No space left"):
        three.set(last="update-0000001")
    assert three.index()["last"] == "update-0000003"


def test_an_average_is_made_again_if_it_is_corrupt_or_of_other_weights(three, toy_model, toy_tokenizers):
    names = ["update-0000001", "update-0000002"]
    folder = three.average(names)
    stamp = (folder / "meta.json").stat().st_mtime_ns
    assert three.average(names) == folder and (folder / "meta.json").stat().st_mtime_ns == stamp
    (folder / "model.safetensors").write_bytes(b"")
    again = three.average(names)
    assert again != folder and three.intact(again.name) and not three.intact(folder.name)
    with torch.no_grad():
        toy_model.output.weight.add_(1)
    save_checkpoint(three, toy_model, toy_tokenizers, 2)  # other weights under the same name
    other = three.average(names)
    assert other not in (folder, again)
    assert find_checkpoint(three.run.path) == other
