"""Helpers for tests, with a toy language that can be learned in seconds."""

import json
import random
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util
from torch import Tensor

from mt.checkpoint.folder import Checkpoint, write_checkpoint
from mt.config.schema import (
    Corpus,
    DataConfig,
    DecodeConfig,
    Device,
    ModelConfig,
    OptimConfig,
    Precision,
    RunConfig,
    Schedule,
    TokenizerConfig,
    TrainConfig,
    TrainingConfig,
)
from mt.model.transformer import Transformer
from mt.run_folder import RunFolder, checkpoint_name
from mt.runtime.device import Runtime
from mt.training.schedule import make_optimizer
from mt.training.step import Learner

TOY_WORDS = {"a": "ein", "the": "das", "dog": "Hund", "cat": "Katze", "bird": "Vogel", "sees": "sieht", "likes": "mag",
             "red": "rot", "big": "groß", "and": "und", "now": "jetzt", "here": "hier"}  # fmt: skip


def toy_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Distinct sentences of 4 to 9 words; the translation is word for word, in reverse order."""
    generator = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        words = [generator.choice(list(TOY_WORDS)) for _ in range(generator.randrange(4, 10))]
        found[" ".join(words)] = " ".join(TOY_WORDS[word] for word in reversed(words))
    return list(found.items())


def write_pairs(folder: Path, name: str, pairs: list[tuple[str, str]]) -> list[str]:
    """Write pairs to two text files, and return [source path, target path]."""
    paths = []
    for column, language in enumerate(("en", "de")):
        path = folder / f"{name}.{language}"
        path.write_text("".join(pair[column] + "\n" for pair in pairs), encoding="utf-8")
        paths.append(str(path))
    return paths


def toy_config(folder: Path, **train: Any) -> TrainConfig:
    """A run of some seconds on the toy language, without dropout, so that only the updates affect the result."""
    pairs = toy_pairs(260)
    settings = {"max_updates": 5, "update_tokens": 300, "batch_tokens": 4000, "average": 1, "log_every": 1}
    return TrainConfig(
        run=RunConfig(name="run", root=str(folder / "outputs")),
        data=DataConfig(
            corpus=Corpus.files,
            prepared_dir=str(folder / "prepared"),
            train=write_pairs(folder, "train", pairs[:200]),
            dev=write_pairs(folder, "dev", pairs[200:220]),
            test={"toy": write_pairs(folder, "test", pairs[220:])},
            max_tokens=40,
        ),
        tokenizer=TokenizerConfig(vocab_size=330),
        model=ModelConfig(d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0),
        optim=OptimConfig(schedule=Schedule.constant, peak_lr=0.01, warmup_steps=1),
        train=TrainingConfig(device=Device.cpu, **{"precision": Precision.fp32, **settings, **train}),
        decode=DecodeConfig(beam_size=2),
    )


def save_checkpoint(store, model, tokenizers, update, score=None, state=None) -> Path:
    """Save a model as the last checkpoint of a store, and return its folder."""
    name, meta = checkpoint_name(update), {"update": update, "score": score}
    config = TrainConfig(model=model.config, decode=DecodeConfig(beam_size=7))
    write_checkpoint(store.folder / name, dict(model.named_parameters()), config, tokenizers, meta, state)
    store.set(last=name)
    return store.folder / name


def last_weights(run: RunFolder) -> dict[str, Tensor]:
    """The weights of a run's last checkpoint."""
    return Checkpoint.open(run.checkpoints / run.read_index()["last"]).load_weights()


def records(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl, or only those of a kind."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if kind in (None, line["kind"])]


def raw_events(run: Path) -> list[tuple[str, int, bytes]]:
    """All numbers in a run's TensorBoard files, including hidden ones, except time and memory."""
    found = []
    for path in sorted((run / "tensorboard").glob("events.*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.tag.startswith(("train/", "validation/")):
                    found.append((value.tag, event.step, tensor_util.make_ndarray(value.tensor).tobytes()))
    return sorted(event for event in found if event[0] not in ("train/memory_gib", "train/target_tokens_per_second"))


def learner_of(model: Transformer) -> Learner:
    """A model with a new optimizer, in float32 on the CPU."""
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    optimizer = make_optimizer(model, TrainConfig().optim)
    return Learner(model, model, optimizer, scaler, Runtime(torch.device("cpu"), torch.float32))
