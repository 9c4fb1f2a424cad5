"""Composing: which setting wins, the names of runs, and the settings inherited from a checkpoint."""

import logging
import re
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from mt.checkpoint.folder import write_checkpoint
from mt.commands import COMMANDS
from mt.commands.evaluate import EvaluateConfig
from mt.commands.prepare import PrepareConfig
from mt.commands.translate import TranslateConfig
from mt.config.compose import compose
from mt.config.overrides import Command, options
from mt.config.schema import (
    Corpus,
    DataConfig,
    DecodeConfig,
    Optimizer,
    Schedule,
    TokenizerConfig,
    TokenizerKind,
    TrainConfig,
)
from mt.config.stored import to_yaml
from mt.errors import UserError
from mt.run_folder import RunFolder, checkpoint_name


def train_config(*overrides: str) -> TrainConfig:
    config = compose(COMMANDS["train"], list(overrides))
    assert isinstance(config, TrainConfig)
    return config


def run_name(*overrides: str) -> str:
    return str(train_config(*overrides).run.name)


def test_the_default_experiment_is_the_tiny_model_on_multi30k():
    config = train_config()
    assert config.data.corpus is Corpus.multi30k
    sizes = (
        config.model.encoder_layers,
        config.model.decoder_layers,
        config.model.d_model,
        config.model.d_ff,
        config.model.heads,
    )
    assert sizes == (4, 4, 128, 256, 4)
    assert (config.tokenizer.vocab_size, config.tokenizer.joint) == (5000, True)
    assert (config.train.update_tokens, config.train.max_updates, config.optim.cooldown) == (2048, 4000, 0.25)
    # noam's peak lr, at the end of warm-up: factor / sqrt(d_model * warm-up)
    assert config.optim.factor / (128 * config.optim.warmup_steps) ** 0.5 == pytest.approx(0.005, rel=1e-3)


@pytest.mark.parametrize("experiment", options("experiment"))
def test_the_models_of_the_papers_whatever_the_experiment(experiment):
    base = train_config(f"experiment={experiment}", "model=base").model
    assert (base.d_model, base.d_ff, base.heads, base.dropout) == (512, 2048, 8, 0.1)
    assert (base.encoder_layers, base.decoder_layers) == (6, 6)
    big = train_config(f"experiment={experiment}", "model=big").model
    assert (big.d_model, big.d_ff, big.heads, big.dropout) == (1024, 4096, 16, 0.3)
    assert (big.encoder_layers, big.decoder_layers) == (6, 6)


@pytest.mark.parametrize("data", options("data"))
def test_each_data_choice_has_an_experiment_of_its_name(data):
    by_data = train_config(f"data={data}")
    assert by_data == train_config(f"experiment={data}")
    assert by_data.run.name == f"{data}-en-{by_data.data.target}"


def test_what_the_user_chooses_counts_more_than_the_experiment():
    experiment = train_config("experiment=captions")
    assert (experiment.model.dropout, experiment.tokenizer.vocab_size) == (0.0, 2000)
    chosen = train_config("experiment=captions", "model=small", "tokenizer=word", "optim.warmup_steps=7")
    assert (chosen.model.d_model, chosen.model.dropout, chosen.optim.warmup_steps) == (256, 0.2, 7)
    assert chosen.tokenizer.kind is TokenizerKind.word and chosen.tokenizer.vocab_size == 20000
    assert train_config("model.dropout=0.5", "model=small").model.dropout == 0.5
    adamw = train_config("optim=adamw").optim
    assert (adamw.name, adamw.schedule, adamw.weight_decay) == (Optimizer.adamw, Schedule.inverse_sqrt, 0.01)


def test_a_new_command_may_choose_from_a_group_without_a_file_in_configs():
    @dataclass(frozen=True)
    class CountConfig:
        data: DataConfig = field(default_factory=DataConfig)

    command = Command("count", "count pairs", CountConfig, run=lambda overrides: 0, examples=(), groups=("data",))
    assert compose(command, ["data=captions"]).data.corpus is Corpus.captions
    assert compose(command, []).data == DataConfig(raw_dir=str(Path("data/raw/multi30k").absolute()))


def test_prepare_means_the_text_of_the_training():
    overrides = ["experiment=captions", "tokenizer.vocab_size=900", "seed=3"]
    prepare = compose(COMMANDS["prepare"], overrides)
    train = train_config(*overrides)
    assert prepare == PrepareConfig(seed=3, data=train.data, tokenizer=train.tokenizer)


@pytest.fixture
def saved(store, toy_model, toy_tokenizers):
    """Returns a function that saves a checkpoint with the given settings and returns the run folder."""

    def save(**settings) -> Path:
        name, config = checkpoint_name(1), replace(TrainConfig(model=toy_model.config), **settings)
        meta = {"update": 1, "score": None}
        write_checkpoint(store.folder / name, dict(toy_model.named_parameters()), config, toy_tokenizers, meta)
        store.set(last=name)
        return store.run.path

    return save


