"""The keys of a configuration."""

import dataclasses
from enum import EnumMeta
from pathlib import Path

import pytest

from mt.commands import COMMANDS
from mt.config import schema
from mt.config.schema import Corpus, DataConfig, RunConfig, TrainConfig, walk


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_configs_are_frozen(command):
    config = command.config()
    for item in dataclasses.fields(config):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, item.name, None)
    for name, _, _ in walk(config):
        section, _, key = name.rpartition(".")
        if section:
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(getattr(config, section), key, None)


def test_walk_gives_every_key_once_in_order():
    names = [name for name, _, _ in walk(TrainConfig())]
    assert len(names) == len(set(names))
    assert (names[:3], names[-1]) == (["run.name", "run.root", "seed"], "decode.batch_tokens")
    values = {name: value for name, _, value in walk(TrainConfig(seed=7, run=RunConfig(name="x")))}
    assert (values["seed"], values["run.name"], values["data.corpus"]) == (7, "x", Corpus.multi30k)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_key_says_what_it_means(command):
    assert all(item.metadata["help"] for item in command.keys.values())


def test_lists_by_default_are_shared_by_nobody():
    DataConfig().train.append("x")
    assert DataConfig().train == []


def test_choices_are_their_own_text():
    choices = [
        kind for kind in vars(schema).values() if isinstance(kind, EnumMeta) and kind.__module__ == "mt.config.schema"
    ]
    assert len(choices) > 10
    for member in (member for kind in choices for member in kind):
        assert str(member) == member.value == member.name


@pytest.mark.parametrize(
    ("data", "folder"),
    [
        (DataConfig(), "data/raw/multi30k"),
        (DataConfig(corpus=Corpus.captions, source="de", target="en"), "data/raw/captions"),
        (DataConfig(corpus=Corpus.wmt14), "data/raw/wmt14_en_de"),
        (DataConfig(corpus=Corpus.wmt14, source="fr", target="en"), "data/raw/wmt14_en_fr"),
        (DataConfig(corpus=Corpus.wmt14, raw_dir="x"), "x"),
    ],
)
def test_the_raw_folder_is_that_of_the_corpus_in_both_directions(data, folder):
    assert data.raw_folder == folder


def test_a_run_has_a_folder_once_it_has_a_name():
    assert RunConfig(name="x", root="/y").folder == Path("/y/x")
    with pytest.raises(AssertionError):
        _ = RunConfig().folder
