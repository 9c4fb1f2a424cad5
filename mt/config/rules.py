"""Validates keys, alone and in combination, and lists the keys that may change when a run is resumed."""

import math
import re
from collections.abc import Set
from dataclasses import Field
from enum import Enum
from operator import ge, gt, le, lt
from typing import Any

from mt.config.schema import Optimizer, Positions, Schedule, Tie, TokenizerKind, TrainConfig, walk
from mt.errors import UserError

# Keys that may change when a run is resumed: location, budget, logging, and the distribution of the work
HARMLESS = {"run.name", "run.root", "data.raw_dir", "data.prepared_dir"}
HARMLESS |= {"train.max_updates", "train.max_epochs", "train.max_minutes", "train.patience"}
HARMLESS |= {"train.validate_every", "train.save_every", "train.log_every"}
HARMLESS |= {"train.batch_tokens", "train.device", "train.devices", "train.threads", "decode.batch_tokens"}

# Kinds of limits: (description, comparison that a value must pass)
LIMITS = {"low": ("at least", ge), "above": ("greater than", gt), "high": ("at most", le), "below": ("less than", lt)}

_ADAM, _PIECES = (Optimizer.adam, Optimizer.adamw), (TokenizerKind.sentencepiece,)
# Keys that have an effect only if another key has one of these values
NEEDS: dict[str, tuple[str, tuple[Enum, ...]]] = {
    "optim.factor": ("optim.schedule", (Schedule.noam,)),
    "optim.peak_lr": ("optim.schedule", tuple(each for each in Schedule if each is not Schedule.noam)),
    "optim.momentum": ("optim.name", (Optimizer.sgd,)),
    "model.max_positions": ("model.positions", (Positions.learned,)),
    "tokenizer.min_frequency": ("tokenizer.kind", (TokenizerKind.word,)),
}
NEEDS |= {f"optim.{name}": ("optim.name", _ADAM) for name in ("beta1", "beta2", "eps")}
NEEDS |= {
    f"tokenizer.{name}": ("tokenizer.kind", _PIECES)
    for name in ("model", "type", "byte_fallback", "character_coverage", "symbols", "max_sentences")
}


def validate(config: Any, given: Set[str] = frozenset()) -> None:
    """Reject invalid values of a configuration, and keys `given` on the command line that have no effect."""
    check_limits(config)
    values = {name: value for name, _, value in walk(config)}
    for name in sorted(given & NEEDS.keys() & values.keys()):
        key, allowed = NEEDS[name]
        if values[key] not in allowed:
            ways = " or ".join(f"{key}={value.value}" for value in allowed)
            raise UserError(f"{name} has no effect with {key}={values[key].value}: leave it out, or set {ways}")
    if values.get("checkpoint") == "":
        raise UserError("checkpoint= is missing: give a run folder or a checkpoint, such as checkpoint=outputs/<run>")
    for name, value in values.items():
        if name.rpartition(".")[2] == "devices" and not re.fullmatch("auto|[1-9][0-9]{0,3}", value):
            raise UserError(f"{name}={value} must be auto or a number of processes, at least 1")
    if values.get("tokenizer.model") and not values["tokenizer.joint"]:
        raise UserError("tokenizer.model is for both languages: keep tokenizer.joint=true")
    if "data.source" in values and values["data.source"] == values["data.target"]:
        raise UserError(f"data.source and data.target are both {values['data.source']!r}: they must differ")
    if "reference" in values and (values["input"] is None) != (values["reference"] is None):
        raise UserError("input= and reference= go together: give both or neither")
    nbest, beam = values.get("decode.nbest", 1), values.get("decode.beam_size", 1)
    if nbest > beam:
        raise UserError(f"decode.nbest={nbest} must be at most decode.beam_size={beam}")
    if isinstance(config, TrainConfig):
        _validate_training(config)


def _validate_training(config: TrainConfig) -> None:
    model, train, data = config.model, config.train, config.data
    if model.d_model % model.heads:
        raise UserError(f"model.d_model={model.d_model} must be divisible by model.heads={model.heads}")
    if model.d_model % 2:
        raise UserError(f"model.d_model={model.d_model} must be even")
    if model.tie is Tie.all and not config.tokenizer.joint:
        raise UserError("model.tie=all needs one vocabulary: set tokenizer.joint=true, or model.tie=output")
    if train.max_updates is None and train.max_epochs is None and train.max_minutes is None:
        raise UserError("training needs a budget: set train.max_updates, train.max_epochs or train.max_minutes")
    if config.optim.cooldown and train.max_updates is None:
        raise UserError("optim.cooldown is a fraction of train.max_updates: set both, or optim.cooldown=0")
    if train.batch_tokens < (least := 2 * data.max_tokens + 2):
        limit = f"at least {least}, because of data.max_tokens={data.max_tokens}"
        raise UserError(f"train.batch_tokens={train.batch_tokens} must be {limit}")
    if model.positions is Positions.learned and (most := model.max_positions) <= data.max_tokens:
        raise UserError(f"model.max_positions={most} must be greater than data.max_tokens={data.max_tokens}")
    if config.tokenizer.sampling and config.tokenizer.kind is TokenizerKind.word:
        raise UserError("tokenizer.sampling needs tokenizer.kind=sentencepiece")


def check_limits(config: Any) -> None:
    """Reject numbers outside the limits of their key, such as a width of 0."""
    for name, item, value in walk(config):
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        passed = all(fits(value, item.metadata[kind]) for kind, (_, fits) in LIMITS.items() if kind in item.metadata)
        if not passed or not math.isfinite(value):
            raise UserError(f"{name}={value} must be {limits_in_words(item) or 'a finite number'}")


def limits_in_words(item: Field[Any]) -> str:
    """The limits of a key, such as "at least 0 and less than 1"; empty if it has none."""
    return " and ".join(
        f"{words} {item.metadata[kind]:g}" for kind, (words, _) in LIMITS.items() if kind in item.metadata
    )


def check_resumable(where: str, before: TrainConfig, now: TrainConfig) -> list[str]:
    """The settings that changed since the run began. Raises UserError if one of them may not change."""
    pairs = zip(walk(before), walk(now), strict=True)
    changed = {name: f"{name}: {old} -> {new}" for (name, _, old), (_, _, new) in pairs if old != new}
    # With a cooldown, the learning rate depends on the budget
    harmless = HARMLESS - {"train.max_updates"} if before.optim.cooldown else HARMLESS
    if refused := changed.keys() - harmless:
        differences = "; ".join(changed[name] for name in sorted(refused))
        raise UserError(f"{where} has other settings ({differences}): choose another run.name, or remove the folder")
    return [line for name, line in changed.items() if not name.startswith("run.")]
