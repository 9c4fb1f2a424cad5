"""Checkpoints load without running code, and are rejected in one line if they are corrupt."""

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tests_support import save_checkpoint

from mt.checkpoint.folder import Checkpoint
from mt.config.schema import Device, ModelConfig, Precision
from mt.config.stored import to_plain
from mt.decoding.translator import Translator
from mt.errors import Corrupt, UserError
from mt.files import sha256_of
from mt.model.transformer import Transformer
from mt.runtime.device import start_runtime


def test_a_model_comes_back_with_its_ties_configuration_and_tokenizers(store, toy_model, toy_tokenizers):
    folder = save_checkpoint(store, toy_model, toy_tokenizers, 3, state={"number": 5})
    opened = Checkpoint.open(folder)
    model = opened.load_model()
    assert not model.training
    assert model.output.weight is model.source_embedding.tokens.weight is model.target_embedding.tokens.weight
    for name, parameter in toy_model.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name))
    assert len(load_file(folder / "model.safetensors")) == len(list(toy_model.named_parameters()))
    assert opened.config.model == toy_model.config
    assert opened.load_state() == {"number": 5}
    line = "the dog sees a cat"
    assert (
        opened.load_tokenizers().source.encode([line])[0].tolist() == toy_tokenizers.source.encode([line])[0].tolist()
    )
    assert opened.config.decode.beam_size == 7


def rewrite(folder, name, text):
    """Change a file of a checkpoint, and update its hash."""
    (folder / name).write_text(text)
    meta = json.loads((folder / "meta.json").read_text())
    meta["hashes"][name] = sha256_of(folder / name)
    (folder / "meta.json").write_text(json.dumps(meta))


def corrupt(folder, what):
    if what == "truncated weights":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
    elif what == "changed weights":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    elif what == "no weights":
        (folder / "model.safetensors").unlink()
    elif what == "meta is no json":
        (folder / "meta.json").write_text("{")
    elif what in ("newer format", "older format"):
        number = 99 if what == "newer format" else 1
        meta = json.loads((folder / "meta.json").read_text())
        (folder / "meta.json").write_text(json.dumps(meta | {"format": number}))
    elif what == "changed configuration":
        (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + "novelty: 1\n")
    elif what == "unknown key":
        rewrite(folder, "config.yaml", (folder / "config.yaml").read_text() + "novelty: 1\n")
    elif what == "config is no yaml":
        rewrite(folder, "config.yaml", "a: [")
    elif what == "impossible number":
        rewrite(folder, "config.yaml", (folder / "config.yaml").read_text().replace("heads: 2", "heads: 0"))
    elif what == "wrong type":
        rewrite(folder, "config.yaml", (folder / "config.yaml").read_text().replace("heads: 2", "heads: two"))
    elif what == "no tokenizer":
        (folder / "tokenizer.model").unlink()
    elif what == "changed tokenizer":  # it may still be valid
        path = folder / "tokenizer.json"
        path.write_text(path.read_text().replace("en", "fr"))
    else:
        other = Checkpoint.open(folder)
        config = replace(other.config, model=ModelConfig(d_model=8, heads=2))
        rewrite(folder, "config.yaml", yaml.safe_dump(to_plain(config)))


def open_all(folder):
    load_all(Checkpoint.open(folder))


def load_all(opened):
    opened.load_tokenizers()
    opened.load_model()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("truncated weights", "corrupt"),
        ("changed weights", "corrupt"),
        ("no weights", "model.safetensors cannot be read"),
        ("meta is no json", "meta.json cannot be read"),
        ("newer format", "format 99, but this mt reads 2: upgrade mt"),
        ("changed configuration", "config.yaml is corrupt"),
        ("unknown key", "novelty"),
        ("impossible number", "model.heads=0"),
        ("wrong type", "heads='two'"),
        ("config is no yaml", "config.yaml cannot be read"),
        ("no tokenizer", "tokenizer.model"),
        ("changed tokenizer", "tokenizer.json is corrupt"),
        ("older format", "format 1, but this mt reads 2: use the mt that wrote it"),
        ("another model's configuration", "shape|only one of them has"),
    ],
)
def test_a_corrupt_checkpoint_is_refused_in_one_line(store, toy_model, toy_tokenizers, what, said):
    folder = save_checkpoint(store, toy_model, toy_tokenizers, 1)
    corrupt(folder, what)
    with pytest.raises(UserError, match=said) as error:
        open_all(folder)
    assert "\n" not in str(error.value)


def test_a_missing_or_empty_folder_is_no_checkpoint(tmp_path):
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(Corrupt, match=r"meta\.json cannot be read"):
            Checkpoint.open(folder)


class Crafted:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_crafted_training_state_runs_nothing(store, toy_model, toy_tokenizers, tmp_path):
    folder = save_checkpoint(store, toy_model, toy_tokenizers, 1, state={})
    (folder / "training_state.pt").write_bytes(pickle.dumps(Crafted(str(tmp_path / "pwned"))))
    meta = json.loads((folder / "meta.json").read_text())
    meta["hashes"]["training_state.pt"] = sha256_of(folder / "training_state.pt")
    (folder / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match="cannot be read"):
        Checkpoint.open(folder).load_state()
    assert not (tmp_path / "pwned").exists()


def test_a_checkpoint_without_training_state_has_none_to_load(store, toy_model, toy_tokenizers):
    folder = save_checkpoint(store, toy_model, toy_tokenizers, 1)
    with pytest.raises(Corrupt, match=r"training_state\.pt cannot be read"):
        Checkpoint.open(folder).load_state()


def test_each_file_is_hashed_once(store, toy_model, toy_tokenizers, monkeypatch):
    folder = save_checkpoint(store, toy_model, toy_tokenizers, 1, state={})
    hashed = []

    def counted(path):
        hashed.append(path.name)
        return sha256_of(path)

    monkeypatch.setattr("mt.files.sha256_of", counted)
    opened = Checkpoint.open(folder)
    assert hashed == ["config.yaml"]
    load_all(opened)
    opened.load_state()
    opened.verify()
    opened.load_weights()
    assert sorted(hashed) == sorted(path.name for path in folder.iterdir() if path.name != "meta.json")


def test_weights_of_another_vocabulary_are_refused(store, toy_model, toy_tokenizers):
    other = Transformer(toy_model.config, 50, 50)
    folder = save_checkpoint(store, other, toy_tokenizers, 1)
    with pytest.raises(UserError, match="shape"):
        Checkpoint.open(folder).load_model()


FIXTURES = Path(__file__).parent.parent / "fixtures"
FORMAT_2 = [
    ("likes a bird big red likes bird", "mag Vogel Vogel Vogel Vogel groß Vogel"),
    ("sees and cat big dog bird dog", "groß Vogel Hund Katze und sieht"),
    ("and bird big here", "hier groß und"),
]


def test_a_checkpoint_of_format_2_loads_for_ever():
    """The checkpoint is never regenerated, and must give the same translations as when it was written."""
    checkpoint = Checkpoint.open(FIXTURES / "checkpoint-format-2")
    checkpoint.verify()
    runtime = start_runtime(Device.cpu, Precision.fp32, torch.get_num_threads())
    translator = Translator.of(checkpoint, None, runtime)
    assert translator.decode == checkpoint.config.decode
    for source, translation in FORMAT_2:
        assert translator.translate([source]) == [translation]
