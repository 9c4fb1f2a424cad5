"""Where things are in a run folder, and which checkpoint a path means."""

import json

import pytest
from tests_support import save_checkpoint

from mt.errors import UserError
from mt.run_folder import RunFolder, checkpoint_name, find_checkpoint, run_of


def test_a_run_folder_gives_its_average_else_its_best_else_its_last(store, toy_model, toy_tokenizers, monkeypatch):
    for update in (1, 2, 3):
        save_checkpoint(store, toy_model, toy_tokenizers, update)
    run = store.run.path
    assert find_checkpoint(run) == store.folder / "update-0000003"
    store.set(best="update-0000002")
    assert find_checkpoint(run).name == "update-0000002"
    store.average(["update-0000001", "update-0000002"])
    assert find_checkpoint(run).name == "average-0000002-of-2"
    store.set(average=None)
    assert find_checkpoint(run).name == "update-0000002"
    monkeypatch.chdir(run.parent)
    assert find_checkpoint("run") == store.folder / "update-0000002"  # absolute


def test_a_checkpoint_folder_is_itself_whatever_the_index_says(store, toy_model, toy_tokenizers):
    for update in (1, 2):
        save_checkpoint(store, toy_model, toy_tokenizers, update)
    assert find_checkpoint(store.folder / "update-0000001") == store.folder / "update-0000001"


def test_a_missing_or_empty_folder_is_refused_with_its_key(tmp_path):
    with pytest.raises(UserError, match=r"^checkpoint=.*none: there is no folder"):
        find_checkpoint(tmp_path / "none")
    with pytest.raises(UserError, match=r"^checkpoint=.* contains no checkpoint"):
        find_checkpoint(tmp_path)
    (tmp_path / "checkpoints").mkdir()  # of a run that was killed before it saved anything
    with pytest.raises(UserError, match=r"^train\.init_from=.* contains no checkpoint"):
        find_checkpoint(tmp_path, "train.init_from")


def test_an_export_is_found_only_if_it_is_wanted(tmp_path):
    (tmp_path / "export.json").write_text("{}")
    assert find_checkpoint(tmp_path, exports=True) == tmp_path
    with pytest.raises(UserError, match="is an export, which only mt translate can use") as error:
        find_checkpoint(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"last": 3}', "\xff"])
def test_a_corrupt_index_is_refused_in_one_line(tmp_path, text):
    run = RunFolder(tmp_path)
    assert run.read_index() == {}
    run.checkpoints.mkdir()
    run.index.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"index\.json") as error:
        find_checkpoint(tmp_path)
    assert "\n" not in str(error.value)
    run.index.write_text(json.dumps({"last": "update-0000001"}))
    assert run.read_index() == {"last": "update-0000001"}


def test_a_checkpoint_knows_its_run(tmp_path):
    run = RunFolder(tmp_path / "run")
    found = run_of(run.checkpoints / checkpoint_name(100))
    assert found is not None and found.path == run.path
    assert run_of(tmp_path / "elsewhere" / checkpoint_name(100)) is None


def test_a_checkpoint_is_named_after_its_update():
    assert [checkpoint_name(update) for update in (100, 10_000_000)] == ["update-0000100", "update-10000000"]
