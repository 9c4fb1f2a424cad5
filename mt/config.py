"""The typed configuration: every key, its default, its meaning and what it may be, in this one place.

A command gets one frozen `...Job`, checked by `validate` before any work. YAML under configs/ only holds what
differs from the defaults here; `mt.compose` builds the jobs from YAML and the command line.
"""

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, get_type_hints

from mt.errors import UserError


def key(default: Any, help: str, **limits: float) -> Any:
    """A configuration key; its limits are among low=, high= (inclusive), above=, below= (exclusive)."""
    metadata = {"help": help, **limits}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


class Corpus(Enum):
    multi30k = "multi30k"
    wmt14 = "wmt14"
    files = "files"
    captions = "captions"


class InvalidText(Enum):
    error = "error"
    skip = "skip"


class TokenizerKind(Enum):
    sentencepiece = "sentencepiece"
    word = "word"


class SubwordType(Enum):
    unigram = "unigram"
    bpe = "bpe"


class Norm(Enum):
    pre = "pre"
    post = "post"


class Positions(Enum):
    sinusoidal = "sinusoidal"
    learned = "learned"


class Activation(Enum):
    relu = "relu"
    gelu = "gelu"


class Tie(Enum):
    all = "all"
    output = "output"
    none = "none"


class Init(Enum):
    xavier = "xavier"
    depth_scaled = "depth_scaled"


class Optimizer(Enum):
    adam = "adam"
    adamw = "adamw"
    sgd = "sgd"


class Schedule(Enum):
    noam = "noam"
    inverse_sqrt = "inverse_sqrt"
    constant = "constant"


class Precision(Enum):
    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


