"""Which values are rejected, alone and in combination, and which keys may change when a run is resumed."""

from dataclasses import MISSING, replace

import pytest

from mt.commands import COMMANDS
from mt.config.compose import compose
from mt.config.overrides import allowed
from mt.config.rules import HARMLESS, NEEDS, check_limits, check_resumable, limits_in_words, validate
from mt.config.schema import ModelConfig, OptimConfig, Positions, Schedule, TrainConfig, TrainingConfig, walk
from mt.errors import UserError


def train_config(*overrides: str) -> TrainConfig:
    config = compose(COMMANDS["train"], list(overrides))
    assert isinstance(config, TrainConfig)
    return config


@pytest.mark.parametrize(
    ("override", "named", "way_out"),
    [
        ("train.update_tokens=0", "train.update_tokens=0", "at least 1"),
        ("optim.factor=nan", "optim.factor=nan", "greater than 0"),
        ("train.max_minutes=inf", "train.max_minutes=inf", "greater than 0"),
        ("optim.weight_decay=-inf", "optim.weight_decay=-inf", "at least 0"),
        ("model.dropout=1.5", "model.dropout=1.5", "less than 1"),
        ("tokenizer.character_coverage=1.01", "tokenizer.character_coverage=1.01", "greater than 0 and at most 1"),
        ("model.heads=3", "model.d_model=128", "model.heads=3"),
        ("data.target=en", "'en'", "must differ"),
        ("train.devices=0", "train.devices=0", "must be auto or a number of processes, at least 1"),
        ("train.devices=two", "train.devices=two", "must be auto or a number of processes, at least 1"),
        ("decode.nbest=6", "decode.nbest=6", "at most decode.beam_size=5"),
        ("tokenizer.joint=false", "model.tie=all", "tokenizer.joint=true, or model.tie=output"),
        ("train.batch_tokens=513", "train.batch_tokens=513", "at least 514"),
        ("train.max_updates=null", "needs a budget", "train.max_epochs"),
        ("optim.peak_lr=0.1", "optim.peak_lr has no effect with optim.schedule=noam", "optim.schedule=inverse_sqrt"),
        ("model.max_positions=99", "model.max_positions has no effect", "model.positions=learned"),
        ("tokenizer.min_frequency=3", "tokenizer.min_frequency has no effect", "tokenizer.kind=word"),
    ],
)
def test_an_impossible_value_is_refused_in_one_line(override, named, way_out):
    with pytest.raises(UserError) as caught:
        compose(COMMANDS["train"], [override])
    message = str(caught.value)
    assert named in message and way_out in message and "\n" not in message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.d_model=9", "model.heads=3"], "model.d_model=9 must be even"),
        (["tokenizer.model=x", "tokenizer.joint=false", "model.tie=output"], "keep tokenizer.joint=true"),
        (["model.positions=learned", "model.max_positions=256"], "must be greater than data.max_tokens=256"),
        (["tokenizer=word", "tokenizer.sampling=0.1"], "needs tokenizer.kind=sentencepiece"),
    ],
)
def test_values_that_do_not_fit_each_other_are_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        compose(COMMANDS["train"], overrides)


def test_a_key_is_refused_only_where_it_has_no_effect():
    assert train_config("optim.schedule=inverse_sqrt", "optim.peak_lr=0.1").optim.peak_lr == 0.1
    assert train_config("optim=inverse_sqrt", "optim.peak_lr=0.1").optim.peak_lr == 0.1
    assert train_config("tokenizer=word").tokenizer.min_frequency == 2  # from the group's file, not the command line
    assert train_config("model.positions=learned", "model.max_positions=257").model.max_positions == 257


@pytest.mark.parametrize("name", NEEDS)
def test_every_key_that_needs_another_is_refused_without_it(name):
    key, values = NEEDS[name]
    section, _, item = key.partition(".")
    config = TrainConfig(train=TrainingConfig(max_updates=1))
    for value in type(values[0]):
        changed = replace(config, **{section: replace(getattr(config, section), **{item: value})})
        validate(changed)
        if value in values:
            validate(changed, {name})
            continue
        with pytest.raises(UserError, match=f"^{name} has no effect with {key}={value}: leave it out, or set {key}="):
            validate(changed, {name})


