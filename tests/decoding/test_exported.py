"""Exported models: the same translations as mt's own engine, refused where they are not, and no torch."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from tests_support import save_checkpoint, toy_pairs

from mt.checkpoint import Checkpoint, Damaged
from mt.checkpoint_store import CheckpointStore
from mt.config import (
    Activation,
    DecodeConfig,
    Device,
    Engine,
    ExportJob,
    ExportType,
    ModelConfig,
    Norm,
    Positions,
    Precision,
    Tie,
    TranslateJob,
)
from mt.data.collate import collate
from mt.decoding import command
from mt.decoding.command import _exported, translate_command
from mt.decoding.exported import ExportedTranslator, find_export
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.evaluation import export
from mt.evaluation.evaluate import held_out_files
from mt.evaluation.export import export_command
from mt.model.transformer import Transformer
from mt.training.loss import label_smoothed_loss

LINES = [source for source, _ in toy_pairs(29, seed=7)]
LINES[3] = ""
UPDATES = 40
SIZES = {"d_model": 16, "d_ff": 23, "heads": 2, "encoder_layers": 2, "decoder_layers": 1, "dropout": 0.0}


def learn(model, tokenizers):
    """Some updates, so that sentences end by themselves and hypotheses have scores of all sizes."""
    longest = model.longest_input()
    sides = zip(*toy_pairs(100), strict=True)
    batch = collate(*([ids[:longest] for ids in tokenizers.source.encode(lines)] for lines in sides))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(UPDATES):
        states = model(batch.source, batch.target_in)
        loss = label_smoothed_loss(states, model.output.weight, batch.target_out, 0.1, batch.real)
        (loss.smoothed / batch.target_tokens).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture
def exported(toy_tokenizers, tmp_path, capsys):
    """Makes a run of a model's configuration and its export: (run, export)."""

    def make(kind=ExportType.float32, **options):
        torch.manual_seed(4)
        config = ModelConfig(**{**SIZES, **options})
        model = Transformer(config, toy_tokenizers.source.size, toy_tokenizers.target.size)
        learn(model, toy_tokenizers)
        run = tmp_path / "a run ü"
        save_checkpoint(CheckpointStore(run / "checkpoints"), model, toy_tokenizers, 1)
        text = tmp_path / "text"
        text.write_text("".join(line + "\n" for line in LINES), encoding="utf-8")
        export_command(ExportJob(checkpoint=str(run), type=kind, input=str(text), reference=str(text), threads=1))
        return run, run / "exports" / f"update-0000001-ctranslate2-{kind.value}"

    return make


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": Norm.post, "activation": Activation.gelu},
        {"positions": Positions.learned, "max_positions": 90, "tie": Tie.none},
        {"tie": Tie.output},
    ],
)
@pytest.mark.parametrize("beam", [1, 4])
def test_both_engines_agree(exported, options, beam):
    run, folder = exported(**options)
    decode = DecodeConfig(beam_size=beam, nbest=beam, max_length_a=0.0, max_length_b=9)
    own = Translator.load(run, decode, "cpu", threads=1).translate_nbest(LINES)
    other = ExportedTranslator.load(folder, decode, threads=1).translate_nbest(LINES)
    assert other[3][0].text == ""
    if beam == 1:
        assert [found[0].tokens for found in other] == [found[0].tokens for found in own]
        return
    common = 0
    for ours, theirs in zip(own, other, strict=True):  # the searches differ, and at the limit the scores
        scores = {each.tokens: each for each in theirs if each.text and not each.at_limit}
        for each in ours:
            if each.tokens in scores and not each.at_limit:
                common += 1
                found = scores[each.tokens]
                assert found.score == pytest.approx(each.score, abs=0.05)  # theirs is over the allowed tokens alone
                assert found.log_probability == pytest.approx(each.log_probability, abs=0.3)
    assert common > len(LINES)


def test_neighbours_and_limits(exported):
    _, folder = exported()
    tool = ExportedTranslator.load(folder, DecodeConfig(beam_size=3, nbest=2, max_length_a=0.0, max_length_b=4), 1)
    whole = tool.translate_nbest(LINES)
    assert all(len(found) == 2 and found[0].score >= found[1].score for found in whole if found[0].text)
    assert all(len(each.tokens) <= 4 for found in whole for each in found)
    assert any(each.at_limit for found in whole for each in found)
    tool.decode = replace(tool.decode, max_length_a=0.7, max_length_b=1)  # each sentence has a limit of its own
    whole = tool.translate_nbest(LINES)
    alone = [tool.translate_nbest([line])[0] for line in LINES]
    assert [[each.tokens for each in found] for found in alone] == [[each.tokens for each in found] for found in whole]
    assert len({len(found[0].tokens) for found in whole if found[0].at_limit}) > 2
    tool.decode = replace(tool.decode, max_length_a=0.0, max_length_b=4)
    whole = tool.translate_nbest(LINES)
    for least, most in ((3, 4), (40, 4), (0, 1)):  # a longest output of 1 is EOS alone
        tool.decode = replace(tool.decode, min_length=least, max_length_b=most, nbest=1)
        lengths = [len(found[0].tokens) for line, found in zip(LINES, tool.translate_nbest(LINES), strict=True) if line]
        assert all(min(least, most - 1) <= length - 1 < most for length in lengths)
    tool.decode = replace(tool.decode, min_length=0, max_length_b=4, nbest=2)
    alone = [tool.translate_nbest([line])[0] for line in LINES]
    assert [[each.text for each in found] for found in alone] == [[each.text for each in found] for found in whole]


