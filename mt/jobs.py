"""What can be done with a job: walk its keys, make it plain types and back, refuse what is impossible, compare."""

import re
from collections.abc import Iterator, Set
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from mt.config import (
    AverageJob,
    Corpus,
    DataConfig,
    Engine,
    EvaluateJob,
    ExportJob,
    Job,
    Optimizer,
    Positions,
    PrepareJob,
    Schedule,
    Tie,
    TokenizerKind,
    TrainJob,
    TranslateJob,
)
from mt.errors import UserError

# A run stays the same run when these change: its place, budget, logging, and the machine's share in it
HARMLESS = {"run.name", "run.root", "data.raw_dir", "data.prepared_dir"}
HARMLESS |= {"train.max_updates", "train.max_epochs", "train.max_minutes", "train.patience"}
HARMLESS |= {"train.validate_every", "train.save_every", "train.log_every"}
HARMLESS |= {"train.batch_tokens", "train.device", "train.devices", "train.threads"}
HARMLESS |= {"decode.batch_tokens", "decode.engine"}

_ADAM, _PIECES = (Optimizer.adam, Optimizer.adamw), (TokenizerKind.sentencepiece,)
# Keys that mean something only where another key has one of these values
NEEDS: dict[str, tuple[str, tuple[Enum, ...]]] = {
    "optim.factor": ("optim.schedule", (Schedule.noam,)),
    "optim.peak_lr": ("optim.schedule", (Schedule.inverse_sqrt, Schedule.constant)),
    "optim.momentum": ("optim.name", (Optimizer.sgd,)),
    "model.max_positions": ("model.positions", (Positions.learned,)),
    "tokenizer.min_frequency": ("tokenizer.kind", (TokenizerKind.word,)),
}
NEEDS |= {f"optim.{name}": ("optim.name", _ADAM) for name in ("beta1", "beta2", "eps")}
NEEDS |= {
    f"tokenizer.{name}": ("tokenizer.kind", _PIECES)
    for name in ("model", "type", "byte_fallback", "character_coverage", "symbols", "max_sentences")
}


def walk(config: Any, prefix: str = "") -> Iterator[tuple[str, Field[Any], Any]]:
    """All keys of a job, depth first: (dotted name, dataclass field, value)."""
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            yield from walk(value, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", item, value


def to_plain(config: Any) -> dict[str, Any]:
    """A job as nested dicts of plain types, which YAML and JSON can hold."""
    values = {item.name: getattr(config, item.name) for item in fields(config)}
    return {
        name: to_plain(value) if is_dataclass(value) else value.value if isinstance(value, Enum) else value
        for name, value in values.items()
    }


def from_plain(kind: type[Any], values: Any) -> Any:
    """The job that `to_plain` gave; missing keys take their defaults. Raises UserError for what is none."""
    types = get_type_hints(kind)
    if not isinstance(values, dict):
        raise UserError(f"{values!r} is not a section of a configuration")
    if unknown := values.keys() - types.keys():
        raise UserError(f"unknown configuration key {min(unknown, key=str)!r}: was this written by a newer mt?")

    def convert(name: str, expected: Any, value: Any) -> Any:
        if is_dataclass(expected):
            return from_plain(cast(type[Any], expected), value)
        if isinstance(expected, type) and issubclass(expected, Enum):
            return expected(value)
        kinds = get_args(expected) if isinstance(expected, UnionType) else (expected,)
        if not any(_fits(each, value) for each in kinds):
            raise UserError(f"{name}={value!r} is not what it should be")
        return value

    try:
        return kind(**{name: convert(name, types[name], value) for name, value in values.items()})
    except ValueError as error:  # an unknown choice
        raise UserError(str(error)) from error


def _fits(expected: Any, value: Any) -> bool:
    """Whether a plain value is of one plain type; a whole number is a number, and a truth value is none."""
    if expected is Any:
        return True
    if expected is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, get_origin(expected) or expected)


def limits_in_words(item: Field[Any]) -> str:
    """What a key's number may be, such as "at least 0 and less than 1"; empty where anything goes."""
    words = {"low": "at least", "above": "greater than", "high": "at most", "below": "less than"}
    return " and ".join(f"{words[k]} {item.metadata[k]:g}" for k in words if k in item.metadata)