def test_a_cooldown_needs_an_end():
    minutes = ["train.max_updates=null", "train.max_minutes=5"]
    with pytest.raises(UserError, match=r"optim\.cooldown is a fraction of train\.max_updates.* or optim\.cooldown=0"):
        compose(COMMANDS["train"], ["optim.cooldown=0.2", *minutes])
    assert train_config("optim.cooldown=0", *minutes).train.max_minutes == 5


@pytest.mark.parametrize("command", ["evaluate", "translate", "average", "export"])
def test_a_checkpoint_must_be_named(command):
    with pytest.raises(UserError, match="checkpoint= is missing"):
        compose(COMMANDS[command], [])


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_defaults_are_within_their_limits(command):
    check_limits(command.config())


def test_limits_in_words_are_those_that_are_checked():
    fields = {name: item for name, item, _ in walk(TrainConfig())}
    assert limits_in_words(fields["model.dropout"]) == "at least 0 and less than 1"
    assert limits_in_words(fields["optim.factor"]) == "greater than 0"
    assert limits_in_words(fields["run.root"]) == ""
    assert allowed(fields["train.max_updates"]) == "a whole number, at least 1, or null"
    for name, item in fields.items():
        limits = item.metadata
        section, _, key = name.rpartition(".")
        for limit, outside in (("low", -1), ("high", 1), ("above", 0), ("below", 0)):
            if limit in limits:
                value = limits[limit] + outside
                config = TrainConfig()
                part = replace(getattr(config, section), **{key: value}) if section else value
                with pytest.raises(UserError, match=f"^{name}={value} must be "):
                    check_limits(replace(config, **{section or key: part}))


def begun(**optim) -> TrainConfig:
    return TrainConfig(train=TrainingConfig(max_updates=100), optim=OptimConfig(**optim))


def test_the_same_settings_resume_without_a_word():
    assert check_resumable("outputs/x", begun(), begun()) == []


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_what_is_harmless_may_change_and_is_reported(name):
    section, _, key = name.partition(".")
    before = begun()
    old = getattr(getattr(before, section), key)
    new = old + 1 if isinstance(old, int) else 1 if old is None and section == "train" else "other"
    now = replace(before, **{section: replace(getattr(before, section), **{key: new})})
    told = [] if section == "run" else [f"{name}: {old} -> {new}"]  # the run's folder is reported anyway
    assert check_resumable("outputs/x", before, now) == told


def test_what_would_be_another_run_is_refused():
    before = begun()
    model, optim = ModelConfig(positions=Positions.learned), OptimConfig(schedule=Schedule.constant)
    now = replace(before, seed=2, model=model, optim=optim, train=TrainingConfig(max_updates=200))
    with pytest.raises(UserError) as caught:
        check_resumable("outputs/x", before, now)
    assert str(caught.value) == (
        "outputs/x has other settings (model.positions: sinusoidal -> learned; optim.schedule: noam ->"
        " constant; seed: 1 -> 2): choose another run.name, or remove the folder"
    )


def test_with_a_cooldown_the_budget_of_updates_is_no_harmless_change():
    before = begun(cooldown=0.5)
    with pytest.raises(UserError, match=r"train\.max_updates: 100 -> 200"):
        check_resumable("outputs/x", before, replace(before, train=TrainingConfig(max_updates=200)))
    check_resumable("outputs/x", before, replace(before, train=TrainingConfig(max_updates=100, max_minutes=1)))


def test_the_tables_hold_known_keys():
    keys = {name: item for name, item, _ in walk(TrainConfig())}
    assert keys.keys() >= HARMLESS
    assert keys.keys() >= NEEDS.keys() | {key for key, _ in NEEDS.values()}
    assert all(isinstance(value, type(keys[key].default)) for key, values in NEEDS.values() for value in values)
    assert all(keys[key].default is not MISSING for key, _ in NEEDS.values())


@pytest.mark.parametrize("name", ["evaluate", "export"])
def test_input_and_reference_go_together(name):
    kind = COMMANDS[name].config
    validate(kind(checkpoint="a"))
    validate(kind(checkpoint="a", input="x", reference="y"))
    for one in ("input", "reference"):
        with pytest.raises(UserError, match="go together"):
            validate(kind(checkpoint="a", **{one: "x"}))
