"""A briefly trained toy model and its export, for tests of both engines."""

from pathlib import Path

import numpy as np
import torch
from tests_support import save_checkpoint, toy_pairs

from mt.checkpoint.store import CheckpointStore
from mt.commands.export import ExportConfig, export
from mt.config.schema import ExportType, ModelConfig
from mt.data.batching import collate
from mt.model.transformer import Transformer
from mt.run_folder import RunFolder
from mt.training.loss import label_smoothed_loss

LINES = [source for source, _ in toy_pairs(29, seed=7)]
LINES[3] = ""
UPDATES = 40
SIZES = {"d_model": 16, "d_ff": 23, "heads": 2, "encoder_layers": 2, "decoder_layers": 1, "dropout": 0.0}


def learn(model, tokenizers):
    """Train for some updates, so that translations end by themselves and hypotheses have different scores."""
    longest, pairs = model.longest_input(), toy_pairs(100)
    sides = ([ids[:longest] for ids in tokenizers.source.encode(lines)] for lines in zip(*pairs, strict=True))
    batch = collate(*sides, np.arange(len(pairs)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(UPDATES):
        states = model(batch.source, batch.target_in)
        loss = label_smoothed_loss(states, model.output.weight, batch.target_out, 0.1, batch.non_padding)
        (loss.smoothed / batch.target_tokens).backward()
        optimizer.step()
        optimizer.zero_grad()


def exported_run(folder: Path, tokenizers, kind=ExportType.float32, **options) -> tuple[Path, Path]:
    """A run of a model with these options, and its export: (run folder, folder of the export)."""
    torch.manual_seed(4)
    model = Transformer(ModelConfig(**{**SIZES, **options}), tokenizers.source.size, tokenizers.target.size)
    learn(model, tokenizers)
    run = folder / "a run ü"
    save_checkpoint(CheckpointStore(RunFolder(run)), model, tokenizers, 1)
    text = folder / "text"
    text.write_text("".join(line + "\n" for line in LINES), encoding="utf-8")
    export(ExportConfig(checkpoint=str(run), type=kind, input=str(text), reference=str(text), threads=1))
    return run, run / "exports" / f"update-0000001-ctranslate2-{kind.value}"