def raw_dir(data: DataConfig) -> str:
    """The folder of a named corpus's raw files: data.raw_dir, or where it lies by default."""
    foreign = data.source if data.target == "en" else data.target
    name = f"wmt14_en_{foreign}" if data.corpus is Corpus.wmt14 else data.corpus.value
    return data.raw_dir or f"data/raw/{name}"


def validate(job: Job, said: Set[str] = frozenset()) -> None:
    """Refuse impossible values with one line that names the key, the value and what is allowed.

    And keys of the command line, `said`, that do nothing beside the others.
    """
    check_limits(job)
    values = {name: value for name, _, value in walk(job)}
    for name in sorted(said & NEEDS.keys() & values.keys()):
        key, allowed = NEEDS[name]
        if values[key] not in allowed:
            ways = " or ".join(f"{key}={value.value}" for value in allowed)
            raise UserError(f"{name} does nothing with {key}={values[key].value}: leave it out, or set {ways}")
    if isinstance(job, EvaluateJob | TranslateJob | AverageJob | ExportJob) and not job.checkpoint:
        raise UserError("checkpoint= is missing: name a run folder or a checkpoint, checkpoint=outputs/<run>")
    for name, _, value in walk(job):
        if name.rpartition(".")[2] == "devices" and not re.fullmatch("auto|[1-9][0-9]{0,3}", value):
            raise UserError(f"{name}={value} must be a number of processes, at least 1, or auto")
    if isinstance(job, TrainJob):
        _check_training(job)
    if isinstance(job, TrainJob | PrepareJob) and job.tokenizer.model and not job.tokenizer.joint:
        raise UserError("tokenizer.model serves both languages: leave tokenizer.joint=true")
    if isinstance(job, TrainJob | PrepareJob) and job.data.source == job.data.target:
        raise UserError(f"data.source and data.target are both {job.data.source!r}: they must differ")
    if isinstance(job, TrainJob | TranslateJob | EvaluateJob) and job.decode.nbest > job.decode.beam_size:
        raise UserError(f"decode.nbest={job.decode.nbest} must be at most decode.beam_size={job.decode.beam_size}")
    if isinstance(job, TrainJob | EvaluateJob) and job.decode.engine is Engine.ctranslate2:
        raise UserError("decode.engine=ctranslate2 is for mt translate: scores come from mt's own engine")


def check_limits(job: Job) -> None:
    """Refuse numbers that no job may have, such as a width of 0."""
    for name, item, value in walk(job):
        if isinstance(value, int | float) and not isinstance(value, bool):
            _check_limit(name, item, value)


def _check_limit(name: str, item: Field[Any], value: float) -> None:
    limits = item.metadata
    passed = (
        value >= limits.get("low", value)
        and value <= limits.get("high", value)
        and ("above" not in limits or value > limits["above"])
        and ("below" not in limits or value < limits["below"])
    )
    # NaN fails every comparison, infinity only some
    finite = value == value and abs(value) != float("inf")
    if not (finite and passed):
        raise UserError(f"{name}={value} must be {limits_in_words(item) or 'a finite number'}")


def _check_training(job: TrainJob) -> None:
    model, train = job.model, job.train
    if model.d_model % model.heads:
        raise UserError(f"model.d_model={model.d_model} must be divisible by model.heads={model.heads}")
    if model.d_model % 2:
        raise UserError(f"model.d_model={model.d_model} must be even")
    if model.tie is Tie.all and not job.tokenizer.joint:
        raise UserError("model.tie=all needs one vocabulary: set tokenizer.joint=true, or model.tie=output")
    if train.max_updates is None and train.max_epochs is None and train.max_minutes is None:
        raise UserError("training needs a budget: set train.max_updates, train.max_epochs or train.max_minutes")
    if job.optim.cooldown and train.max_updates is None:
        raise UserError("optim.cooldown is a share of train.max_updates: set that too, or optim.cooldown=0")
    if train.batch_tokens < 2 * job.data.max_tokens + 2:
        raise UserError(
            f"train.batch_tokens={train.batch_tokens} cannot hold a pair of data.max_tokens="
            f"{job.data.max_tokens} tokens a side: set it to at least {2 * job.data.max_tokens + 2}"
        )
    if model.positions is Positions.learned and model.max_positions <= job.data.max_tokens:
        raise UserError(
            f"model.max_positions={model.max_positions} must be greater than data.max_tokens={job.data.max_tokens}"
        )
    if job.tokenizer.sampling and job.tokenizer.kind is TokenizerKind.word:
        raise UserError("tokenizer.sampling needs tokenizer.kind=sentencepiece")