@pytest.mark.parametrize(("command", "kind"), [("evaluate", EvaluateConfig), ("translate", TranslateConfig)])
def test_decode_options_of_the_checkpoint_count_less_than_the_users(command, kind, saved):
    run = saved(decode=DecodeConfig(beam_size=7, length_penalty=0.6))

    def decode(*overrides: str, checkpoint: Path = run) -> DecodeConfig:
        config = compose(COMMANDS[command], [f"checkpoint={checkpoint}", *overrides])
        assert isinstance(config, kind)
        return config.decode

    assert (decode().beam_size, decode().length_penalty) == (7, 0.6)
    assert decode(checkpoint=run / "checkpoints" / checkpoint_name(1)).beam_size == 7
    assert (decode("decode.beam_size=2").beam_size, decode("decode.beam_size=2").length_penalty) == (2, 0.6)
    assert (decode("decode=greedy").beam_size, decode("decode=greedy").length_penalty) == (1, 1.0)
    assert decode("decode.nbest=7").nbest == 7


@pytest.mark.parametrize(
    ("command", "key"), [("evaluate", "checkpoint"), ("translate", "checkpoint"), ("train", "train.init_from")]
)
def test_a_checkpoint_that_settings_come_from_must_exist(command, key, tmp_path):
    gone, empty = tmp_path / "gone", tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match=f"^{key}={gone}: there is no folder"):
        compose(COMMANDS[command], [f"{key}={gone}"])
    with pytest.raises(UserError, match=f"^{key}={empty} contains no checkpoint"):
        compose(COMMANDS[command], [f"{key}={empty}"])


@pytest.fixture
def first(saved, toy_model):
    """A run folder to fine-tune from, with a dropout that no experiment has."""
    return saved(model=replace(toy_model.config, dropout=0.7), tokenizer=TokenizerConfig(vocab_size=330, sampling=0.3))


def test_a_training_takes_the_sizes_of_what_it_begins_from(first, monkeypatch):
    monkeypatch.chdir(first.parent)
    begin = f"train.init_from={first.name}"
    taken = train_config(begin, "data.source=de", "data.target=en")
    assert (taken.model.d_model, taken.model.d_ff, taken.tokenizer.vocab_size) == (16, 23, 330)  # from the checkpoint
    assert (taken.model.dropout, taken.tokenizer.sampling) == (0.1, 0.0)  # from the experiment, as they are not sizes
    assert taken.train.init_from == str(first)
    assert train_config(begin, "model=small").model.d_model == 256
    mixed = train_config(begin, "model.d_ff=32").model
    assert (mixed.d_model, mixed.d_ff) == (16, 32)
    assert train_config(begin, "tokenizer.sampling=0.1").tokenizer.sampling == 0.1


@pytest.mark.parametrize("override", ["tokenizer.vocab_size=900", "tokenizer=word", "tokenizer.model=x"])
def test_a_training_that_begins_from_a_checkpoint_takes_no_other_tokenizers(override, first):
    key = override.partition("=")[0]
    with pytest.raises(UserError, match=f"^train.init_from has its own tokenizers: leave out {key}$"):
        train_config(f"train.init_from={first}", override)


def begin_run(overrides: list[str]) -> RunFolder:
    """The folder of a run, as if it had saved a checkpoint."""
    config = train_config(*overrides)
    run = RunFolder(config.run.folder)
    run.checkpoints.mkdir(parents=True)
    run.config.write_text(to_yaml(config), encoding="utf-8")
    run.index.write_text("{}", encoding="utf-8")
    return run


def test_a_run_that_has_begun_keeps_its_settings_if_what_it_started_from_is_gone(first, tmp_path):
    overrides = [f"train.init_from={first}", f"run.root={tmp_path / 'outputs'}", "model.d_ff=32"]
    before = train_config(*overrides)
    assert (before.model.d_model, before.model.d_ff) == (16, 32)
    run = begin_run(overrides)
    shutil.rmtree(first)
    assert train_config(*overrides) == before
    # The name of the run shows its overrides, so this is another run
    with pytest.raises(UserError, match="there is no folder"):
        train_config(*overrides, "seed=2")
    run.index.unlink()  # without a saved checkpoint, the run would start again
    with pytest.raises(UserError, match="there is no folder"):
        train_config(*overrides)


def test_a_run_that_has_begun_keeps_its_settings_if_what_it_started_from_has_changed(saved, first, toy_model, tmp_path):
    overrides = [f"train.init_from={first}", f"run.root={tmp_path / 'outputs'}", "run.name=tuned"]
    begin_run(overrides)
    shutil.rmtree(first)
    saved(model=replace(toy_model.config, d_model=32))
    assert train_config(*overrides).model.d_model == 16
    assert train_config(*overrides, "model.dropout=0.2").model.dropout == 0.2
    assert train_config(*overrides[:2]).model.d_model == 32


@pytest.mark.parametrize(
    "path", ["a=b", "ü", "(x)", "#1", "~", "a b", "a,b", "${x}", "'", "[a]", "{a: b}", "a:b", "\\"]
)
def test_paths_hold_any_character(path, tmp_path, monkeypatch):
    assert compose(COMMANDS["average"], [f"checkpoint={path}"]).checkpoint == path
    monkeypatch.chdir(tmp_path)
    if not set("[,'") & set(path):
        data = train_config("data=files", f"data.train=[{path}.en, {path}.de]").data
        assert data.train == [str(tmp_path / f"{path}.en"), str(tmp_path / f"{path}.de")]