def test_the_engine_is_chosen_by_what_is_there_and_asked_for(exported, toy_model, toy_tokenizers, monkeypatch):
    run, folder = exported()
    job = TranslateJob(checkpoint=str(run))
    assert _exported(job) == folder
    assert _exported(replace(job, checkpoint=str(folder))) == folder
    with_torch = replace(job, decode=DecodeConfig(engine=Engine.torch))
    assert _exported(with_torch) is None
    assert _exported(replace(job, precision=Precision.bf16)) is None
    assert _exported(replace(job, devices="2")) is None
    with monkeypatch.context() as patch:
        patch.setenv("WORLD_SIZE", "2")
        assert _exported(job) is None
    with monkeypatch.context() as patch:
        patch.setattr(command, "NVIDIA_DRIVER", str(run))  # a machine with a GPU
        assert _exported(job) is None and _exported(replace(job, device=Device.cpu)) == folder
    asked = DecodeConfig(engine=Engine.ctranslate2)
    with pytest.raises(UserError, match="leave out device, precision and devices"):
        _exported(replace(job, decode=asked, precision=Precision.bf16))
    with pytest.raises(UserError, match="translate with the run"):
        _exported(replace(with_torch, checkpoint=str(folder)))
    # another checkpoint is the run's best now: its export is not there
    save_checkpoint(CheckpointStore(run / "checkpoints"), toy_model, toy_tokenizers, 2)
    assert find_export(Checkpoint.open(run)) is None
    assert _exported(job) is None
    with pytest.raises(UserError, match=r"mt export checkpoint="):
        _exported(replace(job, decode=asked))


def test_a_line_beyond_the_positions_is_cut_and_counted(exported):
    run, folder = exported(positions=Positions.learned, max_positions=6)
    decode = DecodeConfig(beam_size=1, max_length_a=2.0, max_length_b=9)
    tool, own = ExportedTranslator.load(folder, decode, threads=1), Translator.load(run, decode, "cpu", threads=1)
    lines = ["a dog likes the big red cat and a dog", "a"]
    assert tool.too_long(lines) == own.too_long(lines) == 1
    assert [found[0].text for found in tool.translate_nbest(lines)] == own.translate(lines)


def test_int8_is_exported_and_a_bad_one_refused(exported, monkeypatch, tmp_path):
    monkeypatch.setitem(export.TOLERANCE, ExportType.int8, (0.9, 100.0))
    run, folder = exported(ExportType.int8)
    decode = DecodeConfig(beam_size=1, max_length_a=0.0, max_length_b=4)
    own = Translator.load(run, decode, "cpu", threads=1).translate(LINES)
    found = [each[0].text for each in ExportedTranslator.load(folder, decode, threads=1).translate_nbest(LINES)]
    assert sum(a == b for a, b in zip(own, found, strict=True)) > len(LINES) / 3
    assert json.loads((folder / "export.json").read_text())["type"] == "int8"
    monkeypatch.setattr(export, "_translate", lambda *arguments: (LINES, LINES[::-1]))
    with pytest.raises(UserError, match="the export is refused"):
        exported()
    assert not list(folder.parent.glob("*float32*"))


def test_an_export_is_checked_with_what_the_run_held_out_and_refused_by_its_score(exported, monkeypatch, capsys):
    run, _ = exported()
    source, target = held_out_files(run)
    source.write_text("".join(line + "\n" for line in LINES[4:]))
    target.write_text("".join(line + "\n" for line in LINES[4:]))
    job = ExportJob(checkpoint=str(run), threads=1)
    export_command(job)
    assert f"{len(LINES) - 4} sentences" in capsys.readouterr().err
    lines = LINES[4:]
    answers = iter([(lines, lines), (lines, [*lines[1:], lines[0]])])  # greedily the same, with a beam not
    monkeypatch.setattr(export, "_translate", lambda *arguments: next(answers))
    monkeypatch.setattr(export, "ENOUGH_FOR_BLEU", 1)
    with pytest.raises(UserError, match=r"the export is refused .* 0\.0% differ greedily"):
        export_command(job)


def test_a_damaged_export_is_named_and_done_without_where_nobody_asked_for_it(exported, tmp_path, capsys):
    run, folder = exported()
    path = folder / "model.bin"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(Damaged, match=r"model\.bin is damaged"):
        ExportedTranslator.load(folder, DecodeConfig())
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("a dog\n")
    job = TranslateJob(checkpoint=str(run), input=str(source), output=str(target), device=Device.cpu)
    translate_command(job)  # nobody asked for the export
    assert target.read_text() == Translator.load(run, job.decode, "cpu").translate(["a dog"])[0] + "\n"
    assert re.search(r"warning: .*model\.bin is damaged.*; translating with the run itself", capsys.readouterr().err)
    for asked in (replace(job, checkpoint=str(folder)), replace(job, decode=DecodeConfig(engine=Engine.ctranslate2))):
        with pytest.raises(UserError, match=r"model\.bin is damaged"):
            translate_command(asked)


def test_translating_with_an_export_imports_no_torch(exported):
    run, _ = exported()
    program = "import sys; from mt.cli import main; sys.exit(main(sys.argv[1:]) or 'torch' in sys.modules)"
    command = [sys.executable, "-c", program, "translate", f"checkpoint={run}", "decode.engine=ctranslate2"]
    command += ["device=cpu"]
    done = subprocess.run(command, input=b"a dog\n\n", capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.count(b"\n") == 2
