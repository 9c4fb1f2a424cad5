import dataclasses
import logging
import re
from enum import Enum

import pytest
from omegaconf import OmegaConf

from mt.compose import compose, to_yaml
from mt.config import Corpus, EvaluateJob, Optimizer, PrepareJob, Schedule, TokenizerKind, TrainJob
from mt.errors import UserError
from mt.jobs import HARMLESS, NEEDS, walk
from mt.overrides import GROUPS, expand, keys, options


def train_job(*overrides: str) -> TrainJob:
    job = compose("train", list(overrides))
    assert isinstance(job, TrainJob)
    return job


def run_name(*overrides: str) -> str:
    return str(train_job(*overrides).run.name)


def test_default_recipe_is_the_tiny_model_on_multi30k():
    job = train_job()
    assert job.data.corpus is Corpus.multi30k
    sizes = (
        job.model.encoder_layers,
        job.model.decoder_layers,
        job.model.d_model,
        job.model.d_ff,
        job.model.heads,
    )
    assert sizes == (4, 4, 128, 256, 4)
    assert (job.tokenizer.vocab_size, job.tokenizer.joint) == (5000, True)
    assert (job.train.update_tokens, job.train.max_updates, job.optim.cooldown) == (2048, 4000, 0.25)
    # noam's highest rate, at the end of warm-up: factor / sqrt(d_model * warm-up)
    assert job.optim.factor / (128 * job.optim.warmup_steps) ** 0.5 == pytest.approx(0.005, rel=1e-3)


@pytest.mark.parametrize("recipe", options("experiment"))
def test_papers_models_whatever_the_recipe(recipe):
    base = train_job(f"experiment={recipe}", "model=base").model
    assert (base.d_model, base.d_ff, base.heads, base.dropout) == (512, 2048, 8, 0.1)
    assert (base.encoder_layers, base.decoder_layers) == (6, 6)
    big = train_job(f"experiment={recipe}", "model=big").model
    assert (big.d_model, big.d_ff, big.heads, big.dropout) == (1024, 4096, 16, 0.3)
    assert (big.encoder_layers, big.decoder_layers) == (6, 6)


@pytest.mark.parametrize("data", options("data"))
def test_each_data_choice_has_a_recipe_of_its_name(data):
    by_data = train_job(f"data={data}")
    assert by_data == train_job(f"experiment={data}")
    assert by_data.run.name == f"{data}-en-{by_data.data.target}"


def test_what_the_user_chooses_counts_more_than_the_recipe():
    recipe = train_job("experiment=captions")
    assert (recipe.model.dropout, recipe.tokenizer.vocab_size) == (0.0, 2000)
    chosen = train_job("experiment=captions", "model=small", "tokenizer=word", "optim.warmup_steps=7")
    assert (chosen.model.d_model, chosen.model.dropout, chosen.optim.warmup_steps) == (256, 0.2, 7)
    assert chosen.tokenizer.kind is TokenizerKind.word and chosen.tokenizer.vocab_size == 20000
    assert train_job("model.dropout=0.5", "model=small").model.dropout == 0.5
    adamw = train_job("optim=adamw").optim
    assert (adamw.name, adamw.schedule, adamw.weight_decay) == (Optimizer.adamw, Schedule.inverse_sqrt, 0.01)


def test_prepare_means_the_text_of_the_training():
    overrides = ["experiment=captions", "tokenizer.vocab_size=900", "seed=3"]
    prepare = compose("prepare", overrides)
    train = train_job(*overrides)
    assert prepare == PrepareJob(seed=3, data=train.data, tokenizer=train.tokenizer)


def test_stored_decode_options_count_less_than_the_users():
    stored = {"decode.beam_size": 7, "decode.length_penalty": 0.6}

    def decode(*overrides: str):
        job = compose("evaluate", ["checkpoint=x", *overrides], stored)
        assert isinstance(job, EvaluateJob)
        return job.decode

    assert (decode().beam_size, decode().length_penalty) == (7, 0.6)
    assert (decode("decode.beam_size=2").beam_size, decode("decode.beam_size=2").length_penalty) == (2, 0.6)
    assert (decode("decode=greedy").beam_size, decode("decode=greedy").length_penalty) == (1, 1.0)
    assert decode("decode.nbest=7").nbest == 7


