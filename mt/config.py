"""The typed configuration: every key, its default, its meaning and what it may be, in this one place.

A command gets one frozen `...Job`, checked by `mt.jobs.validate` before any work. YAML under configs/ only holds what
differs from the defaults here; `mt.compose` builds the jobs from YAML and the command line.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


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
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"


class Device(Enum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Engine(Enum):
    auto = "auto"
    torch = "torch"
    ctranslate2 = "ctranslate2"


class ExportFormat(Enum):
    ctranslate2 = "ctranslate2"


class ExportType(Enum):
    float32 = "float32"
    int8 = "int8"


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
    max_sentences: int = key(
        1_000_000, "sentencepiece: train on at most this many lines a side, and 20 million characters", low=1
    )
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
    cooldown: float = key(0.0, "last share of train.max_updates, in which the rate falls to nothing", low=0, below=1)
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
    compile: bool = key(False, "compile the model with torch.compile: minutes at the start, for long runs on a GPU")
    device: Device = key(Device.auto, "auto is a GPU where there is one")
    devices: str = key("1", "processes on this machine, each with a GPU of its own where there are: a number, or auto")
    threads: int = key(0, "CPU threads of each process; 0 shares all cores out", low=0)
    init_from: str | None = key(
        None, "begin from the weights and the tokenizers of this checkpoint or run; its sizes replace model.*"
    )


@dataclass(frozen=True)
class DecodeConfig:
    beam_size: int = key(5, "beam size; 1 is greedy", low=1)
    length_penalty: float = key(1.0, "score = log-probability / length^length_penalty, EOS counted", low=0)
    max_length_a: float = key(2.0, "longest output: a x source tokens + b", low=0)
    max_length_b: int = key(20, "longest output: a x source tokens + b", low=1)
    min_length: int = key(0, "shortest output in tokens", low=0)
    nbest: int = key(1, "hypotheses given per sentence", low=1)
    batch_tokens: int = key(8192, "source tokens x beam size per batch (a limit of memory)", low=1)
    engine: Engine = key(
        Engine.auto,
        "mt translate: torch, or CTranslate2 with an export; auto takes an export where there is one for the CPU."
        " Scores always come from torch",
    )


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
    devices: str = key("1", "processes on this machine, each with a GPU of its own where there are: a number, or auto")
    precision: Precision = key(Precision.fp32, "of matrix products")
    threads: int = key(0, "CPU threads of each process; 0 shares all cores out", low=0)
    decode: DecodeConfig = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class TranslateJob:
    checkpoint: str = key("", "a run folder (its average where there is one, else its best) or a checkpoint folder")
    input: str | None = key(None, "source text, a line a sentence (default: standard input)")
    output: str | None = key(None, "file for the translations (default: standard output)")
    device: Device = key(Device.auto, "auto is a GPU where there is one")
    devices: str = key("1", "processes on this machine, each with a GPU of its own where there are: a number, or auto")
    precision: Precision = key(Precision.fp32, "of matrix products")
    threads: int = key(0, "CPU threads of each process; 0 shares all cores out", low=0)
    decode: DecodeConfig = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class AverageJob:
    checkpoint: str = key("", "a run folder")
    count: int = key(5, "how many checkpoints", low=1)
    which: Which = key(Which.last, "the last, or the best, ones")


@dataclass(frozen=True)
class ExportJob:
    checkpoint: str = key("", "a run folder (its average where there is one, else its best) or a checkpoint folder")
    format: ExportFormat = key(ExportFormat.ctranslate2, "the program that it is for")
    type: ExportType = key(ExportType.float32, "of the weights; int8 is a quarter of the size")
    output: str | None = key(None, "folder of the export (default: exports/ in the run folder)")
    input: str | None = key(None, "source text to compare the engines on (default: the run's development set)")
    reference: str | None = key(None, "reference translation of input")
    threads: int = key(0, "CPU threads; 0 is all cores", low=0)


Job = TrainJob | PrepareJob | EvaluateJob | TranslateJob | AverageJob | ExportJob
