"""Checkpoints: atomic, whole, opened without running code, and refused in one line where they are not."""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tests_support import save_checkpoint

from mt.checkpoint import Checkpoint, hash_file
from mt.config import DecodeConfig, Device, ModelConfig, Precision, TrainJob
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.jobs import from_plain, to_plain
from mt.model.transformer import Transformer
from mt.runtime.device import start
from mt.training.schedule import make_optimizer
from mt.training.state import Progress, Recent, restore, training_state


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
    """As somebody would who also mends the sums."""
    (folder / name).write_text(text)
    meta = json.loads((folder / "meta.json").read_text())
    meta["hashes"][name] = hash_file(folder / name)
    (folder / "meta.json").write_text(json.dumps(meta))


def damage(folder, what):
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
    elif what == "changed tokenizer":  # which may still be one
        path = folder / "tokenizer.json"
        path.write_text(path.read_text().replace("en", "fr"))
    else:
        other = Checkpoint.open(folder)
        job = replace(other.config, model=ModelConfig(d_model=8, heads=2))
        rewrite(folder, "config.yaml", yaml.safe_dump(to_plain(job)))


def open_all(folder):
    opened = Checkpoint.open(folder)
    opened.load_tokenizers()
    opened.load_model()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("truncated weights", "damaged"),
        ("changed weights", "damaged"),
        ("no weights", "model.safetensors cannot be read"),
        ("meta is no json", "meta.json cannot be read"),
        ("newer format", "format 99, this mt reads 2: upgrade mt"),
        ("changed configuration", "config.yaml is damaged"),
        ("unknown key", "novelty"),
        ("impossible number", "model.heads=0"),
        ("wrong type", "heads='two'"),
        ("config is no yaml", "config.yaml cannot be read"),
        ("no tokenizer", "tokenizer.model"),
        ("changed tokenizer", "tokenizer.json is damaged"),
        ("older format", "format 1, this mt reads 2: use the mt that wrote it"),
        ("another model's configuration", "shape|on one side only"),
    ],
)
def test_damage_is_told_in_one_line(store, toy_model, toy_tokenizers, what, said):
    folder = save_checkpoint(store, toy_model, toy_tokenizers, 1)
    damage(folder, what)
    with pytest.raises(UserError, match=said) as error:
        open_all(folder)
    assert "\n" not in str(error.value)


def test_a_missing_or_empty_folder_is_told(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        Checkpoint.open(tmp_path / "none")
    with pytest.raises(UserError, match="no checkpoint in it"):
        Checkpoint.open(tmp_path)


class Crafted:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_crafted_training_state_runs_nothing(store, toy_model, toy_tokenizers, tmp_path):
    folder = save_checkpoint(store, toy_model, toy_tokenizers, 1, state={})
    (folder / "training_state.pt").write_bytes(pickle.dumps(Crafted(str(tmp_path / "pwned"))))
    meta = json.loads((folder / "meta.json").read_text())
    meta["hashes"]["training_state.pt"] = hash_file(folder / "training_state.pt")
    (folder / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match="cannot be read"):
        Checkpoint.open(folder).load_state()
    assert not (tmp_path / "pwned").exists()


def test_training_state_loads_where_mt_was_never_imported(store, toy_model, toy_tokenizers):
    runtime = cpu()
    optimizer = make_optimizer(toy_model, TrainJob().optim)
    toy_model.logits(toy_model(torch.tensor([[5, 3]]), torch.tensor([[2]]))).sum().backward()
    optimizer.step()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    progress = Progress(validated=[(1, 2.0)], best=(1.0, -2.0))
    state = training_state(progress, Recent(nll=1.5), optimizer, scaler, runtime, {"metrics.jsonl": 10})
    folder = save_checkpoint(store, toy_model, toy_tokenizers, 1, state=state)
    code = "import sys, torch; torch.load(sys.argv[1]); assert not [n for n in sys.modules if n.split('.')[0] == 'mt']"
    subprocess.run([sys.executable, "-c", code, str(folder / "training_state.pt")], check=True)


def test_a_job_survives_the_way_through_plain_types():
    job = replace(TrainJob(), seed=9, decode=DecodeConfig(beam_size=3))
    assert from_plain(TrainJob, json.loads(json.dumps(to_plain(job)))) == job


def test_weights_of_another_vocabulary_are_refused(store, toy_model, toy_tokenizers):
    other = Transformer(toy_model.config, 50, 50)
    folder = save_checkpoint(store, other, toy_tokenizers, 1)
    with pytest.raises(UserError, match="shape"):
        Checkpoint.open(folder).load_model()


FIXTURES = Path(__file__).parent / "fixtures"
FORMAT_2 = [
    ("likes a bird big red likes bird", "mag Vogel Vogel Vogel Vogel groß Vogel"),
    ("sees and cat big dog bird dog", "groß Vogel Hund Katze und sieht"),
    ("and bird big here", "hier groß und"),
]


def cpu():
    return start(Device.cpu, Precision.fp32, torch.get_num_threads())


def test_a_checkpoint_of_format_2_loads_for_ever():
    """Made once, never made again: what it holds is translated as then, and a training could go on from it."""
    folder = FIXTURES / "checkpoint-format-2"
    checkpoint = Checkpoint.open(folder)
    translator = Translator(checkpoint.load_model(), checkpoint.load_tokenizers(), checkpoint.config.decode, cpu())
    for source, translation in FORMAT_2:
        assert translator.translate([source]) == [translation]
    optimizer = make_optimizer(checkpoint.load_model(), checkpoint.config.optim)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    progress, _, processes = restore(checkpoint.load_state(), 1, optimizer, scaler, cpu())
    assert (progress.update, processes, len(optimizer.state)) == (700, 1, len(optimizer.param_groups[0]["params"]))