@pytest.mark.parametrize(
    "path", ["a=b", "ü", "(x)", "#1", "~", "a b", "a,b", "${x}", "'", "[a]", "{a: b}", "a:b", "\\"]
)
def test_paths_hold_any_character(path, tmp_path, monkeypatch):
    assert compose("average", [f"checkpoint={path}"]).checkpoint == path
    monkeypatch.chdir(tmp_path)
    if not set("[,'") & set(path):
        data = train_job("data=files", f"data.train=[{path}.en, {path}.de]").data
        assert data.train == [str(tmp_path / f"{path}.en"), str(tmp_path / f"{path}.de")]


def test_lists_of_files_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = train_job(
        "data=files",
        "data.train=a.tsv",
        "data.dev=['a,b.en',/x/b.de]",
        "data.test={one: [a.en,a.de], two: b.tsv}",
    )
    here = str(tmp_path)
    assert job.data.train == [f"{here}/a.tsv"]
    assert job.data.dev == [f"{here}/a,b.en", "/x/b.de"]
    assert job.data.test == {"one": [f"{here}/a.en", f"{here}/a.de"], "two": [f"{here}/b.tsv"]}
    assert train_job("data=files", "data.test=[a.en,a.de]").data.test == [f"{here}/a.en", f"{here}/a.de"]
    assert train_job('tokenizer.symbols=["<2de>",<IS MAN>]').tokenizer.symbols == ["<2de>", "<IS MAN>"]
    assert train_job("tokenizer.model=m.model").tokenizer.model == f"{here}/m.model"
    assert train_job("tokenizer.model=null").tokenizer.model is None


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


@pytest.mark.parametrize("name", ["a/b", "..", "a..b", ".hidden", "a\nb", "\\"])
def test_run_name_is_a_folder_of_its_own(name):
    with pytest.raises(UserError, match=r"run\.name"):
        compose("train", [f"run.name={name}"])


MISTAKES = [
    ("optim.lrr=1", "optim.lrr=1", "did you mean"),
    ("lr=1e-3", "lr=1e-3", "did you mean optim.peak_lr?"),
    ("beam_size=3", "beam_size=3", "did you mean decode.beam_size?"),
    ("trainer.max_update=10", "trainer.max_update", "did you mean train.max_updates?"),
    ("modle=tiny", "modle", "did you mean model?"),
    ("model=tny", "base, big, small, tiny", "did you mean tiny?"),
    ("model", "'model'", "write model=VALUE"),
    ("model=tiny,small", "tiny,small", "-m"),
    ("optim.factor=1,2", "optim.factor=1,2", "-m"),
    ("hydra.ouput_subdir=x", "hydra.ouput_subdir=x", "run.root"),
    ("hydra/launcher=x", "hydra/launcher=x", "run.root"),
    ("+optim.foo=1", "+optim.foo=1", "neither added nor removed"),
    ("~optim.factor", "~optim.factor", "neither added nor removed"),
    ("data@other=files", "data@other", "did you mean data?"),
    ("train.update_tokens=abc", "train.update_tokens=abc", "a whole number, at least 1"),
    ("train.update_tokens=1.5", "train.update_tokens=1.5", "a whole number"),
    ("train.update_tokens=null", "train.update_tokens=null", "a whole number"),
    ("train.update_tokens=0", "train.update_tokens=0", "at least 1"),
    ("seed=true", "seed=true", "a whole number"),
    ("optim.factor=nan", "optim.factor=nan", "greater than 0"),
    ("train.max_minutes=inf", "train.max_minutes=inf", "greater than 0"),
    ("optim.factor=", "optim.factor=", "a number"),
    ("optim.factor=true", "optim.factor=true", "a number"),
    ("optim.factor=a(b", "optim.factor=a(b", "two pairs of quotes"),
    ("seed==3", "seed==3", "two pairs of quotes"),
    ("data.source=ü", "data.source=ü", "'data.source=\"ü\"'"),
    ("tokenizer.joint=1", "tokenizer.joint=1", "true or false"),
    ("optim.name=adm", "adam, adamw, sgd", "did you mean adam?"),
    ("model.dropout=1.5", "model.dropout=1.5", "less than 1"),
    ("model.heads=3", "model.d_model=128", "model.heads=3"),
    ("data.target=en", "'en'", "must differ"),
    ("data.train=a.en,a.de", "data.train=a.en,a.de", "'data.train=[a.en,a.de]'"),
    ("data.train=", "data.train=", "a list"),
    ("data.test={a}", "data.test={a}", "{name: [a,b]"),
    ("run.root=", "run.root=", "empty"),
    ("train=5", "train=5", "no key 'train'"),
    ("optim.peak_lr=0.1", "optim.peak_lr does nothing with optim.schedule=noam", "optim.schedule=inverse_sqrt"),
    ("model.max_positions=99", "model.max_positions does nothing", "model.positions=learned"),
    ("tokenizer.min_frequency=3", "tokenizer.min_frequency does nothing", "tokenizer.kind=word"),
]