class Device(Enum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Which(Enum):
    last = "last"
    best = "best"


@dataclass(frozen=True)
class RunConfig:
    name: str | None = key(None, "folder of the run; made of recipe, direction and overrides where not given")
    root: str = key("outputs", "folder that holds all runs")


@dataclass(frozen=True)
class DataConfig:
    corpus: Corpus = key(Corpus.multi30k, "where the text comes from")
    source: str = key("en", "source language code")
    target: str = key("de", "target language code")
    raw_dir: str | None = key(None, "folder of the raw files of a named corpus (default: data/raw/<corpus>)")
    prepared_dir: str = key("data/prepared", "folder of the tokenized corpora")
    train: list[str] = key([], "corpus=files: source,target,source,target,... or .tsv or .jsonl files")
    dev: list[str] = key([], "corpus=files: the same for development; without it a part of train is held out")
    test: Any = key({}, "corpus=files: the same for testing: one list, or {name: list, ...}")
    invalid_utf8: InvalidText = key(InvalidText.error, "training lines that are not UTF-8: stop, or skip the pair")
    max_characters: int = key(4000, "training pairs with a longer side are dropped", low=1)
    max_tokens: int = key(256, "training pairs with more tokens on a side are dropped", low=1)
    max_ratio: float = key(9.0, "training pairs whose token counts differ by more than this factor are dropped", low=1)


@dataclass(frozen=True)
class TokenizerConfig:
    kind: TokenizerKind = key(TokenizerKind.sentencepiece, "subword units, or Moses words")
    model: str | None = key(None, "an existing SentencePiece model to use instead of training one")
    type: SubwordType = key(SubwordType.unigram, "sentencepiece: the model's type")
    vocab_size: int = key(8000, "size of the vocabulary (word: at most)", low=8)
    joint: bool = key(True, "one vocabulary for both languages")
    byte_fallback: bool = key(True, "sentencepiece: spell unknown characters as bytes")
    character_coverage: float = key(
        0.9999, "sentencepiece: share of characters with pieces of their own", above=0, high=1
    )
    symbols: list[str] = key([], "sentencepiece: strings that always stay one piece")
    max_sentences: int = key(1_000_000, "sentencepiece: train on at most this many lines a side", low=1)
    min_frequency: int = key(2, "word: rarer words are unknown", low=1)
    sampling: float = key(
        0.0,
        "subword sampling in training: unigram smoothing alpha, or BPE-dropout rate; 0 is off",
        low=0,
        below=1,
    )


@dataclass(frozen=True)
class ModelConfig:
    d_model: int = key(512, "width", low=2)
    d_ff: int = key(2048, "width of the feed-forward layers", low=1)
    heads: int = key(8, "attention heads", low=1)
    encoder_layers: int = key(6, "layers", low=1)
    decoder_layers: int = key(6, "layers", low=1)
    dropout: float = key(0.1, "dropout on sublayer outputs and embeddings", low=0, below=1)
    norm: Norm = key(Norm.pre, "layer normalization before each sublayer, or after the residual sum")
    positions: Positions = key(Positions.sinusoidal, "position encoding")
    max_positions: int = key(1024, "learned positions: length of the table", low=2)
    activation: Activation = key(Activation.relu, "of the feed-forward layers")
    tie: Tie = key(Tie.all, "shared matrices: both embeddings and output, target embedding and output, or none")
    init: Init = key(Init.xavier, "depth_scaled divides the last matrix of each residual branch by sqrt(branches)")


@dataclass(frozen=True)
class OptimConfig:
    name: Optimizer = key(Optimizer.adam, "optimizer")
    schedule: Schedule = key(Schedule.noam, "learning-rate schedule")
    factor: float = key(1.0, "noam: factor on d_model^-0.5 min(u^-0.5, u warmup^-1.5)", above=0)
    peak_lr: float = key(5e-4, "inverse_sqrt: rate at the end of warm-up; constant: the rate after warm-up", above=0)
    warmup_steps: int = key(4000, "updates of linear warm-up", low=1)
    beta1: float = key(0.9, "Adam", low=0, below=1)
    beta2: float = key(0.98, "Adam", low=0, below=1)
    eps: float = key(1e-9, "Adam", above=0)
    momentum: float = key(0.0, "SGD", low=0, below=1)
    weight_decay: float = key(0.0, "adamw: decoupled; adam and sgd: L2", low=0)
    label_smoothing: float = key(
        0.1, "share of the target probability spread evenly over the whole vocabulary", low=0, below=1
    )
    clip_norm: float = key(1.0, "largest norm of an update's gradient; 0 is off", low=0)


@dataclass(frozen=True)
class TrainConfig:
    max_updates: int | None = key(None, "stop after this many updates", low=1)
    max_epochs: int | None = key(None, "stop after this many epochs", low=1)
    max_minutes: float | None = key(None, "stop after this many minutes of training, summed over restarts", above=0)
    update_tokens: int = key(4096, "real target tokens per update (a hyperparameter)", low=1)
    batch_tokens: int = key(16384, "rows x (longest source + longest target) per batch (a limit of memory)", low=2)
    validate_every: int = key(0, "updates between validations; 0 is each epoch", low=0)
    validate_beam: int = key(1, "beam size of the validation's BLEU; 1 is greedy", low=1)
    validate_sentences: int = key(0, "decode the first N development sentences only; 0 is all", low=0)
    save_every: int = key(0, "updates between checkpoints besides validations; 0 is off", low=0)
    log_every: int = key(50, "updates between log lines", low=1)
    patience: int = key(0, "stop after this many validations without a better score; 0 is off", low=0)
    average: int = key(5, "average the weights of this many checkpoints for the final scores; 1 is off", low=1)
    average_of: Which = key(Which.last, "the last, or the best, checkpoints are averaged")
    precision: Precision = key(Precision.auto, "of matrix products; auto is bf16 where the hardware is fast at it")
    device: Device = key(Device.auto, "auto is a GPU where there is one")
    threads: int = key(0, "CPU threads; 0 is all cores", low=0)


@dataclass(frozen=True)
class DecodeConfig:
    beam_size: int = key(5, "beam size; 1 is greedy", low=1)
    length_penalty: float = key(1.0, "score = log-probability / length^length_penalty, EOS counted", low=0)
    max_length_a: float = key(2.0, "longest output: a x source tokens + b", low=0)
    max_length_b: int = key(20, "longest output: a x source tokens + b", low=1)
    min_length: int = key(0, "shortest output in tokens", low=0)
    nbest: int = key(1, "hypotheses given per sentence", low=1)
    batch_tokens: int = key(4096, "source tokens x beam size per batch (a limit of memory)", low=1)


@dataclass(frozen=True)
class TrainJob:
    run: RunConfig = field(default_factory=RunConfig)
    seed: int = key(1, "seed of initialization, dropout and order", low=0)
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class PrepareJob:
    seed: int = key(1, "seed of the lines that a large corpus's tokenizer is trained on", low=0)
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)


