"""`mt export`: an export is compared with mt's own search, rejected if it differs, and used only by mt translate."""

import json

import pytest
from export_support import LINES, exported_run

from mt.commands import average, evaluate, export
from mt.commands.export import ExportConfig
from mt.config.schema import DecodeConfig, ExportType
from mt.decoding.exported import ExportedTranslator
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.run_folder import RunFolder


@pytest.fixture
def exported(toy_tokenizers, tmp_path):
    """Returns a function that makes a run and its export: (run, export)."""
    return lambda *arguments, **options: exported_run(tmp_path, toy_tokenizers, *arguments, **options)


def test_int8_is_exported_and_a_bad_one_refused(exported, monkeypatch):
    monkeypatch.setitem(export.TOLERANCE, ExportType.int8, (0.9, 100.0))
    run, folder = exported(ExportType.int8)
    decode = DecodeConfig(beam_size=1, max_length_a=0.0, max_length_b=4)
    own = Translator.load(run, decode, "cpu", threads=1).translate(LINES)
    found = [each[0].text for each in ExportedTranslator.load(folder, decode, threads=1).translate_nbest(LINES)]
    assert sum(a == b for a, b in zip(own, found, strict=True)) > len(LINES) / 3
    assert json.loads((folder / "export.json").read_text())["type"] == "int8"
    monkeypatch.setattr(export, "_translate", lambda *arguments: (LINES, LINES[::-1]))
    with pytest.raises(UserError, match="the export is rejected"):
        exported()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]  # not even a hidden folder


def test_an_export_is_checked_with_what_the_run_held_out_and_refused_by_its_score(exported, monkeypatch, capsys):
    run, _ = exported()
    for path in RunFolder(run).held_out:
        path.write_text("".join(line + "\n" for line in LINES[4:]))
    config = ExportConfig(checkpoint=str(run), threads=1)
    export.export(config)
    assert f"{len(LINES) - 4} sentences" in capsys.readouterr().err
    lines = LINES[4:]
    answers = iter([(lines, lines), (lines, [*lines[1:], lines[0]])])  # equal with greedy search, but not with a beam
    monkeypatch.setattr(export, "_translate", lambda *arguments: next(answers))
    monkeypatch.setattr(export, "ENOUGH_FOR_BLEU", 1)
    with pytest.raises(UserError, match=r"the export is rejected .* 0\.0% differ with greedy search"):
        export.export(config)


def test_it_prints_the_folder_and_says_the_command_that_uses_it(exported, capsys):
    run, folder = exported()
    captured = capsys.readouterr()
    assert captured.out == f"{folder}\n"
    assert captured.err.splitlines()[-1] == f"translate with it: mt translate 'checkpoint={folder}' < in > out"
    assert {path.name for path in folder.iterdir()} >= {"model.bin", "export.json", "config.yaml", "tokenizer.model"}
    before = (folder / "export.json").read_text()
    text = str(run.parent / "text")
    arguments = [f"checkpoint={run}", f"input={text}", f"reference={text}", "threads=1"]
    assert export.run(arguments) == 0  # replaces the previous export
    assert capsys.readouterr().out == f"{folder}\n"
    assert json.loads((folder / "export.json").read_text()).keys() == json.loads(before).keys()
    assert export.run([*arguments, f"output={run.parent / 'elsewhere'}"]) == 0
    assert capsys.readouterr().out == f"{run.parent / 'elsewhere'}\n"


def test_a_folder_that_holds_something_else_is_left_alone(exported, tmp_path):
    run, _ = exported()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(UserError, match="is not an export"):
        export.export(ExportConfig(checkpoint=str(run), output=str(tmp_path / "mine"), threads=1))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


def test_an_export_is_refused_in_one_line_by_commands_that_need_a_checkpoint(exported):
    _, folder = exported()
    for command, options, said in (
        (evaluate, ["device=cpu"], "is an export, which only mt translate can use"),
        (evaluate, ["device=cpu", "all_checkpoints=true"], "all_checkpoints=true needs a run folder"),
        (export, [], "is an export, which only mt translate can use"),
        (average, [], "is an export, which only mt translate can use"),
    ):
        with pytest.raises(UserError, match=said) as error:
            command.run([f"checkpoint={folder}", *options])
        assert "\n" not in str(error.value)