@pytest.mark.parametrize(("override", "named", "way_out"), MISTAKES)
def test_a_mistake_is_one_line_that_names_it(override, named, way_out):
    with pytest.raises(UserError) as caught:
        compose("train", [override])
    message = str(caught.value)
    assert named in message and way_out in message and "\n" not in message


def test_a_key_is_refused_only_where_it_does_nothing():
    assert train_job("optim.schedule=inverse_sqrt", "optim.peak_lr=0.1").optim.peak_lr == 0.1
    assert train_job("optim=inverse_sqrt", "optim.peak_lr=0.1").optim.peak_lr == 0.1
    assert train_job("tokenizer=word").tokenizer.min_frequency == 2  # of the group's file, which nobody typed
    keys = {name for name, _, _ in walk(train_job())}
    assert all({name, key} <= keys for name, (key, _) in NEEDS.items())


def test_a_cooldown_needs_an_end():
    with pytest.raises(UserError, match=r"optim\.cooldown is a share of train\.max_updates.* or optim\.cooldown=0"):
        compose("train", ["optim.cooldown=0.2", "train.max_updates=null", "train.max_minutes=5"])
    assert train_job("optim.cooldown=0", "train.max_updates=null", "train.max_minutes=5").train.max_minutes == 5


def test_a_checkpoint_must_be_named():
    for command in ("evaluate", "translate", "average"):
        with pytest.raises(UserError, match="checkpoint= is missing"):
            compose(command, [])


def test_sweep_expands_all_combinations():
    lines, varied = expand("train", ["model=tiny,small", "seed=range(1,4)", "run.root=a,b", "optim.factor=2"])
    assert len(lines) == 6 and varied == {"model", "seed"}
    assert lines[0] == ["model=tiny", "seed=1", "run.root=a,b", "optim.factor=2"]
    assert lines[-1] == ["model=small", "seed=3", "run.root=a,b", "optim.factor=2"]
    assert expand("train", []) == ([[]], frozenset())
    for bad in ("seed=interval(1,3)", "model=glob(*)", "seed=(", "sede=1,2"):
        with pytest.raises(UserError):
            expand("train", [bad])


def test_sweep_names_hold_what_varies():
    varied = frozenset({"train.threads", "data.target"})
    job = compose("train", ["run.name=x", "train.threads=2", "data.target=fr"], named=varied)
    assert job.run.name == "x-data.target.fr-train.threads.2"


def test_jobs_are_frozen_and_complete_in_yaml():
    job = train_job("data.raw_dir=/a=ü, (b)")
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.optim.factor = 2.0
    read = OmegaConf.create(to_yaml(job))
    for name, _, value in walk(job):
        assert OmegaConf.select(read, name) == (value.name if isinstance(value, Enum) else value)


def test_composing_leaves_no_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    handlers = list(logging.getLogger().handlers)
    train_job()
    assert list(tmp_path.iterdir()) == [] and logging.getLogger().handlers == handlers


def test_tables_hold_known_names():
    assert {name for name, _, _ in walk(TrainJob())} >= HARMLESS
    for command, groups in GROUPS.items():
        assert set(groups) <= {"experiment"} | {name.partition(".")[0] for name in keys(command)}
        assert all(description for group in groups for description in options(group).values())