@dataclass(frozen=True)
class EvaluateJob:
    checkpoint: str = key("", "a run folder (its average where there is one, else its best) or a checkpoint folder")
    input: str | None = key(None, "source text; without it the run's own test sets")
    reference: str | None = key(None, "reference translation of input")
    output: str | None = key(None, "folder for scores and hypotheses (default: the run folder)")
    all_checkpoints: bool = key(False, "score every checkpoint of the run")
    device: Device = key(Device.auto, "auto is a GPU where there is one")
    precision: Precision = key(Precision.fp32, "of matrix products")
    threads: int = key(0, "CPU threads; 0 is all cores", low=0)
    decode: DecodeConfig = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class TranslateJob:
    checkpoint: str = key("", "a run folder (its average where there is one, else its best) or a checkpoint folder")
    input: str | None = key(None, "source text, a line a sentence (default: standard input)")
    output: str | None = key(None, "file for the translations (default: standard output)")
    device: Device = key(Device.auto, "auto is a GPU where there is one")
    precision: Precision = key(Precision.fp32, "of matrix products")
    threads: int = key(0, "CPU threads; 0 is all cores", low=0)
    decode: DecodeConfig = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class AverageJob:
    checkpoint: str = key("", "a run folder")
    count: int = key(5, "how many checkpoints", low=1)
    which: Which = key(Which.last, "the last, or the best, ones")


def raw_dir(data: DataConfig) -> str:
    """The folder of a named corpus's raw files: data.raw_dir, or where it lies by default."""
    foreign = data.source if data.target == "en" else data.target
    name = f"wmt14_en_{foreign}" if data.corpus is Corpus.wmt14 else data.corpus.value
    return data.raw_dir or f"data/raw/{name}"


# A run stays the same run when these change: its place, budget, logging, and the machine's share in it
HARMLESS = {"run.name", "run.root", "data.raw_dir", "data.prepared_dir"}
HARMLESS |= {"train.max_updates", "train.max_epochs", "train.max_minutes", "train.patience"}
HARMLESS |= {"train.validate_every", "train.save_every", "train.log_every"}
HARMLESS |= {"train.batch_tokens", "train.device", "train.threads", "decode.batch_tokens"}

Job = TrainJob | PrepareJob | EvaluateJob | TranslateJob | AverageJob


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


def from_plain(kind: type[Any], values: dict[str, Any]) -> Any:
    """The job that `to_plain` gave; missing keys take their defaults. Raises UserError for unknown keys."""
    types = get_type_hints(kind)
    if unknown := values.keys() - types.keys():
        raise UserError(f"unknown configuration key {min(unknown)!r}: was this written by a newer mt?")

    def convert(expected: Any, value: Any) -> Any:
        if is_dataclass(expected):
            return from_plain(expected, value)  # type: ignore[arg-type]
        return expected(value) if isinstance(expected, type) and issubclass(expected, Enum) else value

    return kind(**{name: convert(types[name], value) for name, value in values.items()})


def limits_in_words(item: Field[Any]) -> str:
    """What a key's number may be, such as "at least 0 and less than 1"; empty where anything goes."""
    words = {"low": "at least", "above": "greater than", "high": "at most", "below": "less than"}
    return " and ".join(f"{words[k]} {item.metadata[k]:g}" for k in words if k in item.metadata)


def validate(job: Job) -> None:
    """Refuse impossible values with one line that names the key, the value and what is allowed."""
    for name, item, value in walk(job):
        if isinstance(value, int | float) and not isinstance(value, bool):
            _check_limits(name, item, value)
    if isinstance(job, EvaluateJob | TranslateJob | AverageJob) and not job.checkpoint:
        raise UserError("checkpoint= is missing: name a run folder or a checkpoint, checkpoint=outputs/<run>")
    if isinstance(job, TrainJob):
        _check_training(job)
    if isinstance(job, TrainJob | PrepareJob) and job.tokenizer.model and not job.tokenizer.joint:
        raise UserError("tokenizer.model serves both languages: leave tokenizer.joint=true")
    if isinstance(job, TrainJob | PrepareJob) and job.data.source == job.data.target:
        raise UserError(f"data.source and data.target are both {job.data.source!r}: they must differ")
    if isinstance(job, TrainJob | TranslateJob | EvaluateJob) and job.decode.nbest > job.decode.beam_size:
        raise UserError(f"decode.nbest={job.decode.nbest} must be at most decode.beam_size={job.decode.beam_size}")


def _check_limits(name: str, item: Field[Any], value: float) -> None:
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
