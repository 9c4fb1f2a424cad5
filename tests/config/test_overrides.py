"""Overrides after a command: mistakes are reported in one line, and sweeps are expanded."""

import pytest

from mt.commands import COMMANDS
from mt.config.compose import compose
from mt.config.overrides import expand_sweep, options, parse_override
from mt.config.schema import ExportType, Optimizer
from mt.errors import UserError

TRAIN = COMMANDS["train"]

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
    ("+optim.foo=1", "+optim.foo=1", "cannot be added or removed"),
    ("~optim.factor", "~optim.factor", "cannot be added or removed"),
    ("data@other=files", "data@other", "did you mean data?"),
    ("train.update_tokens=abc", "train.update_tokens=abc", "a whole number, at least 1"),
    ("train.update_tokens=1.5", "train.update_tokens=1.5", "a whole number"),
    ("train.update_tokens=null", "train.update_tokens=null", "a whole number"),
    ("seed=true", "seed=true", "a whole number"),
    ("optim.factor=", "optim.factor=", "a number"),
    ("optim.factor=true", "optim.factor=true", "a number"),
    ("optim.factor=a(b", "optim.factor=a(b", "two pairs of quotes"),
    ("seed==3", "seed==3", "two pairs of quotes"),
    ("data.source=ü", "data.source=ü", "'data.source=\"ü\"'"),
    ("tokenizer.joint=1", "tokenizer.joint=1", "true or false"),
    ("optim.name=adm", "adam, adamw, sgd", "did you mean adam?"),
    ("data.train=a.en,a.de", "data.train=a.en,a.de", "'data.train=[a.en,a.de]'"),
    ("data.train=", "data.train=", "a list"),
    ("data.test={a}", "data.test={a}", "{name: [a,b]"),
    ("run.root=", "run.root=", "empty"),
    ("train=5", "train=5", "no key 'train'"),
]


@pytest.mark.parametrize(("override", "named", "way_out"), MISTAKES)
def test_a_mistake_is_one_line_that_names_it(override, named, way_out):
    with pytest.raises(UserError) as caught:
        compose(TRAIN, [override])
    message = str(caught.value)
    assert named in message and way_out in message and "\n" not in message
    with pytest.raises(UserError) as again:  # before anything is composed
        parse_override(TRAIN, override)
    assert str(again.value) == message


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("model=tiny", "tiny"),
        ("model='tiny'", "tiny"),
        ("optim.factor=2", 2.0),
        ("optim.factor=.5", 0.5),
        ("train.max_updates=null", None),
        ("tokenizer.joint=false", False),
        ("optim.name=sgd", Optimizer.sgd),
        ("data.source='de'", "de"),
        ("run.root=a=b ${c}", "a=b ${c}"),
        ("data.train=['a,b.en', b.de]", ["a,b.en", "b.de"]),
        ("data.test={x: a.tsv}", {"x": ["a.tsv"]}),
        ("tokenizer.symbols=[~/a]", ["~/a"]),
    ],
)
def test_values_have_the_type_of_their_key(override, value):
    key, parsed = parse_override(TRAIN, override)
    assert key == override.partition("=")[0]
    assert (parsed, type(parsed)) == (value, type(value))


def test_a_key_belongs_to_a_command():
    assert parse_override(COMMANDS["export"], "type=int8") == ("type", ExportType.int8)
    with pytest.raises(UserError, match=r"mt export has no key 'decode\.beam_size'"):
        parse_override(COMMANDS["export"], "decode.beam_size=2")
    with pytest.raises(UserError, match="mt evaluate has no key 'model'"):
        parse_override(COMMANDS["evaluate"], "model=tiny")


def test_sweep_expands_all_combinations():
    lines, varied = expand_sweep(TRAIN, ["model=tiny,small", "seed=range(1,4)", "run.root=a,b", "optim.factor=2"])
    assert len(lines) == 6 and varied == {"model", "seed"}
    assert lines[0] == ["model=tiny", "seed=1", "run.root=a,b", "optim.factor=2"]
    assert lines[-1] == ["model=small", "seed=3", "run.root=a,b", "optim.factor=2"]
    assert expand_sweep(TRAIN, []) == ([[]], frozenset())
    for bad in ("seed=interval(1,3)", "model=glob(*)", "seed=(", "sede=1,2"):
        with pytest.raises(UserError):
            expand_sweep(TRAIN, [bad])


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_groups_are_sections_of_the_configuration_and_described(command):
    assert set(command.groups) <= {"experiment"} | {name.partition(".")[0] for name in command.keys}
    assert all(description for group in command.groups for description in options(group).values())
    if rule := command.inherited:
        sections = {name.partition(".")[0] for name in command.keys}
        assert rule.key in command.keys and set(rule.sections) <= sections and set(rule.but) <= command.keys.keys()