def test_lists_of_files_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = train_config(
        "data=files",
        "data.train=a.tsv",
        "data.dev=['a,b.en',/x/b.de]",
        "data.test={one: [a.en,a.de], two: b.tsv}",
    )
    here = str(tmp_path)
    assert config.data.train == [f"{here}/a.tsv"]
    assert config.data.dev == [f"{here}/a,b.en", "/x/b.de"]
    assert config.data.test == {"one": [f"{here}/a.en", f"{here}/a.de"], "two": [f"{here}/b.tsv"]}
    assert train_config("data=files", "data.test=[a.en,a.de]").data.test == [f"{here}/a.en", f"{here}/a.de"]
    assert train_config('tokenizer.symbols=["<2de>",<IS MAN>]').tokenizer.symbols == ["<2de>", "<IS MAN>"]
    assert train_config("tokenizer.model=m.model").tokenizer.model == f"{here}/m.model"
    assert train_config("tokenizer.model=null").tokenizer.model is None


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "multi30k-en-de"),
        (["model=small"], "multi30k-en-de-model.small"),
        (["optim.warmup_steps=1000"], "multi30k-en-de-optim.warmup_steps.1000"),
        (["data.source=de", "data.target=en"], "multi30k-de-en"),
        (["data=captions"], "captions-en-de"),
        (["experiment=captions"], "captions-en-de"),
        (["experiment=captions", "data=multi30k"], "captions-en-de-data.multi30k"),
        (["train.threads=1", "train.max_minutes=2", "run.root=/tmp/a b", "data.raw_dir=x"], "multi30k-en-de"),
        (["optim.factor=1e-3"], "multi30k-en-de-optim.factor.0.001"),
        (["optim.factor=.001"], "multi30k-en-de-optim.factor.0.001"),
        (["optim.name=sgd", "model.tie=none"], "multi30k-en-de-model.tie.none-optim.name.sgd"),
        (["run.name=mine", "model=small"], "mine"),
    ],
)
def test_run_names(overrides, name):
    assert run_name(*overrides) == name


def test_run_names_tell_commands_apart_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_name("seed=2", "model=small") == run_name("model=small", "seed=2")
    first = run_name("data=files", "data.train=[a/ü (1).en,a/ü (1).de]")
    other = run_name("data=files", "data.train=[b/ü (1).en,b/ü (1).de]")
    assert first != other
    long = [f"model.{key}" for key in ("d_model=64", "d_ff=64", "heads=2", "encoder_layers=1", "decoder_layers=1")]
    long += ["optim.warmup_steps=17", "optim.label_smoothing=0.2"]
    names = [first, other, run_name(*long, "seed=1"), run_name(*long, "seed=2")]
    assert len(set(names)) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name) for name in names)


def test_long_run_names_that_differ_only_at_their_ends_are_different_runs():
    one, other = (run_name(f"run.name={'x' * 110}{end}") for end in "ab")
    assert one != other and len(one) == len(other) == 100


@pytest.mark.parametrize("path", ["a...b.en", "a . b.en", "../../a..en"])
def test_a_run_name_that_mt_makes_is_one_that_it_accepts(path):
    name = run_name("data=files", f"data.train=[{path},{path}]")
    assert compose(COMMANDS["train"], ["data=files", f"data.train=[{path},{path}]", f"run.name='{name}'"])


@pytest.mark.parametrize("name", ["a/b", "..", "a..b", ".hidden", "a\nb", "\\"])
def test_run_name_is_a_folder_of_its_own(name):
    with pytest.raises(UserError, match=r"run\.name"):
        compose(COMMANDS["train"], [f"run.name={name}"])


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["run.name=x", "train.threads=2", "data.target=fr"], "x-data.target.fr-train.threads.2"),
        (["train.threads=2", "data.target=fr"], "multi30k-en-fr-train.threads.2"),
        (["train.threads=2", "data.target=fr", "seed=3"], "multi30k-en-fr-seed.3-train.threads.2"),
        (["run.name=x", "train.threads=2", "data.target=fr", "seed=3"], "x-data.target.fr-train.threads.2"),
    ],
)
def test_in_a_sweep_the_names_hold_what_varies(overrides, name):
    varied = frozenset({"train.threads", "data.target"})
    assert compose(COMMANDS["train"], overrides, varied).run.name == name


def test_in_a_sweep_over_groups_the_names_hold_the_choices():
    names = [
        compose(COMMANDS["train"], ["run.name=x", f"experiment={choice}"], frozenset({"experiment"})).run.name
        for choice in ("captions", "multi30k")
    ]
    assert names == ["x-experiment.captions", "x-experiment.multi30k"]


def test_composing_leaves_no_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    handlers = list(logging.getLogger().handlers)
    train_config()
    assert list(tmp_path.iterdir()) == [] and logging.getLogger().handlers == handlers
