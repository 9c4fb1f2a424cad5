"""Exported models: the same translations as mt's own engine, refused where they are not, and no torch."""

import json
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
from mt.decoding.command import _exported
from mt.decoding.exported import ExportedTranslator, find_export
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.evaluation import export
from mt.evaluation.export import export_command
from mt.model.transformer import Transformer

LINES = [source for source, _ in toy_pairs(29, seed=7)]
LINES[3] = ""
SIZES = {"d_model": 16, "d_ff": 23, "heads": 2, "encoder_layers": 2, "decoder_layers": 1, "dropout": 0.0}


@pytest.fixture
def exported(toy_tokenizers, tmp_path, capsys):
    """Makes a run of a model's configuration and its export: (run, export)."""

    def make(kind=ExportType.float32, **options):
        torch.manual_seed(4)
        config = ModelConfig(**{**SIZES, **options})
        model = Transformer(config, toy_tokenizers.source.size, toy_tokenizers.target.size)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
            model.output.weight.mul_(2)
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
    decode = DecodeConfig(beam_size=beam, nbest=1, max_length_a=0.0, max_length_b=9)
    own = Translator.load(run, decode, "cpu", threads=1).translate_nbest(LINES)
    other = ExportedTranslator.load(folder, decode, threads=1).translate_nbest(LINES)
    assert other[3][0].text == ""
    agree = [a[0].tokens == b[0].tokens for a, b in zip(own, other, strict=True)]
    if beam == 1:
        assert all(agree)
    assert sum(agree) >= 0.5 * len(LINES)  # an untrained model mostly runs to the limit, where searches differ
    for a, b, same in zip(own, other, agree, strict=True):
        if same and not a[0].at_limit:
            assert b[0].score == pytest.approx(a[0].score, abs=1e-4)
            assert b[0].log_probability == pytest.approx(a[0].log_probability, abs=1e-3)


def test_neighbours_and_limits(exported):
    _, folder = exported()
    tool = ExportedTranslator.load(folder, DecodeConfig(beam_size=3, nbest=2, max_length_a=0.0, max_length_b=4), 1)
    whole = tool.translate_nbest(LINES)
    assert all(len(found) == 2 and found[0].score >= found[1].score for found in whole if found[0].text)
    assert all(len(each.tokens) <= 4 for found in whole for each in found)
    assert any(each.at_limit for found in whole for each in found)
    alone = [tool.translate_nbest([line])[0] for line in LINES]
    assert [[each.text for each in found] for found in alone] == [[each.text for each in found] for found in whole]


def test_the_engine_is_chosen_by_what_is_there_and_asked_for(exported, toy_model, toy_tokenizers):
    run, folder = exported()
    job = TranslateJob(checkpoint=str(run))
    assert _exported(job) == folder
    assert _exported(replace(job, checkpoint=str(folder))) == folder
    with_torch = replace(job, decode=DecodeConfig(engine=Engine.torch))
    assert _exported(with_torch) is None
    assert _exported(replace(job, precision=Precision.bf16)) is None
    assert _exported(replace(job, devices="2")) is None
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


def test_int8_is_exported_and_a_bad_one_refused(exported, monkeypatch, tmp_path):
    monkeypatch.setitem(export.TOLERANCE, ExportType.int8, (1.0, 100.0))
    _, folder = exported(ExportType.int8)
    assert json.loads((folder / "export.json").read_text())["type"] == "int8"
    monkeypatch.setitem(export.TOLERANCE, ExportType.float32, (-1.0, 0.3))
    with pytest.raises(UserError, match="the export is refused"):
        exported()
    assert not list(folder.parent.glob("*float32*"))


def test_damage_is_named(exported):
    _, folder = exported()
    path = folder / "model.bin"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(Damaged, match=r"model\.bin is damaged"):
        ExportedTranslator.load(folder, DecodeConfig())


def test_translating_with_an_export_imports_no_torch(exported):
    run, _ = exported()
    program = "import sys; from mt.cli import main; sys.exit(main(sys.argv[1:]) or 'torch' in sys.modules)"
    command = [sys.executable, "-c", program, "translate", f"checkpoint={run}", "decode.engine=ctranslate2"]
    done = subprocess.run(command, input=b"a dog\n\n", capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.count(b"\n") == 2
