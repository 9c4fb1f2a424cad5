"""`mt average` writes a new checkpoint and prints its folder."""

import pytest
from tests_support import save_checkpoint

from mt.commands import average
from mt.errors import UserError
from mt.files import locked


def test_it_prints_the_new_folder_and_makes_it_the_average_of_the_run(store, toy_model, toy_tokenizers, capsys):
    for update in (1, 2, 3):
        save_checkpoint(store, toy_model, toy_tokenizers, update)
    assert average.run([f"checkpoint={store.run.path}", "count=2"]) == 0
    assert capsys.readouterr().out.strip() == str(store.folder / "average-0000003-of-2")
    assert store.index()["average"] == "average-0000003-of-2"
    other = store.average(["update-0000001", "update-0000003"])
    assert other.name.startswith("average-0000003-of-2-") and (store.folder / "average-0000003-of-2").exists()
    with pytest.raises(UserError, match="only 3"):
        average.run([f"checkpoint={store.run.path}", "count=4"])


def test_it_averages_the_best_if_asked(store, toy_model, toy_tokenizers, capsys):
    for update, score in ((1, 30.0), (2, 20.0), (3, 10.0)):
        save_checkpoint(store, toy_model, toy_tokenizers, update, score)
    assert average.run([f"checkpoint={store.run.path}", "count=2", "which=best"]) == 0
    assert capsys.readouterr().out.strip() == str(store.folder / "average-0000002-of-2")


def test_a_folder_without_checkpoints_is_refused_in_one_line(tmp_path):
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(UserError, match=r"^checkpoint=.*(contains no checkpoint|there is no folder)") as error:
            average.run([f"checkpoint={folder}"])
        assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []  # not even a lock


def test_an_export_is_refused_in_one_line(tmp_path):
    (tmp_path / "export.json").write_text("{}")
    with pytest.raises(UserError, match=r"^checkpoint=.* is an export") as error:
        average.run([f"checkpoint={tmp_path}"])
    assert "\n" not in str(error.value)


def test_it_waits_for_the_run_to_be_free(store, toy_model, toy_tokenizers, monkeypatch):
    save_checkpoint(store, toy_model, toy_tokenizers, 1)
    monkeypatch.setattr(average, "locked", lambda lock, report: locked(lock, patience=0, report=report))
    with locked(store.run.lock), pytest.raises(UserError, match="is writing"):
        average.run([f"checkpoint={store.run.path}", "count=1"])
    assert "average" not in store.index()
