"""Stored configurations are converted to plain types and back, and invalid files are rejected."""

import json
from dataclasses import replace
from enum import Enum
from pathlib import Path

import pytest
import yaml

from mt.commands import COMMANDS
from mt.config.compose import compose
from mt.config.schema import DataConfig, DecodeConfig, ModelConfig, Norm, TrainConfig, TrainingConfig, walk
from mt.config.stored import RETIRED, from_plain, read_config, to_plain, to_yaml
from mt.errors import UserError

FORMAT_2 = Path(__file__).parents[1] / "fixtures" / "checkpoint-format-2" / "config.yaml"


def test_a_config_survives_the_way_through_plain_types():
    config = replace(TrainConfig(), seed=9, decode=DecodeConfig(beam_size=3), model=ModelConfig(norm=Norm.post))
    assert from_plain(TrainConfig, json.loads(json.dumps(to_plain(config)))) == config
    assert to_plain(config)["model"]["norm"] == "post"


def test_a_config_survives_the_way_through_a_file(tmp_path):
    odd = ["a b", "ü", "${x}", "{a: b}", "- x", "null", "1", "#", "\ud83d\ude00", "a\nb", "'", "\udcff"]
    data = DataConfig(train=odd, dev=[], test={"one": ["a", "b"]}, raw_dir="~")
    config = TrainConfig(data=data, train=TrainingConfig(max_minutes=0.1, max_updates=None), seed=2**40)
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    assert read_config(path) == config


@pytest.mark.parametrize("command", ["train", "prepare"])
def test_yaml_holds_every_key_as_plain_text(command):
    config = compose(COMMANDS[command], ["data.raw_dir=/a=ü, (b)"])
    read = yaml.safe_load(to_yaml(config))
    for name, _, value in walk(config):
        section, _, key = name.rpartition(".")
        stored = read[section][key] if section else read[key]
        expected = value.value if isinstance(value, Enum) else value
        assert (stored, type(stored)) == (expected, type(expected))
    assert "ü" in to_yaml(config) and "!!" not in to_yaml(config)


def test_missing_keys_take_their_defaults():
    assert from_plain(TrainConfig, {}) == TrainConfig()
    assert from_plain(TrainConfig, {"model": {"heads": 2}}) == TrainConfig(model=ModelConfig(heads=2))


def test_a_retired_key_is_dropped():
    assert "decode.engine" in RETIRED
    plain = to_plain(TrainConfig(decode=DecodeConfig(beam_size=3)))
    plain["decode"]["engine"] = "auto"
    read = from_plain(TrainConfig, plain)
    assert read.decode == DecodeConfig(beam_size=3)
    assert plain["decode"]["engine"] == "auto"  # the argument is not modified
    assert "engine" not in to_plain(read)["decode"]


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_a_retired_key_is_no_key(name):
    assert name not in {key for key, _, _ in walk(TrainConfig())}


def test_a_file_with_a_retired_key_is_read(tmp_path):
    plain = yaml.safe_load(FORMAT_2.read_text(encoding="utf-8"))
    plain["decode"]["engine"] = "ctranslate2"
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(plain), encoding="utf-8")
    assert read_config(path) == read_config(FORMAT_2)


@pytest.mark.parametrize(
    "plain",
    [
        {"novelty": 1},
        {"decode": {"novelty": 1}},
        {"model": {"novelty": 1}, "seed": 3},
        {"novelty": {"engine": 1}},
    ],
)
def test_an_unknown_key_is_refused(plain):
    with pytest.raises(UserError, match=r"unknown configuration key 'novelty'.*newer mt"):
        from_plain(TrainConfig, plain)


@pytest.mark.parametrize("plain", [{"engine": "auto"}, {"train": {"engine": "auto"}}])
def test_a_retired_key_is_unknown_anywhere_else(plain):
    with pytest.raises(UserError, match="unknown configuration key 'engine'"):
        from_plain(TrainConfig, plain)


def test_a_key_that_is_no_text_is_unknown():
    with pytest.raises(UserError, match="unknown configuration key 3"):
        from_plain(TrainConfig, {3: 4})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("model", "heads", "two"),
        ("model", "heads", "2"),
        ("model", "heads", 2.0),
        ("model", "heads", True),
        ("model", "heads", None),
        ("model", "dropout", "0.1"),
        ("model", "dropout", False),
        ("tokenizer", "joint", 1),
        ("tokenizer", "joint", "true"),
        ("tokenizer", "symbols", "<x>"),
        ("data", "train", {"a": "b"}),
        ("run", "root", None),
        ("run", "name", 3),
        ("train", "max_updates", 1.5),
        ("train", "max_updates", True),
        ("train", "devices", 2),
    ],
)
def test_a_value_of_another_type_is_refused(section, key, value):
    with pytest.raises(UserError, match=f"^{key}={value!r} has the wrong type$"):
        from_plain(TrainConfig, {section: {key: value}})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("model", "dropout", 0),  # an int is also a float
        ("run", "name", None),
        ("train", "max_minutes", 5),
        ("train", "max_updates", None),
        ("data", "test", ["a", "b"]),
        ("data", "test", {"one": ["a", "b"]}),
    ],
)
def test_a_value_of_one_of_the_types_of_its_key_is_taken(section, key, value):
    read = from_plain(TrainConfig, {section: {key: value}})
    assert getattr(getattr(read, section), key) == value


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"model": 3}, "3 is not a section of a configuration"),
        ({"model": None}, "None is not a section"),
        ([], "is not a section"),
        (None, "None is not a section"),
        ({"model": {"norm": "sideways"}}, "'sideways' is not a valid Norm"),
        ({"model": {"norm": ["pre"]}}, "is not a valid Norm"),
    ],
)
def test_what_is_no_section_or_no_choice_is_refused(plain, message):
    with pytest.raises(UserError, match=message):
        from_plain(TrainConfig, plain)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "None is not a section"),
        (b"a: [", "while parsing"),
        (b"seed: \xff", ""),
        (b"novelty: 1", "unknown configuration key 'novelty'"),
        (b"model: {heads: two}", "heads='two' has the wrong type"),
        (b"model: {heads: 0}", "model.heads=0 must be at least 1"),
        (b"optim: {factor: .nan}", "optim.factor=nan must be greater than 0"),
        (b"seed: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
)
def test_a_file_that_holds_no_config_is_refused_in_one_line(text, message, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(text)
    with pytest.raises(UserError) as caught:
        read_config(path)
    told = str(caught.value)
    assert told.startswith(f"{path} cannot be read: ") and message in told and "\n" not in told


def test_a_missing_file_is_refused_in_one_line(tmp_path):
    with pytest.raises(UserError, match=r"config\.yaml cannot be read: .*No such file"):
        read_config(tmp_path / "config.yaml")
