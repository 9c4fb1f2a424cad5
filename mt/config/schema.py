"""All keys of a training run: type, default, help, limits. Other commands define their own; configs/ sets values."""

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


def key(default: Any, help: str, **limits: float) -> Any:
    """A configuration key. Its limits may be low= and high= (inclusive), above= and below= (exclusive)."""
    metadata = {"help": help, **limits}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def walk(config: Any, prefix: str = "") -> Iterator[tuple[str, Field[Any], Any]]:
    """(dotted name, field, value) of every key of a configuration, in the order of the dataclasses."""
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            yield from walk(value, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", item, value


# Each member's value is its own name
Corpus = StrEnum("Corpus", "multi30k wmt14 files captions")
InvalidText = StrEnum("InvalidText", "error skip")
TokenizerKind = StrEnum("TokenizerKind", "sentencepiece word")
SubwordType = StrEnum("SubwordType", "unigram bpe")
Norm = StrEnum("Norm", "pre post")
Positions = StrEnum("Positions", "sinusoidal learned")
Activation = StrEnum("Activation", "relu gelu")
Tie = StrEnum("Tie", "all output none")
Init = StrEnum("Init", "xavier depth_scaled")
Optimizer = StrEnum("Optimizer", "adam adamw sgd")
Schedule = StrEnum("Schedule", "noam inverse_sqrt constant")
Precision = StrEnum("Precision", "auto fp32 tf32 bf16 fp16")
Device = StrEnum("Device", "auto cpu cuda")
ExportType = StrEnum("ExportType", "float32 int8")
Which = StrEnum("Which", "last best")


@dataclass(frozen=True)
class RunConfig:
    name: str | None = key(None, "name of the run folder; by default made of experiment, languages and given settings")
    root: str = key("outputs", "folder that contains all run folders")

    @property
    def folder(self) -> Path:
        """The folder of the run; `name` is set once the configuration is composed."""
        assert self.name
        return Path(self.root) / self.name


@dataclass(frozen=True)
class DataConfig:
    corpus: Corpus = key(Corpus.multi30k, "corpus to train on, set by data=")
    source: str = key("en", "source language code")
    target: str = key("de", "target language code")
    raw_dir: str | None = key(None, "folder for the downloaded files of the corpus (default: data/raw/<corpus>)")
    prepared_dir: str = key("data/prepared", "folder for tokenized corpora")
    train: list[str] = key([], "data=files: training files: source,target,source,target,... or .tsv or .jsonl")
    dev: list[str] = key([], "data=files: development files; by default, a part of data.train is held out")
    test: Any = key({}, "data=files: test files: one list, or {name: list, ...}")
    invalid_utf8: InvalidText = key(InvalidText.error, "if a training line is not UTF-8: stop, or skip the pair")
    max_characters: int = key(4000, "drop training pairs with more characters than this on either side", low=1)
    max_tokens: int = key(256, "drop training pairs with more tokens than this on either side", low=1)
    max_ratio: float = key(9.0, "drop training pairs whose token counts differ by more than this factor", low=1)

    @property
    def languages(self) -> tuple[str, str]:
        return self.source, self.target

    @property
    def raw_folder(self) -> str:
        """The folder of a named corpus's raw files: data.raw_dir, or the default one."""
        foreign = self.source if self.target == "en" else self.target
        name = f"wmt14_en_{foreign}" if self.corpus is Corpus.wmt14 else self.corpus.value
        return self.raw_dir or f"data/raw/{name}"


@dataclass(frozen=True)
class TokenizerConfig:
    kind: TokenizerKind = key(TokenizerKind.sentencepiece, "subword units, or Moses words")
    model: str | None = key(None, "an existing SentencePiece model to use instead of training one")
    type: SubwordType = key(SubwordType.unigram, "sentencepiece: type of the model")
    vocab_size: int = key(8000, "maximum size of the vocabulary", low=8)
    joint: bool = key(True, "one vocabulary for both languages")
    byte_fallback: bool = key(True, "sentencepiece: spell unknown characters as bytes")
    character_coverage: float = key(0.9999, "sentencepiece: share of the text's characters to cover", above=0, high=1)
    symbols: list[str] = key([], "sentencepiece: strings that are always one piece")
    max_sentences: int = key(1_000_000, "sentencepiece: maximum number of training lines per side", low=1)
    min_frequency: int = key(2, "word: words that occur less often become unknown", low=1)
    sampling: float = key(0.0, "subword regularization: alpha (unigram) or dropout (BPE); 0 is off", low=0, below=1)


@dataclass(frozen=True)
class ModelConfig:
    d_model: int = key(512, "width of the model", low=2)
    d_ff: int = key(2048, "width of the feed-forward layers", low=1)
    heads: int = key(8, "attention heads", low=1)
    encoder_layers: int = key(6, "layers of the encoder", low=1)
    decoder_layers: int = key(6, "layers of the decoder", low=1)
    dropout: float = key(0.1, "dropout on embeddings and on the output of each sublayer", low=0, below=1)
    norm: Norm = key(Norm.pre, "layer normalization: pre is before each sublayer, post is after the residual sum")
    positions: Positions = key(Positions.sinusoidal, "position encoding")
    max_positions: int = key(1024, "learned positions: length of the table", low=2)
    activation: Activation = key(Activation.relu, "activation of the feed-forward layers")
    tie: Tie = key(Tie.all, "share matrices: all (both embeddings, output), output (target embedding, output), none")
    init: Init = key(Init.xavier, "initialization; depth_scaled divides each sublayer's last matrix by sqrt(sublayers)")


@dataclass(frozen=True)
class OptimConfig:
    name: Optimizer = key(Optimizer.adam, "optimizer")
    schedule: Schedule = key(Schedule.noam, "learning-rate schedule")
    factor: float = key(1.0, "noam: lr of update u = factor d_model^-0.5 min(u^-0.5, u warmup_steps^-1.5)", above=0)
    peak_lr: float = key(5e-4, "inverse_sqrt, constant: learning rate at the end of warm-up", above=0)
    warmup_steps: int = key(4000, "updates of linear warm-up", low=1)
    cooldown: float = key(0.0, "final share of train.max_updates with linear decay to 0; 0 is off", low=0, below=1)
    beta1: float = key(0.9, "adam, adamw: decay of the first moment", low=0, below=1)
    beta2: float = key(0.98, "adam, adamw: decay of the second moment", low=0, below=1)
    eps: float = key(1e-9, "adam, adamw: added to the denominator", above=0)
    momentum: float = key(0.0, "sgd: momentum", low=0, below=1)
    weight_decay: float = key(0.0, "weight decay: decoupled for adamw, an L2 penalty for adam and sgd", low=0)
    label_smoothing: float = key(0.1, "share of the target probability to spread over the vocabulary", low=0, below=1)
    clip_norm: float = key(1.0, "clip the gradient of an update to this norm; 0 is off", low=0)


@dataclass(frozen=True)
class TrainingConfig:
    max_updates: int | None = key(None, "stop after this many updates", low=1)
    max_epochs: int | None = key(None, "stop after this many epochs", low=1)
    max_minutes: float | None = key(None, "stop after this many minutes of training, summed over restarts", above=0)
    update_tokens: int = key(4096, "non-padding target tokens per update (a hyperparameter)", low=1)
    batch_tokens: int = key(16384, "rows x (longest source + longest target) per batch (limits only memory)", low=2)
    validate_every: int = key(0, "updates between validations; 0 validates after each epoch", low=0)
    validate_beam: int = key(1, "beam size for validation BLEU; 1 is greedy search", low=1)
    validate_sentences: int = key(0, "decode only the first N development sentences; 0 is all", low=0)
    save_every: int = key(0, "updates between additional checkpoints; 0 saves only after validations", low=0)
    log_every: int = key(50, "updates between log lines", low=1)
    patience: int = key(0, "validations in a row with no better BLEU (ties: loss) before stopping; 0 is off", low=0)
    average: int = key(5, "average the weights of this many checkpoints for the final scores; 1 is off", low=1)
    average_of: Which = key(Which.last, "average the last or the best checkpoints")
    precision: Precision = key(
        Precision.auto,
        "number format of matrix multiplications; auto picks bf16 if the hardware supports it natively, else fp32",
    )
    compile: bool = key(False, "use torch.compile, which takes minutes but speeds up long runs on a GPU")
    device: Device = key(Device.auto, "auto picks a GPU if there is one")
    devices: str = key("1", "number of processes on this machine, each with its own GPU, if any; auto: one per GPU")
    threads: int = key(0, "CPU threads of each process; 0 divides all cores among the processes", low=0)
    init_from: str | None = key(None, "start from the weights, tokenizers and model settings of this run or checkpoint")


@dataclass(frozen=True)
class DecodeConfig:
    beam_size: int = key(5, "beam size; 1 is greedy search", low=1)
    length_penalty: float = key(1.0, "score = log-probability / length^length_penalty; length includes EOS", low=0)
    max_length_a: float = key(2.0, "longest output in tokens: max_length_a x source tokens + max_length_b", low=0)
    max_length_b: int = key(20, "longest output in tokens: max_length_a x source tokens + max_length_b", low=1)
    min_length: int = key(0, "shortest output in tokens", low=0)
    nbest: int = key(1, "number of hypotheses to print per sentence", low=1)
    batch_tokens: int = key(8192, "source tokens x beam size per batch (limits only memory)", low=1)


@dataclass(frozen=True)
class DecodingConfig:
    """The keys of all commands that decode with a checkpoint."""

    checkpoint: str = key("", "a checkpoint folder, or a run folder (uses its average or else its best checkpoint)")
    device: Device = key(Device.auto, "auto picks a GPU if there is one")
    devices: str = key("1", "number of processes on this machine, each with its own GPU, if any; auto: one per GPU")
    precision: Precision = key(Precision.fp32, "number format of matrix multiplications")
    threads: int = key(0, "CPU threads of each process; 0 divides all cores among the processes", low=0)
    decode: DecodeConfig = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class TrainConfig:
    """The complete configuration of `mt train`, which each checkpoint stores."""

    run: RunConfig = field(default_factory=RunConfig)
    seed: int = key(1, "seed of initialization, dropout and the order of sentences", low=0)
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainingConfig = field(default_factory=TrainingConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
